"""A full disk as a partition sees it: writes fail, all else goes on, and it clears by itself (semantics A.12, G.2)."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from pqbroker.broker.services.cells.cell_owner import open_cell
from pqbroker.conf.broker import BrokerSettings
from pqbroker.pq.log.write_cycle import Written
from pqbroker.pq.serving.offsets import nobody_knows
from pqbroker.pq.serving.partition_server import PartitionServer
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.storage.disk import free_space
from pqbroker.storage.pool_status import Colour
from tests.pq.rig import (
    MIB,
    START_MS,
    Node,
    batch,
    check_invariants,
    check_store,
    read_all,
    transactional,
    write,
)
from tests.storage.cells import RocksCell


async def refusal(partition: PartitionServer) -> ErrorCode:
    with pytest.raises(KafkaError, match="the disk is full") as refused:
        await partition.write(*batch(b"x"))
    return refused.value.code


@pytest.mark.spec("A.12.2", "J.1", "G.2", "G.5")
@pytest.mark.parametrize("colour", [Colour.YELLOW_STOP, Colour.ORANGE_OUT_SPACE])
async def test_on_a_full_disk_writes_fail_and_reads_deletes_and_retention_work(colour: Colour) -> None:
    node = await Node().start()
    partition = await node.topic(config={"retention.ms": "1000"})
    await write(partition, *(batch(b"%d" % number) for number in range(4)))
    node.engine.tell_colour(colour)
    assert await refusal(partition) is ErrorCode.KAFKA_STORAGE_ERROR
    with pytest.raises(KafkaError, match="the disk is full"):
        await partition.write_at(9, *batch(b"x"))
    assert await read_all(partition) == [(number, b"%d" % number) for number in range(4)]
    assert await partition.retention.delete_before(2) == 2
    node.now_ms += 1000
    await node.topics.retain(nobody_knows)
    assert partition.start_offset == partition.end_offset == 4
    node.engine.tell_colour(None)
    assert await write(partition, batch(b"y")) == [Written(4, -1, 4)]
    check_invariants(partition.state)


@pytest.mark.parametrize("colour", [Colour.GREEN, Colour.LIGHT_YELLOW_MOVE])
async def test_before_the_stop_writes_go_on(colour: Colour) -> None:
    node = await Node().start()
    partition = await node.topic()
    node.engine.tell_colour(colour)
    assert await write(partition, batch(b"a")) == [Written(0, -1, 0)]


@pytest.mark.spec("A.12.2", "J.1", "G.2", "G.5")
async def test_when_the_disk_gets_full_all_that_is_queued_fails_and_what_is_in_flight_does_not() -> None:
    node = await Node().start()
    partition = await node.topic()
    node.engine.faults.hold()
    first = partition.write(*batch(b"a", producer=(5, 0, 0)))
    await asyncio.sleep(0)  # a cycle is planned at the end of the turn
    queued = [partition.write(*batch(b"%d" % number, producer=(5, 0, number))) for number in (1, 2)]
    node.engine.tell_colour(Colour.YELLOW_STOP)
    node.engine.faults.release()
    assert await first == Written(0, -1, 0)
    for outcome in queued:
        with pytest.raises(KafkaError, match="KAFKA_STORAGE_ERROR"):
            await outcome
    assert partition.writer.queue.bytes == 0
    node.engine.tell_colour(None)
    again = [partition.write(*batch(b"%d" % number, producer=(5, 0, number))) for number in (1, 2)]
    assert [(await outcome).base_offset for outcome in again] == [1, 2]


async def test_a_disk_that_fills_by_itself_is_freed_by_deleting_records() -> None:
    node = Node()
    node.engine = type(node.engine)(100 * MIB)
    await node.start()
    partition = await node.topic()
    with pytest.raises(KafkaError, match="KAFKA_STORAGE_ERROR"):
        await write(partition, *(batch(size=MIB) for _ in range(200)))
    stored = partition.end_offset
    assert 60 < stored < 100
    assert [offset for offset, _ in await read_all(partition)] == list(range(stored))
    await partition.retention.delete_before(stored - 10)
    assert (await write(partition, batch(b"a")))[0].base_offset == stored
    await check_store(node, partition)


async def test_markers_of_kafka_transactions_are_written_with_the_room_of_the_ballast(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(free_space, "LOOK_SECONDS", 0)
    cell = RocksCell(tmp_path / "data")
    settings = BrokerSettings()
    engine = replace(cell.engine(), index_blob_bytes_max=settings.index_blob_bytes_max)
    opened = await open_cell(engine, settings, lambda: START_MS)
    server = (await opened.topics.create("t", 1, {})).partitions[0]
    await server.write(*batch(size=60_000))
    await server.write(*transactional(b"a", producer=(7, 0, 0)))
    assert (tmp_path / "data" / "ballast").exists()
    cell.disk.f_bavail = MIB // cell.disk.f_frsize
    with pytest.raises(KafkaError, match="KAFKA_STORAGE_ERROR"):
        await server.write(*batch(size=20_000))
    for number in range(100):
        assert await server.end_transaction(7, 0, 0, is_commit=False) == 2 + number
    assert not (tmp_path / "data" / "ballast").exists()
    assert server.state.stable_offset == server.end_offset == 102
    await opened.stop()
    await opened.cell.close()
