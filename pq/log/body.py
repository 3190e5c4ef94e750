"""Body blobs: their list in memory, and the index stored behind the record batches of each.

A body value is record batches end to end, one at least, then the index (positions, first offsets, upper bounds of
timestamps: three columns of little-endian 64-bit integers, an entry about every 32 KiB), then a trailer of fixed size.
A head value is record batches and nothing else.

A body that a cleaner has written lacks offsets before, between and behind its batches, and a batch in it may hold no
record. The entries of its index have the offsets of batches, never of gaps.
"""

import sys
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

from pqbroker.pq.log.batch_run import Run
from pqbroker.pq.log.keys import body_key
from pqbroker.storage.engine import Buffer

BODY_INDEX_GAP_BYTES = 32 * 1024
BODY_PAGE_BYTES = 1 << 20
"""Least size of the range read, prefetched and cached at once."""
TIMESTAMP_UNKNOWN = -(1 << 62)
_INDEX_MAGIC = b"PQB1"
"""Mark of an index in its trailer; a blob in a segment begins with the same four bytes."""
_TRAILER = Struct("<4sIQqq")
_CRC = Struct("<I")
TRAILER_BYTES = _TRAILER.size + _CRC.size
TAIL_BYTES = 8 * 1024
"""Read from a body's end in one go: enough for the index of 8 MiB."""
Columns = tuple["array[int]", "array[int]", "array[int]"]


class BodyIndex:
    """The sparse index of one body: where to look for an offset or a timestamp, and which pages to read."""

    __slots__ = ("data_bytes", "end_offset", "max_timestamp", "offsets", "pages", "positions", "stamps")

    def __init__(self, columns: Columns, data_bytes: int, end_offset: int) -> None:
        self.positions, self.offsets, self.stamps = columns
        self.data_bytes = data_bytes
        self.end_offset = end_offset
        self.max_timestamp = max(self.stamps)
        self.pages = array("q")
        """First entry of each page."""
        entry = 0
        while entry < len(self.positions):
            self.pages.append(entry)
            entry = bisect_left(self.positions, self.positions[entry] + BODY_PAGE_BYTES, entry + 1)

    @property
    def bytes_held(self) -> int:
        return 300 + 26 * len(self.positions)

    def entry_of(self, offset: int) -> int:
        """The entry whose bytes hold `offset`, or the gap that it is in; the first one for a gap before all batches."""
        return max(bisect_right(self.offsets, offset) - 1, 0)

    def page_of(self, offset: int) -> int:
        return bisect_right(self.pages, self.entry_of(offset)) - 1

    def page_of_entry(self, entry: int) -> int:
        return bisect_right(self.pages, entry) - 1

    def page_entries(self, page: int) -> tuple[int, int]:
        """The entries [first, last) of a page."""
        return self.pages[page], self.pages[page + 1] if page + 1 < len(self.pages) else len(self.positions)

    def span(self, first: int, last: int) -> tuple[int, int, int]:
        """Position, bytes and end offset of the entries [first, last)."""
        at_end = last >= len(self.positions)
        stop = self.data_bytes if at_end else self.positions[last]
        return self.positions[first], stop - self.positions[first], self.end_offset if at_end else self.offsets[last]

    def run(self, buffers: list[Buffer], first: int, last: int) -> Run:
        """The run over the bytes of entries [first, last)."""
        position, _, end_offset = self.span(first, last)
        columns = self.positions[first:last], self.offsets[first:last], self.stamps[first:last]
        return Run.page(buffers, position, columns, end_offset)


def encode_index(columns: Columns, data_bytes: int, end_offset: int) -> bytes:
    """Index and trailer, to be stored behind `data_bytes` of record batches."""
    if sys.byteorder != "little":
        columns = _swapped(columns)
    index = b"".join(column.tobytes() for column in columns)
    trailer = _TRAILER.pack(_INDEX_MAGIC, len(columns[0]), data_bytes, end_offset, max(columns[2]))
    return index + trailer + _CRC.pack(crc32c(trailer, crc32c(index)))


def index_bytes(tail: Buffer) -> int | None:
    """Size of index and trailer of a body whose last bytes are `tail`; None when the trailer is none of ours."""
    if len(tail) < TRAILER_BYTES:
        return None
    magic, entries, _, _, _ = _TRAILER.unpack_from(tail, len(tail) - TRAILER_BYTES)
    return TRAILER_BYTES + 24 * int(entries) if magic == _INDEX_MAGIC else None


def decode_index(tail: Buffer) -> BodyIndex | None:
    """The index from a body's last bytes; None when they are damaged or too few, or name no batch."""
    size = index_bytes(tail)
    if size is None or not TRAILER_BYTES < size <= len(tail):
        return None
    stored = bytes(tail[len(tail) - size :])
    if _CRC.unpack_from(stored, size - _CRC.size)[0] != crc32c(stored[: -_CRC.size]):
        return None
    _, entries, data_bytes, end_offset, _ = _TRAILER.unpack_from(stored, size - TRAILER_BYTES)
    columns = array("q"), array("q"), array("q")
    for number, column in enumerate(columns):
        column.frombytes(stored[8 * entries * number : 8 * entries * (number + 1)])
    return BodyIndex(columns if sys.byteorder == "little" else _swapped(columns), data_bytes, end_offset)


def _swapped(columns: Columns) -> Columns:
    copies = columns[0][:], columns[1][:], columns[2][:]
    for column in copies:
        column.byteswap()
    return copies


class BodyName(NamedTuple):
    """One body of a partition as it is: its first offset, and how often the body there was replaced since the start.

    A body keeps its key when another one of the same offsets replaces it, but not its name.
    """

    offset: int
    version: int


class Bodies:
    """The body blobs of a partition, oldest first: forty-four bytes each. Ranges [offset, end) do not overlap; holes
    are possible."""

    __slots__ = ("created", "ends", "offsets", "revision", "size", "sizes", "stamps", "versions")

    def __init__(self) -> None:
        self.offsets = array("q")
        self.ends = array("q")
        self.sizes = array("q")
        self.created = array("q")
        self.stamps = array("q")
        """Largest timestamp of each, TIMESTAMP_UNKNOWN until its index was read."""
        self.versions = array("I")
        self.size = 0
        """Bytes of all, indexes included."""
        self.revision = 0
        """Count of replacements since the start."""

    def __len__(self) -> int:
        return len(self.offsets)

    def append(self, offset: int, end: int, size: int, created_ms: int, max_timestamp: int = TIMESTAMP_UNKNOWN) -> None:
        assert offset < end
        assert not self.ends or self.ends[-1] <= offset, (offset, self.ends[-1])
        self.offsets.append(offset)
        self.ends.append(end)
        self.sizes.append(size)
        self.created.append(created_ms)
        self.stamps.append(max_timestamp)
        self.versions.append(0)
        self.size += size

    def find(self, offset: int) -> int:
        """The first body that ends after `offset`; the count when none does."""
        return bisect_right(self.ends, offset)

    def key(self, partition: int, number: int) -> bytes:
        return body_key(partition, self.offsets[number], self.ends[number] - self.offsets[number])

    def name(self, number: int) -> BodyName:
        return BodyName(self.offsets[number], self.versions[number])

    def number_of(self, name: BodyName) -> int | None:
        """The number of a body that is still as it is named; None when it was deleted or replaced."""
        number = self.find(name.offset)
        return number if number < len(self) and self.name(number) == name else None

    def replace(self, first: int, last: int, size: int, max_timestamp: int) -> None:
        """One body takes the place of those of the numbers [first, last), their offsets, and when the newest of them
        was created."""
        assert first < last <= len(self), (first, last)
        self.size += size - sum(self.sizes[first:last])
        new = (self.ends[last - 1], size, max(self.created[first:last]), max_timestamp)
        for column, value in zip((self.ends, self.sizes, self.created, self.stamps), new, strict=True):
            column[first:last] = array("q", [value])
        self.versions[first:last] = array("I", [max(self.versions[first:last]) + 1])
        del self.offsets[first + 1 : last]
        self.revision += 1

    def spans(self) -> Iterator[tuple[int, int]]:
        return zip(self.offsets, self.ends, strict=True)

    def drop_first(self, count: int) -> None:
        self.size -= sum(self.sizes[:count])
        for column in (self.offsets, self.ends, self.sizes, self.created, self.stamps):
            del column[:count]
        del self.versions[:count]
