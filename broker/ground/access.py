"""Callers and what they may do: the one place where a request is allowed or refused.

A resource is a topic, a group, a transactional id or the cluster; operations and codes are Kafka's. An operation
is checked where it is done; `services.topics.finding` checks as it looks up.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from pqbroker.protocol.errors import ErrorCode, KafkaError

N = TypeVar("N")


@dataclass(frozen=True, slots=True)
class Principal:
    """The user behind a connection, as Kafka writes it: `User:ANONYMOUS`."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


ANONYMOUS: Final = Principal("User", "ANONYMOUS")


class AclOperation(IntEnum):
    """Actions of a caller on a resource, in Kafka's codes."""

    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12


class AclKind(IntEnum):
    """Kinds of resources, in Kafka's codes."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5


class AclResource(NamedTuple):
    """One topic, group, transactional id, or the cluster."""

    kind: AclKind
    name: str

    def __str__(self) -> str:
        return "the cluster" if self.kind is AclKind.CLUSTER else f"{self.kind.name.lower()} {self.name}"


CLUSTER: Final = AclResource(AclKind.CLUSTER, "kafka-cluster")
_REFUSALS: Final[Mapping[AclKind, ErrorCode]] = {
    AclKind.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    AclKind.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    AclKind.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    AclKind.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}


class Access(Protocol):
    """Decides which principal may do what."""

    def allows(self, principal: Principal, operation: AclOperation, resource: AclResource) -> bool: ...


class Guarded(Protocol):
    """A node, as far as access to it goes."""

    @property
    def access(self) -> Access | None:
        """Decides who may do what; None: everybody everything."""


class Asker(Protocol):
    """A caller of a node."""

    @property
    def node(self) -> Guarded: ...
    @property
    def principal(self) -> Principal: ...


@dataclass(frozen=True, slots=True)
class DirectCaller(Generic[N]):
    """Somebody who calls services of a node without a request."""

    node: N
    principal: Principal = ANONYMOUS


def is_allowed(caller: Asker, operation: AclOperation, resource: AclResource = CLUSTER) -> bool:
    access = caller.node.access
    return access is None or access.allows(caller.principal, operation, resource)


def check_access(caller: Asker, operation: AclOperation, resource: AclResource = CLUSTER) -> None:
    """KafkaError TOPIC_, GROUP_, CLUSTER_ or TRANSACTIONAL_ID_AUTHORIZATION_FAILED."""
    if not is_allowed(caller, operation, resource):
        message = f"{caller.principal} has no permission for {operation.name} on {resource}"
        raise KafkaError(_REFUSALS[resource.kind], message)
