"""Changes of a group by time alone: sessions end, ids are given up, phases of a rebalance are over."""

from pqbroker.broker.services.coordination.classic.group import Group
from pqbroker.broker.services.coordination.classic.rebalance import (
    drop,
    end_join_phase,
    end_sync_phase,
    finish_if_all_joined,
)
from pqbroker.broker.services.coordination.classic.states import GroupState


def wake(group: Group, now_ms: int) -> None:
    """Do what is due. Being called too early does no harm."""
    overdue = [member_id for member_id, deadline_ms in group.pending.items() if deadline_ms <= now_ms]
    for member_id in overdue:
        group.forget_pending(member_id)
    if overdue:
        finish_if_all_joined(group, now_ms)
    for member in list(group.members.values()):
        if member.is_timed and member.deadline_ms <= now_ms and member.member_id in group.members:
            drop(group, member.member_id, now_ms)
    if group.join_deadline_ms is not None and group.join_deadline_ms <= now_ms:
        end_join_phase(group, now_ms)
    if group.sync_deadline_ms is not None and group.sync_deadline_ms <= now_ms:
        end_sync_phase(group, now_ms)
    group.first_deadline_ms = _first_deadline_ms(group)


def retire_if_unused(group: Group) -> bool:
    """Forget a group that has no member in the end, such as one whose only client never used its id. Return True if the
    group is dead."""
    if group.state is GroupState.EMPTY and group.generation == 0 and not group.pending:
        group.change(GroupState.DEAD)
    return group.state is GroupState.DEAD


def _first_deadline_ms(group: Group) -> int | None:
    """The first of all deadlines."""
    times = [member.deadline_ms for member in group.members.values() if member.is_timed]
    times.extend(group.pending.values())
    times.extend(time for time in (group.join_deadline_ms, group.sync_deadline_ms) if time is not None)
    return min(times, default=None)
