"""Members leave: for good, or for a while as static members do; those that are overdue are removed the same way."""

from collections.abc import Collection
from dataclasses import replace
from typing import NamedTuple

from pqbroker.broker.services.coordination.modern.group import ModernGroup
from pqbroker.broker.services.coordination.modern.member import ModernMember
from pqbroker.broker.services.coordination.modern.membership import known_static
from pqbroker.broker.services.coordination.modern.messages import HeartbeatAnswer, KnownTopics, MemberHeartbeat
from pqbroker.broker.services.coordination.modern.topics_read import topics_hash
from pqbroker.storage.tablets.modern_group_rows import LEFT_STATIC


class Departure(NamedTuple):
    """Answer to a member that leaves, and the members that are to be removed."""

    answer: HeartbeatAnswer
    removed: tuple[str, ...]


def leave(group: ModernGroup, request: MemberHeartbeat) -> Departure:
    """Keep the place of a static member that will come back; others are to be removed by the caller. KafkaError
    UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID."""
    if request.instance_id is None:
        member = group.known_member(request.member_id)
    else:
        member = known_static(group, request.member_id, request.instance_id)
        if request.epoch == LEFT_STATIC:
            _keep_place(group, member)
            return Departure(HeartbeatAnswer(member.member_id, LEFT_STATIC), ())
    return Departure(HeartbeatAnswer(request.member_id, request.epoch), (member.member_id,))


def remove(group: ModernGroup, member_ids: Collection[str], topics: KnownTopics) -> None:
    """Remove members; the others share their partitions from the next epoch on."""
    for member_id in member_ids:
        group.remove(member_id)
    group.topics_version = topics.version
    group.raise_epoch(topics_hash(group, topics))


def _keep_place(group: ModernGroup, member: ModernMember) -> None:
    current = member.current
    assigned = {topic_id: dict.fromkeys(epochs, 0) for topic_id, epochs in current.assigned.items()}
    group.place(member, replace(current, epoch=LEFT_STATIC, assigned=assigned, revoking={}))
    member.step_deadline_ms = None
