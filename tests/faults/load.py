"""Load with a book: idempotent producers number their records and note each acknowledgement; `check` reads them."""

import random
import threading
from collections.abc import Iterator
from functools import partial
from types import TracebackType
from typing import Any, Self

from confluent_kafka import Consumer, Producer, TopicPartition

from pqbroker.cli.crashtest.book import Book, Books, Comparison
from tests.support.waiting import DEADLINE_S

_IN_FLIGHT_MAX = 40
_LARGE_EVERY = 20
_LARGE_BYTES, _SMALL_BYTES = 20_000, 100
_READ_AT_ONCE = 1000


class Load(Books):
    """A context manager: inside it producers write without a pause, over whatever happens to the broker."""

    def __init__(self, address: str, topic: str, partitions: list[int], seed: int, *, timeout_s: float = 60) -> None:
        super().__init__(partitions)
        self.topic = topic
        self._producers = [Producer(_settings(address, timeout_s)) for _ in partitions]
        self._stopping = threading.Event()
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

    def _produce(self, book: Book, source: random.Random) -> None:
        producer = self._producers[book.producer]
        while not self._stopping.is_set():
            if len(producer) >= _IN_FLIGHT_MAX:
                producer.poll(0.01)
                continue
            size = source.randrange(_LARGE_BYTES if book.sent % _LARGE_EVERY == 0 else _SMALL_BYTES)
            number, value = book.next_value(source.randbytes(size))
            producer.produce(
                self.topic, value, partition=book.partition,
                on_delivery=partial(self._answered, book, number),
            )  # fmt: skip
            producer.poll(0)

    def _answered(self, book: Book, number: int, error: Any, message: Any) -> None:
        if error is not None:
            self.note_failure(book, str(error))
        else:
            self.note(book, number, message.offset())


def check(load: Load, address: str) -> int:
    """Broken unless every acknowledged record is there once, where it was acknowledged, in order; how many."""
    comparison = Comparison(load.books)
    for partition in load.ends():
        for offset, value in read_all(address, load.topic, partition):
            comparison.take(partition, offset, value)
    return comparison.end()


def read_all(address: str, topic: str, partition: int) -> Iterator[tuple[int, bytes]]:
    """(offset, value) of every record from the start to the end that the broker names now."""
    settings = {"bootstrap.servers": address, "group.id": "unused", "enable.auto.commit": False, "log_level": 0}
    with Consumer(settings | {"auto.offset.reset": "error"}) as consumer:
        consumer.assign([TopicPartition(topic, partition, 0)])
        _, end = consumer.get_watermark_offsets(TopicPartition(topic, partition), DEADLINE_S)
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
