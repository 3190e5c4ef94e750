"""One member of a group of KIP-848, in memory."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from pqbroker.broker.services.coordination.classic.memory import member_bytes, text_bytes
from pqbroker.storage.tablets.modern_group_rows import (
    CurrentAssignment,
    PartitionEpochs,
    Subscription,
    TopicIndexes,
)

TOPIC_BYTES = 64
"""Bytes that a topic takes in a subscription beside its name, and in an assignment beside its partitions."""
_PARTITION_BYTES = 8


@dataclass(slots=True, eq=False)
class ModernMember:
    """A member, alive until `session_deadline_ms`."""

    member_id: str
    subscription: Subscription
    current: CurrentAssignment
    target: TopicIndexes = field(default_factory=dict)
    """Partitions that it is to have."""
    session_deadline_ms: int = 0
    step_deadline_ms: int | None = None
    """Time until which it has to let go what is revoked in its epoch; until which one of the classic protocol has to
    join again, or to sync."""
    counted_bytes: int = 0
    """Bytes that the group counts for the member, without its assignment."""
    assignment_bytes: int = 0
    """Bytes that the group counts for its assignment."""

    @property
    def metadata_bytes(self) -> int:
        return subscription_bytes(self.member_id, self.subscription)

    @property
    def deadline_ms(self) -> int:
        """Return the first time at which it is removed unless something happens before."""
        if self.step_deadline_ms is None:
            return self.session_deadline_ms
        return min(self.session_deadline_ms, self.step_deadline_ms)


def subscription_bytes(member_id: str, subscription: Subscription) -> int:
    """Return the bytes that a member takes without its assignment."""
    texts = (
        member_id, subscription.instance_id, subscription.rack_id, subscription.client_id, subscription.client_host,
        subscription.expression, subscription.assignor,
    )  # fmt: skip
    classic = subscription.classic
    size = member_bytes(texts, () if classic is None else classic.protocols)
    return size + topics_bytes(subscription.topics)


def topics_bytes(names: Iterable[str]) -> int:
    """Return the bytes that names of topics take."""
    return sum(TOPIC_BYTES + text_bytes(name) for name in names)


def assigned_bytes(current: CurrentAssignment, target: TopicIndexes) -> int:
    """Return the bytes that a member's assignment and target take."""
    return sum(_bytes(partitions) for partitions in (current.assigned, current.revoking, target))


def _bytes(partitions: PartitionEpochs | TopicIndexes) -> int:
    return sum(TOPIC_BYTES + _PARTITION_BYTES * len(indexes) for indexes in partitions.values())
