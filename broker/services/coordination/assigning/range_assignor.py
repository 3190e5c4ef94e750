"""The range assignor: each member has a range of each topic that it subscribes to.

Members that subscribe to the same topics, all of one number of partitions, have the same partition numbers of each, so
that they can join these. Members stand in the order of their instance ids, then of their ids: a static member that
returns has the same ranges. It does not look at what members had, as in Kafka 4.3; racks have no influence.
"""

from collections.abc import Generator, Iterable, Mapping

from pqbroker.broker.services.coordination.assigning.assignor import (
    Assigning,
    Assignment,
    MemberSubscription,
    TopicPartitions,
)
from pqbroker.broker.services.coordination.assigning.topic_classes import Pause


class RangeAssignor:
    """Balanced within each topic, not over several."""

    name = "range"

    def assign(self, members: Mapping[str, MemberSubscription], topics: Mapping[bytes, TopicPartitions]) -> Assigning:
        """Share out every partition of the topics that somebody subscribes to, each to one member."""
        pause = Pause()
        ranges: dict[bytes, _Ranges] = {}
        for member in members.values():
            for topic_id in member.topic_ids & topics.keys():
                ranges.setdefault(topic_id, _Ranges(topics[topic_id].count)).members += 1
                if pause.is_due(1):
                    yield
        found: dict[str, Assignment] = {member_id: {} for member_id in members}
        for member_id in sorted(members, key=lambda member_id: _rank(member_id, members[member_id])):
            member = members[member_id]
            assignment = yield from _take(ranges, member.topic_ids & topics.keys(), pause)
            found[member_id] = member.assigned if member.assigned == assignment else assignment
        yield
        return found


def _take(
    ranges: Mapping[bytes, "_Ranges"], topic_ids: Iterable[bytes], pause: Pause
) -> Generator[None, None, Assignment]:
    """Take one member's range of each of its topics."""
    assignment: dict[bytes, tuple[int, ...]] = {}
    for topic_id in topic_ids:
        partitions = ranges[topic_id].take()
        if partitions:
            assignment[topic_id] = partitions
        if pause.is_due(1 + len(partitions)):
            yield
    return assignment


class _Ranges:
    """One topic, from whose partitions member after member takes a range."""

    __slots__ = ("_count", "_next", "_taken", "members")

    def __init__(self, count: int) -> None:
        self._count = count
        self._next = 0
        self._taken = 0
        self.members = 0

    def take(self) -> tuple[int, ...]:
        """Return the next range; the first ones are longer by one if the division has a rest."""
        share, rest = divmod(self._count, self.members)
        begin = self._next
        self._next += share + (self._taken < rest)
        self._taken += 1
        return tuple(range(begin, self._next))


def _rank(member_id: str, member: MemberSubscription) -> tuple[bool, str]:
    return (member.instance_id is None, member_id if member.instance_id is None else member.instance_id)
