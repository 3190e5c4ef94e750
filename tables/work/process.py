"""A worker process as the broker holds it: started, spoken to over a socket, killed. It imports none of the libraries.

A plain process, no pool of a library: a query streams rows one way and answers the other while it runs, and to cancel
it is to kill it.
"""

import asyncio
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from pqbroker.tables.work.messages import LENGTHS, STOP, STOPPED, Bytes, Message, pack, unpack

MEMORY_EXIT = 75
"""Exit status of a worker that took more memory than its limit."""
ENDING_S = 1.0
"""Time that a process has to end once it has closed its socket."""
STOP_S = 2.0
"""Time that a process has to leave a query; one that takes longer is killed."""
SENT_BYTES: Final = 256 << 10
"""Bytes of a message that one turn of the loop hands to the socket: it copies them up to three times."""
_BUFFER_BYTES = 256 << 10
_ALLOCATOR: Mapping[str, str] = {"MALLOC_MMAP_THRESHOLD_": str(32 << 20), "MALLOC_TRIM_THRESHOLD_": str(64 << 20)}
"""Environment in which the C library keeps freed memory of a worker for its next stretch: a tenth of a scan's time goes
into giving it back and taking it again."""
COMMAND: tuple[str, ...] = (sys.executable, "-P", "-m", "pqbroker.tables.work")


class WorkerGone(Exception):
    """The process of a worker has ended."""

    def __init__(self, worker: "WorkerProcess") -> None:
        self.worker = worker


class WorkerProcess:
    """One process; `start` makes it, `end` must be called."""

    __slots__ = ("_is_gone", "_is_torn", "_lengths", "_process", "_reader", "_writer", "is_new")

    def __init__(
        self, process: "subprocess.Popen[bytes]", reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._process = process
        self._reader = reader
        self._writer = writer
        self._lengths: tuple[int, int] | None = None
        """Lengths of the parts of a message whose beginning was taken."""
        self._is_gone = False
        self._is_torn = False
        """True from the first to the last slice of a message; it stays so where a send is cancelled in between."""
        self.is_new = True
        """True until the first query is done. The owner clears it."""

    @classmethod
    async def start(cls) -> "WorkerProcess":
        """Start one. OSError when the system has no room for it."""
        ours, theirs = socket.socketpair()
        spawning = _Spawning(theirs)
        try:
            process = await asyncio.to_thread(spawning.start)
            reader, writer = await asyncio.open_unix_connection(sock=ours, limit=_BUFFER_BYTES)
        except BaseException:
            ours.close()
            asyncio.get_running_loop().run_in_executor(None, spawning.give_up)
            raise
        return cls(process, reader, writer)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    @property
    def has_ended(self) -> bool:
        """Return True if it has ended by itself, or is about to."""
        return self._is_gone or self._reader.at_eof() or not self.is_alive

    async def send(self, kind: str, document: Mapping[str, Any], payload: Sequence[Bytes] = ()) -> None:
        """Send a message, a long one in several turns of the loop. WorkerGone."""
        parts = [pack(kind, document, sum(map(len, payload))), *payload]
        rest = sum(map(len, parts))
        try:
            for some in (parts,) if rest <= SENT_BYTES else _slices(parts):
                if self._is_torn:
                    await asyncio.sleep(0)  # a drain returns at once while the worker keeps up
                rest -= sum(map(len, some))
                self._is_torn = rest > 0
                self._writer.writelines(some)
                await self._writer.drain()
        except ConnectionError as gone:
            self._is_gone = True
            raise WorkerGone(self) from gone

    async def receive(self) -> Message:
        """The next message; a receive that is cancelled loses nothing. WorkerGone."""
        try:
            if self._lengths is None:
                self._lengths = LENGTHS.unpack(await self._reader.readexactly(LENGTHS.size))
            document_bytes, payload_bytes = self._lengths
            data = memoryview(await self._reader.readexactly(document_bytes + payload_bytes))
        except (EOFError, ConnectionError) as gone:
            self._is_gone = True
            raise WorkerGone(self) from gone
        self._lengths = None
        return unpack(bytes(data[:document_bytes]), data[document_bytes:])

    async def stop(self) -> int | None:
        """Make it leave its query: the memory that it has then. None: it has not within STOP_S, has ended, or waits for
        the rest of a message."""
        if self._is_torn:
            return None
        try:
            async with asyncio.timeout(STOP_S):
                await self.send(STOP, {})
                while (message := await self.receive()).kind != STOPPED:
                    pass
        except (TimeoutError, WorkerGone):
            return None
        return int(message.document["resident_bytes"])

    async def end(self) -> int:
        """Kill it unless it is ending by itself: how it ended, as `subprocess.Popen.returncode`."""
        is_ending = self._is_gone or self._reader.at_eof()
        self._writer.close()
        return await asyncio.to_thread(self._wait, ENDING_S if is_ending else 0)

    def _wait(self, patience_s: float) -> int:
        try:
            return self._process.wait(patience_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()


def _slices(parts: Sequence[Bytes]) -> Iterator[list[Bytes]]:
    """Yield the bytes in order, at most `SENT_BYTES` at a time; there are some."""
    some: list[Bytes] = []
    room = SENT_BYTES
    for part in parts:
        rest = part
        while len(rest) > room:
            view = memoryview(rest)
            yield [*some, view[:room]]
            rest, some, room = view[room:], [], SENT_BYTES
        some.append(rest)
        room -= len(rest)
    yield some


class _Spawning:
    """A process that a thread starts, and that can be given up meanwhile."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> "subprocess.Popen[bytes]":
        with self._lock:
            self._process = spawn(self._connection)
            self._connection.close()
            return self._process

    def give_up(self) -> None:
        with self._lock:
            self._connection.close()
            if self._process is not None:
                self._process.kill()
                self._process.wait()


def spawn(connection: socket.socket) -> "subprocess.Popen[bytes]":
    """Start a worker that speaks over a socket, in a session of its own: Ctrl-C at a terminal is the broker's."""
    number = connection.fileno()
    return subprocess.Popen(
        [*COMMAND, str(number)], stdin=subprocess.DEVNULL, pass_fds=(number,), start_new_session=True,
        env=environment(),
    )  # fmt: skip


def environment() -> dict[str, str]:
    """Return the environment of a worker."""
    return {**_ALLOCATOR, **os.environ}
