"""Reads: from memory, cold, over borders, around damage, and by time."""

import asyncio
import gc
import random
import warnings

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pqbroker.pq.log.batch_run import Batches
from pqbroker.pq.reading import damaged_body
from pqbroker.pq.reading.cache import INDEX_PAGE
from pqbroker.pq.reading.query import ReadQuery
from pqbroker.pq.reading.time_index import TimedOffset
from pqbroker.pq.serving.partition_server import PartitionServer
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.storage.engine import BlobCorrupt, BlobKey, Buffer
from pqbroker.storage.memory import MemoryShard
from tests.pq.rig import KIB, MIB, START_MS, Node, batch, query, read, read_all, values_of, write


async def filled(node: Node, count: int = 30, size: int = 300 * KIB) -> PartitionServer:
    """A partition with bodies and a head, one record a batch, the value's first bytes its offset."""
    partition = await node.topic(config={"retention.ms": "-1"})
    await write(
        partition, *(batch(b"%06d" % number + bytes(size), timestamps=[START_MS + number]) for number in range(count))
    )
    assert len(partition.state.bodies) >= 1
    return partition


class Damage:
    """Reads of the memory engine that touch chosen bytes of the largest blob fail as on a disk gone bad."""

    def __init__(self, node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
        blobs = node.engine._store.blobs
        self.blob: BlobKey = max(blobs, key=lambda key: len(blobs[key]))
        self.first = self.last = -1
        self.reads = 0
        intact = MemoryShard.read

        async def reading(shard: MemoryShard, ranges: list[tuple[BlobKey, int, int]]) -> list[Buffer]:
            self.reads += 1
            for blob, offset, size in ranges:
                if blob == self.blob and offset <= self.last and self.first < offset + size:
                    raise BlobCorrupt(blob, self.first, "a test")
            return await intact(shard, ranges)

        monkeypatch.setattr(MemoryShard, "read", reading)


async def read_until_refused(partition: PartitionServer, found: list[int]) -> None:
    """Read from the start on, noting the offsets of all records."""
    while True:
        offset = len(found)
        found += [number for number, _ in values_of(await read(partition, offset, MIB), offset)]


async def is_served(partition: PartitionServer, offset: int) -> bool:
    """Whether a read at the offset gives its record; a refusal must be CORRUPT_MESSAGE."""
    try:
        found = dict(values_of(await read(partition, offset, 1000), offset))
    except KafkaError as refusal:
        if refusal.code is not ErrorCode.CORRUPT_MESSAGE:
            raise
        return False
    assert offset in found
    return True


@pytest.mark.parametrize("offset", [-1, 31])
async def test_an_offset_outside_the_log_is_out_of_range(offset: int) -> None:
    partition = await filled(await Node().start())
    with pytest.raises(KafkaError) as caught:
        partition.read(query(partition, offset, 1000))
    assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


async def test_a_read_at_the_end_is_empty() -> None:
    partition = await filled(await Node().start())
    assert partition.read(query(partition, 30, 1000)) == Batches([], 0, 30)


async def test_a_read_that_nobody_waits_for_does_not_begin() -> None:
    """A connection may be lost between the two; Python would say so of a coroutine, as a warning of the broker's."""
    node = await Node().start()
    await filled(node)
    await node.restart()
    partition = node.partition()
    before = partition.reader.counters.reads_from_store
    dropped = partition.read(query(partition, 0, 1000))
    assert not isinstance(dropped, Batches)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        del dropped
        gc.collect()
    assert not said
    assert partition.reader.counters.reads_from_store == before


@pytest.mark.parametrize("is_cold", [False, True])
@pytest.mark.parametrize("end_offset", [1, 11, 12, 29, 30])
async def test_a_read_ends_with_the_readers_view(end_offset: int, is_cold: bool) -> None:
    node = await Node().start()
    partition = await filled(node)
    if is_cold:
        await node.restart()
        partition = node.partition()
    for offset in (0, end_offset - 1, end_offset, 30):
        answer = partition.read(ReadQuery(offset, end_offset, 50 * MIB))
        batches = answer if isinstance(answer, Batches) else await answer
        assert [found for found, _ in values_of(batches, offset)] == list(range(offset, batches.next_offset))
        assert offset < batches.next_offset <= end_offset or (batches.size, batches.next_offset) == (0, offset)
        readable = partition.reader.readable_bytes(offset, end_offset, MIB)
        assert (readable > 0) == (offset < end_offset)


async def test_a_batch_that_ends_behind_the_readers_view_is_not_read() -> None:
    node = await Node().start()
    partition = await node.topic()
    await write(partition, batch(b"a", b"b"), batch(b"c", b"d"))
    assert partition.read(ReadQuery(2, 3, MIB)) == Batches([], 0, 3)
    assert partition.reader.readable_bytes(2, 3, MIB) == 0


async def test_closed_heads_are_read_from_the_cache_without_the_store() -> None:
    partition = await filled(await Node().start())
    for offset in range(30):
        assert isinstance(partition.read(query(partition, offset, 1000)), Batches)


@pytest.mark.spec("A.9", "K.1")
async def test_cold_and_warm_reads_give_the_same_bytes() -> None:
    node = await Node().start()
    partition = await filled(node)
    warm = [b"".join((await read(partition, offset, MIB)).in_memory()) for offset in range(30)]
    await node.restart()
    partition = node.partition()
    for offset in (17, 3, 29, 0):
        cold = b"".join((await read(partition, offset, MIB)).in_memory())
        shorter = min(len(cold), len(warm[offset]))
        assert shorter > 0
        assert cold[:shorter] == warm[offset][:shorter]


async def test_without_a_cache_everything_is_still_read() -> None:
    node = await Node(cache_bytes=0).start()
    await filled(node)
    await node.restart()
    found = await read_all(node.partition(), bytes_max=700 * KIB)
    assert [offset for offset, _ in found] == list(range(30))


async def test_one_read_goes_over_pages_bodies_and_the_head() -> None:
    partition = await filled(await Node().start())
    pieces = await read(partition, 10, 50 * MIB)
    assert [offset for offset, _ in values_of(pieces, 10)] == list(range(10, 30))


async def test_a_batch_is_found_by_any_of_its_offsets_when_cold() -> None:
    node = await Node().start()
    partition = await node.topic()
    for number in range(70):
        await write(partition, batch(*[b"%d" % number + bytes(30 * KIB)] * 4))
    await node.restart()
    partition = node.partition()
    for offset in (0, 1, 3, 4, 101, 203, 279):
        found = values_of(await read(partition, offset, 10), 0)
        assert [number for number, _ in found] == list(range(offset // 4 * 4, offset // 4 * 4 + 4))


async def test_a_sequential_reader_finds_the_next_pages_read_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    node = await Node().start()
    await filled(node, count=100)
    await node.restart()
    counting = Damage(node, monkeypatch)
    partition = node.partition()
    offset = cold = reads = 0
    while offset < 60:
        answer = partition.read(query(partition, offset, 600 * KIB))
        cold += not isinstance(answer, Batches)
        offset = (answer if isinstance(answer, Batches) else await answer).next_offset
        for _ in range(8):
            await node.cell.confirm()
            await asyncio.sleep(0)
        reads += 1
    assert counting.reads > 5
    assert cold <= reads // 4


async def test_batches_before_a_damaged_page_are_served_and_the_damage_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    node = await Node().start()
    partition = await node.topic()
    await write(partition, *(batch(b"%06d" % number + bytes(40 * KIB)) for number in range(200)))
    await node.restart()
    hurt = Damage(node, monkeypatch)
    partition = node.partition()
    hurt.first = hurt.last = len(node.engine._store.blobs[hurt.blob]) // 2
    found: list[int] = []
    with pytest.raises(KafkaError, match="CORRUPT_MESSAGE"):
        await read_until_refused(partition, found)
    assert found == list(range(len(found)))
    bad = len(found)
    assert bad > 0
    behind = await read_all(partition, bad + 1)
    assert [number for number, _ in behind] == list(range(bad + 1, 200))
    assert await partition.retention.delete_before(bad + 1) == bad + 1
    assert len(await read_all(partition)) == 199 - bad


async def test_damage_that_is_deleted_while_it_is_read_around_is_out_of_range(monkeypatch: pytest.MonkeyPatch) -> None:
    node = await Node().start()
    await filled(node)
    await node.restart()
    partition = node.partition()
    offset = partition.state.bodies.ends[0]
    intact = MemoryShard.read
    damaged = 0

    async def reading(shard: MemoryShard, ranges: list[tuple[BlobKey, int, int]]) -> list[Buffer]:
        nonlocal damaged
        if sum(size for _, _, size in ranges) > MIB:
            damaged += 1
            raise BlobCorrupt(ranges[0][0], 0, "a test")
        if damaged:
            await partition.retention.delete_before(offset)
        return await intact(shard, ranges)

    monkeypatch.setattr(MemoryShard, "read", reading)
    with pytest.raises(KafkaError) as refusal:
        await read(partition, 0, 2 * MIB)
    assert (refusal.value.code, damaged) == (ErrorCode.OFFSET_OUT_OF_RANGE, 1)


async def test_a_damaged_index_is_rebuilt_from_the_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    node = await Node().start()
    partition = await node.topic(config={"pq.low.watermark.bytes": "2000000"})
    values = [b"%06d" % number + bytes(5000) for number in range(600)]
    for first in range(0, 600, 100):
        await write(partition, *[batch(*values[at : at + 10]) for at in range(first, first + 100, 10)])
    await node.restart()
    partition = node.partition()
    monkeypatch.setattr("pqbroker.pq.reading.run_loading.decode_index", lambda tail: None)
    rebuilt = []
    whole = damaged_body.rebuild_index

    async def counted(*arguments: object) -> object:
        rebuilt.append(1)
        return await whole(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr("pqbroker.pq.reading.run_loading.rebuild_index", counted)
    assert await read_all(partition) == list(enumerate(values))
    assert len(rebuilt) == len(partition.state.bodies)


async def test_a_rebuilt_index_is_not_mixed_with_pages_of_the_one_before(monkeypatch: pytest.MonkeyPatch) -> None:
    node = await Node().start()
    partition = await node.topic(config={"pq.low.watermark.bytes": str(3 * MIB)})
    while not len(partition.state.bodies):
        await write(partition, batch(size=700))
    cache = node.topics.memory.cache
    key = next(key for key in cache._pages if key[2] == INDEX_PAGE)
    cache.size -= cache._pages.pop(key).held
    monkeypatch.setattr("pqbroker.pq.reading.run_loading.decode_index", lambda tail: None)
    assert [offset for offset, _ in await read_all(partition)] == list(range(partition.end_offset))


async def test_with_index_and_batches_damaged_what_can_be_read_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    node = await Node(by_reference=False).start()
    partition = await node.topic()
    await write(partition, *(batch(b"%06d" % number + bytes(300 * KIB)) for number in range(30)))
    await node.restart()
    hurt = Damage(node, monkeypatch)
    partition = node.partition()
    size = len(node.engine._store.blobs[hurt.blob])
    hurt.first, hurt.last = size // 2, size
    served = [await is_served(partition, offset) for offset in range(30)]
    bad = served.index(False)
    assert bad > 0
    assert await partition.retention.delete_before(partition.state.bodies.ends[0])
    assert len(await read_all(partition)) == 30 - partition.start_offset


async def test_a_head_that_cannot_be_loaded_is_closed_and_read_around(monkeypatch: pytest.MonkeyPatch) -> None:
    node = await Node().start()
    partition = await node.topic()
    await write(partition, *(batch(b"%06d" % number + bytes(40 * KIB)) for number in range(20)))
    await node.restart()
    hurt = Damage(node, monkeypatch)
    hurt.first = hurt.last = 50
    partition = node.partition()
    served = [await is_served(partition, offset) for offset in range(20)]
    assert len(partition.state.bodies) == 1
    assert 0 < served.count(False) <= 4
    assert await write(partition, batch(b"on"))
    assert (await read_all(partition, 20)) == [(20, b"on")]


async def test_a_time_is_found_record_exact_inside_a_compressed_batch() -> None:
    node = await Node().start()
    partition = await node.topic()
    for number in range(5):
        stamps = [START_MS + 100 * number + 10 * inner for inner in range(10)]
        await write(partition, batch(*[b"v" * 50] * 10, timestamps=stamps, codec=4 if number % 2 else 1))
    for cold in (False, True):
        if cold:
            await node.restart()
        partition = node.partition()
        assert await partition.times.first_at(START_MS + 231) == TimedOffset(24, START_MS + 240, 1)
        assert await partition.times.first_at(0) == TimedOffset(0, START_MS, 1)
        assert await partition.times.first_at(START_MS + 491) is None
        assert await partition.times.latest() == TimedOffset(49, START_MS + 490, 1)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 1 << 32))
def test_times_are_found_as_a_plain_search_finds_them(seed: int) -> None:
    asyncio.run(_compare_times(random.Random(seed)))


async def _compare_times(chance: random.Random) -> None:
    node = await Node().start()
    partition = await node.topic(config={"pq.low.watermark.bytes": "40000", "retention.ms": "-1"})
    stamps: list[int] = []
    for _ in range(chance.randrange(1, 60)):
        some = [START_MS + chance.randrange(200) for _ in range(chance.randrange(1, 5))]
        await write(partition, batch(*[bytes(chance.randrange(3000))] * len(some), timestamps=some))
        stamps += some
    start = await partition.retention.delete_before(chance.randrange(len(stamps)))
    if chance.random() < 0.5:
        await node.restart()
        partition = node.partition()
    for _ in range(8):
        wanted = START_MS + chance.randrange(-5, 205)
        expected = next(((at, stamp) for at, stamp in enumerate(stamps) if at >= start and stamp >= wanted), None)
        found = await partition.times.first_at(wanted)
        assert (None if found is None else found[:2]) == expected
    latest = await partition.times.latest()
    top = max(stamps[start:])
    assert latest is not None
    assert latest[:2] == (stamps.index(top, start), top)


async def test_with_log_append_time_a_batch_has_one_time() -> None:
    node = await Node().start()
    partition = await node.topic(config={"message.timestamp.type": "LogAppendTime"})
    await write(partition, batch(b"a", b"b", timestamps=[1, 2]))
    node.now_ms += 10
    await write(partition, batch(b"c", b"d", timestamps=[3, 4]))
    assert await partition.times.first_at(START_MS + 1) == TimedOffset(2, START_MS + 10, 1)
    assert await partition.times.first_at(START_MS) == TimedOffset(0, START_MS, 1)


@pytest.mark.parametrize("size", [70 * KIB, 7 * MIB])
async def test_a_search_for_a_time_ends_when_the_topic_is_deleted_meanwhile(
    monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    node = await Node().start()
    await write(await node.topic(), batch(bytes(size)))
    await node.restart()
    is_asked, is_gone = asyncio.Event(), asyncio.Event()
    intact = MemoryShard.read

    async def reading(shard: MemoryShard, ranges: list[tuple[BlobKey, int, int]]) -> list[Buffer]:
        is_asked.set()
        await is_gone.wait()
        return await intact(shard, ranges)

    monkeypatch.setattr(MemoryShard, "read", reading)
    partition = node.partition()
    searches = [asyncio.ensure_future(it) for it in (partition.times.first_at(0), partition.times.latest())]
    await is_asked.wait()
    await node.topics.delete("t")
    await node.host.reclaimed()
    is_gone.set()
    for search in searches:
        with pytest.raises(KafkaError) as refusal:
            await asyncio.wait_for(search, 5)
        assert refusal.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
