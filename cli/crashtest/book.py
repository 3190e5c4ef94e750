"""Books of what producers wrote and what was acknowledged; and the check that a log has just that, in order, once."""

import threading
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

AWAIT_S = 15.0
"""Seconds that acknowledgements may keep a run waiting; a restart takes one."""


_NOT_YET = -2
"""Stands for an offset until it is acknowledged."""


class Broken(Exception):
    """A promise was not kept; the text says which."""


@dataclass(slots=True)
class Book:
    """One producer's book: how many records it sent, and where those lie that were acknowledged. Eight bytes each."""

    producer: int
    partition: int
    sent: int = 0
    acknowledged: int = 0
    failures: list[str] = field(default_factory=list)
    end: int = 0
    """The least that the partition's end can be, by what was acknowledged."""
    _offsets: "array[int]" = field(default_factory=lambda: array("q"))

    def next_value(self, filling: bytes) -> tuple[int, bytes]:
        """The number of the next record and its value, which says whose it is."""
        number = self.sent
        self.sent += 1
        return number, b"%d:%d:" % (self.producer, number) + filling

    def acknowledge(self, number: int, offset: int) -> None:
        """Note the offset of a record; -1: the broker gave none."""
        self._offsets.extend([_NOT_YET] * (number + 1 - len(self._offsets)))
        self._offsets[number] = offset
        self.acknowledged += 1
        self.end = max(self.end, offset + 1)

    def offset(self, number: int) -> int | None:
        """Return the offset at which a record was acknowledged, -1 where none was reported; None when it was not."""
        known = self._offsets[number] if number < len(self._offsets) else _NOT_YET
        return None if known == _NOT_YET else known


class Books:
    """One for each entry of `partitions`, which may name a partition more than once. Any thread may note."""

    def __init__(self, partitions: Iterable[int]) -> None:
        self.books = [Book(producer, partition) for producer, partition in enumerate(partitions)]
        self._noted = threading.Condition()

    def note(self, book: Book, number: int, offset: int) -> None:
        """Note an acknowledgement."""
        with self._noted:
            book.acknowledge(number, offset)
            self._noted.notify_all()

    def note_failure(self, book: Book, failure: str) -> None:
        """Note a record that was given up."""
        with self._noted:
            book.failures.append(failure)
            self._noted.notify_all()

    def await_acknowledgements(self, count: int) -> None:
        """Wait until every producer has had `count` more acknowledgements than now.

        Raises Broken when that takes too long, and at once when a record was given up.
        """
        with self._noted:
            wanted = [(book, book.acknowledged + count) for book in self.books]
            done = self._noted.wait_for(
                lambda: (
                    any(book.failures for book in self.books)
                    or all(book.acknowledged >= least for book, least in wanted)
                ),
                AWAIT_S,
            )
        self.check_failures()
        if not done:
            raise Broken(f"after {AWAIT_S:g} s not {count} more acknowledgements for each producer")

    def check_failures(self) -> None:
        """Raise Broken when a record was given up."""
        for book in self.books:
            if book.failures:
                raise Broken(f"{len(book.failures)} records were given up, the first: {book.failures[0]}")

    def ends(self) -> dict[int, int]:
        """The least end of each partition, by what was acknowledged so far."""
        found: dict[int, int] = {}
        with self._noted:
            for book in self.books:
                found[book.partition] = max(found.get(book.partition, 0), book.end)
        return found


class Comparison:
    """A comparison of logs, record by record as they are read, with the books; only faults are kept."""

    def __init__(self, books: Sequence[Book]) -> None:
        self._followed = [_Followed(book) for book in books]

    def take(self, partition: int, offset: int, value: bytes) -> None:
        """The next record of a partition. Raises Broken."""
        producer, number, _ = value.split(b":", 2)
        self._followed[int(producer)].take(partition, offset, int(number))

    def end(self) -> int:
        """Raise Broken unless every acknowledged record was there once, where it was acknowledged; how many."""
        return sum(followed.end() for followed in self._followed)


@dataclass(slots=True)
class _Followed:
    """One producer's records so far."""

    book: Book
    following: int = 0
    """The number due next."""
    lost: int = 0
    first_lost: int = 0
    moved: int = 0

    def take(self, partition: int, offset: int, number: int) -> None:
        who = f"producer {self.book.producer}"
        if partition != self.book.partition:
            raise Broken(f"{who}: a record is in partition {partition}, not {self.book.partition}")
        if number < self.following:
            raise Broken(f"{who}: a record twice or out of order")
        self._pass_over(number)
        known = self.book.offset(number)
        self.moved += known is not None and known >= 0 and known != offset
        self.following = number + 1

    def end(self) -> int:
        self._pass_over(self.book.sent)
        if self.lost:
            told = f"{self.lost} acknowledged records are gone, first {self.first_lost}"
            raise Broken(f"producer {self.book.producer}: {told}")
        if self.moved:
            raise Broken(f"producer {self.book.producer}: {self.moved} records lie elsewhere than acknowledged")
        return self.book.acknowledged

    def _pass_over(self, stop: int) -> None:
        """The records before `stop` were not there."""
        for number in range(self.following, stop):
            if self.book.offset(number) is not None:
                self.first_lost = self.first_lost if self.lost else number
                self.lost += 1
