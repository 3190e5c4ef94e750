"""Keys and stored forms: what lies on disk, and what a start makes of it (semantics A.3, A.16)."""

from array import array

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from pqbroker.pq.log import keys
from pqbroker.pq.log.body import (
    BODY_INDEX_GAP_BYTES,
    BODY_PAGE_BYTES,
    BodyIndex,
    Columns,
    decode_index,
    encode_index,
    index_bytes,
)
from pqbroker.pq.log.keys import DataKey
from pqbroker.pq.log.start_state import Meta, StoredBlob, build_start_state

offsets = st.integers(0, (1 << 63) - 1)
counts = st.integers(1, (1 << 31) - 1)


def columns_of(entries: int, gap: int = BODY_INDEX_GAP_BYTES) -> Columns:
    return (
        array("q", range(0, entries * gap, gap)),
        array("q", range(50, 50 + entries * 7, 7)),
        array("q", [1000 + number for number in range(entries)]),
    )


@pytest.mark.spec("A.3")
def test_a_data_key_is_the_text_of_the_specification() -> None:
    assert keys.body_key(7, 1234, 56) == b"d0000000007_00000000000000001234_00000_0000000056_00000"
    assert keys.head_key(7, 1234, 56) == keys.body_key(7, 1234, 56) + b"|"
    assert len(keys.body_key(7, 1234, 56)) == 55


@given(st.integers(0, 19_999), offsets, counts, st.booleans())
def test_a_data_key_reads_back(partition: int, offset: int, count: int, is_head: bool) -> None:
    count = min(count, keys.OFFSET_MAX - offset)
    assume(count)
    key = (keys.head_key if is_head else keys.body_key)(partition, offset, count)
    assert keys.parse_data_key(key) == DataKey(partition, offset, count, is_head)
    lo, hi = keys.data_range(partition)
    assert lo <= key < hi


@given(st.tuples(offsets, counts), st.tuples(offsets, counts))
def test_data_keys_sort_as_their_offsets(one: tuple[int, int], other: tuple[int, int]) -> None:
    assert (keys.body_key(3, *one) < keys.body_key(3, *other)) == (one < other)


@given(offsets)
def test_a_producer_key_reads_back(producer_id: int) -> None:
    key = keys.producer_key(12, producer_id)
    lo, hi = keys.producer_range(12)
    assert lo <= key < hi
    assert keys.parse_producer_key(key) == producer_id


@given(st.integers(1, 400))
def test_a_body_index_reads_back_from_the_tail(entries: int) -> None:
    columns = columns_of(entries)
    stored = encode_index(columns, entries * BODY_INDEX_GAP_BYTES, 9999)
    tail = b"batches" * 100 + stored
    assert index_bytes(tail) == len(stored)
    index = decode_index(tail)
    assert index is not None
    assert (index.positions, index.offsets, index.stamps) == columns
    assert index.data_bytes == entries * BODY_INDEX_GAP_BYTES
    assert (index.end_offset, index.max_timestamp) == (9999, 999 + entries)


@given(st.integers(1, 50), st.data())
def test_a_flipped_byte_of_an_index_is_noticed(entries: int, data: st.DataObject) -> None:
    stored = bytearray(encode_index(columns_of(entries), 10**6, 9999))
    at = data.draw(st.integers(0, len(stored) - 1))
    stored[at] ^= 1 << data.draw(st.integers(0, 7))
    assert decode_index(stored) is None


@given(st.integers(1, 400), st.sampled_from([1000, BODY_INDEX_GAP_BYTES, 3 * BODY_PAGE_BYTES]))
def test_pages_cover_a_body_without_a_gap_and_are_large_enough(entries: int, gap: int) -> None:
    index = BodyIndex(columns_of(entries, gap), entries * gap, 50 + entries * 7)
    position = 0
    for page in range(len(index.pages)):
        start, size, end_offset = index.span(*index.page_entries(page))
        assert start == position
        position += size
        assert size < BODY_PAGE_BYTES + gap
        if page + 1 < len(index.pages):
            assert size >= BODY_PAGE_BYTES
            assert index.page_of(end_offset) == page + 1
        assert index.page_of(end_offset - 1) == page
    assert position == index.data_bytes


@given(offsets, st.lists(st.tuples(st.integers(0, 1 << 30), offsets), max_size=5))
def test_the_meta_row_reads_back(offset: int, epochs: list[tuple[int, int]]) -> None:
    meta = Meta(offset, offset, epochs)
    assert Meta.decode(meta.encode()) == meta


def stored(*blobs: tuple[int, int, bool]) -> list[StoredBlob]:
    made = [
        StoredBlob((keys.head_key if is_head else keys.body_key)(0, offset, count), 100 * count, 5, 1)
        for offset, count, is_head in blobs
    ]
    return sorted(made)


EMPTY = Meta(0, 0, [])


def test_recovery_tells_the_body_from_the_head() -> None:
    found = build_start_state(stored((0, 10, False), (10, 5, False), (15, 2, True), (17, 1, True)), EMPTY)
    assert list(found.bodies.spans()) == [(0, 10), (10, 15)]
    assert [(blob.offset, blob.end, blob.position) for blob in found.head.blobs] == [(15, 17, 0), (17, 18, 200)]
    assert (found.start_offset, found.end_offset, found.orphans) == (0, 18, [])
