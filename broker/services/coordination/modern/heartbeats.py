"""A heartbeat: a member joins, says what it reads and owns, and learns what it is to read (KIP-848).

What is checked, and in which order, is as in Apache Kafka 4.3.
"""

from pqbroker.broker.services.coordination.modern import targets
from pqbroker.broker.services.coordination.modern.group import ModernGroup
from pqbroker.broker.services.coordination.modern.member import ModernMember
from pqbroker.broker.services.coordination.modern.membership import (
    check_bytes,
    check_size,
    enter,
    known_static,
    lead,
    renew,
)
from pqbroker.broker.services.coordination.modern.messages import (
    JOINING,
    Around,
    HeartbeatAnswer,
    MemberHeartbeat,
)
from pqbroker.broker.services.coordination.modern.reconciliation import Owned
from pqbroker.broker.services.coordination.modern.topics_read import follow_topics
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.storage.tablets.modern_group_rows import LEFT_STATIC, PartitionEpochs, Subscription

_NOTHING_SAID = Subscription()


def heartbeat(group: ModernGroup, request: MemberHeartbeat, around: Around) -> HeartbeatAnswer:
    """Return what the member learns, once the changes of the group are durable.

    KafkaError UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH, UNRELEASED_INSTANCE_ID, FENCED_INSTANCE_ID,
    GROUP_MAX_SIZE_REACHED; then nothing is changed.
    """
    member_id = request.member_id or request.new_member_id
    check_size(group, request.member_id)
    known = _known_member(group, member_id, request)
    said = _NOTHING_SAID if known is None else known.subscription
    subscription = _said_by(said, request)
    if subscription is not said:
        check_bytes(group, member_id, known, subscription)
    names_before = frozenset() if subscription is said else group.names_of(said)
    member = known
    if member is None or _comes_back(member, request):
        member = enter(group, member_id, known, subscription)
    elif subscription is not said:
        group.resubscribe(member, subscription)
    if said.classic is not None:
        member.step_deadline_ms = None  # it no longer has to join or sync
    assigned_before = member.current.assigned
    reads_others = subscription is not said and group.names_of(subscription) != names_before
    follow_topics(group, around.topics, has_changed=reads_others)
    targets.begin_if_due(group, around)
    targets.advance(group, around)
    lead(group, member, around, request.owned, has_changed=reads_others)
    renew(group, member, around)
    is_shown = request.epoch == JOINING or request.is_full or member.current.assigned != assigned_before
    return _answer(member, around, is_shown=is_shown)


def answer_joined(group: ModernGroup, member_id: str, around: Around) -> HeartbeatAnswer:
    """Return what a member learns that has joined while a target was worked out. KafkaError UNKNOWN_MEMBER_ID."""
    member = group.known_member(member_id)
    lead(group, member, around, {}, has_changed=False)
    return _answer(member, around, is_shown=True)


def _answer(member: ModernMember, around: Around, *, is_shown: bool) -> HeartbeatAnswer:
    current = member.current
    interval_ms = around.times.heartbeat_interval_ms
    return HeartbeatAnswer(member.member_id, current.epoch, interval_ms, current.assigned if is_shown else None)


def _comes_back(holder: ModernMember, request: MemberHeartbeat) -> bool:
    """Return True if a static member joins in place of the one that has its instance."""
    return request.epoch == JOINING and request.instance_id is not None and (
        request.instance_id == holder.subscription.instance_id
    )


def _known_member(group: ModernGroup, member_id: str, request: MemberHeartbeat) -> ModernMember | None:
    """Return the member, the static member that it replaces, or None for a new one. KafkaError."""
    if request.instance_id is not None:
        return _known_static(group, member_id, request.instance_id, request)
    if request.epoch == JOINING:
        return group.members.get(member_id)
    member = group.known_member(member_id)
    _check_epoch(member, request)
    return member


def _known_static(
    group: ModernGroup, member_id: str, instance_id: str, request: MemberHeartbeat
) -> ModernMember | None:
    holder = group.instances.get(instance_id)
    member = None if holder is None else group.members[holder]
    if request.epoch == JOINING:
        if member is None:
            return group.members.get(member_id)
        if member.subscription.classic is None and member.current.epoch != LEFT_STATIC:
            raise KafkaError(
                ErrorCode.UNRELEASED_INSTANCE_ID,
                f"Static member {member_id} with instance id {instance_id} cannot join the group because the instance "
                f"id is owned by {member.member_id} member.",
            )
        return member
    checked = known_static(group, member_id, instance_id)
    _check_epoch(checked, request)
    return checked


def _check_epoch(member: ModernMember, request: MemberHeartbeat) -> None:
    """FENCED_MEMBER_EPOCH unless the member has the epoch that is known, or the one before and nothing that it was not
    given since: then the answer was lost."""
    current = member.current
    if request.epoch == current.epoch:
        return
    is_lost_answer = request.epoch == current.previous_epoch and _is_within(request.owned, current.assigned)
    if request.epoch > current.epoch or not is_lost_answer:
        relation = "greater" if request.epoch > current.epoch else "smaller"
        raise KafkaError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"The consumer group member has a {relation} member epoch ({request.epoch}) than the one known by the "
            f"group coordinator ({current.epoch}). The member must abandon all its partitions and rejoin.",
        )


def _is_within(owned: Owned, assigned: PartitionEpochs) -> bool:
    if owned is None:
        return False
    return all(
        topic_id in assigned and all(index in assigned[topic_id] for index in indexes)
        for topic_id, indexes in owned.items()
    )


def _said_by(said: Subscription, request: MemberHeartbeat) -> Subscription:
    """Return what the member says of itself now: the same object if nothing has changed."""
    timeout_ms = request.rebalance_timeout_ms
    after = Subscription(
        instance_id=said.instance_id if request.instance_id is None else request.instance_id,
        rack_id=said.rack_id if request.rack_id is None else request.rack_id,
        client_id=request.client_id,
        client_host=request.client_host,
        rebalance_timeout_ms=said.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
        topics=said.topics if request.topics is None else request.topics,
        expression=said.expression if request.expression is None else request.expression,
        assignor=said.assignor if request.assignor is None else request.assignor,
    )
    return said if after == said else after
