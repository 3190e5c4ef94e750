"""Blocks of a chunk: rows in the order of their keys, the newest version of each first, columns in Arrow's layout.

    0   4 bytes  magic "PQS1"
    4   uint32   rows, at least one
    8   uint32   buffers
    12  uint32   zero
    16  uint32   length of each buffer
        the buffers, the first and each next at a multiple of 8, in this order:
        offsets and bytes of the encoded keys (`keys`); timestamps, uint64; deletes, a bitmap;
        of each column: presence, validity, offsets, values

Numbers are little endian. A bitmap without a byte has all bits set, that of deletes none. A column of fixed size has no
offsets, a delete has no column. A version left as it was what is absent; what is not valid is null. Each column is an
array of Arrow as it stands (`Array.from_buffers`), and plain Python reads one value of it through `memoryview.cast`.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate
from struct import Struct
from typing import Any, Final

from pqbroker.tables.sorted.packed_rows import ABSENT
from pqbroker.tables.sorted.versions import Version

BLOCK_MAGIC: Final = 0x31535150
BLOCK_BYTES_MAX: Final = 64 << 10
"""Uncompressed; a row that is larger is a block of its own."""
KEY_BUFFERS: Final = 4
COLUMN_BUFFERS: Final = 4
_DELETES = 3
"""Number of the buffer of deletes."""
_HEAD = Struct("<IIII")
_LENGTH_BYTES = 4
_OFFSETS = Struct("<ii")
_OFFSET_BYTES = 4
_Reader = Callable[[bytes, int, int, int], Any]
BUFFER_STEP: Final = 8


class BlockDamaged(Exception):
    """Bytes are no block; the text says what is wrong."""


class Block:
    """One block, as it stands in memory. `types`: of its columns, in order."""

    __slots__ = ("_buffers", "_data", "_keys_at", "_offsets", "_timestamps", "_types", "rows")

    def __init__(self, data: bytes, types: Sequence[str]) -> None:
        """BlockDamaged."""
        self._data = data
        self._types = types
        self.rows, self._buffers = _layout(data, types)
        self._offsets = self.buffer(0).cast("i")
        self._keys_at, _ = self._buffers[1]
        self._timestamps = self.buffer(2).cast("Q")

    def key(self, row: int) -> bytes:
        offsets, begin = self._offsets, self._keys_at
        return self._data[begin + offsets[row] : begin + offsets[row + 1]]

    def find(self, key: bytes) -> int:
        """Return the first row whose key is not less; `rows` if there is none."""
        return bisect_left(range(self.rows), key, key=self.key)

    def rows_of(self, key: bytes) -> range:
        """Return the rows of a key, the newest version first."""
        first = end = self.find(key)
        while end < self.rows and self.key(end) == key:
            end += 1
        return range(first, end)

    def version(self, row: int, first: int) -> Version:
        """Return a row's version with the values of the columns from `first` on."""
        timestamp = self._timestamps[row]
        if self.is_delete(row):
            return Version(timestamp, None)
        return Version(timestamp, [self.value(row, column) for column in range(first, len(self._types))])

    def is_delete(self, row: int) -> bool:
        position, length = self._buffers[_DELETES]
        return bool(length) and _bit(self._data, position, row)

    def value(self, row: int, column: int) -> Any:
        """Return a value: None is null, ABSENT left as it was."""
        first, data = KEY_BUFFERS + COLUMN_BUFFERS * column, self._data
        presence, validity, (offsets, _), (values, _) = self._buffers[first : first + COLUMN_BUFFERS]
        for (bits, length), lacking in ((presence, ABSENT), (validity, None)):
            if length and not _bit(data, bits, row):
                return lacking
        return _READERS[self._types[column]](data, offsets, values, row)

    def buffer(self, number: int) -> memoryview:
        """Return a buffer by its number in the form."""
        position, length = self._buffers[number]
        return memoryview(self._data)[position : position + length]


def encode_block(rows: int, buffers: Sequence[bytes | memoryview]) -> bytes:
    """Return a block of these buffers, in the order of the form."""
    lengths = [len(each) for each in buffers]
    head = _HEAD.pack(BLOCK_MAGIC, rows, len(buffers), 0) + Struct(f"<{len(buffers)}I").pack(*lengths)
    parts: list[bytes | memoryview] = [head, bytes(-len(head) % BUFFER_STEP)]
    for each, length in zip(buffers, lengths, strict=True):
        if length:
            parts += (each, bytes(-length % BUFFER_STEP))
    return b"".join(parts)


def head_bytes(buffers: int) -> int:
    """Return the bytes of a block before its buffers, of which it has this many."""
    return _padded(_HEAD.size + _LENGTH_BYTES * buffers)


def _layout(data: bytes, types: Sequence[str]) -> tuple[int, list[tuple[int, int]]]:
    """Return how many rows there are, and position and length of each buffer: within the data, and as long as the rows
    need. BlockDamaged."""
    expected = KEY_BUFFERS + COLUMN_BUFFERS * len(types)
    begin = head_bytes(expected)
    if len(data) < begin:
        raise BlockDamaged(f"{len(data)} bytes are less than a block's head")
    magic, rows, count, _ = _HEAD.unpack_from(data)
    if magic != BLOCK_MAGIC or count != expected or not rows:
        raise BlockDamaged(f"magic {magic:08x}, {rows} rows, {count} buffers where {expected} are wanted")
    lengths = Struct(f"<{count}I").unpack_from(data, _HEAD.size)
    positions = list(accumulate(map(_padded, lengths), initial=begin))
    if positions.pop() != len(data):
        raise BlockDamaged(f"buffers of {sum(lengths)} bytes do not fill a block of {len(data)}")
    for number, (length, known) in enumerate(zip(lengths, _known_lengths(rows, types), strict=True)):
        if known and length not in known:
            raise BlockDamaged(f"buffer {number} has {length} bytes for {rows} rows; it needs {known[-1]}")
    return rows, list(zip(positions, lengths, strict=True))


def _known_lengths(rows: int, types: Sequence[str]) -> Iterator[Sequence[int]]:
    """Yield the lengths that each buffer may have; none: any."""
    bitmap, offsets = -(-rows // 8), (4 * rows + 4,)
    yield from (offsets, (), (8 * rows,), (0, bitmap))
    for name in types:
        width = WIDTHS.get(name)
        yield from ((0, bitmap), (0, bitmap))
        if width is None:
            yield from (offsets, ())
        else:
            yield from ((0,), (width * rows or bitmap,))


def _padded(length: int) -> int:
    return -(-length // BUFFER_STEP) * BUFFER_STEP


def _bit(data: bytes, bitmap: int, row: int) -> bool:
    return bool(data[bitmap + (row >> 3)] >> (row & 7) & 1)


def _read_boolean(data: bytes, offsets: int, values: int, row: int) -> bool:
    return _bit(data, values, row)


def _read_bytes(data: bytes, offsets: int, values: int, row: int) -> bytes:
    begin, end = _OFFSETS.unpack_from(data, offsets + row * _OFFSET_BYTES)
    return data[values + begin : values + end]


def _read_text(data: bytes, offsets: int, values: int, row: int) -> str:
    return _read_bytes(data, offsets, values, row).decode()


def _fixed(form: Struct) -> _Reader:
    def read(data: bytes, offsets: int, values: int, row: int) -> Any:
        return form.unpack_from(data, values + row * form.size)[0]

    return read


_FORMS = {
    "int8": "b", "int16": "h", "int32": "i", "int64": "q", "uint8": "B", "uint16": "H", "uint32": "I", "uint64": "Q",
    "double": "d", "timestamp": "Q",
}  # fmt: skip
WIDTHS: Final[Mapping[str, int]] = {"boolean": 0, **{name: Struct(f"<{form}").size for name, form in _FORMS.items()}}
"""Bytes of a value by type; of a boolean 0, since it is a bit."""
_READERS: Mapping[str, _Reader] = {
    **{name: _fixed(Struct(f"<{form}")) for name, form in _FORMS.items()},
    "boolean": _read_boolean, "string": _read_bytes, "utf8": _read_text, "any": _read_text,
}  # fmt: skip
"""Readers of one value, by type; they take the block, where a column's offsets and values begin in it, and the row."""
