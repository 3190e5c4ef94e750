"""Writing lines as records: read in a thread of their own, counted as their acknowledgements come."""

import asyncio
import os
import stat
import threading
from collections.abc import AsyncIterator
from concurrent.futures import CancelledError
from typing import Any, NamedTuple

from aiokafka.errors import KafkaError
from rich.progress import Progress

from pqbroker.broker.cli.output import progress
from pqbroker.broker.cli.records import REQUEST_BYTES_MAX, Acks, Compression, producer, refusal
from pqbroker.broker.cli.refusals import CommandError
from pqbroker.broker.cli.watch import GONE_TIMEOUT_S, BrokerGone, Watch

READ_BYTES = 1 << 16
CHUNKS_AHEAD = 16
LINGER_MS = 5
BATCH_BYTES = 1 << 17


class Lines(NamedTuple):
    """How a line becomes a record."""

    key_separator: bytes | None
    null: bytes | None
    headers: list[tuple[str, bytes]]
    partition: int | None


class Written:
    """Records whose acknowledgement came, with the first and last offset by partition; of refusals the first line's."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self.records = 0
        self.bytes = 0
        self.spans: dict[int, tuple[int, int]] = {}
        self.refusal: CommandError | None = None
        self._refused_line = 0

    def count(self, line: int, size: int, done: "asyncio.Future[Any]") -> None:
        """One record's answer has come."""
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

    def refuse(self, line: int, why: CommandError) -> None:
        """A line cannot be written; one before it may be refused later, and is what is told then."""
        if self.refusal is None or line < self._refused_line:
            self.refusal, self._refused_line = why, line


def write_lines(
    broker: str, topic: str, lines: Lines, descriptor: int, compression: Compression, acks: Acks
) -> Written:
    """Every line until the end of the file; CommandError with the first line that is refused, BrokerGone."""
    watch = Watch(broker, GONE_TIMEOUT_S)
    written = Written(watch)

    async def write() -> None:
        async with producer(broker, compression, acks, LINGER_MS, BATCH_BYTES) as client:
            with progress() as shown:
                await _send_all(client, topic, lines, descriptor, written, shown)
            await client.flush()

    try:
        asyncio.run(watch.over(write()))
    except BrokerGone as error:
        raise BrokerGone(f"{error}; {written.records} records are written, those behind them perhaps") from None
    if written.refusal is not None:
        raise written.refusal
    return written


async def _send_all(client: Any, topic: str, lines: Lines, descriptor: int, written: Written, shown: Progress) -> None:
    found = os.fstat(descriptor)
    task = shown.add_task(f"bytes to {topic}", total=found.st_size if stat.S_ISREG(found.st_mode) else None)
    number = 0
    rest = bytearray()
    async for chunk in _chunks(descriptor):
        for line in _whole_lines(rest, chunk):
            if written.refusal is not None:
                return
            number += 1
            try:
                await _send(client, topic, lines, line, number, written)
            except CommandError as error:
                written.refuse(number, error)
        if len(rest) > REQUEST_BYTES_MAX:
            written.refuse(number + 1, CommandError(f"line {number + 1} is over {REQUEST_BYTES_MAX} bytes long"))
            return
        shown.advance(task, len(chunk))


def _whole_lines(rest: bytearray, chunk: bytes) -> list[bytes]:
    """The lines that end in a chunk, or at the end of the file, where it is empty; `rest` keeps what goes on."""
    if not chunk:
        return [bytes(rest)] if rest else []
    first, *others = chunk.split(b"\n")
    rest += first
    if not others:
        return []
    whole = [bytes(rest), *others[:-1]]
    rest[:] = others[-1]
    return whole


async def _send(client: Any, topic: str, lines: Lines, line: bytes, number: int, written: Written) -> None:
    key, value = _split(lines, line.removesuffix(b"\r"), number)
    try:
        future = await client.send(topic, value, key, lines.partition, headers=lines.headers)
    except KafkaError as error:
        raise refusal(error, f"line {number} was not written") from None
    size = len(key or b"") + len(value or b"")
    future.add_done_callback(lambda done: written.count(number, size, done))


def _split(lines: Lines, line: bytes, number: int) -> tuple[bytes | None, bytes | None]:
    key: bytes | None = None
    if lines.key_separator is not None:
        key, separator, line = line.partition(lines.key_separator)
        if not separator:
            text = lines.key_separator.decode()
            raise CommandError(f"line {number} has no {text!r} after a key; the lines before it were written")
    return key, None if line == lines.null else line


async def _chunks(descriptor: int) -> AsyncIterator[bytes]:
    """What is read, as it comes, and an empty one at the end.

    A terminal or a pipe may keep a read waiting for ever: the thread is a daemon, which Ctrl-C leaves behind, and it
    reads the descriptor itself, since Python's own buffer would be locked at exit.
    """
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[bytes | OSError] = asyncio.Queue(CHUNKS_AHEAD)

    def read() -> None:
        chunk: bytes | OSError = b"-"
        while chunk and isinstance(chunk, bytes):
            try:
                chunk = os.read(descriptor, READ_BYTES)
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
    while True:
        chunk = await queue.get()
        if isinstance(chunk, OSError):
            raise CommandError(f"cannot read the lines: {chunk.strerror}")
        yield chunk
        if not chunk:
            return
