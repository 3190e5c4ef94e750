"""Reads that are only sent: what is verified ahead of a sequential reader and cut by the index alone."""

import asyncio
import random
from array import array

import pytest

from pqbroker.pq.log.batch_run import Batches
from pqbroker.pq.log.body import BodyIndex
from pqbroker.pq.reading.query import ReadQuery
from pqbroker.pq.reading.read_ahead import ReadAhead
from pqbroker.pq.reading.verified_range import VerifiedRange
from pqbroker.pq.serving.partition_server import PartitionServer
from pqbroker.storage.engine import BlobCorrupt, BlobKey, Buffer, FileRange
from pqbroker.storage.memory import MemoryShard
from tests.pq.rig import KIB, MIB, Node, batch, query, read, values_of, write


def verified(*sizes: int, begin: int = 0, position: int = 0) -> VerifiedRange:
    """The batches of an index with entries at 0, 100, 250 and 400, offsets ten times less, up to 500, in pieces of
    these sizes from `position` on."""
    index = BodyIndex((array("q", [0, 100, 250, 400]), array("q", [0, 10, 25, 40]), array("q", [0] * 4)), 500, 50)
    pieces: list[Buffer | FileRange] = []
    for number, size in enumerate(sizes):
        start = position + sum(sizes[:number])
        pieces.append(FileRange("f", 1000 + start, size) if number % 2 else bytes(i % 251 for i in range(size)))
    return VerifiedRange(index, (begin, 50), position, pieces, 0.0)


def test_a_range_is_cut_where_the_index_has_an_entry() -> None:
    found = verified(500).read(10, 310)
    assert found is not None
    pieces, size, following = found
    assert (size, following) == (300, 40)
    assert not isinstance(pieces[0], FileRange)
    assert bytes(pieces[0]) == bytes(i % 251 for i in range(100, 400))


def test_a_range_is_read_to_its_end() -> None:
    found = verified(500).read(25, 10_000)
    assert found is not None
    assert found[1:] == (250, 50)


@pytest.mark.parametrize(("offset", "bytes_max"), [(0, 99), (10, 149), (40, 99), (11, 500), (5, 500)])
def test_what_the_index_cannot_cut_is_left_to_who_knows_the_batches(offset: int, bytes_max: int) -> None:
    assert verified(500).read(offset, bytes_max) is None


def test_a_range_may_begin_between_entries() -> None:
    found = verified(437, begin=6, position=63).read(6, 200)
    assert found is not None
    assert found[1:] == (187, 25)
    assert verified(437, begin=6, position=63).read(0, 500) is None


def test_pieces_in_files_are_cut_and_not_read() -> None:
    found = verified(120, 300, 80).read(10, 310)
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


@pytest.fixture(autouse=True)
def sent(monkeypatch: pytest.MonkeyPatch) -> list[Batches]:
    """Answers out of what was verified ahead."""
    found: list[Batches] = []
    verified = ReadAhead.verified

    def noted(ahead: ReadAhead, query: ReadQuery) -> Batches | None:
        batches = verified(ahead, query)
        if batches is not None:
            found.append(batches)
        return batches

    monkeypatch.setattr(ReadAhead, "verified", noted)
    return found


async def read_to_send(partition: PartitionServer, bytes_max: int) -> list[tuple[int, bytes | None]]:
    """Every record, read as a fast consumer does."""
    found: list[tuple[int, bytes | None]] = []
    offset = partition.start_offset
    while offset < partition.end_offset:
        batches = await read(partition, offset, bytes_max, in_files=True)
        assert batches.next_offset > offset
        found += values_of(batches, offset)
        offset = batches.next_offset
        await asyncio.sleep(0)
    return found


@pytest.mark.parametrize(("size", "count"), [(300 * KIB, 100), (40 * KIB, 700), (3 * KIB, 6000), (1500 * KIB, 30)])
async def test_a_sequential_reader_gets_every_batch_once(size: int, count: int, sent: list[Batches]) -> None:
    node = await Node().start()
    chance = random.Random(size)
    partition = await node.topic(config={"retention.ms": "-1"})
    for number in range(count):
        await write(partition, batch(b"%06d" % number + bytes(chance.randrange(size // 2, size))))
    await node.restart()
    found = await read_to_send(node.partition(), MIB)
    assert [(offset, value and value[:6]) for offset, value in found] == [(n, b"%06d" % n) for n in range(count)]
    assert sent or size > MIB


async def test_answers_are_full_over_the_borders_of_what_was_verified_at_once(sent: list[Batches]) -> None:
    partition = await cold(400, 100 * KIB)
    offset = 0
    while offset < 150:
        offset = (await read(partition, offset, MIB, in_files=True)).next_offset
        for _ in range(8):
            await asyncio.sleep(0)
    assert len(sent) > 10
    assert min(batches.size for batches in sent) > MIB - 140 * KIB


async def test_a_reader_of_small_answers_is_served_from_memory(sent: list[Batches]) -> None:
    partition = await cold(200, 100 * KIB)
    found = await read_to_send(partition, 200 * KIB)
    assert len(found) == 200
    assert not sent


async def test_what_is_damaged_ahead_is_told_when_it_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, sent: list[Batches]
) -> None:
    partition = await cold(100, 300 * KIB)
    tried = []

    async def damaged(
        shard: MemoryShard, ranges: list[tuple[BlobKey, int, int]], *, by_reader: bool
    ) -> list[Buffer | FileRange]:
        tried.append(ranges)
        raise BlobCorrupt(ranges[0][0], 0, "a test")

    monkeypatch.setattr(MemoryShard, "verify", damaged)
    found = await read_to_send(partition, MIB)
    assert [offset for offset, _ in found] == list(range(100))
    assert not sent
    assert tried


async def test_a_reader_that_is_faster_waits_for_what_is_verified_ahead(
    monkeypatch: pytest.MonkeyPatch, sent: list[Batches]
) -> None:
    partition = await cold(100, 300 * KIB)
    may_go, is_asked = asyncio.Event(), asyncio.Event()
    verify = MemoryShard.verify

    async def slow(
        shard: MemoryShard, ranges: list[tuple[BlobKey, int, int]], *, by_reader: bool
    ) -> list[Buffer | FileRange]:
        is_asked.set()
        await may_go.wait()
        return await verify(shard, ranges)

    monkeypatch.setattr(MemoryShard, "verify", slow)
    offset = 0
    while not is_asked.is_set():
        offset = (await read(partition, offset, MIB, in_files=True)).next_offset
        await asyncio.sleep(0)
    while isinstance(answer := partition.read(query(partition, offset, MIB, in_files=True)), Batches):
        offset = answer.next_offset
    waiting = asyncio.ensure_future(answer)
    may_go.set()
    assert await waiting is sent[-1]


async def test_a_trim_ends_what_was_verified_before_it() -> None:
    partition = await cold(200, 300 * KIB)
    offset = 0
    for _ in range(6):
        offset = (await read(partition, offset, MIB, in_files=True)).next_offset
    await partition.retention.delete_before(150)
    found = await read_to_send(partition, MIB)
    assert [offset for offset, _ in found] == list(range(150, 200))


async def test_what_was_verified_beyond_the_readers_view_is_not_sent(sent: list[Batches]) -> None:
    partition = await cold(100, 300 * KIB)
    offset = 0
    while not sent:
        offset = (await read(partition, offset, MIB, in_files=True)).next_offset
        await asyncio.sleep(0)
    answer = partition.read(ReadQuery(offset, offset + 1, MIB, in_files=True))
    batches = answer if isinstance(answer, Batches) else await answer
    assert (batches.next_offset, len(sent)) == (offset + 1, 1)
