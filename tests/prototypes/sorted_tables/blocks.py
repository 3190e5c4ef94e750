"""Blocks of a chunk: rows in the order of their keys, the newest version of each first, columns in Arrow's layout.

    0   4 bytes  magic "PQS1"
    4   uint32   rows, at least one
    8   uint32   buffers
    12  uint32   zero
    16  uint32 position and uint32 length of each buffer
        the buffers, each at a multiple of 8, in this order:
        offsets and bytes of the encoded keys (`keys`); timestamps, uint64; deletes, a bitmap;
        of each column: presence, validity, offsets, values

Numbers are little endian. A bitmap without a byte has all bits set, that of deletes none. A column of fixed size has no
offsets, a delete has no column. An update left as it was what is absent; what is not valid is null. Each column is an
array of Arrow as it stands (`Array.from_buffers`), and plain Python reads one value of it through `memoryview.cast`.
"""

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from struct import Struct
from typing import Any, Final, NamedTuple

MAGIC: Final = 0x31535150
BLOCK_BYTES_MAX: Final = 64 << 10
"""Uncompressed; a row that is larger is a block of its own."""
COLUMN_BUFFERS: Final = 4
_KEY_BUFFERS = 4
_HEAD = Struct("<IIII")
_BUFFER = Struct("<II")
BUFFER_STEP: Final = 8


class BlockDamaged(Exception):
    """Bytes are no block; the text says what is wrong."""


class Version(NamedTuple):
    """One version of a row."""

    row: int
    timestamp: int
    is_delete: bool


class Block:
    """One block, as it stands in memory. `types`: of its columns, in order."""

    __slots__ = ("_buffers", "_data", "_deletes", "_keys", "_offsets", "_timestamps", "_types", "rows")

    def __init__(self, data: bytes, types: Sequence[str]) -> None:
        """BlockDamaged."""
        self._data = memoryview(data)
        self._types = types
        self.rows, self._buffers = _layout(data, types)
        self._offsets = self.buffer(0).cast("i")
        self._keys = self.buffer(1)
        self._timestamps = self.buffer(2).cast("Q")
        self._deletes = self.buffer(3)

    def key(self, row: int) -> bytes:
        offsets = self._offsets
        return bytes(self._keys[offsets[row] : offsets[row + 1]])

    def find(self, key: bytes) -> int:
        """Return the first row whose key is not less; `rows` if there is none."""
        return bisect_left(range(self.rows), key, key=self.key)

    def version(self, row: int) -> Version:
        return Version(row, self._timestamps[row], bool(self._deletes and _bit(self._deletes, row)))

    def value(self, row: int, column: int) -> Any:
        """Return a value: None is null. Raise KeyError where the row leaves the column as it was."""
        first = _KEY_BUFFERS + COLUMN_BUFFERS * column
        presence, validity = self.buffer(first), self.buffer(first + 1)
        if presence and not _bit(presence, row):
            raise KeyError(column)
        if validity and not _bit(validity, row):
            return None
        return _READERS[self._types[column]](self.buffer(first + 2), self.buffer(first + 3), row)

    def buffer(self, number: int) -> memoryview:
        """Return a buffer by its number in the form."""
        position, length = self._buffers[number]
        return self._data[position : position + length]


def encode_block(rows: int, buffers: Sequence[bytes | memoryview]) -> bytes:
    """A block of these buffers, in the order of the form."""
    position = -(-(_HEAD.size + _BUFFER.size * len(buffers)) // BUFFER_STEP) * BUFFER_STEP
    head = [_HEAD.pack(MAGIC, rows, len(buffers), 0)]
    body: list[bytes | memoryview] = [b"\0" * (position - _HEAD.size - _BUFFER.size * len(buffers))]
    for each in buffers:
        length = len(each)
        head.append(_BUFFER.pack(position, length))
        pad = -length % BUFFER_STEP
        body += (each, b"\0" * pad)
        position += length + pad
    return b"".join([*head, *body])


def _layout(data: bytes, types: Sequence[str]) -> tuple[int, list[tuple[int, int]]]:
    """Rows, and where each buffer lies: within the data, and as long as the rows need. BlockDamaged."""
    expected = _KEY_BUFFERS + COLUMN_BUFFERS * len(types)
    end = _HEAD.size + _BUFFER.size * expected
    if len(data) < end:
        raise BlockDamaged(f"{len(data)} bytes are less than a block's head")
    magic, rows, count, _ = _HEAD.unpack_from(data)
    if magic != MAGIC or count != expected or not rows:
        raise BlockDamaged(f"magic {magic:08x}, {rows} rows, {count} buffers where {expected} are wanted")
    buffers = list(_BUFFER.iter_unpack(memoryview(data)[_HEAD.size : end]))
    bitmap, offsets = (-(-rows // 8),), (4 * rows + 4,)
    wanted = [offsets, (), (8 * rows,), (0, *bitmap)]
    for name in types:
        width = _WIDTHS.get(name)
        has_offsets = width is None
        size = () if has_offsets else bitmap if width == 0 else (width * rows,)
        wanted += ((0, *bitmap), (0, *bitmap), offsets if has_offsets else (0,), size)
    for number, ((position, length), lengths) in enumerate(zip(buffers, wanted, strict=True)):
        if position % BUFFER_STEP or position < end or position + length > len(data):
            raise BlockDamaged(f"a buffer of {length} bytes at {position} in a block of {len(data)}")
        if lengths and length not in lengths:
            raise BlockDamaged(f"buffer {number} has {length} bytes for {rows} rows; it needs {lengths[-1]}")
    return rows, buffers


def _bit(bitmap: memoryview, row: int) -> bool:
    return bool(bitmap[row >> 3] >> (row & 7) & 1)


def _read_boolean(offsets: memoryview, values: memoryview, row: int) -> bool:
    return _bit(values, row)


def _read_bytes(offsets: memoryview, values: memoryview, row: int) -> bytes:
    begin, end = offsets.cast("i")[row : row + 2]
    return bytes(values[begin:end])


def _read_text(offsets: memoryview, values: memoryview, row: int) -> str:
    return _read_bytes(offsets, values, row).decode()


def _fixed(form: Struct) -> Callable[[memoryview, memoryview, int], Any]:
    def read(offsets: memoryview, values: memoryview, row: int) -> Any:
        return form.unpack_from(values, row * form.size)[0]

    return read


_FORMS = {
    "int8": "b", "int16": "h", "int32": "i", "int64": "q", "uint8": "B", "uint16": "H", "uint32": "I", "uint64": "Q",
    "double": "d", "timestamp": "Q",
}  # fmt: skip
_WIDTHS = {"boolean": 0, **{name: Struct(f"<{form}").size for name, form in _FORMS.items()}}
"""Bytes of a value by type; of a boolean 0, since it is a bit."""
_READERS: Mapping[str, Callable[[memoryview, memoryview, int], Any]] = {
    **{name: _fixed(Struct(f"<{form}")) for name, form in _FORMS.items()},
    "boolean": _read_boolean, "string": _read_bytes, "utf8": _read_text, "any": _read_text,
}  # fmt: skip
"""Readers of one value from a column's offsets and values, by type."""
