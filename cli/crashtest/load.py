"""The load of `pqbroker crashtest`: idempotent producers of aiokafka in a thread of their own, and reading all back."""

import asyncio
import random
import threading
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from types import TracebackType
from typing import Any, Self

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka.errors import KafkaError

from pqbroker.cli.crashtest.book import Book, Books, Broken
from pqbroker.cli.records.client import Acks, Compression, producer
from pqbroker.cli.refusals import CommandError

IN_FLIGHT_MAX = 40
LOAD_LINGER_MS = 1
BATCH_BYTES = 1 << 17
LARGE_EVERY = 20
LARGE_BYTES, SMALL_BYTES = 20_000, 100
LOG_READ_TIMEOUT_MS = 15_000


class AsyncLoad(Books):
    """A context manager: inside it producers write to a topic without a pause; leaving it waits for their answers."""

    def __init__(self, address: str, topic: str, partitions: list[int], seed: int) -> None:
        super().__init__(partitions)
        self._address = address
        self._topic = topic
        self._seed = seed
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="load", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        if error is None:  # else the broker may be gone, and its answers would never come
            self._thread.join()

    def _run(self) -> None:
        try:
            asyncio.run(self._produce_all())
        except CommandError as refused:
            self.note_failure(self.books[0], str(refused))

    async def _produce_all(self) -> None:
        await asyncio.gather(*(self._produce(book) for book in self.books))

    async def _produce(self, book: Book) -> None:
        source = random.Random(f"{self._seed}:{book.producer}")
        room = asyncio.Semaphore(IN_FLIGHT_MAX)
        async with producer(self._address, Compression.NONE, Acks.ALL, LOAD_LINGER_MS, BATCH_BYTES) as client:
            while not self._stopping.is_set():
                await room.acquire()
                size = source.randrange(LARGE_BYTES if book.sent % LARGE_EVERY == 0 else SMALL_BYTES)
                number, value = book.next_value(source.randbytes(size))
                sent = await client.send(self._topic, value, partition=book.partition)
                sent.add_done_callback(partial(self._answered, book, number, room))
            await client.flush()

    def _answered(self, book: Book, number: int, room: asyncio.Semaphore, sent: "asyncio.Future[Any]") -> None:
        room.release()
        if sent.cancelled():
            return
        error = sent.exception()
        if error is None:
            self.note(book, number, sent.result().offset)
        else:
            self.note_failure(book, f"record {number} of producer {book.producer}: {error!r}")


async def read_logs(address: str, topic: str, ends: Mapping[int, int], take: Callable[[int, int, bytes], None]) -> None:
    """Hand partition, offset and value of every record up to `ends` to `take`. Broken for a hole, CommandError."""
    positions = dict.fromkeys(ends, 0)
    consumer = AIOKafkaConsumer(bootstrap_servers=address, client_id="pqbroker-cli", enable_auto_commit=False)
    try:
        await consumer.start()
        consumer.assign([TopicPartition(topic, partition) for partition in ends])
        await consumer.seek_to_beginning()
        while left := [partition for partition, end in ends.items() if positions[partition] < end]:
            found = await consumer.getmany(timeout_ms=LOG_READ_TIMEOUT_MS)
            if not found:
                raise Broken(f"nothing more came from {topic}, though partition {min(left)} should have more")
            for place, records in found.items():
                due = positions[place.partition]
                positions[place.partition] = _hand_over(place.partition, records, due, take)
    except KafkaError as error:
        raise CommandError(f"cannot read {topic}: {error}") from None
    finally:
        await consumer.stop()


def _hand_over(
    partition: int, records: Iterable[ConsumerRecord], due: int, take: Callable[[int, int, bytes], None]
) -> int:
    """Hand the records to `take`, the first of which has the offset `due`; the offset that is due next."""
    for record in records:
        if record.offset != due:
            raise Broken(f"offset {record.offset} of partition {partition} where {due} was due")
        take(partition, record.offset, record.value)
        due += 1
    return due
