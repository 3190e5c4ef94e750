"""The uniform assignor: members have equally many partitions, as far as their subscriptions allow, and keep theirs.

Balance comes before stickiness, as in Kafka. First only numbers are decided: how many partitions of each class of
topics a member is to have. What it had goes to it first, so that for these numbers as few partitions move as possible.
Racks have no influence, as in Kafka 4.3.
"""

from collections.abc import Generator, Iterator, Mapping

from pqbroker.broker.services.coordination.assigning.assignor import (
    Assigning,
    Assignment,
    MemberSubscription,
    TopicPartitions,
)
from pqbroker.broker.services.coordination.assigning.balancing import balance, deal
from pqbroker.broker.services.coordination.assigning.topic_classes import (
    Pause,
    TopicClass,
    topic_classes,
)

_Free = dict[bytes, bytearray]
"""A mark for each partition of a topic that nobody has."""
_Given = dict[bytes, list[int]]
"""Partitions of one member, by topic."""


class UniformAssignor:
    """Balanced over all topics of the group; it does not care which partitions of a topic meet at a member."""

    name = "uniform"

    def assign(self, members: Mapping[str, MemberSubscription], topics: Mapping[bytes, TopicPartitions]) -> Assigning:
        """Share out every partition of the topics that somebody subscribes to, each to one member."""
        classes = yield from topic_classes(members, topics)
        free = {topic_id: bytearray(b"\1") * count for of in classes for topic_id, count in of.topics}
        loads = [0] * len(members)
        yield
        yield from _hold(list(members.values()), classes, free, loads)
        yield from deal(classes, loads)
        yield from balance(classes, loads)
        given: list[_Given] = [{} for _ in members]
        for of in classes:
            yield from _keep(of, free, given)
            yield from _hand_out(of, free, given)
        assignments: dict[str, Assignment] = {}
        for (member_id, member), partitions in zip(members.items(), given, strict=True):
            found = {topic_id: tuple(sorted(numbers)) for topic_id, numbers in partitions.items()}
            assignments[member_id] = member.assigned if found == member.assigned else found
            yield
        return assignments


def _hold(
    members: list[MemberSubscription], classes: list[TopicClass], free: _Free, loads: list[int]
) -> Generator[None]:
    """Note what members had and may keep; of two that had the same partition, the first may."""
    class_of = {topic_id: of for of in classes for topic_id, _ in of.topics}
    yield
    pause = Pause()
    for place, member in enumerate(members):
        for topic_id, partitions in member.assigned.items():
            if pause.is_due(1 + len(partitions)):
                yield
            if topic_id not in class_of or topic_id not in member.topic_ids:
                continue
            of, is_free = class_of[topic_id], free[topic_id]
            had = [partition for partition in partitions if partition < len(is_free) and is_free[partition]]
            for partition in had:
                is_free[partition] = 0
            of.held.setdefault(place, []).append((topic_id, had))
            of.shares[place] = of.had[place] = of.had.get(place, 0) + len(had)
            loads[place] += len(had)


def _keep(of: TopicClass, free: _Free, given: list[_Given]) -> Generator[None]:
    """Leave members what they had, as far as their shares allow; the rest becomes free."""
    pause = Pause()
    for place, held in of.held.items():
        left = of.shares[place]
        for topic_id, had in held:
            if pause.is_due(1 + len(had)):
                yield
            kept = had[:left]
            left -= len(kept)
            if kept:
                given[place][topic_id] = kept
            for partition in had[len(kept) :]:
                free[topic_id][partition] = 1
        of.shares[place] = left


def _hand_out(of: TopicClass, free: _Free, given: list[_Given]) -> Generator[None]:
    """Hand free partitions to the members whose shares have a rest, in rounds, so that a topic is spread over them."""
    takers = _in_rounds([[place, of.shares[place]] for place in of.subscribers if of.shares.get(place)])
    yield
    pause = Pause()
    for topic_id, count in of.topics:
        is_free = free[topic_id]
        for partition in range(count):
            if is_free[partition]:
                given[next(takers)].setdefault(topic_id, []).append(partition)
            if pause.is_due(1):
                yield


def _in_rounds(rests: list[list[int]]) -> Iterator[int]:
    """Yield each place as often as its rest says, one place after the other."""
    while rests:
        for rest in rests:
            rest[1] -= 1
            yield rest[0]
        rests = [rest for rest in rests if rest[1]]
