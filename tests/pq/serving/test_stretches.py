"""Batches as they are handed to another process: where they lie, between two offsets, without what is too old."""

import asyncio
from pathlib import Path

import pytest

from pqbroker.pq.serving.partition_server import PartitionServer
from pqbroker.pq.serving.stretches import HEAD, Stretch, StretchQuery
from pqbroker.protocol import records
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.storage.disk.rocks import RocksEngine
from pqbroker.storage.engine import Buffer, FileRange
from tests.pq.rig import KIB, MIB, START_MS, Node, batch, write

BATCH_BYTES = 40 * KIB


async def filled(count: int, **config: str) -> tuple[Node, PartitionServer]:
    """Batches of one record, a second apart, most of them in bodies."""
    node = await Node().start()
    partition = await node.topic(config={"retention.ms": "-1", **config})
    for number in range(count):
        value = b"%06d" % number + bytes(BATCH_BYTES)
        await write(partition, batch(value, timestamps=[START_MS + 1000 * number]))
    assert partition.state.bodies.ends
    return node, partition


def offsets(stretch: Stretch) -> list[int]:
    assert not any(isinstance(piece, FileRange) for piece in stretch.pieces)
    data = b"".join(piece for piece in stretch.pieces if not isinstance(piece, FileRange))
    return [header.base_offset for _, header in records.batches(data)]


def _stored(piece: Buffer | FileRange) -> bytes:
    assert isinstance(piece, FileRange)
    return Path(piece.path).read_bytes()[piece.position : piece.position + piece.size]


async def read_all(partition: PartitionServer, query: StretchQuery) -> tuple[list[int], set[int]]:
    """Offsets and blobs."""
    found: list[int] = []
    blobs: set[int] = set()
    while query.offset < query.end_offset:
        (stretch,) = await partition.stretches.read(query)
        assert stretch.next_offset > query.offset
        found += offsets(stretch)
        blobs |= {stretch.blob} if stretch.pieces else set()
        query = query._replace(offset=stretch.next_offset)
    return found, blobs


async def test_stretches_hold_every_batch_once_from_bodies_and_head() -> None:
    node, partition = await filled(400)
    for _ in range(2):
        found, blobs = await read_all(partition, StretchQuery(0, partition.end_offset, MIB))
        assert found == list(range(400))
        assert blobs == {*partition.state.bodies.offsets, HEAD}
        await node.restart()
        partition = node.partition()


async def test_a_stretch_begins_and_ends_near_what_was_asked_for() -> None:
    _, partition = await filled(400)
    found, _ = await read_all(partition, StretchQuery(100, 103, MIB))
    assert {100, 101, 102} <= set(found)
    assert min(found) >= 98
    assert max(found) <= 104


async def test_a_range_within_one_batch_has_that_batch() -> None:
    """In a head, and in a body."""
    node = await Node().start()
    partition = await node.topic(config={"retention.ms": "-1"})
    await write(partition, batch(*[bytes(KIB)] * 10), batch(*[bytes(KIB)] * 10))
    assert await read_all(partition, StretchQuery(3, 5, MIB)) == ([0, 10], {HEAD})
    for _ in range(30):
        await write(partition, batch(*[bytes(100 * KIB)] * 10))
    assert partition.state.bodies.ends
    found, blobs = await read_all(partition, StretchQuery(23, 25, MIB))
    assert 20 in found
    assert blobs == {0}


async def test_a_stretch_has_about_the_bytes_asked_for_and_one_entry_at_least() -> None:
    _, partition = await filled(400)
    (one,) = await partition.stretches.read(StretchQuery(0, 400, 1))
    assert len(offsets(one)) == 1
    (some,) = await partition.stretches.read(StretchQuery(0, 400, 10 * (BATCH_BYTES + 200)))
    assert 9 <= len(offsets(some)) <= 10


async def test_what_is_too_old_is_left_out_by_the_bodies_indexes() -> None:
    _, partition = await filled(400)
    found, blobs = await read_all(partition, StretchQuery(0, 400, MIB, START_MS + 1000 * 350))
    assert set(range(350, 400)) <= set(found)
    assert len(found) < 60 or min(found) >= min(partition.state.bodies.offsets[-1], 350)
    assert partition.state.bodies.offsets[0] not in blobs


async def test_what_was_deleted_meanwhile_is_passed_over() -> None:
    _, partition = await filled(400)
    await partition.retention.delete_before(250)
    found, _ = await read_all(partition, StretchQuery(0, 400, MIB))
    assert set(range(250, 400)) <= set(found)
    assert min(found) >= 248


async def test_stretches_that_lie_in_files_are_told_several_at_once(tmp_path: Path) -> None:
    node = Node()
    node.engine = RocksEngine(tmp_path / "data")  # type: ignore[assignment]
    await node.start()
    partition = await node.topic(config={"retention.ms": "-1"})
    for number in range(400):
        await write(partition, batch(b"%06d" % number + bytes(BATCH_BYTES)))
    bodies = list(partition.state.bodies.offsets)
    found = await partition.stretches.read(StretchQuery(0, 400, 8 * MIB, is_verified=False), len(bodies) + 1)
    assert [stretch.blob for stretch in found] == bodies
    for stretch in found:
        data = b"".join(map(_stored, stretch.pieces))
        assert stretch.bounds == (stretch.blob, stretch.next_offset)
        assert [each.base_offset for _, each in records.batches(data)] == list(range(*stretch.bounds))
    assert len(await partition.stretches.read(StretchQuery(0, 400, 8 * MIB, is_verified=False), 1)) == 1
    assert (await partition.stretches.read(StretchQuery(found[-1].next_offset, 400, MIB), 4))[0].blob == HEAD
    await node.stop()
    await node.cell.close()


async def test_bytes_in_memory_are_told_one_stretch_at_once() -> None:
    _, partition = await filled(400)
    assert len(await partition.stretches.read(StretchQuery(0, 400, MIB), 4)) == 1


async def test_an_empty_range_has_no_pieces() -> None:
    _, partition = await filled(400)
    assert await partition.stretches.read(StretchQuery(400, 400, MIB)) == [Stretch((), 400, HEAD)]


async def test_a_lost_partition_refuses() -> None:
    _, partition = await filled(400)
    partition.stop()
    with pytest.raises(KafkaError) as refusal:
        await asyncio.wait_for(partition.stretches.read(StretchQuery(0, 400, MIB)), 5)
    assert refusal.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
