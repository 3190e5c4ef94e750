"""Operations that a caller may do with a resource (KIP-430): of those that Kafka knows for it, the allowed ones.

Bits are numbered by Kafka's codes of operations. A program takes the value for the set of actions that it may offer.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from pqbroker.broker.ground.access import CLUSTER, AclKind, AclOperation, AclResource, is_allowed
from pqbroker.broker.services.topics.callers import Caller

_KNOWN: Final[Mapping[AclKind, tuple[AclOperation, ...]]] = {
    AclKind.TOPIC: (
        AclOperation.READ, AclOperation.WRITE, AclOperation.CREATE, AclOperation.DELETE, AclOperation.ALTER,
        AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS,
    ),
    AclKind.GROUP: (
        AclOperation.READ, AclOperation.DELETE, AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
    ),
    AclKind.CLUSTER: (
        AclOperation.CREATE, AclOperation.ALTER, AclOperation.DESCRIBE, AclOperation.CLUSTER_ACTION,
        AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS, AclOperation.IDEMPOTENT_WRITE,
    ),
}  # fmt: skip


def _bits(operations: Iterable[AclOperation]) -> int:
    return sum(1 << operation for operation in operations)


_EVERY: Final = {kind: _bits(operations) for kind, operations in _KNOWN.items()}


def authorized_operations(caller: Caller, resource: AclResource = CLUSTER) -> int:
    """Return the allowed operations as the field of that name in a response has them."""
    if caller.node.access is None:
        return _EVERY[resource.kind]
    if resource is CLUSTER and not is_allowed(caller, AclOperation.DESCRIBE):
        return 0  # as in Kafka
    return _bits(operation for operation in _KNOWN[resource.kind] if is_allowed(caller, operation, resource))
