"""What producers wrote and what was acknowledged, in books; and whether a log has just that, in order, once."""

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

AWAIT_S = 15.0
"""How long acknowledgements may keep a run waiting; a restart takes a second."""


class Broken(Exception):
    """A promise was not kept; the text says which."""


@dataclass(slots=True)
class Book:
    """What one producer did: how many records it sent, and the offset of each that was acknowledged (-1: not told)."""

    producer: int
    partition: int
    sent: int = 0
    acknowledged: dict[int, int] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    end: int = 0
    """The least that the partition's end can be, by what was acknowledged."""

    def next_value(self, filling: bytes) -> tuple[int, bytes]:
        """The number of the next record and its value, which says whose it is."""
        number = self.sent
        self.sent += 1
        return number, b"%d:%d:" % (self.producer, number) + filling


class Books:
    """One for each entry of `partitions`, which may name a partition more than once. Any thread may note."""

    def __init__(self, partitions: Iterable[int]) -> None:
        self.books = [Book(producer, partition) for producer, partition in enumerate(partitions)]
        self._noted = threading.Condition()

    def note(self, book: Book, number: int, offset: int) -> None:
        """A record was acknowledged."""
        with self._noted:
            book.acknowledged[number] = offset
            book.end = max(book.end, offset + 1)
            self._noted.notify_all()

    def note_failure(self, book: Book, failure: str) -> None:
        """A record was given up."""
        with self._noted:
            book.failures.append(failure)
            self._noted.notify_all()

    def await_acknowledgements(self, count: int) -> None:
        """Wait until every producer has had `count` more acknowledgements than now.

        Raises Broken when that takes too long, and at once when a record was given up.
        """
        with self._noted:
            wanted = [(book, len(book.acknowledged) + count) for book in self.books]
            done = self._noted.wait_for(
                lambda: all(book.failures or len(book.acknowledged) >= least for book, least in wanted), AWAIT_S
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


def verify(books: Sequence[Book], logs: Mapping[int, Iterable[tuple[int, bytes]]]) -> int:
    """Raise Broken unless every acknowledged record is there once, where it was acknowledged, in order; how many.

    `logs` are offsets and values of each partition, in order.
    """
    for partition, log in logs.items():
        written = [book for book in books if book.partition == partition]
        place: dict[int, list[tuple[int, int]]] = {book.producer: [] for book in written}
        for offset, value in log:
            producer, number, _ = value.split(b":", 2)
            place[int(producer)].append((int(number), offset))
        for book in written:
            _verify_book(book, place[book.producer])
    return sum(len(book.acknowledged) for book in books)


def _verify_book(book: Book, place: Sequence[tuple[int, int]]) -> None:
    numbers = [number for number, _ in place]
    if numbers != sorted(set(numbers)):
        raise Broken(f"producer {book.producer}: a record twice or out of order")
    found = dict(place)
    lost = [number for number in book.acknowledged if number not in found]
    if lost:
        raise Broken(f"producer {book.producer}: {len(lost)} acknowledged records are gone, first {lost[0]}")
    moved = [number for number, offset in book.acknowledged.items() if offset >= 0 and found[number] != offset]
    if moved:
        raise Broken(f"producer {book.producer}: {len(moved)} records lie elsewhere than acknowledged")
