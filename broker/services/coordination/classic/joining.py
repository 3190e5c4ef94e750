"""A member asks to join: new, returning, static, or one whose answer was lost (clients 4.31, 4.32)."""

from dataclasses import replace

from pqbroker.broker.services.coordination.classic.group import Group
from pqbroker.broker.services.coordination.classic.member import Member
from pqbroker.broker.services.coordination.classic.memory import member_bytes
from pqbroker.broker.services.coordination.classic.messages import Join, Joined, Receipt, Send, Synced, Ticket
from pqbroker.broker.services.coordination.classic.rebalance import rebalance
from pqbroker.broker.services.coordination.classic.states import GroupState
from pqbroker.protocol.errors import ErrorCode, KafkaError


def check_session_timeout(request: Join, low_ms: int, high_ms: int) -> None:
    """INVALID_SESSION_TIMEOUT outside the limits of the node."""
    if not low_ms <= request.session_timeout_ms <= high_ms:
        raise KafkaError(
            ErrorCode.INVALID_SESSION_TIMEOUT,
            f"session.timeout.ms is {request.session_timeout_ms}; this broker takes {low_ms} to {high_ms}",
        )


def join(group: Group, request: Join, ticket: Ticket, now_ms: int) -> None:
    """The answer comes as an effect: now, or when the rebalance is over."""
    try:
        check_session_timeout(request, group.limits.session_timeout_min_ms, group.limits.session_timeout_max_ms)
        objection = _objection(group, request)
        if objection:
            _forget(group, request.member_id, now_ms)
            raise KafkaError(ErrorCode.GROUP_MAX_SIZE_REACHED, objection)
        if not group.supports(request.protocol_type, request.protocols):
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "no protocol is shared with the other members")
        if not request.member_id:
            _join_without_id(group, request, ticket, now_ms)
        elif request.member_id in group.pending and request.instance_id is None:
            _add(group, request.member_id, request, ticket, now_ms)
        else:
            _join_again(group, request, ticket, now_ms)
    except KafkaError as error:
        group.effects.append(Send(ticket, Joined(error.code, request.member_id, reason=error.message)))


def _objection(group: Group, request: Join) -> str:
    """Return why there is no room for a member. Clients take GROUP_MAX_SIZE_REACHED as final and show it."""
    limits = group.limits
    if not _has_place(group, request.member_id):
        return f"group {group.group_id} has {limits.members_max} members or ids given out (group.max.size)"
    texts = (request.member_id or request.new_member_id, request.instance_id, request.client_id, request.client_host)
    size = member_bytes(texts, request.protocols)
    of_instance = "" if request.instance_id is None else group.instances.get(request.instance_id, "")
    known = group.members.get(request.member_id or of_instance)
    more = size - (known.counted_bytes if known is not None else 0)
    if size > limits.member_bytes_max:
        return _too_large("a member", size, limits.member_bytes_max, "pqbroker.member.metadata.bytes.max")
    if more > 0 and group.usage.metadata_bytes + more > limits.metadata_bytes_max:
        name = "pqbroker.group.metadata.bytes.max"
        return _too_large(f"group {group.group_id}", group.usage.metadata_bytes + more, limits.metadata_bytes_max, name)
    if not group.usage.has_room(more):
        taken = limits.memory.taken + more
        return _too_large("all groups", taken, limits.memory.bytes_max, "pqbroker.groups.bytes.max")
    return ""


def _too_large(what: str, size: int, size_max: int, setting: str) -> str:
    return f"{what} would take {size} bytes of metadata, the limit is {size_max}: subscribe to less, or raise {setting}"


def _has_place(group: Group, member_id: str) -> bool:
    """group.max.size counts those who are in the next generation, joined while it forms, and ids given out."""
    known = group.members.get(member_id)
    others = len(group.pending) - (member_id in group.pending)
    if group.state is GroupState.PREPARING_REBALANCE:
        return (known is not None and known.has_joined) or group.joined_count + others < group.limits.members_max
    return known is not None or len(group.members) + others < group.limits.members_max


def _forget(group: Group, member_id: str, now_ms: int) -> None:
    """Remove a member for which there is no room; the group does not wait for it any more."""
    was_waited_for = group.forget_pending(member_id)
    if member_id in group.members:
        group.remove(member_id)
        was_waited_for = True
    if was_waited_for and group.state is GroupState.PREPARING_REBALANCE:
        rebalance(group, now_ms)


def _join_without_id(group: Group, request: Join, ticket: Ticket, now_ms: int) -> None:
    if request.instance_id is not None:
        holder = group.instances.get(request.instance_id)
        if holder is None:
            _add(group, request.new_member_id, request, ticket, now_ms)
        else:
            _replace_static(group, holder, request, ticket, now_ms)
    elif request.requires_known_id:
        group.expect(request.new_member_id, now_ms + request.session_timeout_ms)
        group.effects.append(Send(ticket, Joined(ErrorCode.MEMBER_ID_REQUIRED, request.new_member_id)))
    else:
        _add(group, request.new_member_id, request, ticket, now_ms)


def _join_again(group: Group, request: Join, ticket: Ticket, now_ms: int) -> None:
    member = group.known_member(request.member_id, request.instance_id)
    is_unchanged = member.protocols == request.protocols
    is_answered = is_unchanged and (
        group.state is GroupState.COMPLETING_REBALANCE
        or (group.state is GroupState.STABLE and member.member_id != group.leader)
    )
    if not is_answered:
        _update(group, member, request, ticket)
        rebalance(group, now_ms)
        return
    # It has not got its answer, or asks without need: the generation stays. (A leader in a stable group does need.)
    group.renew(member, now_ms)
    group.effects.append(Send(ticket, group.joined(member)))


def _add(group: Group, member_id: str, request: Join, ticket: Ticket, now_ms: int) -> None:
    member = Member.joining(member_id, request)
    member.deadline_ms = now_ms + group.limits.new_member_join_timeout_ms
    if group.is_initial:
        group.has_new_member = True
    group.add(member, request.protocol_type)
    group.await_time(member.deadline_ms)
    group.wait_to_join(member, ticket)
    rebalance(group, now_ms)


def _update(group: Group, member: Member, request: Join, ticket: Ticket) -> None:
    """Set what a member offers now; an earlier Join of it that still waits is superseded."""
    group.answer_join(member, Joined(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id))
    member.session_timeout_ms = request.session_timeout_ms
    member.rebalance_timeout_ms = request.rebalance_timeout_ms
    member.client_id, member.client_host = request.client_id, request.client_host
    group.offer(member, request.protocols)
    group.wait_to_join(member, ticket)


def _replace_static(group: Group, holder: str, request: Join, ticket: Ticket, now_ms: int) -> None:
    """Give a static member that came back its place under a new member id, and fence the old one (KIP-345)."""
    earlier_leader = group.leader
    member = _rename(group, holder, request.new_member_id)
    _update(group, member, request, ticket)
    group.renew(member, now_ms)
    if group.state is not GroupState.STABLE or group.offers.choose(group.members.values()) != group.protocol:
        rebalance(group, now_ms)
        return
    group.store(Receipt(group.generation, ticket=ticket, joined=_returned(group, member, earlier_leader, request)))


def _rename(group: Group, holder: str, member_id: str) -> Member:
    member = group.members[holder]
    group.answer_join(member, Joined(ErrorCode.FENCED_INSTANCE_ID, holder))
    group.answer_sync(member, Synced(ErrorCode.FENCED_INSTANCE_ID))
    member.member_id = member_id
    group.members = {each.member_id: each for each in group.members.values()}
    assert member.instance_id is not None
    group.instances[member.instance_id] = member_id
    if holder in group.unsynced:
        group.unsynced.remove(holder)
        group.unsynced.add(member_id)
    if group.leader == holder:
        group.leader = member_id
    return member


def _returned(group: Group, member: Member, earlier_leader: str | None, request: Join) -> Joined:
    """Return the answer to a static member that came back while its generation continues. A leader must assign nothing,
    since no member of a stable group would hear of it.

    From version 9 on the answer says so (KIP-814); before, it names the earlier member id as the leader, so the member
    does not take itself for one.
    """
    answer = group.joined(member)
    if request.can_skip_assignment:
        return replace(answer, skips_assignment=member.member_id == group.leader)
    return Joined(
        ErrorCode.NONE, member.member_id, group.generation, group.protocol_type, group.protocol, earlier_leader or ""
    )
