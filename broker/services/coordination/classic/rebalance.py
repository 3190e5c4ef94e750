"""Rebalances, from a change in a group to the next generation: who is waited for, how long, and who is dropped."""

from pqbroker.broker.services.coordination.classic.group import Group
from pqbroker.broker.services.coordination.classic.messages import Synced
from pqbroker.broker.services.coordination.classic.states import GroupState
from pqbroker.protocol.errors import ErrorCode


def rebalance(group: Group, now_ms: int) -> None:
    """Begin a rebalance after a change, or finish the one that waited for it."""
    if group.state is GroupState.PREPARING_REBALANCE:
        finish_if_all_joined(group, now_ms)
    else:
        _begin(group, now_ms)


def finish_if_all_joined(group: Group, now_ms: int) -> None:
    if group.state is GroupState.PREPARING_REBALANCE and not group.is_initial and group.has_all_joined:
        _complete(group, now_ms)


def drop(group: Group, member_id: str, now_ms: int) -> None:
    """Remove a member; the others share its partitions."""
    group.remove(member_id)
    rebalance(group, now_ms)


def end_join_phase(group: Group, now_ms: int) -> None:
    """The time to join is over. A group's first rebalance is extended while members arrive (clients 4.32)."""
    if group.is_initial and group.has_new_member and group.delay_left_ms:
        delay_ms = min(group.limits.initial_rebalance_delay_ms, group.delay_left_ms)
        group.has_new_member = False
        group.delay_left_ms -= delay_ms
        group.join_deadline_ms = now_ms + delay_ms
        group.await_time(group.join_deadline_ms)
    else:
        _complete(group, now_ms)


def end_sync_phase(group: Group, now_ms: int) -> None:
    """Remove members of the generation that did not ask for an assignment within the rebalance timeout."""
    late = [member_id for member_id in group.members if member_id in group.unsynced]
    assert late, "a deadline nobody is waited for at"
    for member_id in late:
        group.remove(member_id)
    _begin(group, now_ms)


def fail_syncs(group: Group, error: ErrorCode, now_ms: int) -> None:
    """Fail the members that wait for an assignment: the generation will have none."""
    for member in group.members.values():
        member.assignment = b""
    group.usage.count_assignments({})
    for member in group.members.values():
        if member.sync_ticket is not None:
            group.answer_sync(member, Synced(error))
            group.renew(member, now_ms)


def _begin(group: Group, now_ms: int) -> None:
    if group.state is GroupState.COMPLETING_REBALANCE:
        fail_syncs(group, ErrorCode.REBALANCE_IN_PROGRESS, now_ms)
    group.unsynced.clear()
    group.sync_deadline_ms = None
    group.has_new_member = False
    group.is_initial = group.state is GroupState.EMPTY
    group.change(GroupState.PREPARING_REBALANCE)
    if group.is_initial:
        delay_ms = group.limits.initial_rebalance_delay_ms
        group.delay_left_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
        group.join_deadline_ms = now_ms + delay_ms
        group.await_time(group.join_deadline_ms)
    elif group.has_all_joined:
        _complete(group, now_ms)
    else:
        group.join_deadline_ms = now_ms + group.rebalance_timeout_ms
        group.await_time(group.join_deadline_ms)


def _complete(group: Group, now_ms: int) -> None:
    """Drop who did not join (a static member only its session drops, KIP-345) and begin the next generation."""
    for member in [each for each in group.members.values() if not each.has_joined and each.instance_id is None]:
        group.remove(member.member_id)
    if group.members and not group.elect_joined_leader():
        group.is_initial = False
        group.join_deadline_ms = now_ms + group.rebalance_timeout_ms  # only static members, none of them here
        group.await_time(group.join_deadline_ms)
        return
    group.join_deadline_ms = None
    group.is_initial = False
    group.generation += 1
    if not group.members:
        group.protocol = None
        group.change(GroupState.EMPTY)
        group.store()
        return
    group.protocol = group.offers.choose(group.members.values())
    group.change(GroupState.COMPLETING_REBALANCE)
    group.sync_deadline_ms = now_ms + group.rebalance_timeout_ms
    group.await_time(group.sync_deadline_ms)
    for member in group.members.values():
        if member.has_joined:
            group.unsynced.add(member.member_id)
            group.answer_join(member, group.joined(member))
            group.renew(member, now_ms)
