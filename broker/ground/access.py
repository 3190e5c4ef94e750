"""Callers and what they may do: the one place where a request is allowed or refused.

A resource is a topic, a group, a transactional id or the cluster; operations and codes are Kafka's. An operation
is checked where it is done; `services.topics.finding` checks as it looks up.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from pqbroker.broker.ground.audit import AuditFacts, AuditLog
from pqbroker.protocol.errors import ErrorCode, KafkaError

N = TypeVar("N")


class Principal(NamedTuple):
    """The user behind a connection, as Kafka writes it: `User:ANONYMOUS`."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


ANONYMOUS: Final = Principal("User", "ANONYMOUS")


class AclOperation(IntEnum):
    """Actions of a caller on a resource, in Kafka's codes. ALL stands in rules alone."""

    ALL = 2
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
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class AclKind(IntEnum):
    """Kinds of resources, in Kafka's codes."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


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
    AclKind.DELEGATION_TOKEN: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    AclKind.USER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
}


class Access(Protocol):
    """Decides which principal may do what, from where. `host` is the address of the client, empty where a part of the
    broker asks."""

    @property
    def revision(self) -> int:
        """Return a number that changes whenever a decision may differ from one before."""

    def allows(self, principal: Principal, host: str, operation: AclOperation, resource: AclResource) -> bool: ...
    def allows_any(self, principal: Principal, host: str, operation: AclOperation, kind: AclKind) -> bool:
        """Return True if there may be a resource of this kind that the operation is allowed on (KIP-679)."""


class Guarded(Protocol):
    """A node, as far as access to it goes."""

    @property
    def access(self) -> Access | None:
        """Decides who may do what; None: everybody everything."""

    @property
    def audit(self) -> AuditLog | None:
        """Return the audit log; None: there is none."""


class Asker(Protocol):
    """A caller of a node."""

    @property
    def node(self) -> Guarded: ...
    @property
    def principal(self) -> Principal: ...
    @property
    def host(self) -> str:
        """Address that the caller calls from; empty for a part of the broker."""


@dataclass(frozen=True, slots=True)
class DirectCaller(Generic[N]):
    """Somebody who calls services of a node without a request."""

    node: N
    principal: Principal = ANONYMOUS
    host: str = ""


LOGIN: Final = "LOGIN"
"""Operation of the audit log's lines of logins."""
_CHANGES: Final = frozenset((
    AclOperation.CREATE, AclOperation.DELETE, AclOperation.ALTER, AclOperation.ALTER_CONFIGS,
    AclOperation.CLUSTER_ACTION,
))  # fmt: skip
"""Operations that the audit log says where they are allowed, too."""


def audit_change(caller: Asker, what: str, on: str, detail: str) -> None:
    """Have the audit log say what a change that was allowed came to."""
    audit = caller.node.audit
    if audit is not None:
        audit.tell(AuditFacts(str(caller.principal), caller.host, what, on, is_allowed=True, detail=detail))


def audit_login(caller: Asker, on: str, mechanism: str, *, refusal: str | None = None) -> None:
    """Have the audit log say who logged in where, and by what; `refusal`: why nobody did. A name that was not proved is
    no principal: it stands in the refusal."""
    audit = caller.node.audit
    if audit is not None:
        who, detail = (caller.principal, mechanism) if refusal is None else (ANONYMOUS, f"{mechanism}: {refusal}")
        audit.tell(AuditFacts(str(who), caller.host, LOGIN, on, refusal is None, detail))


def is_allowed(caller: Asker, operation: AclOperation, resource: AclResource = CLUSTER) -> bool:
    access = caller.node.access
    return access is None or access.allows(caller.principal, caller.host, operation, resource)


def is_allowed_on_any(caller: Asker, operation: AclOperation, kind: AclKind) -> bool:
    """Return True if there may be a resource of this kind that the operation is allowed on."""
    access = caller.node.access
    return access is None or access.allows_any(caller.principal, caller.host, operation, kind)


def check_access(caller: Asker, operation: AclOperation, resource: AclResource = CLUSTER) -> None:
    """KafkaError TOPIC_, GROUP_, CLUSTER_ or TRANSACTIONAL_ID_AUTHORIZATION_FAILED."""
    node = caller.node
    access, audit = node.access, node.audit
    allowed = access is None or access.allows(caller.principal, caller.host, operation, resource)
    if audit is not None and (not allowed or operation in _CHANGES or audit.says_everything):
        audit.tell(AuditFacts(str(caller.principal), caller.host, operation.name, str(resource), allowed))
    if not allowed:
        message = f"{caller.principal} has no permission for {operation.name} on {resource}"
        raise KafkaError(_REFUSALS[resource.kind], message)
