"""What broker and worker say to each other, and how the broker stops a query."""

import asyncio
import select
import socket
import subprocess
from collections.abc import Iterator, Sequence
from typing import cast

import pytest

from pqbroker.tables.work.messages import STOP, Line, Stopped, pack
from pqbroker.tables.work.process import SENT_BYTES, WorkerProcess

Pair = tuple[Line, socket.socket]
NO_PROCESS = cast("subprocess.Popen[bytes]", None)
"""Stands in for a process that nothing asks."""


@pytest.fixture
def pair() -> Iterator[Pair]:
    """A worker's line, and the broker's end of it."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield Line(ours), theirs


def test_a_receive_that_is_cancelled_loses_nothing() -> None:
    async def run() -> None:
        ours, theirs = socket.socketpair()
        reader, writer = await asyncio.open_unix_connection(sock=ours)
        worker = WorkerProcess(NO_PROCESS, reader, writer)
        data = pack("result", {"n": 1}, 3) + b"abc"
        for cut in range(len(data) - 1):
            reader.feed_data(data[cut : cut + 1])
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0):
                    await worker.receive()
        reader.feed_data(data[-1:] + pack("done", {}))
        first, last = await worker.receive(), await worker.receive()
        assert (first.kind, first.document, bytes(first.payload)) == ("result", {"n": 1}, b"abc")
        assert (last.kind, bytes(last.payload)) == ("done", b"")
        writer.close()
        theirs.close()

    asyncio.run(run())


class ShortOfRoom:
    """A socket whose first call takes a part of the bytes."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.sent = b""

    def sendmsg(self, parts: Sequence[memoryview]) -> int:
        self.sent = b"".join(parts)[: self.room]
        return len(self.sent)

    def sendall(self, part: memoryview) -> None:
        self.sent += part


def test_a_message_that_the_socket_takes_in_part_is_sent_whole() -> None:
    wanted = pack("result", {"n": 1}, 3) + b"abc"
    ours, theirs = socket.socketpair()
    with ours, theirs:
        line = Line(ours)
        for room in range(1, len(wanted) + 1):
            taking = ShortOfRoom(room)
            line._socket = cast("socket.socket", taking)
            line.send("result", {"n": 1}, b"abc")
            assert taking.sent == wanted


async def test_a_long_message_is_sent_in_several_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """A flush sends a log of tens of megabytes; to copy it at once took 34 ms."""
    ours, theirs = socket.socketpair()
    reader, writer = await asyncio.open_unix_connection(sock=ours)
    parts = [bytes([n % 256]) * 20_000 for n in range(100)] + [b"x" * 1_000_000, b""]
    written: list[int] = []
    write = type(writer.transport).write

    def counted(transport: asyncio.WriteTransport, data: bytes) -> None:
        written.append(len(data))
        write(transport, data)

    monkeypatch.setattr(type(writer.transport), "write", counted)
    with theirs:
        receiving = asyncio.create_task(asyncio.to_thread(Line(theirs).receive))
        await WorkerProcess(NO_PROCESS, reader, writer).send("merge", {"n": 1}, parts)
        message = await receiving
        assert (message.document, message.payload) == ({"n": 1}, b"".join(parts))
        assert max(written) == SENT_BYTES
        assert len(written) == 1 + sum(written) // SENT_BYTES
        writer.close()


async def test_a_worker_that_waits_for_the_rest_of_a_message_is_not_stopped_but_ended() -> None:
    ours, theirs = socket.socketpair()
    reader, writer = await asyncio.open_unix_connection(sock=ours)
    worker = WorkerProcess(NO_PROCESS, reader, writer)
    with theirs:
        sending = asyncio.create_task(worker.send("merge", {}, [b"x" * (64 * SENT_BYTES)]))
        await asyncio.to_thread(theirs.recv, 1, socket.MSG_PEEK)
        sending.cancel()
        await asyncio.wait([sending])
        assert sending.cancelled()
        held = writer.transport.get_write_buffer_size()
        assert await worker.stop() is None
        assert writer.transport.get_write_buffer_size() == held > 0, "nothing is written into the message"
        writer.transport.abort()


def test_a_stop_that_comes_instead_of_an_answer_ends_the_question_and_those_behind_it(pair: Pair) -> None:
    line, broker = pair
    broker.sendall(pack("query", {}))
    line.begin()
    broker.sendall(pack(STOP, {}))
    for _ in range(2):
        with pytest.raises(Stopped):
            line.ask("read", {})
    line.finish_stop()
    broker.sendall(pack("query", {"n": 2}))
    assert line.begin().document == {"n": 2}
    assert not line.is_stopped


def test_a_stop_that_nothing_waits_for_is_seen_and_taken(pair: Pair) -> None:
    line, broker = pair
    assert not line.has_unasked()
    broker.sendall(pack("query", {}))
    assert not line.has_unasked(), "a query is waited for"
    line.begin()
    assert not line.has_unasked()
    broker.sendall(pack(STOP, {}))
    assert line.has_unasked()
    line.finish_stop()
    assert not line.has_unasked()


def test_an_answer_that_comes_while_a_thread_looks_is_no_stop(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    line, broker = pair
    broker.sendall(pack("query", {}))
    line.begin()

    class Looking:
        """The worker asks, and has its answer, just when the thread has looked at the socket."""

        def poll(self, _: int) -> bool:
            broker.sendall(pack("found", {}))
            line.ask("find", {})
            return True

    monkeypatch.setattr(line, "_incoming", Looking())
    assert not line.has_unasked()


def test_a_line_takes_no_more_than_its_message(pair: Pair) -> None:
    """Else a stop behind an answer would be seen by nobody."""
    line, broker = pair
    broker.sendall(pack("query", {}, 5) + b"12345" + pack(STOP, {}))
    assert bytes(line.begin().payload) == b"12345"
    assert line.has_unasked()
    broker.shutdown(socket.SHUT_WR)
    line.finish_stop()
    with pytest.raises(EOFError):
        line.receive()
    assert select.select([broker], [], [], 0) == ([], [], [])
