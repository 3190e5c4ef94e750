"""From stored keys to a partition: overlaps, gaps, numbering (semantics A.16), and explicit offsets (A.5)."""

import asyncio
import struct
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pqbroker.pq.log.keys import body_key, head_key, parse_data_key, part_key
from pqbroker.pq.log.start_state import Meta, StartState, StoredBlob, build_start_state
from pqbroker.pq.log.write_cycle import Written
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.protocol.records import BatchHeader
from pqbroker.storage.kv.commands import Write
from tests.pq.rig import (
    KIB,
    MIB,
    START_MS,
    Node,
    batch,
    check_invariants,
    check_store,
    read,
    read_all,
    values_of,
    write,
)


def start_state_of(*keys: bytes, meta: Meta | None = None) -> StartState:
    stored = [StoredBlob(key, 100, START_MS + number, 1) for number, key in enumerate(sorted(keys))]
    return build_start_state(stored, meta)


def spans(found: StartState) -> list[tuple[int, int]]:
    return [*found.bodies.spans(), *((blob.offset, blob.end) for blob in found.head.blobs)]


@pytest.mark.spec("A.16", "J.1")
def test_of_keys_at_one_offset_the_one_with_more_records_stays() -> None:
    found = start_state_of(body_key(0, 0, 5), body_key(0, 0, 9), head_key(0, 0, 3), head_key(0, 9, 1))
    assert spans(found) == [(0, 9), (9, 10)]
    assert sorted(found.orphans) == sorted([body_key(0, 0, 5), head_key(0, 0, 3)])
    assert len(found.bodies) == 1


def test_of_a_body_and_a_head_blob_alike_the_body_stays() -> None:
    found = start_state_of(body_key(0, 0, 5), head_key(0, 0, 5))
    assert (len(found.bodies), found.head.blobs, found.orphans) == (1, [], [head_key(0, 0, 5)])


def test_keys_that_begin_inside_a_kept_one_go() -> None:
    found = start_state_of(body_key(0, 0, 10), body_key(0, 4, 2), head_key(0, 9, 1), head_key(0, 10, 2))
    assert spans(found) == [(0, 10), (10, 12)]
    assert found.orphans == [body_key(0, 4, 2), head_key(0, 9, 1)]


def test_holes_between_keys_become_gaps_and_the_start_is_the_first_key() -> None:
    found = start_state_of(body_key(0, 100, 10), body_key(0, 150, 10), head_key(0, 200, 5))
    assert (found.start_offset, found.end_offset) == (100, 205)
    assert spans(found) == [(100, 110), (150, 160), (200, 205)]
    assert found.orphans == []


@pytest.mark.spec("A.16")
def test_a_trimmed_start_inside_the_first_key_stays_and_numbering_survives_a_full_cleanup() -> None:
    assert start_state_of(body_key(0, 100, 10), meta=Meta(104, 110, [])).start_offset == 104
    empty = start_state_of(meta=Meta(70, 77, []))
    assert (empty.start_offset, empty.end_offset) == (77, 77)


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 12), st.booleans()), max_size=12))
def test_what_stays_never_overlaps_and_what_goes_lies_inside_it(items: list[tuple[int, int, bool]]) -> None:
    last_body = max((offset + count for offset, count, is_head in items if not is_head), default=0)
    keys = {
        (head_key if is_head and offset >= last_body else body_key)(0, offset, count)
        for offset, count, is_head in items
    }
    ranges = [(offset, offset + count) for offset, count, _ in items]
    try:
        found = start_state_of(*keys)
    except ValueError:
        assert any(one[0] < other[0] < one[1] < other[1] for one in ranges for other in ranges)
        return
    kept = spans(found)
    for key in map(parse_data_key, found.orphans):
        assert any(start <= key.offset and key.offset + key.records <= end for start, end in kept)
    assert all(end <= offset for (_, end), (offset, _) in pairwise(kept))
    assert len(kept) + len(found.orphans) == len(keys)
    assert {offset for offset, _ in kept} <= {offset for offset, _, _ in items}


@pytest.mark.spec("A.16", "J.1")
async def test_contained_keys_and_half_a_batch_are_deleted_from_the_store_at_start() -> None:
    node = await Node().start()
    partition = await node.topic()
    await write(partition, batch(*(b"%d" % number for number in range(5))))
    junk = [body_key(0, 2, 1), part_key(0, 5, 0), part_key(0, 5, 1)]
    await partition._kv.execute([Write(key, (bytes(2 * KIB),), 2 * KIB) for key in junk])
    await node.restart()
    assert await read_all(node.partition()) == [(number, b"%d" % number) for number in range(5)]
    await check_store(node, node.partition())


@pytest.mark.spec("A.2", "A.16")
async def test_a_mirrored_batch_leaves_a_gap_that_readers_step_over() -> None:
    node = await Node().start()
    partition = await node.topic()
    await write(partition, batch(b"a"), batch(b"b"))
    assert await partition.write_at(10, *batch(b"c", b"d")) == Written(10, -1, 0)
    assert await partition.write_at(12, *batch(b"e")) == Written(12, -1, 0)
    check_invariants(partition.state)
    for again in (False, True):
        if again:
            await node.restart()
        partition = node.partition()
        assert (partition.start_offset, partition.end_offset, partition.state.gaps()) == (0, 13, [(2, 10)])
        assert await read_all(partition) == [(0, b"a"), (1, b"b"), (10, b"c"), (11, b"d"), (12, b"e")]
        for hole in (2, 5, 9):
            assert partition.reader.readable_bytes(hole, partition.end_offset, MIB) > 0
            assert partition.reader.has_records(hole, partition.end_offset)
            assert values_of(await read(partition, hole, 1), hole) == [(10, b"c"), (11, b"d")]
        assert not partition.reader.has_records(13, 20), "a hole may reach the end, behind a salvage"
        await check_store(node, partition)
    found = await partition.times.first_at(START_MS)
    assert found is not None
    assert found.offset == 0


@pytest.mark.spec("A.1")
async def test_the_first_offset_may_be_any_number() -> None:
    node = await Node().start()
    partition = await node.topic()
    assert await partition.write_at(1000, *batch(b"a")) == Written(1000, -1, 1000)
    for again in (False, True):
        if again:
            await node.restart()
        partition = node.partition()
        assert (partition.start_offset, partition.end_offset, partition.state.gaps()) == (1000, 1001, [])
        assert await read_all(partition) == [(1000, b"a")]


@pytest.mark.spec("A.5")
async def test_an_offset_before_the_end_is_refused_and_changes_nothing() -> None:
    node = await Node().start()
    partition = await node.topic()
    await write(partition, batch(b"a"), batch(b"b"))
    with pytest.raises(KafkaError) as refused:
        await partition.write_at(1, *batch(b"c"))
    assert refused.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert partition.end_offset == 2
    assert await write(partition, batch(b"c")) == [Written(2, -1, 0)]


@pytest.mark.spec("A.5")
async def test_gaps_among_large_and_small_batches_and_refusals_lose_nothing() -> None:
    node = await Node().start()
    partition = await node.topic()
    expected = []
    offset = 0
    for number, size in enumerate([100, 9 * MIB, 100, 200 * KIB, 7 * MIB, 5000]):
        value = b"%d" % number + bytes(size)
        if number == 3:
            node.engine.faults.refuse_next()
            with pytest.raises(KafkaError):
                await partition.write_at(offset, *batch(value))
            check_invariants(partition.state)
        await partition.write_at(offset, *batch(value))
        check_invariants(partition.state)
        expected.append((offset, value))
        offset += 10
    assert await read_all(partition) == expected
    await node.restart()
    assert await read_all(node.partition()) == expected
    assert len(node.partition().state.gaps()) == 5


async def test_trimming_into_a_gap_keeps_what_follows() -> None:
    node = await Node().start()
    partition = await node.topic()
    await write(partition, batch(b"a"))
    await partition.write_at(10, *batch(b"b"))
    assert await partition.retention.delete_before(5) == 5
    assert await read_all(partition, 5) == [(10, b"b")]
    await node.restart()
    partition = node.partition()
    assert partition.start_offset == 5
    assert await read_all(partition, 7) == [(10, b"b")]


async def test_a_start_moved_by_mirroring_is_known_after_a_restart() -> None:
    node = await Node().start()
    partition = await node.topic()
    await write(partition, batch(b"a"))
    await partition.retention.delete_before(1)
    assert await partition.write_at(7, *batch(b"b")) == Written(7, -1, 7)
    await node.restart()
    assert (node.partition().start_offset, node.partition().end_offset) == (7, 8)


@pytest.mark.parametrize("cache_bytes", [0, 64 * MIB])
async def test_a_gap_before_a_body_is_stepped_over_with_and_without_a_cache(cache_bytes: int) -> None:
    node = await Node(cache_bytes=cache_bytes).start()
    partition = await node.topic(config={"pq.low.watermark.bytes": "20000"})
    await write(partition, batch(b"a"))
    await partition.write_at(5, *batch(b"b" * 30_000))
    await partition.write_at(9, *batch(b"c" * 30_000))
    await node.restart()
    expected = [(5, b"b" * 30_000), (9, b"c" * 30_000)]
    for hole in range(1, 5):
        assert await read_all(node.partition(), hole) == expected


@pytest.mark.spec("G.7")
async def test_times_are_found_over_gaps() -> None:
    node = await Node(cache_bytes=0).start()
    partition = await node.topic(config={"pq.low.watermark.bytes": "20000"})
    for number, size in enumerate([10, 30_000, 10, 10]):
        await partition.write_at(10 * number, *batch(b"v" * size, timestamps=[START_MS + number]))
    for again in (False, True):
        if again:
            await node.restart()
        for number in range(4):
            found = await node.partition().times.first_at(START_MS + number)
            assert found is not None
            assert (found.offset, found.timestamp) == (10 * number, START_MS + number)
        latest = await node.partition().times.latest()
        assert latest is not None
        assert latest.offset == 30


def lying(count: int) -> tuple[memoryview, BatchHeader]:
    """A batch of one record that counts more, as a compressed one can that nobody looks into."""
    view, header = batch(b"a")
    struct.pack_into(">i", view, 23, count - 1)
    struct.pack_into(">i", view, 57, count)
    return view, header._replace(last_offset_delta=count - 1, record_count=count)


@pytest.mark.parametrize("again", [False, True])
async def test_blobs_are_not_merged_past_the_width_of_a_keys_count(again: bool) -> None:
    node = await Node().start()
    partition = await node.topic()
    most = (1 << 31) - 1
    await write(partition, batch(b"first"))
    for number in range(18):
        await partition.write(*lying(most))
        if again and number in (4, 11):
            await node.restart()
            partition = node.partition()
    await asyncio.gather(*(partition.write(*lying(most)) for _ in range(7)))
    await write(partition, batch(b"last"))
    check_invariants(partition.state)
    await node.restart()
    partition = node.partition()
    assert partition.state.unreadable is None
    assert partition.end_offset == 25 * most + 2
    check_invariants(partition.state)
    await check_store(node, partition)
    pieces = await read(partition, 25 * most + 1, KIB)
    assert pieces.next_offset == 25 * most + 2
    assert all(end - offset < 10**10 for offset, end in partition.state.bodies.spans())


async def test_no_record_lies_behind_the_last_offset_there_is() -> None:
    node = await Node().start()
    partition = await node.topic()
    assert (await partition.write_at((1 << 63) - 3, *batch(b"a", b"b"))).base_offset == (1 << 63) - 3
    for refused in (partition.write(*batch(b"c")), partition.write_at((1 << 63) - 1, *batch(b"c"))):
        with pytest.raises(KafkaError) as full:
            await refused
        assert full.value.code is ErrorCode.POLICY_VIOLATION
    await node.restart()
    assert (node.partition().state.unreadable, node.partition().end_offset) == (None, (1 << 63) - 1)
    assert await node.partition().retention.delete_before((1 << 63) - 1) == (1 << 63) - 1
