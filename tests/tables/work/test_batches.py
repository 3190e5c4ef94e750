"""Record batches as columns: every value, whatever the codec, and no row that was not asked for."""

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from pqbroker.pq.log.commit_timestamps import timestamp_of
from pqbroker.protocol.records import CONTROL, LOG_APPEND_TIME, Record, decode_records, encode_batch
from pqbroker.tables.work.batches import RowRange, decode
from pqbroker.tables.work.stored_batches import BatchDamaged, Order
from pqbroker.tables.work.views import RAW, RAW_VIEW

ALL = tuple(RAW)
BYTES = st.none() | st.binary(max_size=20)
RECORDS = st.lists(
    st.builds(
        Record,
        offset=st.just(0),
        timestamp=st.integers(0, 1 << 50),
        key=BYTES,
        value=BYTES,
        headers=st.lists(st.tuples(st.text(max_size=5), BYTES), max_size=2).map(tuple),
    ),
    min_size=1,
    max_size=8,
)


def rows(data: bytes | bytearray, span: RowRange, columns: tuple[str, ...] = ALL) -> list[dict[str, object]]:
    found: list[dict[str, object]] = decode(memoryview(data), span, columns).to_pylist()
    return found


@given(st.lists(st.tuples(RECORDS, st.integers(0, 4)), min_size=1, max_size=3), st.integers(0, 6), st.integers(0, 20))
def test_columns_are_what_the_records_say(written: list[tuple[list[Record], int]], start: int, count: int) -> None:
    data, expected, offset = bytearray(), [], 100
    for records, codec in written:
        batch = encode_batch(records, base_offset=offset, codec=codec)
        offset += len(records)
        data += batch
        greatest = timestamp_of(max(record.timestamp for record in records))
        expected += [
            {
                "$tablet_index": 3, "$row_index": record.offset, "$timestamp": greatest,
                "timestamp_ms": record.timestamp, "key": record.key, "value": record.value,
                "headers": [{"key": name, "value": value} for name, value in record.headers],
            }
            for record in decode_records(batch)
        ]  # fmt: skip
    span = RowRange(3, 100 + start, 100 + start + count)
    assert rows(data, span) == [row for row in expected if span.start <= row["$row_index"] < span.end]  # type: ignore[operator]


def test_only_the_columns_asked_for_are_made() -> None:
    batch = encode_batch([Record(0, 5, b"k", b"v"), Record(0, 6)])
    assert rows(batch, RowRange(0, 0, 2), ("value", "$row_index")) == [
        {"value": b"v", "$row_index": 0},
        {"value": None, "$row_index": 1},
    ]
    assert decode(memoryview(batch), RowRange(0, 0, 2), ("key",)).schema == RAW_VIEW.schema(("key",))


def test_a_record_without_a_time_has_none_and_an_appended_one_that_of_its_batch() -> None:
    assert rows(encode_batch([Record(0, -1)]), RowRange(0, 0, 1), ("timestamp_ms",)) == [{"timestamp_ms": None}]
    appended = encode_batch([Record(0, 3), Record(0, 9)], attributes=LOG_APPEND_TIME)
    assert rows(appended, RowRange(0, 0, 2), ("timestamp_ms",)) == [{"timestamp_ms": 9}] * 2


def test_control_batches_are_no_rows() -> None:
    batch = encode_batch([Record(0, 3, b"\0\0\0\1", b"")], attributes=CONTROL)
    assert rows(batch, RowRange(0, 0, 1)) == []


@pytest.mark.parametrize("at", [20, 61, 70, -1])
def test_a_changed_byte_is_found(at: int) -> None:
    batch = encode_batch([Record(0, 5, b"key", b"value")])
    batch[at] ^= 1
    with pytest.raises(BatchDamaged):
        rows(batch, RowRange(0, 0, 1))


def test_a_batch_that_is_cut_off_is_found() -> None:
    with pytest.raises(BatchDamaged):
        rows(encode_batch([Record(0, 5, b"key", b"value")])[:-1], RowRange(0, 0, 1))


@pytest.mark.parametrize("codec", [0, 1, 2, 3, 4])
def test_what_holds_no_records_is_found_though_its_checksum_is_right(codec: int) -> None:
    batch = encode_batch([Record(0, 5, b"key", b"value")], codec=codec)
    again = bytearray(batch[:61]) + b"\xff" * 20
    again[8:12] = (len(again) - 12).to_bytes(4)
    again[17:21] = crc32c(again[21:]).to_bytes(4)
    with pytest.raises(BatchDamaged):
        rows(again, RowRange(0, 0, 1))


@pytest.mark.parametrize(
    ("bases", "order"),
    [
        ((10, 11), Order(9, 12)),
        ((10, 11), Order(11, 12)),
        ((10, 11), Order(10, 11)),
        ((10, 9), Order(10, 12)),
        ((10, 10), Order()),
    ],
)
def test_batches_that_do_not_stand_where_they_say_are_damaged(bases: tuple[int, ...], order: Order) -> None:
    data = b"".join(encode_batch([Record(0, 1)], base_offset=base) for base in bases)
    with pytest.raises(BatchDamaged, match="stand"):
        decode(memoryview(data), RowRange(0, 0, 20), ("$row_index",), order=order)


def test_batches_with_gaps_between_them_stand_right() -> None:
    data = b"".join(encode_batch([Record(0, 1)], base_offset=base) for base in (10, 15, 16))
    found = decode(memoryview(data), RowRange(0, 0, 20), ("$row_index",), order=Order(10, 18))
    assert found.to_pylist() == [{"$row_index": number} for number in (10, 15, 16)]
