"""Fetch answers that leave from segment files: over real sockets, from a cell on disk."""

import asyncio
import gc
import inspect
import os
import socket
import struct
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from pqbroker.broker.ground.listeners import DEFAULT_NAME, Address, Listener
from pqbroker.broker.kafka.handlers.fetch import API
from pqbroker.broker.kafka.net import file_sender
from pqbroker.broker.kafka.net.file_sender import FileSender
from pqbroker.broker.node.server import Server
from pqbroker.conf.broker import BrokerSettings
from pqbroker.protocol.messages.api_versions import ApiVersionsRequest
from pqbroker.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from pqbroker.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from pqbroker.protocol.records import batches
from pqbroker.storage import file_regions
from pqbroker.storage.disk.rocks import RocksEngine
from pqbroker.storage.file_regions import FileRegion
from tests.broker.conftest import Clock, make_batch, produce_request, until
from tests.broker.wire import Client, read_response, request_frame

BATCHES, BATCH_BYTES = 80, 300_000
MIB = 1 << 20


def fetch(offset: int, bytes_max: int = MIB) -> FetchRequest:
    partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=bytes_max)
    return FetchRequest(
        max_wait_ms=0, min_bytes=1, max_bytes=50 * MIB, topics=[FetchTopic(topic="t", partitions=[partition])]
    )


def value(number: int) -> bytes:
    return struct.pack(">I", number) * (BATCH_BYTES // 4)


async def started(data: Path, *, takes_files: bool = True) -> Server:
    engine = RocksEngine(data, segment_bytes=16 * MIB)
    listener = Listener(DEFAULT_NAME, Address("127.0.0.1", 0), takes_files=takes_files)
    server = Server(BrokerSettings(), engine, [listener], None, Clock())
    await server.start()
    return server


@pytest.fixture
async def data(tmp_path: Path) -> Path:
    """Where a topic of many bodies is."""
    server = await started(tmp_path)
    client = await Client.connect("127.0.0.1", server.kafka_address.port)
    topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1, configs=[])
    assert (await client.ask(CreateTopicsRequest(topics=[topic]))).topics[0].error_code == 0
    for number in range(BATCHES):
        response = await client.ask(produce_request("t", make_batch(value(number))), 9)
        assert response.responses[0].partition_responses[0].error_code == 0
    await client.close()
    await server.stop()
    return tmp_path


@pytest.fixture
async def server(data: Path) -> AsyncIterator[Server]:
    """A server with that topic, nothing of it in memory."""
    server = await started(data)
    yield server
    await server.stop()


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many bytes went out of files, call by call."""
    counted: list[int] = []
    send = FileRegion.send

    def sending(region: FileRegion, socket: int) -> int:
        counted.append(send(region, socket))
        return counted[-1]

    monkeypatch.setattr(FileRegion, "send", sending)
    return counted


def numbers_in(data: memoryview) -> tuple[list[int], int]:
    """The numbers of the batches' values, each whole; the offset behind them."""
    found, following = [], 0
    for position, header in batches(data):
        content = bytes(data[position : position + header.size_bytes])
        number = header.base_offset
        assert value(number) in content
        found.append(number)
        following = header.last_offset + 1
    return found, following


async def read_all(client: Client, bytes_max: int = MIB) -> list[int]:
    """The numbers of all values, read one Fetch after the other."""
    found: list[int] = []
    offset = 0
    while offset < BATCHES:
        response = await client.ask(fetch(offset, bytes_max), 11)
        (data,) = response.responses[0].partitions
        assert data.error_code == 0
        numbers, offset = numbers_in(memoryview(bytes(data.records)))
        found += numbers
    return found


async def connect(server: Server) -> Client:
    return await Client.connect("127.0.0.1", server.kafka_address.port)


async def test_a_sequential_reader_is_sent_files(server: Server, sent: list[int]) -> None:
    client = await connect(server)
    assert await read_all(client) == list(range(BATCHES))
    assert sum(sent) > BATCHES * BATCH_BYTES // 4
    await client.close()


async def test_a_listener_that_takes_no_files_answers_from_memory(data: Path, sent: list[int]) -> None:
    server = await started(data, takes_files=False)
    client = await connect(server)
    assert await read_all(client) == list(range(BATCHES))
    assert not sent
    await client.close()
    await server.stop()


async def test_other_connections_have_their_turn_within_an_answer(
    server: Server, sent: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_sender, "_TURN_BYTES", 1)
    turns: list[int] = []
    push = FileSender._push

    def pushing(sender: FileSender) -> bool:
        before = len(sent)
        is_done = push(sender)
        turns.append(len(sent) - before)
        return is_done

    monkeypatch.setattr(FileSender, "_push", pushing)
    client = await connect(server)
    assert await read_all(client) == list(range(BATCHES))
    assert max(turns) == 1
    await client.close()


async def test_what_is_in_memory_counts_for_a_turn_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_sender, "_TURN_BYTES", 1)
    ours, peer = socket.socketpair()
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_connection(asyncio.Protocol, sock=ours)
    sender, is_sent = FileSender(loop, transport), asyncio.Event()
    sender.send([bytes(100)] * 200, is_sent.set)
    assert sender.is_busy
    assert len(peer.recv(MIB)) < 100 * 200
    await asyncio.wait_for(is_sent.wait(), 5)
    transport.close()
    peer.close()


async def test_files_that_are_gone_are_read_anew(
    server: Server, sent: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(path: str, numbers: set[int]) -> None:
        raise FileNotFoundError(path)

    monkeypatch.setattr(file_regions, "_OpenFile", gone)
    client = await connect(server)
    assert await read_all(client) == list(range(BATCHES))
    assert not sent
    await client.close()


async def test_beyond_the_limit_of_files_answers_come_from_memory(server: Server, sent: list[int]) -> None:
    files = server.node.cell.current.topics.memory.sent_files
    files.files_max = 0
    client = await connect(server)
    assert await read_all(client) == list(range(BATCHES))
    assert not sent
    await client.close()


async def test_what_waited_is_read_again_before_it_is_sent(
    server: Server, sent: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    warmed: list[int] = []
    warm = FileRegion.warm

    def warming(region: FileRegion) -> None:
        warm(region)
        warmed.append(region.size)
        monkeypatch.setattr(file_sender, "_WARM_S", 1000.0)

    monkeypatch.setattr(FileRegion, "warm", warming)
    monkeypatch.setattr(file_sender, "_WARM_S", -1.0)
    client = await connect(server)
    assert await read_all(client) == list(range(BATCHES))
    assert len(warmed) == 1
    assert sum(sent) > BATCHES * BATCH_BYTES // 4
    await client.close()


class SlowPeer:
    """A client whose socket holds little, so that answers are sent in many parts; it reads when told."""

    def __init__(self, server: Server) -> None:
        self.socket = socket.socket()
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self.socket.connect(("127.0.0.1", server.kafka_address.port))
        self.socket.setblocking(False)

    async def ask(self, *frames: bytes) -> None:
        await asyncio.get_running_loop().sock_sendall(self.socket, b"".join(frames))

    async def receive(self) -> bytes:
        """One frame; empty at the connection's end."""
        prefix = await self._exactly(4)
        return await self._exactly(struct.unpack(">i", prefix)[0]) if prefix else b""

    async def _exactly(self, size: int) -> bytes:
        found = bytearray()
        while len(found) < size:
            data = await asyncio.get_running_loop().sock_recv(self.socket, size - len(found))
            if not data:
                return b""
            found += data
        return bytes(found)


async def stalled(server: Server) -> tuple[SlowPeer, FileSender]:
    """A peer that has asked for four answers out of files, each far more than its socket holds, and an ApiVersions."""
    client = SlowPeer(server)
    offset = 0
    senders: list[FileSender] = []
    for correlation_id in range(1, 4):  # what makes a sequential reader
        await client.ask(request_frame(fetch(offset), 11, correlation_id))
        frame = await client.receive()
        offset = records_of(frame)[1]
    push = FileSender._push

    def pushing(sender: FileSender) -> bool:
        senders.append(sender)
        assert sender._socket is not None
        sender._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        return push(sender)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FileSender, "_push", pushing)
        frames = [request_frame(fetch(offset, 6 * MIB), 11, 4), request_frame(ApiVersionsRequest(), 0, 5)]
        await client.ask(*frames)
        await until(lambda: bool(senders) and senders[0].is_busy)
    return client, senders[0]


def records_of(frame: bytes) -> tuple[list[int], int]:
    """Numbers and following offset of a Fetch answer of version 11."""
    _, response = read_response(API, 11, frame)
    (data,) = response.responses[0].partitions
    assert data.error_code == 0
    return numbers_in(memoryview(bytes(data.records)))


async def test_a_peer_that_reads_slowly_gets_its_answers_whole_and_in_order(server: Server, sent: list[int]) -> None:
    client, sender = await stalled(server)
    frame = await client.receive()
    assert struct.unpack_from(">i", frame)[0] == 4
    numbers, _ = records_of(frame)
    assert len(numbers) > 10
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    assert struct.unpack_from(">i", await client.receive())[0] == 5
    assert not sender.is_busy
    assert len(sent) > 5
    client.socket.close()


async def test_answers_in_files_that_are_left_unread_take_no_memory_and_stall(server: Server) -> None:
    client, _ = await stalled(server)
    (connection,) = server.node.connections
    memory, left = connection.unsent()
    assert server.node.answers.unsent == memory < MIB < left
    stalls_s = server.node.loop.time() + 11
    assert connection._untaken.is_stalled(stalls_s, 10)
    await client.receive()
    await client.receive()
    assert connection.unsent() == (0, 0)
    assert server.node.answers.unsent == 0
    client.socket.close()


async def test_files_wait_for_what_the_transport_still_holds(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    client = SlowPeer(server)
    offset = 0
    for correlation_id in range(1, 4):
        await client.ask(request_frame(fetch(offset), 11, correlation_id))
        offset = records_of(await client.receive())[1]
    (connection,) = server.node.connections
    connection._transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    held: list[int] = []
    limit = type(connection._transport).set_write_buffer_limits

    def limiting(transport: asyncio.Transport, high: int | None = None, low: int | None = None) -> None:
        if high == 0:
            held.append(transport.get_write_buffer_size())
        limit(transport, high, low)

    monkeypatch.setattr(type(connection._transport), "set_write_buffer_limits", limiting)
    in_memory, in_files = request_frame(fetch(0), 11, 4), request_frame(fetch(offset), 11, 5)
    await client.ask(in_memory, in_files)
    first, second = await client.receive(), await client.receive()
    assert held
    assert held[0] > 0
    assert [struct.unpack_from(">i", frame)[0] for frame in (first, second)] == [4, 5]
    assert records_of(first)[0][0] == 0
    assert records_of(second)[0][0] == offset
    client.socket.close()


async def test_a_closed_connection_is_freed_without_the_collector(server: Server) -> None:
    client = await connect(server)
    await read_all(client)
    (connection,) = server.node.connections
    gc.collect()
    gc.disable()
    try:
        await client.close()
        await until(lambda: not len(server.node.connections))
        for _ in range(3):
            await asyncio.sleep(0)
        holders = [holder for holder in gc.get_referrers(connection) if not inspect.isframe(holder)]
        assert not [holder for holder in holders if not inspect.iscoroutine(holder)]
    finally:
        gc.enable()


async def test_a_stop_waits_for_an_answer_that_is_being_sent(server: Server) -> None:
    client, _ = await stalled(server)
    stopping = asyncio.ensure_future(server.stop())
    await asyncio.sleep(0)
    assert struct.unpack_from(">i", await client.receive())[0] == 4
    assert struct.unpack_from(">i", await client.receive())[0] == 5
    assert await client.receive() == b""
    await stopping
    client.socket.close()


async def test_a_close_waits_for_an_answer_that_is_being_sent(server: Server) -> None:
    client, _ = await stalled(server)
    await client.ask(b"\x7f\xff\xff\xff")  # a frame too large
    assert struct.unpack_from(">i", await client.receive())[0] == 4
    assert await client.receive() == b""
    client.socket.close()


async def test_a_peer_that_goes_lets_go_of_its_files(server: Server, tmp_path: Path) -> None:
    client, _ = await stalled(server)
    files = server.node.cell.current.topics.memory.sent_files
    assert len(files) > 0
    client.socket.close()
    await until(lambda: len(files) == 0)
    await until(lambda: segments_read(tmp_path) == 0)


def segments_read(data: Path) -> int:
    """Segment files below a directory that this process has open for reading alone."""
    found = 0
    for number in os.listdir("/proc/self/fd"):
        try:
            path = os.readlink(f"/proc/self/fd/{number}")
            flags = Path(f"/proc/self/fdinfo/{number}").read_text(encoding="ascii").split("flags:")[1].split()[0]
        except OSError:
            continue
        is_segment = path.startswith(str(data)) and path.endswith(".segment")
        found += is_segment and int(flags, 8) & os.O_ACCMODE == os.O_RDONLY
    return found
