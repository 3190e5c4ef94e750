"""Writing lines as records: read in a thread of their own, counted as their acknowledgements come."""

import asyncio
import os
import signal
import threading
import time
from collections.abc import AsyncIterator, Coroutine
from concurrent.futures import CancelledError
from typing import Any, NamedTuple

from aiokafka.errors import KafkaError
from aiokafka.partitioner import DefaultPartitioner

from pqbroker.cli.kafka.watch import GONE_TIMEOUT_S, LOOK_EVERY_S, BrokerGone, Watch
from pqbroker.cli.progress import Progress, is_file
from pqbroker.cli.records.client import (
    INTERRUPTED_STOP_S,
    REQUEST_BYTES_MAX,
    UNANSWERED_S,
    Acks,
    Compression,
    RetriedRefusal,
    producer,
    refusal,
    retried_refusal,
)
from pqbroker.cli.records.lines import NO_TIMESTAMP, LineError, NewRecord, Parse
from pqbroker.cli.refusals import CommandError

INPUT_BYTES = 1 << 16
CHUNKS_AHEAD = 16
LINGER_MS = 5
BATCH_BYTES = 1 << 17


class Target(NamedTuple):
    """The target of records: a topic at brokers, and what holds for all of them."""

    brokers: str
    topic: str
    partition_count: int
    compression: Compression
    acks: Acks
    partition: int | None = None
    """Partition of every record, whatever a line says."""


class Interrupted(CommandError):
    """The command was ended by Ctrl-C or SIGTERM before all its lines were written."""


class Written:
    """Records whose acknowledgement came, with the first and last offset by partition; of refusals the first line's."""

    def __init__(self, watch: Watch, retried: RetriedRefusal) -> None:
        self._watch = watch
        self._retried = retried
        self.records = 0
        self.bytes = 0
        self.spans: dict[int, tuple[int, int]] = {}
        self.refusal: CommandError | None = None
        self._refused_line = 0
        self._waiting = 0
        self._moved_s = 0.0

    def sent(self) -> None:
        """Note a record that was sent; the time of those that wait begins with the first one."""
        if not self._waiting:
            self._moved_s = time.monotonic()
        self._waiting += 1

    def check_moving(self) -> None:
        """CommandError if records wait, a broker answers, and it acknowledged none of them for UNANSWERED_S."""
        if not self._waiting or self._watch.is_gone:
            self._moved_s = time.monotonic()
        elif time.monotonic() - self._moved_s > UNANSWERED_S:
            cause = self._retried.words
            written = f"records written: {self.records}; none of the {self._waiting} behind them"
            raise CommandError(f"{written} was acknowledged within {UNANSWERED_S:g} s: {cause}")

    def count(self, line: int, size: int, done: "asyncio.Future[Any]") -> None:
        """Note the answer to one record."""
        self._waiting -= 1
        self._moved_s = time.monotonic()
        if done.cancelled():
            return
        error = done.exception()
        if error is not None:
            self.refuse(line, refusal(error, f"line {line} was not written"))
            return
        self._watch.moved()
        self.records += 1
        self.bytes += size
        sent = done.result()
        if sent is not None and sent.offset >= 0:
            first, last = self.spans.get(sent.partition, (sent.offset, sent.offset))
            self.spans[sent.partition] = min(first, sent.offset), max(last, sent.offset)

    def interrupted(self) -> Interrupted:
        """Return the error of a command that was stopped."""
        return Interrupted(f"interrupted; records written: {self.records}" + ", more perhaps" * bool(self._waiting))

    def refuse(self, line: int, why: CommandError) -> None:
        """Note that a line cannot be written. If an earlier line is refused later, that one is reported."""
        if self.refusal is None or line < self._refused_line:
            self.refusal, self._refused_line = why, line


class Lines(NamedTuple):
    """Lines to write: from a file or a pipe, each a record, until its end or until the command is to stop."""

    descriptor: int
    parse: Parse
    stopping: asyncio.Event


def write_lines(target: Target, parse: Parse, descriptor: int) -> Written:
    """Write every line until the end of the file, which Ctrl-C is too for lines that are typed or come through a pipe.

    CommandError for the first line that is refused; Interrupted, BrokerGone.
    """
    watch = Watch(target.brokers, GONE_TIMEOUT_S)
    with retried_refusal() as retried:
        written = Written(watch, retried)

        async def write() -> None:
            lines = Lines(descriptor, parse, _stop_on_signals())
            async with producer(target.brokers, target.compression, target.acks, LINGER_MS, BATCH_BYTES) as client:
                await _watched(_send_and_flush(client, target, lines, written), written, lines.stopping)
                if lines.stopping.is_set() and (is_file(descriptor) or not written.records):
                    raise written.interrupted()

        try:
            asyncio.run(watch.over(write()))
        except BrokerGone as error:
            raise BrokerGone(f"{error}; {written.records} records are written, those behind them perhaps") from None
    if written.refusal is not None:
        raise written.refusal
    return written


def _stop_on_signals() -> asyncio.Event:
    """Return an event that Ctrl-C and SIGTERM set."""
    stopping = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    return stopping


async def _watched(work: Coroutine[Any, Any, None], written: Written, stopping: asyncio.Event) -> None:
    """Await the work while it moves. aiokafka retries for ever, even to a partition that no broker serves.

    What was sent when the command is to stop has INTERRUPTED_STOP_S to be acknowledged. Interrupted.
    """
    task, stopped = asyncio.ensure_future(work), asyncio.ensure_future(stopping.wait())
    try:
        while not task.done() and not stopped.done():
            await asyncio.wait([task, stopped], timeout=LOOK_EVERY_S, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                written.check_moving()
        await asyncio.wait([task], timeout=INTERRUPTED_STOP_S)
        if not task.done():
            raise written.interrupted()
    finally:
        task.cancel()
        stopped.cancel()
    await task


async def _send_and_flush(client: Any, target: Target, lines: Lines, written: Written) -> None:
    await _send_all(client, target, lines, written)
    await client.flush()


async def _send_all(client: Any, target: Target, lines: Lines, written: Written) -> None:
    number = 0
    rest = bytearray()
    total = os.fstat(lines.descriptor).st_size if is_file(lines.descriptor) else None
    with Progress(f"bytes to {target.topic}", total, shown=total is not None) as shown:
        async for chunk in _chunks(lines.descriptor, lines.stopping):
            for line in _whole_lines(rest, chunk):
                number += 1
                await _take(client, target, lines.parse, (number, line), written)
            if written.refusal is not None:
                return
            if len(rest) > REQUEST_BYTES_MAX:
                written.refuse(number + 1, CommandError(f"line {number + 1} is over {REQUEST_BYTES_MAX} bytes long"))
                return
            shown.advance(len(chunk))


async def _take(client: Any, target: Target, parse: Parse, numbered: tuple[int, bytes], written: Written) -> None:
    number, line = numbered
    if written.refusal is not None:
        return
    try:
        await _send(client, target, parse(line), number, written)
    except LineError as error:
        written.refuse(number, CommandError(f"line {number} {error}; the lines before it were written"))
    except CommandError as error:
        written.refuse(number, error)


def _whole_lines(rest: bytearray, chunk: bytes) -> list[bytes]:
    """Return the lines that end in a chunk; an empty one is the end of the file. `rest` keeps an unfinished line."""
    if not chunk:
        return [bytes(rest)] if rest else []
    first, *others = chunk.split(b"\n")
    rest += first
    if not others:
        return []
    whole = [bytes(rest), *others[:-1]]
    rest[:] = others[-1]
    return whole


async def _send(client: Any, target: Target, record: NewRecord | None, number: int, written: Written) -> None:
    if record is None:
        return
    partition = record.partition if target.partition is None else target.partition
    if partition is not None and partition >= target.partition_count:
        raise LineError(
            f"names partition {partition}, but topic {target.topic} has {target.partition_count}; "
            "`pqbroker topic grow` adds partitions, --partition sends all records to one"
        )
    try:
        if record.timestamp == NO_TIMESTAMP or (record.key is None and record.value is None):
            future = await _send_alone(client, target, record, partition)
        else:
            key, value, stamp = record.key, record.value, record.timestamp
            future = await client.send(target.topic, value, key, partition, stamp, headers=record.headers)
    except KafkaError as error:
        raise refusal(error, f"line {number} was not written") from None
    size = len(record.key or b"") + len(record.value or b"")
    written.sent()
    future.add_done_callback(lambda done: written.count(number, size, done))


async def _send_alone(client: Any, target: Target, record: NewRecord, partition: int | None) -> Any:
    """A record without key and value, which aiokafka takes in a batch of the caller's only; or without a time.

    A batch whose first record has none would give it the second one's: aiokafka means "not known yet" by -1.
    """
    if partition is None:
        everywhere = list(range(target.partition_count))
        partition = DefaultPartitioner()(record.key, everywhere, everywhere)
    batch = client.create_batch()
    if batch.append(timestamp=record.timestamp, key=record.key, value=record.value, headers=record.headers) is None:
        raise CommandError(f"a record without a time is over {BATCH_BYTES} bytes long; give it a timestamp")
    batch.close()
    return await client.send_batch(batch, target.topic, partition=partition)


async def _chunks(descriptor: int, stopping: asyncio.Event) -> AsyncIterator[bytes]:
    """Yield the chunks that are read, as they come, and an empty one at the end; fewer once the command is to stop.

    A terminal or a pipe may keep a read waiting for ever: the thread is a daemon, which Ctrl-C leaves behind, and it
    reads the descriptor itself, since Python's own buffer would be locked at exit.
    """
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[bytes | OSError] = asyncio.Queue(CHUNKS_AHEAD)

    def read() -> None:
        chunk: bytes | OSError = b"-"
        while chunk and isinstance(chunk, bytes):
            try:
                chunk = os.read(descriptor, INPUT_BYTES)
            except OSError as error:
                chunk = error
            put = queue.put(chunk)
            try:
                asyncio.run_coroutine_threadsafe(put, loop).result()
            except RuntimeError:
                put.close()  # the loop has ended, nobody wants the rest, and Python would warn of what never ran
                return
            except CancelledError:
                return

    threading.Thread(target=read, daemon=True).start()
    stopped = asyncio.ensure_future(stopping.wait())
    while not (stopped.done() and queue.empty()):
        getting = asyncio.ensure_future(queue.get())
        await asyncio.wait([getting, stopped], return_when=asyncio.FIRST_COMPLETED)
        if not getting.done() and queue.empty():
            getting.cancel()
            return
        chunk = await getting
        if isinstance(chunk, OSError):
            raise CommandError(f"cannot read the lines: {chunk.strerror}")
        yield chunk
        if not chunk:
            return
