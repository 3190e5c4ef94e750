"""The two phases of `pqbroker bench`: writing, with the time until each acknowledgement, and reading all of it."""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Coroutine, Sequence
from typing import Any, NamedTuple

from aiokafka import AIOKafkaConsumer
from aiokafka.errors import KafkaError

from pqbroker.cli.connection_security import client_options
from pqbroker.cli.kafka.watch import GONE_TIMEOUT_S, LOOK_EVERY_S, Watch
from pqbroker.cli.progress import Progress
from pqbroker.cli.records.client import (
    UNANSWERED_S,
    Acks,
    Compression,
    RetriedRefusal,
    producer,
    refusal,
    retried_refusal,
)
from pqbroker.cli.refusals import CommandError

SAMPLE_EVERY = 100
"""One record in this many is timed."""
READ_TIMEOUT_MS = 30_000
_MB = 1_000_000


class Workload(NamedTuple):
    """The load to write: counts and bytes."""

    records: int
    size: int
    batch_bytes: int
    linger_ms: int
    compression: Compression
    acks: Acks


class Phase(NamedTuple):
    """The measurements of one phase; latencies are of acknowledgements, in seconds, none for reading."""

    name: str
    records: int
    size: int
    seconds: float
    latencies: Sequence[float]

    def row(self) -> tuple[object, ...]:
        """Name, records, MB, seconds, records/s, MB/s, latencies in ms: half and 99 of 100 are below."""
        megabytes = self.records * self.size / _MB
        figures = round(megabytes, 3), round(self.seconds, 3)
        rates = round(self.records / self.seconds), round(megabytes / self.seconds, 3)
        return self.name, self.records, *figures, *rates, self._below(0.5), self._below(0.99)

    def _below(self, share: float) -> float | None:
        ordered = sorted(self.latencies)
        return round(ordered[int(share * (len(ordered) - 1))] * 1000, 3) if ordered else None


def measure(broker: str, topic: str, load: Workload) -> list[Phase]:
    """Write, then read."""

    watch = Watch(broker, GONE_TIMEOUT_S)

    async def both() -> list[Phase]:
        with retried_refusal() as retried:
            written = await _moving(_write(broker, topic, load, watch), watch, retried)
        return [written, await _read(broker, topic, load, watch)]

    return asyncio.run(watch.over(both()))


async def _moving(work: Coroutine[Any, Any, Phase], watch: Watch, retried: RetriedRefusal) -> Phase:
    """Await the writing. CommandError if the broker answers, and acknowledges nothing for UNANSWERED_S: aiokafka
    retries without end, as where the disk is full."""
    task = asyncio.ensure_future(work)
    try:
        moves, moved_s = watch.moves, time.monotonic()
        while not task.done():
            await asyncio.wait([task], timeout=LOOK_EVERY_S)
            if watch.is_gone or watch.moves != moves:
                moves, moved_s = watch.moves, time.monotonic()
            elif time.monotonic() - moved_s > UNANSWERED_S:
                cause = retried.words
                raise CommandError(f"no record was acknowledged within {UNANSWERED_S:g} s: {cause}")
    finally:
        task.cancel()
    return await task


async def _write(broker: str, topic: str, load: Workload, watch: Watch) -> Phase:
    value = os.urandom(load.size)
    latencies: list[float] = []
    refused: list[BaseException] = []
    async with producer(broker, load.compression, load.acks, load.linger_ms, load.batch_bytes) as client:
        begin = time.perf_counter()
        with Progress("records written", load.records) as shown:
            numbers = iter(range(load.records))
            while not refused and (number := next(numbers, None)) is not None:
                sent = await client.send(topic, value)
                sent.add_done_callback(lambda done: _answered(done, refused, watch))
                _sample(number, sent, latencies, shown)
        await client.flush()
        if refused:
            raise refused[0]
        seconds = time.perf_counter() - begin
    return Phase("produce", load.records, load.size, seconds, latencies)


def _answered(done: "asyncio.Future[Any]", refused: list[BaseException], watch: Watch) -> None:
    """Keep a refusal: the loop would log each that is not looked at, on lines of its own."""
    if done.cancelled():
        return
    watch.moved()
    if (error := done.exception()) is not None:
        refused.append(error)


def _sample(number: int, future: "asyncio.Future[Any]", latencies: list[float], shown: Progress) -> None:
    """Time one record of many."""
    if number % SAMPLE_EVERY:
        return
    shown.reach(number)
    begin = time.perf_counter()
    future.add_done_callback(lambda done: latencies.append(time.perf_counter() - begin))


async def _read(broker: str, topic: str, load: Workload, watch: Watch) -> Phase:
    consumer = AIOKafkaConsumer(
        topic, bootstrap_servers=broker, client_id="pqbroker-cli", auto_offset_reset="earliest", **client_options()
    )
    try:
        await consumer.start()
        begin = time.perf_counter()
        with Progress("records read", load.records) as shown:
            async for read in _counts(consumer, load.records):
                watch.moved()
                shown.reach(read)
        seconds = time.perf_counter() - begin
    except KafkaError as error:
        raise refusal(error, f"cannot read {topic}") from None
    finally:
        await consumer.stop()
    return Phase("consume", load.records, load.size, seconds, ())


async def _counts(consumer: Any, records: int) -> AsyncIterator[int]:
    """Yield how many records have been read, until all are."""
    read = 0
    while read < records:
        found = await consumer.getmany(timeout_ms=READ_TIMEOUT_MS)
        if not found:
            raise CommandError(f"only {read} of {records} records came back")
        read += sum(map(len, found.values()))
        yield read
