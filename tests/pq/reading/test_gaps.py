"""Bodies with gaps in their offsets and batches without records: every reader takes them for what they are."""

import asyncio
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pqbroker.doctor.contents import Damaged, check_body, check_head
from pqbroker.pq.log.batch_run import Batches
from pqbroker.pq.log.body import decode_index
from pqbroker.pq.reading.query import ReadQuery
from pqbroker.pq.serving.partition_server import PartitionServer
from pqbroker.pq.serving.stretches import StretchQuery
from pqbroker.protocol.records import LOG_APPEND_TIME, batches, read_header
from pqbroker.tables.work.batches import RowRange, decode
from pqbroker.tables.work.stored_batches import Order
from tests.pq.gapped import GappedBody, gapped_batch, gapped_bodies, records_from, with_bodies
from tests.pq.rig import KIB, MIB, START_MS, Node, batch, read, values_of, write
from tests.support.depth import examples

HAND_MADE = [
    GappedBody(0, 100, [gapped_batch(40, 49, {45: START_MS + 5}), gapped_batch(60, 64, {})], {45: START_MS + 5}),
    GappedBody(100, 200, [gapped_batch(150, 150, {150: START_MS}), gapped_batch(190, 199, {})], {150: START_MS}),
]
"""Gaps before all batches, between them and behind them, over the border of two bodies; an empty batch at the end."""


async def offsets_read(server: PartitionServer, offset: int, bytes_max: int) -> list[int]:
    """Offsets of all records from an offset on, read as a consumer does, which goes on behind the last batch."""
    found: list[int] = []
    while offset < server.end_offset:
        pieces = await read(server, offset, bytes_max)
        assert pieces.size, f"nothing at offset {offset}, before the end {server.end_offset}"
        found += [number for number, _ in values_of(pieces, offset)]
        last = [header for _, header in batches(b"".join(pieces.in_memory()))][-1]
        assert offset <= last.last_offset < pieces.next_offset
        offset = last.last_offset + 1
    return found


@pytest.mark.spec("G.3")
async def test_a_read_in_a_gap_gets_the_next_batch() -> None:
    server = await with_bodies(await Node().start(), HAND_MADE)
    for offset, base in ((0, 40), (39, 40), (49, 40), (50, 60), (64, 60), (65, 150), (99, 150), (100, 150), (151, 190)):
        pieces = await read(server, offset, 1)
        assert [header.base_offset for _, header in batches(b"".join(pieces.in_memory()))] == [base]
    assert (await read(server, 200, 1)).size == 0


@settings(max_examples=examples(60), deadline=None)
@given(st.integers(0, 1 << 32), st.sampled_from([1, 200, 5 * KIB, 100 * KIB]), st.sampled_from([0, 300, 1 << 20]))
def test_every_record_is_read_whatever_is_missing(seed: int, bytes_max: int, cache_bytes: int) -> None:
    async def story() -> None:
        chance = random.Random(seed)
        node = await Node().start()
        bodies = gapped_bodies(chance, 4)
        server = await with_bodies(node, bodies)
        node.topics.memory.cache.bytes_max = cache_bytes
        if chance.random() < 0.5:
            await write(server, batch(b"head"))
        expected = records_from(bodies, 0)
        tail = range(bodies[-1].end, server.end_offset)
        assert await offsets_read(server, 0, bytes_max) == [*expected, *tail]
        offset = chance.randrange(server.end_offset)
        assert await offsets_read(server, offset, bytes_max) == [*records_from(bodies, offset), *tail]

    asyncio.run(story())


@settings(max_examples=examples(40), deadline=None)
@given(st.integers(0, 1 << 32))
def test_times_are_those_of_records_that_are_left(seed: int) -> None:
    async def story() -> None:
        chance = random.Random(seed)
        bodies = gapped_bodies(chance, 3)
        server = await with_bodies(await Node().start(), bodies)
        times = sorted((offset, time) for body in bodies for offset, time in body.times.items())
        wanted = START_MS + chance.randrange(1000)
        first = next(((offset, time) for offset, time in times if time >= wanted), None)
        found = await server.times.first_at(wanted)
        assert (None if found is None else found[:2]) == first
        latest = max(times, key=lambda each: (each[1], -each[0]), default=None)
        found = await server.times.latest()
        assert (None if found is None else found[:2]) == latest

    asyncio.run(story())


async def test_the_append_time_of_a_batch_is_found_at_a_record_that_is_left() -> None:
    appended = gapped_batch(0, 9, {4: START_MS, 7: START_MS}, attributes=LOG_APPEND_TIME)
    body = GappedBody(0, 12, [appended, gapped_batch(10, 11, {}, attributes=LOG_APPEND_TIME)], {})
    server = await with_bodies(await Node().start(), [body])
    for offset in (await server.times.first_at(START_MS), await server.times.latest()):
        assert offset is not None
        assert offset.offset == 4
    assert await server.times.first_at(START_MS + 1) is None


async def test_a_damaged_index_is_rebuilt_with_gaps_and_all(monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(10):
        bodies = gapped_bodies(random.Random(seed), 3)
        server = await with_bodies(await Node().start(), bodies)
        with monkeypatch.context() as patched:
            patched.setattr("pqbroker.pq.reading.run_loading.decode_index", lambda tail: None)
            assert await offsets_read(server, 0, MIB) == records_from(bodies, 0)
            for number in range(len(bodies)):
                index = await server.reader.runs.index(number)
                stored = decode_index(memoryview(bodies[number].value))
                assert stored is not None
                assert (index.end_offset, index.data_bytes) == (stored.end_offset, stored.data_bytes)


async def test_stretches_go_over_gaps() -> None:
    for seed in range(10):
        bodies = gapped_bodies(random.Random(seed), 3)
        server = await with_bodies(await Node().start(), bodies)
        found: list[int] = []
        offset = 0
        while offset < server.end_offset:
            (stretch,) = await server.stretches.read(StretchQuery(offset, server.end_offset, 10 * KIB))
            assert stretch.next_offset > offset
            data = memoryview(b"".join(stretch.pieces))  # type: ignore[arg-type]
            span = RowRange(0, offset, stretch.next_offset)
            rows = decode(data, span, ("$row_index",), order=Order(*stretch.bounds or ())).to_pydict()
            found += rows["$row_index"]
            offset = stretch.next_offset
        assert found == records_from(bodies, 0)


async def test_a_view_that_ends_in_a_gap_ends_there() -> None:
    server = await with_bodies(await Node().start(), HAND_MADE)
    for end in (45, 55, 100, 120):
        answer = server.read(ReadQuery(0 if end == 45 else 50, end, MIB))
        found = answer if isinstance(answer, Batches) else await answer
        assert found.next_offset <= end or found.size


async def test_a_trim_into_a_gap_leaves_what_is_behind_it() -> None:
    server = await with_bodies(await Node().start(), HAND_MADE)
    assert await server.retention.delete_before(120) == 120
    assert list(server.state.bodies.spans()) == [(100, 200)]
    assert await offsets_read(server, 120, MIB) == [150]
    assert await server.retention.delete_before(200) == 200
    assert not server.state.bodies.ends


@pytest.mark.parametrize("seed", range(20))
def test_a_body_may_have_gaps_and_a_head_may_not(seed: int) -> None:
    for body in [*gapped_bodies(random.Random(seed), 3), *HAND_MADE]:
        check_body(memoryview(body.value), body.offset, body.end, 1)
    head = memoryview(b"".join(HAND_MADE[0].batches))
    with pytest.raises(Damaged):
        check_head(head, 0, 100, 1)


def test_a_body_without_a_batch_or_with_batches_out_of_order_is_damaged() -> None:
    first, last = HAND_MADE[0].batches
    for swapped in (GappedBody(0, 100, [last, first], {}), GappedBody(0, 64, [first, last], {})):
        with pytest.raises(Damaged):
            check_body(memoryview(swapped.value), swapped.offset, swapped.end, 1)


def test_a_batch_without_records_has_none() -> None:
    empty = gapped_batch(5, 9, {})
    assert (read_header(empty).base_offset, read_header(empty).last_offset) == (5, 9)
    assert decode(memoryview(empty), RowRange(0, 0, 20), ("$row_index", "value", "$timestamp")).num_rows == 0
