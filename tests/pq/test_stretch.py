"""Reads that are only sent: what is verified ahead of a sequential reader and cut by the index alone."""

import asyncio
import random
from array import array

import pytest

from pqbroker.pq.body import BodyIndex
from pqbroker.pq.partition_server import PartitionServer
from pqbroker.pq.run import Pieces
from pqbroker.pq.stretch import Regions, Stretch
from pqbroker.storage.engine import BlobCorrupt, BlobKey, Buffer, FileRange
from pqbroker.storage.memory import MemoryShard
from tests.pq.rig import KIB, MIB, Node, batch, values_of, write


def stretch(*sizes: int, begin: int = 0, position: int = 0) -> Stretch:
    """The batches of an index with entries at 0, 100, 250 and 400, offsets ten times less, up to 500, in pieces of
    these sizes from `position` on."""
    index = BodyIndex((array("q", [0, 100, 250, 400]), array("q", [0, 10, 25, 40]), array("q", [0] * 4)), 500, 50)
    pieces: list[Buffer | FileRange] = []
    for number, size in enumerate(sizes):
        start = position + sum(sizes[:number])
        pieces.append(FileRange("f", 1000 + start, size) if number % 2 else bytes(i % 251 for i in range(size)))
    return Stretch(index, begin, position, 50, pieces, 0.0)


def test_a_stretch_is_cut_where_the_index_has_an_entry() -> None:
    found = stretch(500).read(10, 310)
    assert found is not None
    pieces, size, following = found
    assert (size, following) == (300, 40)
    assert bytes(pieces[0]) == bytes(i % 251 for i in range(100, 400))  # type: ignore[arg-type]


def test_a_stretch_is_read_to_its_end() -> None:
    found = stretch(500).read(25, 10_000)
    assert found is not None
    assert found[1:] == (250, 50)


@pytest.mark.parametrize(("offset", "bytes_max"), [(0, 99), (10, 149), (40, 99), (11, 500), (5, 500)])
def test_what_the_index_cannot_cut_is_left_to_who_knows_the_batches(offset: int, bytes_max: int) -> None:
    assert stretch(500).read(offset, bytes_max) is None


def test_a_stretch_may_begin_between_entries() -> None:
    found = stretch(437, begin=6, position=63).read(6, 200)
    assert found is not None
    assert found[1:] == (187, 25)
    assert stretch(437, begin=6, position=63).read(0, 500) is None


def test_pieces_in_files_are_cut_and_not_read() -> None:
    found = stretch(120, 300, 80).read(10, 310)
    assert found is not None
    first, second = found[0]
    assert not isinstance(first, FileRange)
    assert len(first) == 20
    assert second == FileRange("f", 1120, 280)


async def cold(count: int, size: int) -> PartitionServer:
    """A partition of so many batches, each of one record whose value begins with its offset, none of them in memory."""
    node = await Node().start()
    partition = await node.topic(config={"retention.ms": "-1"})
    await write(partition, *(batch(b"%06d" % number + bytes(size)) for number in range(count)))
    await node.restart()
    return node.partition()


async def read_to_send(partition: PartitionServer, bytes_max: int) -> tuple[list[tuple[int, bytes | None]], int]:
    """Every record, read as a fast consumer does, and how many answers were of what was verified ahead."""
    found: list[tuple[int, bytes | None]] = []
    ahead = 0
    offset = partition.start_offset
    while offset < partition.end_offset:
        answer = partition.read_to_send(offset, bytes_max)
        pieces = answer if isinstance(answer, Pieces | Regions) else await answer
        assert pieces.next_offset > offset
        assert pieces.size == sum(map(len, pieces.buffers))
        ahead += isinstance(pieces, Regions)
        found += values_of(Pieces(pieces.buffers, pieces.size), offset)  # type: ignore[arg-type]
        offset = pieces.next_offset
        await asyncio.sleep(0)
    return found, ahead


@pytest.mark.parametrize(("size", "count"), [(300 * KIB, 100), (40 * KIB, 700), (3 * KIB, 6000), (1500 * KIB, 30)])
async def test_a_sequential_reader_gets_every_batch_once(size: int, count: int) -> None:
    node = await Node().start()
    chance = random.Random(size)
    partition = await node.topic(config={"retention.ms": "-1"})
    for number in range(count):
        await write(partition, batch(b"%06d" % number + bytes(chance.randrange(size // 2, size))))
    await node.restart()
    found, ahead = await read_to_send(node.partition(), MIB)
    assert [(offset, value and value[:6]) for offset, value in found] == [(n, b"%06d" % n) for n in range(count)]
    assert ahead > 0 or size > MIB


async def test_answers_are_full_over_the_borders_of_what_was_verified_at_once() -> None:
    partition = await cold(400, 100 * KIB)
    sizes = []
    offset = 0
    while offset < 150:
        answer = partition.read_to_send(offset, MIB)
        pieces = answer if isinstance(answer, Pieces | Regions) else await answer
        if isinstance(pieces, Regions):
            sizes.append(pieces.size)
        offset = pieces.next_offset
        for _ in range(8):
            await asyncio.sleep(0)
    assert len(sizes) > 10
    assert min(sizes) > MIB - 140 * KIB


async def test_a_reader_of_small_answers_is_served_from_memory() -> None:
    partition = await cold(200, 100 * KIB)
    found, ahead = await read_to_send(partition, 200 * KIB)
    assert len(found) == 200
    assert ahead == 0


async def test_what_is_damaged_ahead_is_told_when_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    partition = await cold(100, 300 * KIB)
    tried = []

    async def damaged(shard: MemoryShard, ranges: list[tuple[BlobKey, int, int]]) -> list[Buffer | FileRange]:
        tried.append(ranges)
        raise BlobCorrupt(ranges[0][0], 0, "a test")

    monkeypatch.setattr(MemoryShard, "verify", damaged)
    found, ahead = await read_to_send(partition, MIB)
    assert [offset for offset, _ in found] == list(range(100))
    assert ahead == 0
    assert tried


async def test_a_reader_that_is_faster_waits_for_what_is_verified_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    partition = await cold(100, 300 * KIB)
    may_go, is_asked = asyncio.Event(), asyncio.Event()
    verify = MemoryShard.verify

    async def slow(shard: MemoryShard, ranges: list[tuple[BlobKey, int, int]]) -> list[Buffer | FileRange]:
        is_asked.set()
        await may_go.wait()
        return await verify(shard, ranges)

    monkeypatch.setattr(MemoryShard, "verify", slow)
    offset = 0
    while not is_asked.is_set():
        answer = partition.read_to_send(offset, MIB)
        offset = (answer if isinstance(answer, Pieces | Regions) else await answer).next_offset
        await asyncio.sleep(0)
    while isinstance(answer := partition.read_to_send(offset, MIB), Pieces | Regions):
        offset = answer.next_offset
    waiting = asyncio.ensure_future(answer)
    may_go.set()
    assert isinstance(await waiting, Regions)


async def test_a_trim_ends_what_was_verified_before_it() -> None:
    partition = await cold(200, 300 * KIB)
    offset = 0
    for _ in range(6):
        answer = partition.read_to_send(offset, MIB)
        offset = (answer if isinstance(answer, Pieces | Regions) else await answer).next_offset
    await partition.delete_before(150)
    found, _ = await read_to_send(partition, MIB)
    assert [offset for offset, _ in found] == list(range(150, 200))
