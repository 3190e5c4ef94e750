"""Members of the classic protocol in a group of KIP-848: they join, sync and live as in a group of their own.

A join is one step towards the target, and is answered at once; the member's epoch is its generation, and a sync brings
its partitions. A heartbeat asks it to join again while it has a step to take. As in Apache Kafka 4.3.
"""

from collections.abc import Iterable

from pqbroker.broker.services.coordination.classic.joining import check_session_timeout
from pqbroker.broker.services.coordination.classic.messages import Join, Joined, Leaver, Sync, Synced
from pqbroker.broker.services.coordination.classic.subscriptions import CONSUMER, read_subscription
from pqbroker.broker.services.coordination.modern import targets
from pqbroker.broker.services.coordination.modern.consumer_bytes import assignment_bytes_of
from pqbroker.broker.services.coordination.modern.group import ModernGroup
from pqbroker.broker.services.coordination.modern.member import ModernMember
from pqbroker.broker.services.coordination.modern.membership import (
    await_step,
    check_bytes,
    check_size,
    enter,
    known_static,
    lead,
    renew,
)
from pqbroker.broker.services.coordination.modern.messages import Around
from pqbroker.broker.services.coordination.modern.topics_read import follow_topics
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.protocol.messages.consumer_protocol import ConsumerProtocolSubscription
from pqbroker.storage.tablets.modern_group_rows import ClassicSide, MemberState, Subscription

_NOTHING_SAID = Subscription()


def join(group: ModernGroup, request: Join, around: Around) -> Joined:
    """Return what the member learns, once the changes of the group are durable.

    KafkaError INCONSISTENT_GROUP_PROTOCOL, INVALID_SESSION_TIMEOUT, UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID,
    GROUP_MAX_SIZE_REACHED; then nothing is changed.
    """
    check_session_timeout(request, group.limits.session_timeout_min_ms, group.limits.session_timeout_max_ms)
    member_id = request.member_id or request.new_member_id
    check_size(group, member_id)
    wants = _read(group, request)
    if not request.member_id and request.instance_id is None and request.requires_known_id:
        return Joined(ErrorCode.MEMBER_ID_REQUIRED, member_id)
    known = _known_member(group, member_id, request)
    said = _NOTHING_SAID if known is None else known.subscription
    subscription = _said_by(said, request, wants)
    if subscription != said:
        check_bytes(group, member_id, known, subscription)
    names_before = group.names_of(said)
    if known is None or known.member_id != member_id:
        member = enter(group, member_id, known, subscription)
    else:
        member = known
        if subscription != said:
            group.resubscribe(member, subscription)
    reads_others = group.names_of(subscription) != names_before
    follow_topics(group, around.topics, has_changed=reads_others)
    targets.begin_if_due(group, around)
    targets.advance(group, around)
    lead(group, member, around, _owned(wants, around), has_changed=reads_others)
    renew(group, member, around)
    await_step(group, member, around)  # until it syncs
    return answer_joined(member)


def answer_joined(member: ModernMember) -> Joined:
    """Return what a member learns that has joined."""
    classic = member.subscription.classic
    assert classic is not None
    return Joined(ErrorCode.NONE, member.member_id, member.current.epoch, CONSUMER, classic.protocols[0].name)


def sync(group: ModernGroup, request: Sync, around: Around) -> Synced:
    """Return the member's partitions, once they are durable.

    KafkaError UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION, INCONSISTENT_GROUP_PROTOCOL,
    REBALANCE_IN_PROGRESS.
    """
    member = _classic_member(group, request.member_id, request.instance_id, request.generation)
    classic = member.subscription.classic
    assert classic is not None
    names = (request.protocol_type, CONSUMER), (request.protocol, classic.protocols[0].name)
    if any(said not in (None, known) for said, known in names):
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "the protocol is not that of the member's join")
    if group.assignment_epoch > member.current.epoch and member.current.state is not MemberState.UNREVOKED_PARTITIONS:
        _ask_to_join(group, member, around)
    member.step_deadline_ms = None
    renew(group, member, around)
    assigned = assignment_bytes_of(member.current.assigned, around.topics, classic.protocols[0].metadata)
    return Synced(ErrorCode.NONE, request.protocol_type, request.protocol, assigned)


def heartbeat(group: ModernGroup, member_id: str, instance_id: str | None, generation: int, around: Around) -> None:
    """KafkaError UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION; REBALANCE_IN_PROGRESS asks a member to join
    again."""
    member = _classic_member(group, member_id, instance_id, generation)
    renew(group, member, around)
    current = member.current
    is_behind = current.epoch < group.assignment_epoch or current.state is MemberState.UNREVOKED_PARTITIONS
    if is_behind or (current.state is MemberState.UNRELEASED_PARTITIONS and not _waits(group, member)):
        _ask_to_join(group, member, around)


def leavers(group: ModernGroup, asked: Iterable[Leaver]) -> list[str | ErrorCode]:
    """Return the id of each member that leaves, or why it does not."""
    found: list[str | ErrorCode] = []
    for leaver in asked:
        try:
            found.append(_leaving_member(group, leaver).member_id)
        except KafkaError as refusal:
            found.append(refusal.code)
    return found


def _leaving_member(group: ModernGroup, leaver: Leaver) -> ModernMember:
    if leaver.instance_id is None:
        return group.known_member(leaver.member_id)
    holder = leaver.member_id or group.instances.get(leaver.instance_id, "")
    return known_static(group, holder, leaver.instance_id)


def _read(group: ModernGroup, request: Join) -> ConsumerProtocolSubscription:
    """Return the subscription of a member; all its protocols say the same. INCONSISTENT_GROUP_PROTOCOL."""
    sides = [member.subscription.classic for member in group.members.values()]
    offered = [{each.name for each in side.protocols} for side in sides if side is not None]
    is_shared = any(all(each.name in names for names in offered) for each in request.protocols)
    wants = read_subscription(request.protocols[0].metadata) if request.protocols else None
    if request.protocol_type != CONSUMER or not is_shared or wants is None:
        text = f"group {group.group_id} is one of consumers; the member shares no protocol with them"
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, text)
    return wants


def _known_member(group: ModernGroup, member_id: str, request: Join) -> ModernMember | None:
    """Return the member, the static member that it replaces, or None for a new one. KafkaError."""
    if request.instance_id is None:
        return group.members.get(member_id)
    if request.member_id:
        return known_static(group, member_id, request.instance_id)
    holder = group.instances.get(request.instance_id)
    return None if holder is None else group.members[holder]


def _said_by(said: Subscription, request: Join, wants: ConsumerProtocolSubscription) -> Subscription:
    timeout_ms = request.rebalance_timeout_ms
    return Subscription(
        instance_id=said.instance_id if request.instance_id is None else request.instance_id,
        rack_id=wants.rack_id or said.rack_id,
        client_id=request.client_id,
        client_host=request.client_host,
        rebalance_timeout_ms=said.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
        topics=frozenset(wants.topics),
        assignor=said.assignor,
        classic=ClassicSide(request.session_timeout_ms, request.protocols),
    )


def _owned(wants: ConsumerProtocolSubscription, around: Around) -> dict[bytes, list[int]]:
    owned: dict[bytes, list[int]] = {}
    for each in wants.owned_partitions:
        topic = around.topics.find(each.topic)
        if topic is not None:
            owned.setdefault(topic.topic_id, []).extend(each.partitions)
    return owned


def _classic_member(
    group: ModernGroup, member_id: str, instance_id: str | None, generation: int
) -> ModernMember:
    member = group.known_member(member_id) if instance_id is None else known_static(group, member_id, instance_id)
    if member.subscription.classic is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} does not use the classic protocol.")
    if generation != member.current.epoch:
        text = f"generation {generation} is not the member's, which is {member.current.epoch}"
        raise KafkaError(ErrorCode.ILLEGAL_GENERATION, text)
    return member


def _waits(group: ModernGroup, member: ModernMember) -> bool:
    """Return True if a partition of the member's target is held by another yet."""
    return any(
        group.is_held_by_another(member.member_id, topic_id, index)
        for topic_id, indexes in member.target.items()
        for index in indexes
    )


def _ask_to_join(group: ModernGroup, member: ModernMember, around: Around) -> None:
    if member.step_deadline_ms is None:
        await_step(group, member, around)
    raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS, "a new assignment is ready: join again")
