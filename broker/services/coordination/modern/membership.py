"""Members of a group of KIP-848, whichever protocol they speak: room for one, a place for it, its sessions, and a step
towards its target."""

from dataclasses import replace

from pqbroker.broker.services.coordination.modern.group import ModernGroup
from pqbroker.broker.services.coordination.modern.member import ModernMember, subscription_bytes
from pqbroker.broker.services.coordination.modern.messages import Around
from pqbroker.broker.services.coordination.modern.reconciliation import Aim, Owned, is_reconciled, reconcile
from pqbroker.broker.services.coordination.modern.topics_read import topic_ids
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.storage.tablets.modern_group_rows import CurrentAssignment, MemberState, Subscription


def check_size(group: ModernGroup, member_id: str) -> None:
    """Check that the group has a place for a member. KafkaError GROUP_MAX_SIZE_REACHED."""
    members_max = group.limits.modern_members_max
    if len(group.members) >= members_max and member_id not in group.members:
        text = f"The consumer group has reached its maximum capacity of {members_max} members."
        raise KafkaError(ErrorCode.GROUP_MAX_SIZE_REACHED, text)


def check_bytes(group: ModernGroup, member_id: str, known: ModernMember | None, after: Subscription) -> None:
    """GROUP_MAX_SIZE_REACHED for a subscription for which there is no room."""
    limits, size = group.limits, subscription_bytes(member_id, after)
    more = size - (0 if known is None else known.counted_bytes)
    if size > limits.member_bytes_max:
        taken, taken_max, setting = size, limits.member_bytes_max, "pqbroker.member.metadata.bytes.max"
    elif more > 0 and group.usage.metadata_bytes + more > limits.metadata_bytes_max:
        taken, taken_max = group.usage.metadata_bytes + more, limits.metadata_bytes_max
        setting = "pqbroker.group.metadata.bytes.max"
    elif not group.usage.has_room(more):
        taken, taken_max, setting = limits.memory.taken + more, limits.memory.bytes_max, "pqbroker.groups.bytes.max"
    else:
        return
    text = f"the member would make it {taken} bytes, the limit is {taken_max}: subscribe to less, or raise {setting}"
    raise KafkaError(ErrorCode.GROUP_MAX_SIZE_REACHED, text)


def known_static(group: ModernGroup, member_id: str, instance_id: str) -> ModernMember:
    """Return the static member of an instance. KafkaError UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID."""
    holder = group.instances.get(instance_id)
    if holder is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
    if holder != member_id:
        raise KafkaError(
            ErrorCode.FENCED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} was fenced by member {holder}.",
        )
    return group.members[holder]


def enter(group: ModernGroup, member_id: str, known: ModernMember | None, subscription: Subscription) -> ModernMember:
    """Add a member: a new one, or a static one that came back and takes over what it had (KIP-848)."""
    member = ModernMember(member_id, subscription, CurrentAssignment())
    if known is not None:
        group.remove(known.member_id)
        member.current = replace(known.current, epoch=0, previous_epoch=0)
        member.target = known.target
        if group.work is not None:
            group.work.replace(known.member_id, member_id)
    group.add(member)
    return member


def renew(group: ModernGroup, member: ModernMember, around: Around) -> None:
    """Extend a member's session."""
    classic = member.subscription.classic
    timeout_ms = around.times.session_timeout_ms if classic is None else classic.session_timeout_ms
    member.session_deadline_ms = around.now_ms + timeout_ms
    group.await_time(member.session_deadline_ms)


def begin_session(group: ModernGroup, member: ModernMember, around: Around) -> None:
    """Give a stored member the whole of its times."""
    renew(group, member, around)
    if member.current.state is MemberState.UNREVOKED_PARTITIONS:
        await_step(group, member, around)


def await_step(group: ModernGroup, member: ModernMember, around: Around) -> None:
    """Give a member its rebalance timeout for its next step."""
    member.step_deadline_ms = around.now_ms + member.subscription.rebalance_timeout_ms
    group.await_time(member.step_deadline_ms)


def lead(group: ModernGroup, member: ModernMember, around: Around, owned: Owned, *, has_changed: bool) -> None:
    """Take a member one step towards its target."""
    if not has_changed and is_reconciled(member.current, group.assignment_epoch):
        return

    def is_held_by_another(topic_id: bytes, index: int) -> bool:
        return group.is_held_by_another(member.member_id, topic_id, index)

    ids = topic_ids(group, member.subscription, around.topics)
    aim = Aim(group.assignment_epoch, member.target, ids, owned, is_held_by_another, has_changed)
    after = reconcile(member.current, aim)
    if after is member.current:
        return
    group.place(member, after)
    if member.subscription.classic is not None:
        return  # it has its time to join and to sync instead
    member.step_deadline_ms = None
    if after.state is MemberState.UNREVOKED_PARTITIONS:
        await_step(group, member, around)
