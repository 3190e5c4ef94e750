"""Members ask for their assignment, the leader brings it, and it is given out once it is stored (clients 4.33)."""

from collections.abc import Mapping

from pqbroker.broker.services.coordination.classic.group import Group
from pqbroker.broker.services.coordination.classic.memory import assignment_bytes
from pqbroker.broker.services.coordination.classic.messages import Joined, Receipt, Send, Sync, Synced, Ticket
from pqbroker.broker.services.coordination.classic.rebalance import fail_syncs, rebalance
from pqbroker.broker.services.coordination.classic.states import GroupState
from pqbroker.protocol.errors import ErrorCode, KafkaError


def sync(group: Group, request: Sync, ticket: Ticket, now_ms: int) -> None:
    """The answer comes as an effect: now, or when the leader's assignment is stored."""
    try:
        _sync(group, request, ticket, now_ms)
    except KafkaError as error:
        group.effects.append(Send(ticket, Synced(error.code, reason=error.message)))


def stored(group: Group, receipt: Receipt, failure: ErrorCode | None, now_ms: int) -> None:
    """Continue what waited for a store, unless the group has moved on meanwhile."""
    if receipt.generation != group.generation:
        return
    if receipt.assignments is None:
        _answer_returned(group, receipt, failure, now_ms)
    elif group.state is GroupState.COMPLETING_REBALANCE:
        if failure is None:
            _give_out(group, receipt, now_ms)
        else:
            fail_syncs(group, failure, now_ms)
            rebalance(group, now_ms)


def _sync(group: Group, request: Sync, ticket: Ticket, now_ms: int) -> None:
    member = group.known_member(request.member_id, request.instance_id)
    if request.generation != group.generation:
        raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
    if request.protocol_type not in (None, group.protocol_type) or request.protocol not in (None, group.protocol):
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if group.state is GroupState.PREPARING_REBALANCE:
        raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
    group.note_synced(member.member_id)
    if group.state is GroupState.STABLE:
        group.renew(member, now_ms)
        group.effects.append(Send(ticket, group.synced(member)))
        return
    assert group.state is GroupState.COMPLETING_REBALANCE, group.state
    group.answer_sync(member, Synced(ErrorCode.REBALANCE_IN_PROGRESS))  # an earlier one, superseded
    member.sync_ticket = ticket
    if member.member_id == group.leader:
        assignments = dict(request.assignments or {})
        objection = _objection(group, assignments)
        if objection:
            group.answer_sync(member, Synced(ErrorCode.UNKNOWN_SERVER_ERROR, reason=objection))
            fail_syncs(group, ErrorCode.UNKNOWN_SERVER_ERROR, now_ms)
            rebalance(group, now_ms)
            return
        group.store(Receipt(group.generation, assignments=assignments))


def _objection(group: Group, assignments: Mapping[str, bytes]) -> str:
    """Return why an assignment is refused. Kafka answers UNKNOWN_SERVER_ERROR to one that is too large for a record of
    its log, to all who wait for it; clients take it as final and show it, where codes of the group make them join
    again.
    """
    limits, size = group.limits, assignment_bytes(assignments)
    if size > limits.assignment_bytes_max:
        taken, taken_max, setting = size, limits.assignment_bytes_max, "pqbroker.group.assignment.bytes.max"
    elif not group.usage.has_room(size - group.usage.assignment_bytes):
        memory = limits.memory
        taken, taken_max, setting = memory.taken + size, memory.bytes_max, "pqbroker.groups.bytes.max"
    else:
        return ""
    return f"an assignment of group {group.group_id} takes {taken} bytes, the limit is {taken_max}: raise {setting}"


def _give_out(group: Group, receipt: Receipt, now_ms: int) -> None:
    assert receipt.assignments is not None
    group.change(GroupState.STABLE)
    group.usage.count_assignments(receipt.assignments)
    for member in group.members.values():
        member.assignment = receipt.assignments.get(member.member_id, b"")
        if member.sync_ticket is not None:
            group.answer_sync(member, group.synced(member))
            group.renew(member, now_ms)


def _answer_returned(group: Group, receipt: Receipt, failure: ErrorCode | None, now_ms: int) -> None:
    """A static member's return is stored. If a rebalance has begun, the member has joined that one."""
    assert receipt.joined is not None
    member = group.members.get(receipt.joined.member_id)
    if group.state is GroupState.STABLE and member is not None and member.join_ticket is receipt.ticket:
        group.answer_join(member, receipt.joined if failure is None else Joined(failure, member.member_id))
        group.renew(member, now_ms)
