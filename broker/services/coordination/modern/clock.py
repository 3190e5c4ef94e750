"""Changes of a group of KIP-848 by time alone: sessions end, and members take too long to let partitions go."""

from typing import NamedTuple

from pqbroker.broker.services.coordination.modern.group import ModernGroup


class Overdue(NamedTuple):
    """A member that is to be removed, and why."""

    member_id: str
    reason: str


def overdue(group: ModernGroup, now_ms: int) -> list[Overdue]:
    """Return who is to be removed, and look for the first time at which others are. Being called too early does no
    harm."""
    found = [
        Overdue(
            member.member_id,
            "its session ended" if member.session_deadline_ms <= now_ms
            else "it took longer than its rebalance timeout",
        )
        for member in group.members.values()
        if member.deadline_ms <= now_ms
    ]
    later = (member.deadline_ms for member in group.members.values() if member.deadline_ms > now_ms)
    group.first_deadline_ms = min(later, default=None)
    return found
