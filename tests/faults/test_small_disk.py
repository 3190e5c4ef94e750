"""A disk filled to its last byte: writes stop, reads and deletes go on, the room comes back, and nothing is lost."""

import asyncio
import os
import random
import time
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from pqbroker.broker.ground.listeners import Address
from pqbroker.broker.node.server import Server
from pqbroker.conf.broker import BrokerSettings
from pqbroker.protocol.errors import ErrorCode
from pqbroker.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from pqbroker.protocol.messages.delete_topics import DeleteTopicsRequest
from pqbroker.storage.disk.rocks import RocksEngine
from pqbroker.storage.memory import MemoryEngine
from pqbroker.storage.pool_status import Colour
from pqbroker.testing import Broker, broker
from tests.broker.conftest import Clock, Node, make_batch, produce_request
from tests.faults import full_disk
from tests.support.wire import Wire

VALUE_BYTES = 700_000


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own."""
    try:
        with full_disk.small_disk(tmp_path):
            yield tmp_path
    except full_disk.CannotMount as cause:
        pytest.skip(str(cause))


@pytest.mark.spec("G.2")
async def test_a_disk_filled_to_its_last_byte_is_freed_and_lost_nothing(disk: Path) -> None:
    async with AsyncExitStack() as stack:
        node = await start(disk / "data", stack)
        await node.create_topic("kept", 2)
        await node.create_topic("freed", 2)
        await node.create_topic("dropped", 2)
        acknowledged = await fill(node)
        assert min(map(len, acknowledged.values())) >= 3
        full_disk.take_the_rest(disk)
        assert colour(node) >= Colour.YELLOW_STOP
        assert (await node.produce("kept", b"x" * VALUE_BYTES)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        await expect_stored(node, acknowledged)

        await free(node)
        await until(lambda: colour(node) < Colour.YELLOW_STOP)
        del acknowledged["freed", 0], acknowledged["freed", 1], acknowledged["dropped", 0], acknowledged["dropped", 1]
        batch = make_batch(b"again")
        answer = await produce(node, "kept", 1, batch)
        assert answer == ErrorCode.NONE
        acknowledged["kept", 1].append(bytes(batch[16:]))
        await expect_stored(node, acknowledged)
    async with AsyncExitStack() as stack:
        await expect_stored(await start(disk / "data", stack), acknowledged)


@pytest.mark.spec("G.2")
@pytest.mark.parametrize(("kind", "rounds"), [("tmpfs", 2), ("ext4", 1)])
async def test_a_broker_starts_on_a_full_disk_with_all_records_and_takes_deletes(
    tmp_path: Path, kind: str, rounds: int
) -> None:
    """A file system of ext4 keeps clusters for itself, which nobody is shown."""
    disk = tmp_path / "disk"
    disk.mkdir()
    try:
        with full_disk.small_disk(disk, kind):
            assert await full_disk.run(disk, rounds=rounds, seed=random.randrange(1 << 32)) > 0
    except full_disk.CannotMount as cause:
        pytest.skip(str(cause))


def test_a_killed_broker_starts_where_every_free_byte_and_the_ballast_are_taken(disk: Path) -> None:
    stored_batches: list[bytes] = []
    with broker(disk / "data") as node:
        asyncio.run(full_disk.create(node, "kept"))
        for number in range(3):
            batch = make_batch(b"round %d" % number)
            assert produce_until_taken(node, batch) == ErrorCode.NONE
            stored_batches.append(bytes(batch[16:]))
            node.kill()
            (disk / "data" / "ballast").unlink(missing_ok=True)
            full_disk.take_the_rest(disk)
            assert os.statvfs(disk).f_bavail == 0
            node.start()
            assert stored(node.kafka, "kept", 0) == stored_batches
            assert produce_once(node, make_batch(b"refused")) == ErrorCode.KAFKA_STORAGE_ERROR
            full_disk.give_back(disk)
        assert produce_until_taken(node, make_batch(b"last")) == ErrorCode.NONE


def produce_once(node: Broker, batch: bytes | bytearray) -> int:
    return asyncio.run(full_disk.produce(node, "kept", batch))


def produce_until_taken(node: Broker, batch: bytes | bytearray) -> int:
    """Produce until there is room; the last answer."""
    deadline = time.monotonic() + 20
    while True:
        code = produce_once(node, batch)
        if code != ErrorCode.KAFKA_STORAGE_ERROR or time.monotonic() > deadline:
            return code
        time.sleep(0.05)


async def start(data: Path, stack: AsyncExitStack) -> Node:
    server = Server(BrokerSettings(), RocksEngine(data), Address("127.0.0.1", 0), None, Clock())
    await server.start()
    stack.push_async_callback(server.stop)
    return Node(server, MemoryEngine(0), Clock(), stack)


async def produce(node: Node, topic: str, partition: int, batch: bytes | bytearray) -> int:
    client = await node.connect()
    response = await client.ask(produce_request(topic, batch, partition), 9)
    await client.close()
    code: int = response.responses[0].partition_responses[0].error_code
    return code


async def fill(node: Node) -> dict[tuple[str, int], list[bytes]]:
    """Produce until nothing is taken any more; what was acknowledged by partition, each batch behind its epoch."""
    source = random.Random(7)
    places = [(topic, partition) for topic in ("kept", "freed", "dropped") for partition in (0, 1)]
    acknowledged: dict[tuple[str, int], list[bytes]] = {place: [] for place in places}
    while True:
        for topic, partition in places:
            batch = make_batch(source.randbytes(VALUE_BYTES))
            code = await produce(node, topic, partition, batch)
            if code == ErrorCode.KAFKA_STORAGE_ERROR:
                return acknowledged
            assert code == ErrorCode.NONE
            acknowledged[topic, partition].append(bytes(batch[16:]))


async def free(node: Node) -> None:
    """Delete the records of one topic and all of another."""
    client = await node.connect()
    partitions = [DeleteRecordsPartition(partition_index=index, offset=-1) for index in (0, 1)]
    topics = [DeleteRecordsTopic(name="freed", partitions=partitions)]
    trimmed = await client.ask(DeleteRecordsRequest(topics=topics, timeout_ms=5000))
    assert {partition.error_code for partition in trimmed.topics[0].partitions} == {ErrorCode.NONE}
    deleted = await client.ask(DeleteTopicsRequest(topic_names=["dropped"], timeout_ms=5000), 5)
    assert deleted.responses[0].error_code == ErrorCode.NONE


async def expect_stored(node: Node, acknowledged: dict[tuple[str, int], list[bytes]]) -> None:
    for place, batches in acknowledged.items():
        assert await asyncio.to_thread(stored, str(node.server.kafka_address), *place) == batches


def stored(address: str, topic: str, partition: int) -> list[bytes]:
    """Every batch of a partition, behind its offset, length and epoch."""
    with Wire(address) as wire:
        return [batch[16:] for _, batch in wire.log(topic, partition)]


def colour(node: Node) -> Colour:
    (pool,) = node.server.node.pools()
    return pool.colour


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 - nothing tells
            await asyncio.sleep(0.01)
