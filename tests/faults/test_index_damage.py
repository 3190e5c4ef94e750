"""Damage of the index while a node runs: its effects, and the harm that must not come to its cell."""

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from pqbroker.broker.ground.listeners import Address
from pqbroker.broker.node.server import Server
from pqbroker.broker.services.cells.cell_owner import OpenCell, open_cell
from pqbroker.conf.broker import BrokerSettings
from pqbroker.pq.serving.partition_server import PartitionServer
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.storage.disk.commits.index_changes import IndexChanges
from pqbroker.storage.disk.rocks import RocksEngine
from pqbroker.storage.disk.rocks_index import RocksIndex
from pqbroker.storage.disk.segments import segment_name
from pqbroker.storage.quarantine import Quarantined
from tests.faults.flipped_index import Written, build
from tests.pq.rig import START_MS, batch, read

pytestmark = pytest.mark.spec("J.2")

SETTINGS = replace(BrokerSettings(), ballast_bytes=0)
BLOB = ("topic-4", 2)
"""Its one record is a blob in the index, which no start reads."""
ROW = ("topic-3", 0)
"""Its last record is in the row of its key, and in a block of the index that no start needs."""
_WITHIN = slice(300, 340)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Written]:
    path = tmp_path_factory.mktemp("damage") / "data"
    return path, build(path)


@pytest.fixture
def data(whole: tuple[Path, Written], tmp_path: Path) -> Path:
    copy = tmp_path / "data"
    shutil.copytree(whole[0], copy)
    return copy


def damage(data: Path, written: Written, place: tuple[str, int]) -> None:
    """Flip a bit of the last record of a partition, in whichever table it is."""
    content = written.batches[place][-1][1]
    for table in data.glob("index-*/*.sst"):
        found = bytearray(table.read_bytes())
        position = found.find(content[_WITHIN])
        if position >= 0:
            found[position] ^= 1
            table.write_bytes(found)
            return
    raise AssertionError(f"the record of {place} is in no table")


def add_tables(data: Path) -> None:
    """So many tables that RocksDB compacts them as soon as it may."""
    (path,) = data.glob("index-*")
    for _ in range(4):
        index = RocksIndex(path)
        index.open(create=False)
        changes = IndexChanges()
        changes.put(b"rCname", b"0")
        index.write(changes, 1)
        index.close()


def engine(data: Path) -> RocksEngine:
    return RocksEngine(data, ballast_bytes=0, index_blob_bytes_max=SETTINGS.index_blob_bytes_max)


@asynccontextmanager
async def opened(data: Path) -> AsyncIterator[OpenCell]:
    cell = await open_cell(engine(data), SETTINGS, lambda: START_MS)
    try:
        yield cell
    finally:
        cell.coordinators.close()
        await cell.stop()
        await cell.cell.close()


@asynccontextmanager
async def served(data: Path) -> AsyncIterator[Server]:
    local = Address("127.0.0.1", 0)
    server = Server(SETTINGS, engine(data), local, local, clock=lambda: START_MS)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(20):
        while not await condition():  # noqa: ASYNC110 - nothing tells
            await asyncio.sleep(0.01)


def partition(server: Server, asked: str, index: int) -> PartitionServer:
    topic = server.node.cell.current.topics.get(asked)
    assert topic is not None
    return topic.partitions[index]


async def write(server: PartitionServer) -> bool:
    """Whether it was acknowledged."""
    try:
        await server.write(*batch(b"more" * 100))
    except KafkaError as error:
        assert error.code in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR), error  # noqa: PT017
        return False
    return True


async def test_a_bad_block_that_rocksdb_compacts_costs_one_loss_and_no_more(
    whole: tuple[Path, Written], data: Path
) -> None:
    add_tables(data)
    damage(data, whole[1], BLOB)
    async with served(data) as server:
        openings = server.node.metrics

        async def is_open_again() -> bool:
            await write(partition(server, "topic-0", 0))
            return openings.cell_openings == 2

        await until(is_open_again)
        for _ in range(3):
            assert await write(partition(server, "topic-0", 0))
        assert openings.cell_openings == 2
        with pytest.raises(KafkaError) as refusal:
            await read(partition(server, *BLOB), 0, 1)
        assert refusal.value.code is ErrorCode.CORRUPT_MESSAGE
        status, body = await get(server.http_address, "/health")
        assert status == 200
        assert '"kind": "damaged"' in body
        assert ".sst of the index, block at byte" in body
        assert 'pqbroker_cell_unreadable_places{cell="0"} 1.0' in (await get(server.http_address, "/metrics"))[1]


async def get(address: Address | None, path: str) -> tuple[int, str]:
    assert address is not None
    reader, writer = await asyncio.open_connection(address.host, address.port)
    writer.write(f"GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n".encode())
    head, _, body = (await reader.read()).decode().partition("\r\n\r\n")
    writer.close()
    return int(head.split()[1]), body


async def test_while_anything_is_unreadable_nothing_is_removed_and_later_it_is(
    whole: tuple[Path, Written], data: Path, tmp_path: Path
) -> None:
    orphan = data / "blobs" / segment_name(1, 99)
    orphan.write_bytes(b"")
    sound = tmp_path / "sound"
    shutil.copytree(data, sound)
    damage(data, whole[1], ROW)
    for directory, stays in ((data, True), (sound, False)):
        async with opened(directory) as cell:
            topic = cell.topics.get("topic-2")
            assert topic is not None
            await cell.topics.delete("topic-2")
            storage = cell.cell.storage(topic.record.tablets[0])

            async def is_dropped(cell: OpenCell = cell, tablets: tuple[int, ...] = topic.record.tablets) -> bool:
                return not cell.cell.tablets().keys() & set(tablets)

            if stays:
                with pytest.raises(Quarantined, match="cannot be read"):
                    await cell.cell.drop_tablet(topic.record.tablets[0])
                with pytest.raises(Quarantined):
                    await storage.collect_garbage(0, 1, 1)
                assert not await is_dropped()
                assert "topic-2" not in cell.topics.names()
            else:
                await until(is_dropped)
        assert orphan.with_name(orphan.name).exists() if stays else not (directory / "blobs" / orphan.name).exists()


async def test_a_data_directory_that_is_removed_is_told_as_that_and_not_made_again(data: Path) -> None:
    async with served(data) as server:
        shutil.rmtree(data)
        assert not await write(partition(server, "topic-0", 0))
        lost = await server.failed
        assert f"{data} was removed, renamed or unmounted" in str(lost)
        assert data.name not in os.listdir(data.parent)
