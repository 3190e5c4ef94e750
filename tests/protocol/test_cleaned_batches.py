"""Batches with some of their records: what is left keeps its offset, time and content, and clients can read it."""

import pytest
from aiokafka.record.default_records import DefaultRecordBatch
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from pqbroker.protocol.cleaned_batches import batch_of, delete_horizon, empty_batch, place_records
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.protocol.records import Record, decode_records, encode_batch, read_header, stamp_log_append_time
from tests.pq.rig import check_crc

BYTES = st.none() | st.binary(max_size=200)
RECORDS = st.lists(
    st.builds(
        Record,
        timestamp=st.integers(0, 1 << 50),
        key=BYTES,
        value=BYTES,
        headers=st.lists(st.tuples(st.text(max_size=5), BYTES), max_size=2).map(tuple),
    ),
    min_size=1,
    max_size=20,
)
HORIZON = st.none() | st.integers(0, 1 << 50)


@given(RECORDS, st.integers(0, 4), st.integers(0, 1 << 20), HORIZON, st.booleans())
def test_what_is_left_is_as_it_was(
    records: list[Record], codec: int, choice: int, horizon: int | None, is_appended: bool
) -> None:
    batch = memoryview(
        encode_batch(records, base_offset=1000, codec=codec, producer_id=7, producer_epoch=1, base_sequence=3)
    )
    if is_appended:
        stamp_log_append_time(batch, 1 << 41)
    whole = list(decode_records(batch))
    placed = place_records(batch, 1 << 20)
    kept = [record for number, record in enumerate(placed.records) if number == 0 or choice >> number & 1]
    made = memoryview(batch_of(placed, kept, horizon))
    expected = [record for number, record in enumerate(whole) if number == 0 or choice >> number & 1]
    assert list(decode_records(made)) == expected
    before, after = read_header(batch), check_crc(made)
    assert (after.base_offset, after.last_offset, after.codec) == (before.base_offset, before.last_offset, codec)
    assert (after.producer_id, after.producer_epoch, after.base_sequence) == (7, 1, 3)
    assert delete_horizon(after) == horizon
    if not is_appended:
        assert after.max_timestamp == max(record.timestamp for record in expected)
    assert [(each.offset, each.key, each.value) for each in DefaultRecordBatch(made)] == [
        (each.offset, each.key, each.value) for each in expected
    ]
    again = place_records(made, 1 << 20)
    assert [(each.offset, each.timestamp, each.key, each.is_tombstone) for each in again.records] == [
        (each.offset, each.timestamp, each.key, each.value is None) for each in expected
    ]


def test_an_empty_batch_has_its_offsets_and_nothing_else() -> None:
    header = read_header(encode_batch([Record()] * 3, base_offset=5, codec=3, leader_epoch=4, producer_id=9))
    empty = memoryview(empty_batch(header, 6, 7))
    found = check_crc(empty)
    assert (found.base_offset, found.last_offset, found.record_count, found.codec) == (6, 7, 0, 0)
    assert (found.partition_leader_epoch, found.producer_id, found.max_timestamp) == (4, 9, -1)
    assert list(decode_records(empty)) == []
    assert list(DefaultRecordBatch(empty)) == []
    assert place_records(empty, 0).records == []


def test_a_batch_that_is_damaged_or_too_long_is_refused() -> None:
    batch = bytes(encode_batch([Record(0, 1, b"k", bytes(1000))] * 5, codec=3))
    for position in (21, 57, 61, len(batch) - 1):
        damaged = bytearray(batch)
        damaged[position] ^= 1
        with pytest.raises(KafkaError) as refusal:
            place_records(memoryview(damaged), 1 << 20)
        assert refusal.value.code is ErrorCode.CORRUPT_MESSAGE
    with pytest.raises(KafkaError):
        place_records(memoryview(batch), 4999)
    with pytest.raises(KafkaError):
        place_records(memoryview(batch)[:-1], 1 << 20)


@given(st.binary(max_size=60), st.integers(0, 5))
def test_bytes_that_are_no_records_are_refused(body: bytes, count: int) -> None:
    header = read_header(encode_batch([Record(0, 1, b"k", b"v")] * 3))
    placed = place_records(memoryview(bytes(encode_batch([Record(0, 1, b"k", b"v")] * 3))), 1 << 20)
    forged = placed._replace(data=body, header=header)
    record = placed.records[0]._replace(start=0, end=len(body))
    made = bytearray(batch_of(forged, [record], None))
    made[57:61] = count.to_bytes(4)
    made[17:21] = crc32c(made[21:]).to_bytes(4)
    try:
        found = place_records(memoryview(made), 1 << 20).records
    except KafkaError:
        return
    assert len(found) == count
