"""Groups for the assignors: drawn with a seed, changed step by step, and looked at."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from random import Random

from pqbroker.broker.services.coordination.assigning.assignor import (
    Assignment,
    Assignor,
    MemberSubscription,
    TopicPartitions,
)

Members = Mapping[str, MemberSubscription]
Topics = Mapping[bytes, TopicPartitions]
Target = Mapping[str, Assignment]


def topic_id(number: int) -> bytes:
    """An id that sorts as its number, for us and for Java."""
    return (1).to_bytes(8, "big") + number.to_bytes(8, "big")


@dataclass(frozen=True, slots=True)
class Group:
    """Members by id, in the order in which an assignor sees them; topics by id."""

    members: Members
    topics: Topics

    def assign(self, assignor: Assignor) -> Target:
        """Run an assignor to its end."""
        work = assignor.assign(self.members, self.topics)
        while True:
            try:
                next(work)
            except StopIteration as done:
                found: Target = done.value
                return found

    def after(self, target: Target) -> "Group":
        """The same group, whose members have been given this."""
        members = {name: replace(member, assigned=target[name]) for name, member in self.members.items()}
        return Group(members, self.topics)

    def partitions(self) -> set[tuple[bytes, int]]:
        """All that somebody subscribes to."""
        wanted = set[bytes]().union(*(member.topic_ids for member in self.members.values()))
        known = wanted & self.topics.keys()
        return {(topic, partition) for topic in known for partition in range(self.topics[topic].count)}


def placed(target: Target) -> dict[tuple[bytes, int], str]:
    """Return the owner of each partition. Fails if a partition has two."""
    owners: dict[tuple[bytes, int], str] = {}
    for name, assignment in target.items():
        for topic, partitions in assignment.items():
            for partition in partitions:
                assert (topic, partition) not in owners
                owners[topic, partition] = name
    return owners


def imbalance(target: Target) -> int:
    """Return the sum of the squares of all loads: the smaller, the better balanced."""
    return sum(sum(map(len, assignment.values())) ** 2 for assignment in target.values())


def moved(group: Group, target: Target) -> int:
    """Return the number of partitions that a member had, still wants, and has no more."""
    owners = placed(target)
    had = placed({name: member.assigned for name, member in group.members.items()})
    return sum(
        owners.get(place) != name
        for place, name in had.items()
        if place in owners and place[0] in group.members[name].topic_ids
    )


class Story:
    """A group that changes: members come, go and subscribe to other topics; topics come, go and grow."""

    def __init__(self, seed: int) -> None:
        self._chance = Random(seed)
        chance = self._chance
        self._next_topic = self._next_instance = 0
        self._topics: dict[bytes, TopicPartitions] = {}
        for _ in range(chance.randint(1, 8)):
            self._add_topic()
        self._members: list[MemberSubscription] = []
        self._is_mixed = chance.random() < 0.6
        for _ in range(chance.randint(1, 12)):
            self._join()

    def steps(self, assignor: Assignor, count: int) -> Iterator[Group]:
        """Yield the group, `count` times, each time with what the assignor has given it, and a change."""
        for _ in range(count):
            members = {f"m{place:05}": member for place, member in enumerate(self._members)}
            group = Group(members, dict(self._topics))
            yield group
            target = group.assign(assignor)
            self._members = list(group.after(target).members.values())
            for _ in range(self._chance.choice((1, 1, 2, 5))):
                self._change()

    def _change(self) -> None:
        chance = self._chance
        what = chance.choice(("join", "leave", "add", "grow", "delete", "subscribe"))
        if what == "join":
            self._join()
        elif what == "leave" and len(self._members) > 1:
            self._members.pop(chance.randrange(len(self._members)))
        elif what == "add":
            self._add_topic()
            self._subscribe(new=next(reversed(self._topics)))
        elif what == "grow":
            topic = chance.choice(list(self._topics))
            self._topics[topic] = TopicPartitions(self._topics[topic].count + chance.randint(1, 5))
        elif what == "delete" and len(self._topics) > 1:
            del self._topics[chance.choice(list(self._topics))]
            self._subscribe()
        elif what == "subscribe" and self._is_mixed:
            place = chance.randrange(len(self._members))
            self._members[place] = replace(self._members[place], topic_ids=self._some_topics())

    def _add_topic(self) -> None:
        self._topics[topic_id(self._next_topic)] = TopicPartitions(self._chance.choice((1, 2, 3, 6, 12, 24)))
        self._next_topic += 1

    def _join(self) -> None:
        instance_id = None
        if self._chance.random() < 0.3:
            instance_id = f"i{self._next_instance}"
            self._next_instance += 1
        self._members.append(MemberSubscription(self._some_topics(), {}, instance_id))

    def _some_topics(self) -> frozenset[bytes]:
        if not self._is_mixed:
            return frozenset(self._topics)
        return frozenset(self._chance.sample(list(self._topics), self._chance.randint(1, len(self._topics))))

    def _subscribe(self, new: bytes | None = None) -> None:
        """Have members forget topics that are gone, and some or all subscribe to a new one."""
        for place, member in enumerate(self._members):
            wanted = set(member.topic_ids) & self._topics.keys()
            if new is not None and (not self._is_mixed or self._chance.random() < 0.5):
                wanted.add(new)
            self._members[place] = replace(member, topic_ids=frozenset(wanted))
