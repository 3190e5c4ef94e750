"""What clients were promised, partition by partition and group by group, and what breaks a promise: the checkers.

log        a value that was acknowledged or read stands at its offset for ever, and at no other
order      records of one producer follow each other without a gap
offsets    dense from the start to the end; neither ever moves back
ownership  in a generation of a group a partition has one owner
commits    a committed offset is there until a later one replaces it; a generation that is over commits nothing
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from pqbroker.pq.log.consumers import ConsumerOffset
from pqbroker.pq.serving.offsets import TopicPartition

VALUES_KEPT = 4096
"""Values that are known by their bytes: most are read several times."""


class Violation(AssertionError):
    """A promise was broken."""


def expect(kept: bool, promise: str) -> None:
    """Raise Violation unless a promise was kept. What is looked at for each record makes no text that is not needed."""
    if not kept:
        raise Violation(promise)


class Value(NamedTuple):
    """What a record's value says of itself: who wrote it, and as which of its records."""

    producer: int
    number: int

    @staticmethod
    @lru_cache(VALUES_KEPT)
    def of(value: bytes | None) -> "Value":
        assert value is not None
        producer, number, _ = value.split(b":", 2)
        return Value(int(producer), int(number))

    def text(self, size: int) -> bytes:
        return b"%d:%d:" % self + bytes(size)


@dataclass(slots=True)
class PartitionBook:
    """One partition, named for messages."""

    name: str
    log: dict[int, Value] = field(default_factory=dict)
    """Everything known to be stored, by offset."""
    offsets: dict[Value, int] = field(default_factory=dict)
    start: int = 0
    end: int = 0
    acknowledged: dict[int, int] = field(default_factory=dict)
    """The last record of each producer that was acknowledged."""
    records_sent: dict[int, int] = field(default_factory=dict)
    gone: bool = False
    """Its rows stand elsewhere."""

    def sent(self, values: Sequence[Value]) -> None:
        producer, number = values[-1]
        self.records_sent[producer] = max(self.records_sent.get(producer, -1), number)

    def stored(self, base_offset: int, values: Iterable[Value]) -> None:
        """These values stand from `base_offset` on: it was acknowledged or read."""
        log = self.log
        for offset, value in enumerate(values, base_offset):
            if log.get(offset) == value:
                continue  # it was looked at then, and what is known does not change
            known = log.setdefault(offset, value)
            expect(known == value, f"{self.name} offset {offset} holds {value}, it held {known}")
            elsewhere = self.offsets.setdefault(value, offset)
            expect(elsewhere == offset, f"{self.name} holds {value} twice, at {elsewhere} and {offset}")
            sent = self.records_sent.get(value.producer, -1)
            expect(value.number <= sent, f"{self.name} offset {offset} holds {value}, which nobody sent")

    def acknowledge(self, base_offset: int, values: Sequence[Value]) -> None:
        self.stored(base_offset, values)
        producer, number = values[-1]
        self.acknowledged[producer] = max(self.acknowledged.get(producer, -1), number)
        self.end = max(self.end, base_offset + len(values))

    def bounds(self, start: int, end: int) -> None:
        """Somebody has seen the partition with these bounds."""
        expect(start >= self.start, f"{self.name} starts at {start}; it started at {self.start}")
        expect(end >= self.end, f"{self.name} ends at {end}; it ended at {self.end}")
        expect(start <= end, f"{self.name} starts at {start}, behind its end {end}")
        self.start, self.end = start, end

    def read(self, start: int, found: Sequence[tuple[int, Value]]) -> None:
        """Records read in one go from the offset `start` on."""
        offsets = [offset for offset, _ in found]
        if offsets != list(range(start, start + len(found))):
            raise Violation(f"{self.name} from {start} on has {offsets}")
        self.stored(start, (value for _, value in found))

    def whole(self, start: int, end: int, found: Sequence[tuple[int, Value]]) -> None:
        """Everything that can be read now."""
        self.bounds(start, end)
        self.read(start, found)
        expect(len(found) == end - start, f"{self.name} gives {len(found)} records of [{start}, {end})")
        last: dict[int, int] = {}
        for offset, value in found:
            before = last.get(value.producer, value.number - 1)
            if value.number != before + 1:
                raise Violation(f"{self.name} offset {offset}: {value} follows number {before}")
            last[value.producer] = value.number
        for producer, number in self.acknowledged.items():
            missed = producer in last and last[producer] < number
            expect(not missed, f"{self.name} ends producer {producer} at {last.get(producer)}, not at {number}")
        lost = [offset for offset in self.log if offset >= end]
        expect(not lost, f"{self.name} has lost the offsets {lost}")

    def is_prefix(self, start: int, end: int, found: Sequence[tuple[int, Value]]) -> None:
        """What is there where nothing was synced: what was there at some time before, whole."""
        expect([offset for offset, _ in found] == list(range(start, end)), f"{self.name} has holes")
        for offset, value in found:
            known = self.log.get(offset, value)
            expect(known == value, f"{self.name} offset {offset} holds {value}, it held {known}")


@dataclass(slots=True)
class CommitBook:
    """A group's offset of one partition: the last one that is certain, and those that may have come after it."""

    certain: ConsumerOffset | None = None
    maybe: list[ConsumerOffset | None] = field(default_factory=list)
    history: list[ConsumerOffset | None] = field(default_factory=lambda: [None])
    """All that it may have been."""

    def asked(self, state: ConsumerOffset | None) -> None:
        self.maybe.append(state)
        self.history.append(state)

    def refused(self, state: ConsumerOffset | None) -> None:
        if state in self.maybe:
            self.maybe.remove(state)

    def durable(self, state: ConsumerOffset | None) -> None:
        """It is the last one, but for those asked for later."""
        if state in self.maybe:
            self.certain = state
            del self.maybe[: self.maybe.index(state) + 1]


class GroupBook:
    """One consumer group."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.commits: dict[TopicPartition, CommitBook] = {}
        self._owners: dict[tuple[int, TopicPartition], str] = {}
        self._generation_told = -1

    def owns(self, generation: int, member_id: str, places: Iterable[TopicPartition]) -> None:
        """A member was given these partitions."""
        expect(
            generation >= self._generation_told,
            f"group {self.name} gives out generation {generation} after {self._generation_told}",
        )
        self._generation_told = generation
        for place in places:
            owner = self._owners.setdefault((generation, place), member_id)
            expect(
                owner == member_id, f"group {self.name}: {place} is {owner}'s and {member_id}'s in {generation}"
            )

    def book(self, place: TopicPartition) -> CommitBook:
        return self.commits.setdefault(place, CommitBook())

    def accepted(self, generation: int) -> None:
        """A commit of this generation was let through."""
        expect(
            generation >= self._generation_told,
            f"group {self.name} lets generation {generation} commit after {self._generation_told} began",
        )

    def found(self, place: TopicPartition, state: ConsumerOffset | None) -> None:
        """This is the group's offset now."""
        book = self.book(place)
        if state == book.certain:
            return
        expect(
            state in book.maybe, f"group {self.name} has {state} at {place}; committed was {book.certain}"
        )
        book.durable(state)

    def found_earlier(self, place: TopicPartition, state: ConsumerOffset | None) -> None:
        """This is the group's offset where nothing was synced."""
        expect(state in self.book(place).history, f"group {self.name} has {state} at {place}, never committed")

    def topic_deleting(self, name: str) -> None:
        """Its offsets go with it, if it goes."""
        for place, book in self.commits.items():
            if place[0] == name:
                book.asked(None)

    def topic_gone(self, name: str) -> None:
        for place in [place for place in self.commits if place[0] == name]:
            self.commits[place] = CommitBook(history=self.commits[place].history)


@dataclass(slots=True)
class TopicBook:
    """One topic, by its id: it may be deleted and its name used again."""

    name: str
    topic_id: bytes
    partitions: dict[int, PartitionBook] = field(default_factory=dict)
    count: int = 0
    """Partitions that it has at least."""
    deleting: bool = False
    """Somebody asked to delete it."""
    gone: bool = False

    def partition(self, index: int) -> PartitionBook:
        return self.partitions.setdefault(index, PartitionBook(f"{self.name}-{index}"))
