"""Who calls, and what the caller may do: the one place where a request is allowed or refused, and finds its topic.

A resource is a topic, a group, a transactional id or the cluster; operations and codes are Kafka's. A handler checks
what it does where it does it; `find_topic` and `every_topic` check as they look up.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from pqbroker.broker.apis.partitions import unknown_topic, unknown_topic_id
from pqbroker.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from pqbroker.broker.apis.context import Node
    from pqbroker.pq.serving.topic import Topic


@dataclass(frozen=True, slots=True)
class Principal:
    """The user behind a connection, as Kafka writes it: `User:ANONYMOUS`."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


ANONYMOUS: Final = Principal("User", "ANONYMOUS")


class AclOperation(IntEnum):
    """What a caller does with a resource, in Kafka's codes."""

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
    """What kind of thing a resource is, in Kafka's codes."""

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


class Caller(Protocol):
    """Whoever asks: a request over Kafka's protocol (`Context`), over HTTP (`Call`), or through a door of its own
    (`DirectCaller`)."""

    @property
    def node(self) -> "Node": ...
    @property
    def principal(self) -> Principal: ...


@dataclass(frozen=True, slots=True)
class DirectCaller:
    """Somebody who calls services without a request."""

    node: "Node"
    principal: Principal = ANONYMOUS


def is_allowed(caller: Caller, operation: AclOperation, resource: AclResource = CLUSTER) -> bool:
    access = caller.node.access
    return access is None or access.allows(caller.principal, operation, resource)


def check_access(caller: Caller, operation: AclOperation, resource: AclResource = CLUSTER) -> None:
    """KafkaError TOPIC_, GROUP_, CLUSTER_ or TRANSACTIONAL_ID_AUTHORIZATION_FAILED."""
    if not is_allowed(caller, operation, resource):
        message = f"{caller.principal} has no permission for {operation.name} on {resource}"
        raise KafkaError(_REFUSALS[resource.kind], message)


def check_creation(caller: Caller, topic: str) -> None:
    """Topics are created by whom the cluster, or a rule for the topic's name, allows it: TOPIC_AUTHORIZATION_FAILED."""
    if not is_allowed(caller, AclOperation.CREATE):
        check_access(caller, AclOperation.CREATE, AclResource(AclKind.TOPIC, topic))


def find_topic(
    caller: Caller,
    operation: AclOperation | None,
    name: str | None,
    topic_id: bytes | None = None,
    *,
    or_static: bool = False,
) -> "Topic":
    """The topic of an id, where one is given, or of a name. `operation` None: the cluster was asked already.
    `or_static`: a static table has the name too.

    KafkaError UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION, TOPIC_AUTHORIZATION_FAILED; the last of a name that no
    topic has too, so that the answer does not give away which names there are.
    """
    node, topics = caller.node, caller.node.cell.current.topics
    topic = topics.get(name or "", or_static=or_static) if topic_id is None else topics.by_id(topic_id)
    if node.access is not None and operation is not None and (topic is not None or topic_id is None):
        found = name or "" if topic is None else topic.record.name
        check_access(caller, operation, AclResource(AclKind.TOPIC, found))
    if topic is None:
        raise unknown_topic(name) if topic_id is None else unknown_topic_id()
    return topic


def every_topic(
    caller: Caller, operation: AclOperation | None, names: Iterable[str] | None = None, *, or_static: bool = False
) -> "list[Topic]":
    """Every topic that the caller may use so; those of some names alone, where they are given.

    `operation` None: the cluster was asked already. `or_static`: static tables too.
    """
    topics = caller.node.cell.current.topics
    return [
        topic
        for name in (topics.names(or_static=or_static) if names is None else names)
        if (topic := topics.get(name, or_static=or_static)) is not None
        and (operation is None or is_allowed(caller, operation, AclResource(AclKind.TOPIC, name)))
    ]
