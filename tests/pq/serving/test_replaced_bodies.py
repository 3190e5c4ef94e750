"""Bodies that take the place of others: beside reads, writes, retention, restarts and moves, every reader sees the old
records or the new ones, in order, and each position is one that a consumer may have."""

import asyncio
import dataclasses
import random
from collections.abc import Awaitable, Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pqbroker.pq.log.body import BodyName
from pqbroker.pq.log.partition_settings import Closed
from pqbroker.pq.log.replacing_cycles import NewBody, index_of
from pqbroker.pq.serving.partition_server import PartitionServer
from pqbroker.pq.serving.stretches import StretchQuery
from pqbroker.protocol.cleaned_batches import batch_of, empty_batch, place_records
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.protocol.records import batches
from pqbroker.storage.engine import BlobKey, BlobMissing, Buffer
from pqbroker.storage.kv.commands import KeyMissing
from pqbroker.storage.memory import MemoryShard
from pqbroker.storage.tablets.tablet import TabletStorage
from pqbroker.tables.work.batches import RowRange, decode
from pqbroker.tables.work.stored_batches import Order
from tests.pq.rig import (
    KIB,
    MIB,
    START_MS,
    Node,
    batch,
    check_invariants,
    check_store,
    read,
    table_that_keeps_facts,
    values_of,
    write,
)
from tests.support.depth import examples

Reading = Callable[[PartitionServer], Awaitable[list[int]]]
CONFIG = {"retention.ms": "-1", "pq.low.watermark.bytes": str(40 * KIB)}


async def filled(node: Node, count: int = 60, size: int = 5 * KIB, **config: str) -> PartitionServer:
    """A partition of several bodies, a few records a batch, a value for each offset."""
    server = await node.topic(config={**CONFIG, **config})
    for number in range(count):
        values = [b"%06d" % (3 * number + inner) + bytes(size // 3) for inner in range(3)]
        await write(server, batch(*values, timestamps=[START_MS + number] * 3, codec=3 if number % 4 == 1 else 0))
    assert len(server.state.bodies) >= 3
    return server


async def stored_batches(server: PartitionServer, name: BodyName) -> list[memoryview]:
    """All batches of a body."""
    number = server.state.bodies.number_of(name)
    if number is None:
        raise KeyMissing(b"")
    index = await server.reader.runs.index(number)
    data = await server.reader.runs.read_bytes(name, 0, index.data_bytes)
    return [data[position : position + header.size_bytes] for position, header in batches(data)]


async def thinned(server: PartitionServer, first: int, last: int, keeps: Callable[[int], bool]) -> NewBody:
    """The bodies of the numbers [first, last) as one, with those records that `keeps` wants by offset."""
    bodies = server.state.bodies
    names = [bodies.name(number) for number in range(first, last)]
    end = bodies.ends[last - 1]
    made: list[bytes] = []
    for name in names:
        for stored in await stored_batches(server, name):
            placed = place_records(stored, MIB)
            kept = [record for record in placed.records if keeps(record.offset)]
            if kept:
                made.append(batch_of(placed, kept, None))
            elif placed.header.last_offset == end - 1:
                made.append(empty_batch(placed.header, placed.header.base_offset, end - 1))
    return NewBody(names, made, index_of(made))


async def replace(server: PartitionServer, first: int, last: int, keeps: Callable[[int], bool]) -> bool:
    return await server.replace_bodies([await thinned(server, first, last, keeps)])


async def consumed(server: PartitionServer, offset: int = 0, bytes_max: int = MIB) -> list[int]:
    """Offsets of the records from an offset on, read as a consumer does."""
    found: list[int] = []
    while offset < server.end_offset:
        pieces = await read(server, offset, bytes_max)
        assert pieces.size
        for number, value in values_of(pieces, offset):
            assert value is not None
            assert int(value[:6]) == number
            found.append(number)
        *_, (_, last) = batches(b"".join(pieces.in_memory()))
        assert last.last_offset >= offset
        offset = last.last_offset + 1
    return found


@pytest.mark.spec("G.3")
async def test_one_body_takes_the_place_of_several() -> None:
    node = await Node().start()
    server = await filled(node)
    bodies = server.state.bodies
    offset, end, size = bodies.offsets[0], bodies.ends[2], bodies.size
    assert await replace(server, 0, 3, lambda number: number % 5 == 0)
    assert next(iter(bodies.spans())) == (offset, end)
    assert bodies.name(0) == BodyName(offset, 1)
    assert bodies.size < size
    expected = [number for number in range(server.end_offset) if number >= end or number % 5 == 0]
    for _ in range(2):
        server = node.partition()
        check_invariants(server.state)
        await check_store(node, server)
        assert await consumed(server) == expected
        await node.restart()


async def test_a_body_is_replaced_under_its_own_key_and_nobody_reads_one_for_the_other() -> None:
    node = await Node().start()
    server = await filled(node)
    old = server.state.bodies.name(1)
    key = server.state.bodies.key(0, 1)
    pages = await server.reader.runs.load(old.offset, MIB)
    assert pages
    assert await replace(server, 1, 2, lambda number: number % 7 == 0)
    assert server.state.bodies.key(0, 1) == key
    assert server.state.bodies.number_of(old) is None
    start, end = list(server.state.bodies.spans())[1]
    assert await consumed(server, start) == [
        number for number in range(start, server.end_offset) if number >= end or number % 7 == 0
    ]
    cache = node.topics.memory.cache
    assert not [kept for kept in cache._pages if kept[1] == old.offset and kept[3] == old.version]


async def test_what_was_replaced_or_deleted_meanwhile_is_not_replaced() -> None:
    node = await Node().start()
    server = await filled(node)
    late = await thinned(server, 0, 2, lambda number: False)
    again = await thinned(server, 1, 3, lambda number: True)
    assert await replace(server, 1, 2, lambda number: True)
    before = await consumed(server)
    assert not await server.replace_bodies([late])
    assert not await server.replace_bodies([again])
    assert not await server.replace_bodies([])
    assert await consumed(server) == before
    late = await thinned(server, 0, 1, lambda number: False)
    await server.retention.delete_before(server.state.bodies.ends[0])
    assert not await server.replace_bodies([late])
    check_invariants(server.state)
    await check_store(node, server)


async def test_nothing_is_replaced_while_nothing_may_be_deleted() -> None:
    node = await Node().start()
    server = await filled(node)
    new = await thinned(server, 0, 2, lambda number: False)
    open_settings, before = server.state.settings, await consumed(server)
    for closed in Closed:
        server.configure(dataclasses.replace(open_settings, closed={0: closed}))
        assert not await server.replace_bodies([new])
    server.configure(open_settings)
    node.cell.quarantine.is_held = True
    assert not await server.replace_bodies([new])
    assert await consumed(server) == before
    node.cell.quarantine.is_held = False
    assert await server.replace_bodies([new])


async def test_a_refused_replacement_changes_nothing() -> None:
    node = await Node().start()
    server = await filled(node)
    before, spans = await consumed(server), list(server.state.bodies.spans())
    new = await thinned(server, 0, 2, lambda number: False)
    node.engine.faults.refuse_next()
    with pytest.raises(KafkaError) as refusal:
        await server.replace_bodies([new])
    assert refusal.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert list(server.state.bodies.spans()) == spans
    assert await consumed(server) == before
    assert await replace(server, 0, 2, lambda number: False)


@pytest.mark.spec("G.3")
async def test_a_replaced_body_is_as_old_as_the_newest_that_it_replaced() -> None:
    node = await Node().start()
    server = await node.topic(config={**CONFIG, "cleanup.policy": "compact,delete", "retention.ms": "1000"})
    for _ in range(3):
        node.now_ms += 400
        while len(server.state.bodies) < 3:
            count = len(server.state.bodies)
            await write(server, batch(size=5 * KIB))
            if len(server.state.bodies) > count:
                break
    created = list(server.state.bodies.created)
    node.now_ms += 500
    assert await server.replace_bodies([await thinned(server, 0, 2, lambda number: False)])
    for _ in range(2):
        assert list(server.state.bodies.created) == [created[1], created[2]]
        await node.restart()
        server = node.partition()
    node.now_ms = created[1] + 1000
    await server.retention.retain()
    assert len(server.state.bodies) == 1


async def shown(server: PartitionServer) -> list[int]:
    """Offsets of the records, read as another process does, where they lie."""
    offset, rows = server.start_offset, []
    while offset < server.end_offset:
        (stretch,) = await server.stretches.read(StretchQuery(offset, server.end_offset, MIB))
        data = memoryview(b"".join(stretch.pieces))  # type: ignore[arg-type]
        span = RowRange(0, offset, stretch.next_offset)
        rows += decode(data, span, ("$row_index",), order=Order(*stretch.bounds or ())).to_pydict()["$row_index"]
        offset = stretch.next_offset
    return rows


@pytest.mark.parametrize("reading", [consumed, shown])
@pytest.mark.parametrize("is_after", [False, True])
@pytest.mark.parametrize("turn", range(1, 6))
async def test_a_read_under_way_gets_the_old_records_or_the_new(
    monkeypatch: pytest.MonkeyPatch, turn: int, *, is_after: bool, reading: Reading
) -> None:
    """A body is replaced under its own key just before, or just after, one of the store's reads."""
    node = await Node().start()
    await filled(node)
    await node.restart()
    server = node.partition()
    node.topics.memory.cache.bytes_max = 0
    waiting = [await thinned(server, number, number + 1, lambda row: row % 7 == 0) for number in (0, 1)]
    intact = MemoryShard.read
    reads = 0

    async def interrupted(shard: MemoryShard, ranges: list[tuple[BlobKey, int, int]]) -> list[Buffer]:
        nonlocal reads
        reads += 1
        is_due = reads == turn
        if is_due and not is_after:
            assert await server.replace_bodies(waiting)
        found = await intact(shard, ranges)
        if is_due and is_after:
            assert await server.replace_bodies(waiting)
        return found

    monkeypatch.setattr(MemoryShard, "read", interrupted)
    found = await reading(server)
    assert found == sorted(set(found))
    end = server.state.bodies.ends[1]
    assert set(found) >= {row for row in range(server.end_offset) if row >= end or row % 7 == 0}
    reads = -1 << 20
    if server.state.bodies.revision:
        assert await reading(server) == [row for row in range(server.end_offset) if row >= end or row % 7 == 0]


async def test_facts_of_rows_stay_with_replaced_bodies_until_they_are_trimmed() -> None:
    node = await Node().start()
    server = await node.topic(config=CONFIG, table=table_that_keeps_facts(1))
    for number in range(60):
        await write(server, batch(b"%06d" % number + bytes(5 * KIB)))
    before = [list(await server.facts.read(offset, offset + 1)) for offset in range(server.end_offset)]
    weight = server.state.facts.kept_weight(server.state.bodies, server.state.head)
    assert await replace(server, 0, 3, lambda number: number % 4 == 0)
    for _ in range(2):
        assert [list(await server.facts.read(offset, offset + 1)) for offset in range(server.end_offset)] == before
        assert server.state.facts.kept_weight(server.state.bodies, server.state.head) == weight
        await node.restart()
        server = node.partition()
    first = server.state.bodies.ends[0]
    await server.retention.delete_before(first)
    assert server.state.facts.blobs[0].offset == first
    left = range(first, server.end_offset)
    assert [list(await server.facts.read(offset, offset + 1)) for offset in left] == before[first:]


async def test_a_moved_tablet_has_the_new_bodies() -> None:
    node = await Node().start()
    server = await filled(node)
    topic = node.topics.get("t")
    assert topic is not None
    tablet = topic.tablets[topic.record.tablets[0]]
    record = node.cell.tablets()[topic.record.tablets[0]]
    (made,) = await node.scheme.reserve_tablets(1)
    await node.cell.create_tablets([(made, record.type, record.owner)], 1)
    target: TabletStorage = node.cell.storage(made)
    copy = tablet.copy_to(target)
    assert await copy.follow()
    assert await replace(server, 1, 2, lambda number: number % 3 == 0)
    assert await copy.follow()
    assert await replace(server, 0, 3, lambda number: number % 6 == 0)
    assert await copy.follow()
    rows = {key: row for key, row in await target.scan(b"", None, 10_000) if key[:1] == b"d"}
    own = {key: entry.size for key, entry in tablet.kv.keys() if key[:1] == b"d"}
    assert rows.keys() == own.keys()


@settings(max_examples=examples(60), deadline=None)
@given(st.integers(0, 1 << 32), st.sampled_from([0, 20 * KIB, 4 * MIB]))
def test_whatever_is_replaced_beside_readers_and_writers_the_log_is_in_order(seed: int, cache_bytes: int) -> None:
    asyncio.run(_story(random.Random(seed), cache_bytes))


async def _story(chance: random.Random, cache_bytes: int) -> None:
    node = await Node().start()
    server = await filled(node, 40)
    kept = set(range(server.end_offset))
    one_writer = asyncio.Lock()

    async def writing() -> None:
        async with one_writer:
            start = server.end_offset
            values = [b"%06d" % (start + number) + bytes(chance.choice((10, 3000))) for number in range(3)]
            await write(server, batch(*values))
            kept.update(range(start, start + 3))

    async def replacing() -> None:
        count = len(server.state.bodies)
        first = chance.randrange(max(count, 1))
        last = min(first + chance.choice((1, 1, 2, 4)), count)
        if first >= last:
            return
        modulus, rest = chance.choice((1, 2, 3, 10)), chance.randrange(2)
        start, end = server.state.bodies.offsets[first], server.state.bodies.ends[last - 1]
        try:
            new = await thinned(server, first, last, lambda number: number % modulus == rest % modulus)
        except (KeyMissing, BlobMissing):
            return  # another one was faster
        if await server.replace_bodies([new]):
            kept.difference_update(
                [number for number in kept if start <= number < end and number % modulus != rest % modulus]
            )

    async def reading() -> None:
        offset = chance.randrange(server.start_offset, server.end_offset + 1)
        sure = {number for number in kept if number >= offset}
        found = await consumed(server, offset, chance.choice((1, 10 * KIB, MIB)))
        assert found == sorted(set(found))
        assert set(found) >= sure & kept

    async def scanning() -> None:
        offset, end = server.start_offset, server.end_offset
        sure, found = {number for number in kept if offset <= number < end}, []
        while offset < end:
            (stretch,) = await server.stretches.read(StretchQuery(offset, end, 20 * KIB))
            data = memoryview(b"".join(stretch.pieces))  # type: ignore[arg-type]
            span = RowRange(0, offset, stretch.next_offset)
            found += decode(data, span, ("$row_index",), order=Order(*stretch.bounds or ())).to_pydict()["$row_index"]
            offset = stretch.next_offset
        assert found == sorted(set(found))
        assert set(found) >= sure & kept

    async def searching() -> None:
        found = await server.times.first_at(START_MS + chance.randrange(50))
        assert found is None or found.offset < server.end_offset

    async def flushing() -> None:
        await server.flush()

    steps: list[Callable[[], Awaitable[None]]] = [writing, replacing, replacing, reading, scanning, searching, flushing]
    for _ in range(6):
        node.topics.memory.cache.bytes_max = cache_bytes
        await asyncio.gather(*(chance.choice(steps)() for _ in range(5)))
        check_invariants(server.state)
        if chance.random() < 0.3:
            await node.restart()
            server = node.partition()
        if chance.random() < 0.3:
            trimmed = await server.retention.delete_before(chance.randrange(server.start_offset, server.end_offset))
            kept = {number for number in kept if number >= trimmed}
        assert [number for number in await consumed(server, server.start_offset) if number in kept] == sorted(kept)
    await check_store(node, server)
