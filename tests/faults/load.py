"""Load with a book: idempotent producers number their records and note each acknowledgement; `check` reads them."""

import random
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from types import TracebackType
from typing import Any, Self

from confluent_kafka import Consumer, Producer, TopicPartition

from tests.support.waiting import DEADLINE_S
from tests.support.wire import LATEST, Wire

_IN_FLIGHT_MAX = 40
_LARGE_EVERY = 20
_LARGE_BYTES, _SMALL_BYTES = 20_000, 100
_READ_AT_ONCE = 1000


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


class Load:
    """A context manager: inside it producers write without a pause, over whatever happens to the broker."""

    def __init__(self, address: str, topic: str, partitions: list[int], seed: int, *, timeout_s: float = 60) -> None:
        """One producer for each entry of `partitions`, which may name a partition more than once."""
        self.topic = topic
        self.books = [Book(producer, partition) for producer, partition in enumerate(partitions)]
        self._producers = [Producer(_settings(address, timeout_s)) for _ in partitions]
        self._stopping = threading.Event()
        self._noted = threading.Condition()
        self._threads = [
            threading.Thread(target=self._produce, args=(book, random.Random(f"{seed}:{book.producer}")))
            for book in self.books
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join()

    def settle(self) -> None:
        """Stop sending and wait until every record sent was acknowledged or failed."""
        self.__exit__(None, None, None)
        for producer in self._producers:
            assert producer.flush(DEADLINE_S) == 0, "records neither acknowledged nor failed"

    def await_acknowledgements(self, count: int) -> None:
        """Wait until every producer has had `count` more acknowledgements than now."""
        with self._noted:
            wanted = [(book, len(book.acknowledged) + count) for book in self.books]
            done = self._noted.wait_for(
                lambda: all(len(book.acknowledged) >= least for book, least in wanted), DEADLINE_S
            )
        assert done, f"after {DEADLINE_S:g} s not {count} more acknowledgements for each producer"

    def ends(self) -> dict[int, int]:
        """The least end of each partition, by what was acknowledged so far."""
        found: dict[int, int] = {}
        with self._noted:
            for book in self.books:
                found[book.partition] = max(found.get(book.partition, 0), book.end)
        return found

    def _produce(self, book: Book, source: random.Random) -> None:
        producer = self._producers[book.producer]
        while not self._stopping.is_set():
            if len(producer) >= _IN_FLIGHT_MAX:
                producer.poll(0.01)
                continue
            number = book.sent
            book.sent += 1
            size = source.randrange(_LARGE_BYTES if number % _LARGE_EVERY == 0 else _SMALL_BYTES)
            value = b"%d:%d:" % (book.producer, number) + source.randbytes(size)
            producer.produce(
                self.topic, value, partition=book.partition,
                on_delivery=partial(self._note, book, number),
            )  # fmt: skip
            producer.poll(0)

    def _note(self, book: Book, number: int, error: Any, message: Any) -> None:
        with self._noted:
            if error is not None:
                book.failures.append(str(error))
            else:
                book.acknowledged[number] = message.offset()
                book.end = max(book.end, message.offset() + 1)
            self._noted.notify_all()


def check(load: Load, address: str) -> int:
    """AssertionError unless every acknowledged record is there once, where it was acknowledged, in order; how many."""
    for partition in load.ends():
        written = [book for book in load.books if book.partition == partition]
        place: dict[int, list[tuple[int, int]]] = {book.producer: [] for book in written}
        for offset, value in read_all(address, load.topic, partition):
            producer, number, _ = value.split(b":", 2)
            place[int(producer)].append((int(number), offset))
        for book in written:
            numbers = [number for number, _ in place[book.producer]]
            assert numbers == sorted(set(numbers)), f"producer {book.producer}: a record twice or out of order"
            found = dict(place[book.producer])
            lost = [number for number in book.acknowledged if number not in found]
            assert not lost, f"producer {book.producer}: {len(lost)} acknowledged records are gone, first {lost[0]}"
            moved = [number for number, offset in book.acknowledged.items() if offset >= 0 and found[number] != offset]
            assert not moved, f"producer {book.producer}: {len(moved)} records lie elsewhere than acknowledged"
    return sum(len(book.acknowledged) for book in load.books)


def read_all(address: str, topic: str, partition: int) -> Iterator[tuple[int, bytes]]:
    """(offset, value) of every record from the start to the end that the broker names now."""
    with Wire(address) as wire:
        error_code, end = wire.offset(topic, partition, LATEST)
    assert error_code == 0, error_code
    settings = {"bootstrap.servers": address, "group.id": "unused", "enable.auto.commit": False}
    with Consumer(settings | {"auto.offset.reset": "error"}) as consumer:
        consumer.assign([TopicPartition(topic, partition, 0)])
        position = 0
        while position < end:
            records = consumer.consume(min(_READ_AT_ONCE, end - position), DEADLINE_S)
            assert records, f"nothing after offset {position} of {end}"
            for record in records:
                assert record.error() is None, record.error()
                assert record.offset() == position, f"offset {record.offset()} where {position} was due"
                yield position, record.value() or b""
                position += 1


def _settings(address: str, timeout_s: float) -> dict[str, Any]:
    return {
        "bootstrap.servers": address,
        "enable.idempotence": True,
        "linger.ms": 1,
        "reconnect.backoff.ms": 5,
        "reconnect.backoff.max.ms": 50,
        "retry.backoff.ms": 10,
        "retry.backoff.max.ms": 50,
        "message.timeout.ms": int(timeout_s * 1000),
        "log_level": 0,
    }
