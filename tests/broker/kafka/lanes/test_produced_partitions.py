"""Partitions of a Produce request, cut out of its frame: all of them, or nothing where it is anything else."""

import struct
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pqbroker.broker.kafka.lanes.produced_partitions import LANE_PARTITIONS_MAX, Cut, cut_fixed, cut_flexible
from pqbroker.protocol.primitives import unsigned_varint

START = 3
"""The partitions begin there."""
ProducedPartition = tuple[int, bytes]
Make = Callable[[Sequence[ProducedPartition]], bytes]
PARTITIONS = st.lists(
    st.tuples(st.integers(-(1 << 31), (1 << 31) - 1), st.binary(min_size=1, max_size=300)), min_size=1
)


def fixed(partitions: Sequence[ProducedPartition], count: int | None = None) -> bytes:
    entries = b"".join(struct.pack(">ii", index, len(records)) + records for index, records in partitions)
    return bytes(START) + struct.pack(">i", len(partitions) if count is None else count) + entries


def flexible(partitions: Sequence[ProducedPartition], count: int | None = None) -> bytes:
    entries = [
        struct.pack(">i", index) + unsigned_varint(len(records) + 1) + records + b"\0" for index, records in partitions
    ]
    return bytes(START) + bytes((1 + (len(partitions) if count is None else count),)) + b"".join(entries) + b"\0\0"


def cut(by: Cut, frame: bytes) -> list[ProducedPartition] | None:
    found = by(memoryview(frame), START)
    return None if found is None else [(index, bytes(records)) for index, records in found]


FORMS = pytest.mark.parametrize(("made", "by"), [(fixed, cut_fixed), (flexible, cut_flexible)])


@FORMS
@given(partitions=PARTITIONS)
def test_every_part_is_cut_as_it_stands(made: Make, by: Cut, partitions: list[ProducedPartition]) -> None:
    assert cut(by, made(partitions)) == partitions


@FORMS
@given(partitions=PARTITIONS, more=st.binary(min_size=1, max_size=3), data=st.data())
def test_a_frame_that_is_longer_or_shorter_is_left(
    made: Make, by: Cut, partitions: list[ProducedPartition], more: bytes, data: st.DataObject
) -> None:
    frame = made(partitions)
    assert cut(by, frame + more) is None
    end = data.draw(st.integers(START, len(frame) - 1))
    assert cut(by, frame[:end]) is None


@FORMS
def test_as_many_parts_as_the_limit_are_cut_and_one_more_is_left(made: Make, by: Cut) -> None:
    partitions = [(index, b"r") for index in range(LANE_PARTITIONS_MAX + 1)]
    assert cut(by, made(partitions[:-1])) == partitions[:-1]
    assert cut(by, made(partitions)) is None
    assert cut(by, made([])) is None


def test_a_count_below_0_is_left() -> None:
    assert cut(cut_fixed, fixed([], count=-1)) is None
    assert cut(cut_flexible, flexible([], count=-1)) is None


@pytest.mark.parametrize("size", [-1, 0, 2, 1 << 30])
def test_records_that_are_null_empty_or_end_beyond_the_frame_are_left(size: int) -> None:
    entry = struct.pack(">ii", 0, size)
    assert cut(cut_fixed, fixed([], count=1) + entry + (b"r" if size > 0 else b"")) is None
    shifted = struct.pack(">i", 0) + unsigned_varint(size + 1) + (b"r" if size > 0 else b"") + b"\0"
    assert cut(cut_flexible, flexible([], count=1)[:-2] + shifted + b"\0\0") is None


@pytest.mark.parametrize("from_end", [1, 2, 3])
def test_tagged_fields_of_a_part_the_topic_and_the_request_are_left(from_end: int) -> None:
    frame = bytearray(flexible([(0, b"one"), (1, b"two")]))
    frame[-from_end] = 1
    assert cut(cut_flexible, bytes(frame)) is None


def test_a_size_in_more_bytes_than_a_varint_has_is_left() -> None:
    endless = b"\x80" * 5 + b"\x01"
    assert cut(cut_flexible, bytes(START) + b"\x02" + bytes(4) + endless + b"r" * 200) is None
