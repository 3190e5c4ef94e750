"""Blocks: what Arrow's arrays hold is what plain Python reads, and damage is named."""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from pqbroker.tables.sorted.blocks import Block, BlockDamaged, encode_block
from pqbroker.tables.sorted.packed_rows import ABSENT
from pqbroker.tables.sorted.versions import Version

ARROW: Mapping[str, pa.DataType] = {
    "int8": pa.int8(), "int64": pa.int64(), "uint32": pa.uint32(), "double": pa.float64(), "boolean": pa.bool_(),
    "string": pa.binary(), "utf8": pa.utf8(), "timestamp": pa.uint64(),
}  # fmt: skip
VALUES: Mapping[str, st.SearchStrategy[Any]] = {
    "int8": st.integers(-128, 127), "int64": st.integers(-(1 << 63), (1 << 63) - 1),
    "uint32": st.integers(0, (1 << 32) - 1), "double": st.floats(allow_nan=False), "boolean": st.booleans(),
    "string": st.binary(max_size=9), "utf8": st.text(max_size=5), "timestamp": st.integers(0, (1 << 64) - 1),
}  # fmt: skip


def block_of(
    keys: Sequence[bytes], timestamps: Sequence[Any], columns: Sequence[tuple[str, list[Any]]], deletes: list[bool]
) -> bytes:
    """A block as a worker makes it: buffers of Arrow as they are."""
    buffers = [*arrow_buffers(pa.array(keys, pa.binary()))[1:], *arrow_buffers(pa.array(timestamps, pa.uint64()))[2:]]
    buffers.append(arrow_buffers(pa.array(deletes, pa.bool_()))[2] if any(deletes) else b"")
    for name, values in columns:
        buffers += (b"", *arrow_buffers(pa.array(values, ARROW[name])))
    return encode_block(len(keys), buffers)


def arrow_buffers(array: pa.Array) -> list[bytes]:
    """Validity, offsets and values, each as long as its rows need."""
    rows = len(array)
    validity, *offsets, values = (b"" if one is None else one.to_pybytes() for one in array.buffers())
    if pa.types.is_binary(array.type) or pa.types.is_string(array.type):
        ends = offsets[0][: 4 * rows + 4]
        return [validity[: -(-rows // 8)], ends, values[: int.from_bytes(ends[-4:], "little")]]
    width = array.type.bit_width
    return [validity[: -(-rows // 8)], b"", values[: -(-rows * width // 8)]]


@given(st.data())
def test_plain_python_reads_what_arrow_wrote(data: st.DataObject) -> None:
    keys = sorted(data.draw(st.lists(st.binary(max_size=6), min_size=1, max_size=20)))
    types = data.draw(st.lists(st.sampled_from(sorted(VALUES)), max_size=4))
    some = st.lists
    columns = [
        (name, data.draw(some(st.none() | VALUES[name], min_size=len(keys), max_size=len(keys)))) for name in types
    ]
    timestamps = data.draw(some(VALUES["timestamp"], min_size=len(keys), max_size=len(keys)))
    deletes = data.draw(some(st.booleans(), min_size=len(keys), max_size=len(keys)))
    block = Block(block_of(keys, timestamps, columns, deletes), types)
    assert block.rows == len(keys)
    for row, key in enumerate(keys):
        assert block.key(row) == key
        values = [column[row] for _, column in columns]
        assert [block.value(row, column) for column in range(len(types))] == values
        assert block.version(row, 0) == Version(timestamps[row], None if deletes[row] else values)
        assert list(block.rows_of(key)) == [at for at, each in enumerate(keys) if each == key]
    wanted = data.draw(st.binary(max_size=6))
    assert block.find(wanted) == sum(key < wanted for key in keys)


def test_a_column_that_an_update_left_out_is_not_null() -> None:
    buffers = [*arrow_buffers(pa.array([b"a", b"b"], pa.binary()))[1:], bytes(16), b""]
    block = Block(encode_block(2, [*buffers, b"\2", b"", b"", bytes(16)]), ["int64"])
    assert block.value(1, 0) == 0
    assert block.value(0, 0) is ABSENT


@given(st.data())
def test_a_damaged_block_is_named_or_read_and_never_fails_otherwise(data: st.DataObject) -> None:
    whole = block_of([b"a", b"bc"], [2, 1], [("int64", [1, None]), ("string", [b"x", b"yy"])], [False, True])
    damaged = bytearray(whole[: data.draw(st.integers(0, len(whole)))])
    for _ in range(data.draw(st.integers(0, 3))):
        if damaged:
            damaged[data.draw(st.integers(0, len(damaged) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        block = Block(bytes(damaged), ["int64", "string"])
    except BlockDamaged:
        return
    assert block.rows == 2
    block.find(b"b")
    for row in range(block.rows):
        block.is_delete(row)
        for column in range(2):
            block.value(row, column)
