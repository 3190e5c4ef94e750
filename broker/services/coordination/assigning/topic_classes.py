"""Topics that the same members subscribe to, as one: for balance, partitions of such topics are interchangeable.

A group whose members all subscribe to the same topics has one class.
"""

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field

from pqbroker.broker.services.coordination.assigning.assignor import MemberSubscription, TopicPartitions

STEP = 500
"""Topics, members or partitions between two steps: a few hundred microseconds."""


class Pause:
    """Counts what is done, and says when a step has been enough."""

    __slots__ = ("_done",)

    def __init__(self) -> None:
        self._done = 0

    def is_due(self, more: int) -> bool:
        """Count; return True, and begin at zero, if a step is over."""
        self._done += more
        if self._done < STEP:
            return False
        self._done = 0
        return True


@dataclass(slots=True, eq=False)
class TopicClass:
    """Topics with the same subscribers, and the share of each of these: a number of partitions, not yet which."""

    topics: list[tuple[bytes, int]]
    """Topic ids with numbers of partitions, by id."""
    partition_count: int
    subscribers: list[int]
    """Members by their place in the group, ascending."""
    held: dict[int, list[tuple[bytes, list[int]]]] = field(default_factory=dict)
    """Partitions that a member had and may keep, by topic."""
    had: dict[int, int] = field(default_factory=dict)
    """The number of partitions that a member had and may keep."""
    shares: dict[int, int] = field(default_factory=dict)
    """The number of partitions that each member is to have; a member without any may be missing."""

    def surplus(self, place: int) -> int:
        """Return by how much a member's share is more than what it had; below zero: what it loses."""
        return self.shares.get(place, 0) - self.had.get(place, 0)

    def move(self, giver: int, taker: int, loads: list[int]) -> None:
        """Move one partition from a share to another."""
        self.shares[giver] -= 1
        self.shares[taker] = self.shares.get(taker, 0) + 1
        loads[giver] -= 1
        loads[taker] += 1


def topic_classes(
    members: Mapping[str, MemberSubscription], topics: Mapping[bytes, TopicPartitions]
) -> Generator[None, None, list[TopicClass]]:
    """Find the classes. First those with the most partitions per subscriber, whose members have the least choice; of
    the same, those with fewer subscribers, as in Kafka."""
    kinds: dict[frozenset[bytes], list[int]] = {}
    pause = Pause()
    for place, member in enumerate(members.values()):
        kinds.setdefault(member.topic_ids, []).append(place)
        if pause.is_due(1 + len(member.topic_ids)):  # a set that is new is hashed
            yield
    kinds_of_topic: dict[bytes, list[int]] = {}
    for kind, topic_ids in enumerate(kinds):
        for topic_id in topic_ids & topics.keys():
            kinds_of_topic.setdefault(topic_id, []).append(kind)
            if pause.is_due(1):
                yield
    places = list(kinds.values())
    by_kinds: dict[tuple[int, ...], list[tuple[bytes, int]]] = {}
    for topic_id in sorted(kinds_of_topic):
        of_kinds = tuple(kinds_of_topic[topic_id])
        by_kinds.setdefault(of_kinds, []).append((topic_id, topics[topic_id].count))
        if pause.is_due(len(of_kinds)):
            yield
    classes = []
    for of_kinds, found in by_kinds.items():
        subscribers = sorted(place for kind in of_kinds for place in places[kind])
        classes.append(TopicClass(found, sum(count for _, count in found), subscribers))
        yield
    return sorted(classes, key=_urgency)


def _urgency(of: TopicClass) -> tuple[float, int, bytes]:
    subscribers = len(of.subscribers)
    return -of.partition_count / subscribers, subscribers, of.topics[0][0]
