"""A look at columns of alike records says only what a walk through the records says, and says it of the usual ones."""

from collections.abc import Sequence
from typing import Any, SupportsIndex

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pqbroker.protocol.alike_records import have_keys_alike
from pqbroker.protocol.errors import KafkaError
from pqbroker.protocol.record_parts import keyless_records
from pqbroker.protocol.records import BATCH_HEADER_BYTES, Record, decode_records, encode_batch

SIZES = st.sampled_from([0, 1, 62, 63, 64, 8191, 8192])
RUNS = st.lists(
    st.tuples(st.integers(1, 90), st.none() | SIZES, st.none() | SIZES, st.integers(-9000, 9000)),
    min_size=1, max_size=6,
)  # fmt: skip
"""Runs of records: how many, the sizes of their keys and values, the time between two of them in tenths of ms."""


def in_runs(runs: Sequence[tuple[int, int | None, int | None, int]]) -> list[Record]:
    records: list[Record] = []
    for count, key_bytes, value_bytes, step in runs:
        key, value = (None if size is None else b"\0\x80" * (size // 2) + b"k" * (size % 2)
                      for size in (key_bytes, value_bytes))  # fmt: skip
        records += [Record(0, number * step // 10, key, value) for number in range(count)]
    return records


def walked(batch: bytes | bytearray) -> bool:
    """Return True if whole records follow one another, and all have a key."""
    try:
        return all(record.offset == number and record.key is not None
                   for number, record in enumerate(decode_records(batch)))  # fmt: skip
    except KafkaError:
        return False


def seen(batch: bytes | bytearray, count: int) -> bool:
    return have_keys_alike(bytes(batch[BATCH_HEADER_BYTES:]), count)


@given(RUNS)
def test_runs_of_records_are_seen_where_all_have_keys(runs: list[tuple[int, int | None, int | None, int]]) -> None:
    records = in_runs(runs)
    batch = encode_batch(records)
    assert keyless_records(batch) == [number for number, record in enumerate(records) if record.key is None]
    assert not seen(batch, len(records)) or walked(batch)


@given(RUNS, st.data())
@example([(64, 9, 100, 0)], None)
def test_bytes_that_are_no_such_records_are_not_taken_for_some(
    runs: list[tuple[int, int | None, int | None, int]], data: st.DataObject | None
) -> None:
    batch = encode_batch(in_runs(runs))
    count = len(in_runs(runs))
    if data is not None:
        count += data.draw(st.sampled_from([0, 0, 0, 1, -1]))
        ats = data.draw(st.lists(st.integers(BATCH_HEADER_BYTES, len(batch) - 1), min_size=1, max_size=3))
        for at in ats:
            batch[at] = data.draw(st.sampled_from([0, 1, 2, 127, 128, 129, 255]))
        if data.draw(st.booleans()):
            del batch[data.draw(st.integers(BATCH_HEADER_BYTES, len(batch))) :]
        batch[57:61] = count.to_bytes(4, "big", signed=True)
        batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    assert not seen(batch, count) or walked(batch)


@pytest.mark.parametrize("count", [1, 63, 64, 65, 8191, 8192, 8193, 20_000])
@pytest.mark.parametrize(("key", "value"), [(b"", None), (b"k" * 12, b"v" * 100), (b"k" * 70, b"v" * 20), (b"k", b"")])
def test_records_of_one_size_are_seen(count: int, key: bytes, value: bytes | None) -> None:
    batch = encode_batch([Record(0, number // 100, key, value) for number in range(count)])
    assert seen(batch, count)


def test_large_records_and_long_times_are_seen() -> None:
    records = [Record(0, number * 1000 - (number % 2) * 7, b"k" * 100, b"v" * 9000) for number in range(100)]
    assert seen(encode_batch(records), len(records))


@pytest.mark.parametrize("part", range(7), ids=["size", "time", "delta", "key", "null key", "value", "headers"])
@pytest.mark.parametrize("place", [0, 40, 79])
def test_every_byte_that_says_what_follows_is_compared(part: int, place: int) -> None:
    batch = encode_batch([Record(0, 0, b"key", b"value") for _ in range(80)])
    short = len(encode_batch([Record(0, 0, b"key", b"value")])) - BATCH_HEADER_BYTES
    begin = BATCH_HEADER_BYTES + place * short + max(place - 64, 0)
    delta_bytes = 2 if place >= 64 else 1
    at = [0, 2, 2 + delta_bytes, 3 + delta_bytes, 3 + delta_bytes, 7 + delta_bytes, 13 + delta_bytes][part]
    assert seen(batch, 80)
    batch[begin + at] = {1: 128, 4: 1}.get(part, batch[begin + at] + 2)
    assert not seen(batch, 80)
    assert not walked(batch)


def test_every_byte_of_a_time_is_compared() -> None:
    batch = encode_batch([Record(0, 0, b"key", b"value"), *[Record(0, 100, b"key", b"value")] * 60])
    record_bytes = len(encode_batch([Record(0, 0, b"key", b"value")])) - BATCH_HEADER_BYTES
    time_at = BATCH_HEADER_BYTES + record_bytes + 40 * (record_bytes + 1) + 2
    assert seen(batch, 61)
    assert batch[time_at] >= 128
    batch[time_at] -= 128  # what follows the time is one byte longer, and no offset delta
    assert not seen(batch, 61)
    assert not walked(batch)


@pytest.mark.parametrize("more", [b"\0", b"\x0c\0\0\0\0\0\0"])
def test_bytes_behind_the_last_record_are_not_seen(more: bytes) -> None:
    batch = encode_batch([Record(0, 0, b"key", b"value") for _ in range(40)])
    assert not seen(batch + more, 40)
    assert not seen(batch, 39)
    assert not seen(batch, 41)
    assert not seen(batch[:-1], 40)


def test_a_batch_of_records_that_all_differ_is_left_after_a_few() -> None:
    records = [Record(0, 0, b"k", b"v" * number) for number in range(300)]
    assert not seen(encode_batch(records), 300)


def test_more_deltas_than_three_bytes_hold_are_left() -> None:
    assert not seen(encode_batch([Record(0, 0, b"k", b"")] * 40_000), 40_000)


class Looked(bytes):
    """Bytes that count how often somebody looks at them."""

    looks = 0

    def __getitem__(self, at: SupportsIndex | slice) -> Any:
        self.looks += 1
        return super().__getitem__(at)


def test_a_time_that_does_not_end_is_left_soon() -> None:
    data = Looked(b"\x80\x01\0" + b"\x80" * 100_000)
    assert not have_keys_alike(data, 1000)
    assert data.looks < 30


def test_a_time_of_ten_bytes_is_a_time() -> None:
    batch = encode_batch([Record(0, 0, b"key", b"value"), *[Record(0, 1 << 62, b"key", b"value")] * 60])
    assert seen(batch, 61)
    assert walked(batch)
