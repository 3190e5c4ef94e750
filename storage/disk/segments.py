"""Segment files: the stored form of a blob, its page checksums, verified ranged reads. Where blobs go is `pools`'.

A segment is records end to end, without gaps, so that every byte of it is covered by some checksum:

    header (48 bytes)   magic "PQB1" · blob id 24 · size u32 · commit number u64 · flags u32 · crc u32, big-endian
    page checksums      crc32c of each 32 KiB page of the payload, u32 each
    payload             `size` bytes

The header's crc covers the rest of the header and the page checksums. Behind the blobs of a round may stand its rows, a
record of the commit log (see `commits`).
"""

import contextlib
import os
import re
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from crc32c import crc32c

from pqbroker.storage.disk.checksums import SEGMENT_PAGE_BYTES, first_wrong_page, page_checksums, page_count
from pqbroker.storage.disk.commits.commit_record import COMMIT_HEADER_BYTES, record_bytes_told
from pqbroker.storage.engine import BLOB_BYTES_MAX, BlobCorrupt, BlobKey, Buffer

BLOB_HEADER_BYTES = 48
_BLOB_MAGIC = b"PQB1"
"""Mark of a stored blob in its header."""
_NAME = re.compile(r"([0-9a-f]{16})-([0-9a-f]{8})\.segment")
_FIELDS = struct.Struct(">4s24sIQI")
_CRC = struct.Struct(">I")
_ONE_PREAD_BYTES = 131_072
"""A range that starts this near to its blob's header is read together with it."""

UNSYNCED = 1
"""Flag of a record whose commit was acknowledged before it was synced (durability interval or none)."""


class Location(NamedTuple):
    """Place where a blob's record begins."""

    pool: str
    generation: int
    sequence: int
    position: int
    size: int


@dataclass(frozen=True, slots=True)
class RecordHeader:
    """Header of a blob's record; `checksums` are the packed crcs of its pages."""

    blob: BlobKey
    size: int
    commit: int
    flags: int
    checksums: bytes

    @property
    def record_bytes(self) -> int:
        return record_bytes(self.size)


def segment_name(generation: int, sequence: int) -> str:
    return f"{generation:016x}-{sequence:08x}.segment"


def parse_segment_name(name: str) -> tuple[int, int] | None:
    """Generation and sequence number of a segment's file name; None for any other file, which is not ours."""
    found = _NAME.fullmatch(name)
    return (int(found[1], 16), int(found[2], 16)) if found else None


def record_bytes(size: int) -> int:
    """Bytes that a blob of `size` takes in a segment."""
    return BLOB_HEADER_BYTES + 4 * page_count(size) + size


def encode_record(blob: BlobKey, buffers: Sequence[Buffer], size: int, commit: int, flags: int) -> list[Buffer]:
    """The buffers to write for one blob: header and checksums in one, then the blob's own, uncopied."""
    checksums = page_checksums(buffers)
    packed = struct.pack(f">{len(checksums)}I", *checksums)
    fields = _FIELDS.pack(_BLOB_MAGIC, blob, size, commit, flags)
    record: list[Buffer] = [b"".join((fields, _CRC.pack(crc32c(packed, crc32c(fields))), packed))]
    record.extend(buffers)
    return record


class SegmentFile:
    """An open segment being read. `expect` says what comes next, so that neighbours are read in one call."""

    __slots__ = ("_ahead", "_start", "file")

    def __init__(self, file: int) -> None:
        self.file = file
        self._start = 0
        self._ahead = memoryview(b"")

    def expect(self, start: int, end: int) -> None:
        """The bytes [start, end) are asked for next, in pieces."""
        self._start, self._ahead = start, memoryview(b"")
        with contextlib.suppress(OSError):  # what cannot be read is told when its own piece is asked for
            self._ahead = memoryview(os.pread(self.file, end - start, start))

    def read(self, size: int, position: int) -> memoryview:
        """`size` bytes from `position` on; fewer at the file's end."""
        skip = position - self._start
        if skip >= 0 and skip + size <= len(self._ahead):
            return self._ahead[skip : skip + size]
        return memoryview(os.pread(self.file, size, position))


def read_range(segment: SegmentFile, blob: BlobKey, at: Location, offset: int, size: int, where: str) -> Buffer:
    """Bytes [offset, offset + size) of a blob in an open segment, each touched page verified; short only at its end.

    Raises BlobCorrupt.
    """
    end = min(offset + size, at.size)
    if offset >= end:
        return b""
    payload = BLOB_HEADER_BYTES + 4 * page_count(at.size)
    first = offset - offset % SEGMENT_PAGE_BYTES
    last = min(end + -end % SEGMENT_PAGE_BYTES, at.size)
    if first <= _ONE_PREAD_BYTES:
        data = segment.read(payload + last, at.position)
        head, pages = data[:payload], data[payload + first :]
    else:
        head = segment.read(payload, at.position)
        pages = segment.read(last - first, at.position + payload + first)
    header = _header(head, blob, at, where)
    _verify_pages(pages, header.checksums, first, last, blob, f"page at byte {at.position + payload} and on of {where}")
    return pages[offset - first : end - first]


def verify_range(
    file: int, blob: BlobKey, at: Location, part: tuple[int, int], where: str, scratch: bytearray
) -> tuple[int, int]:
    """Verify as `read_range` does, but keep nothing: return where in the file the bytes begin, and how many there are.

    `part`: offset and size. Raises BlobCorrupt.
    """
    offset, size = part
    end = min(offset + size, at.size)
    if offset >= end:
        return at.position, 0
    payload = _payload_at(at)
    header = _header(memoryview(os.pread(file, payload, at.position)), blob, at, where)
    view = memoryview(scratch)
    first = offset - offset % SEGMENT_PAGE_BYTES
    last = min(end + -end % SEGMENT_PAGE_BYTES, at.size)
    for start in range(first, last, len(view)):
        wanted = min(len(view), last - start)
        position = at.position + payload + start
        count = os.preadv(file, [view[:wanted]], position)
        _verify_pages(
            view[:count], header.checksums, start, start + wanted, blob, f"page at byte {position} and on of {where}"
        )
    return at.position + payload + offset, end - offset


def locate_range(at: Location, part: tuple[int, int]) -> tuple[int, int]:
    """Return what `verify_range` returns, but read nothing."""
    offset, size = part
    return at.position + _payload_at(at) + offset, max(min(offset + size, at.size) - offset, 0)


def _payload_at(at: Location) -> int:
    """Bytes between the beginning of a blob's record and the blob."""
    return BLOB_HEADER_BYTES + 4 * page_count(at.size)


def walk(file: int, position: int) -> Iterator[tuple[int, RecordHeader]]:
    """Blobs of a segment from `position` on, by their headers alone, until one is torn, or the end."""
    while True:
        header = blob_header_at(file, position)
        if header is not None:
            yield position, header
            position += header.record_bytes
            continue
        rows_bytes = record_bytes_told(os.pread(file, COMMIT_HEADER_BYTES, position))
        if rows_bytes is None:
            return
        position += rows_bytes


def blob_header_at(file: int, position: int) -> RecordHeader | None:
    """The header of the record that begins at a position; None when none does, or it does not verify."""
    fixed = os.pread(file, BLOB_HEADER_BYTES, position)
    told = blob_header_bytes_told(fixed)
    return None if told is None else _parse_header(memoryview(os.pread(file, told, position)))


def blob_header_bytes_told(head: bytes) -> int | None:
    """Return the length of header and page checksums, unverified; None when the bytes are no header."""
    if len(head) < BLOB_HEADER_BYTES or head[: len(_BLOB_MAGIC)] != _BLOB_MAGIC:
        return None
    size = int(_FIELDS.unpack_from(head)[2])
    return None if size > BLOB_BYTES_MAX else BLOB_HEADER_BYTES + 4 * page_count(size)


def wrong_pages(file: int, position: int, header: RecordHeader) -> Iterator[tuple[int, int]]:
    """Yield begin and end of each page that does not match its checksum, in the record that begins at `position`."""
    end = position + header.record_bytes
    start = end - header.size
    for (checksum,) in _CRC.iter_unpack(header.checksums):
        stop = min(start + SEGMENT_PAGE_BYTES, end)
        if crc32c(os.pread(file, stop - start, start)) != checksum:
            yield start, stop
        start = stop


def _header(head: memoryview, blob: BlobKey, at: Location, where: str) -> RecordHeader:
    """The header that is to be there. Raises BlobCorrupt."""
    header = _parse_header(head)
    if header is None or header.blob != blob or header.size != at.size:
        raise BlobCorrupt(blob, 0, f"header at byte {at.position} of {where}")
    return header


def _parse_header(head: memoryview) -> RecordHeader | None:
    """A header with its checksums; None when it does not verify."""
    if len(head) < BLOB_HEADER_BYTES:
        return None
    magic, blob, size, commit, flags = _FIELDS.unpack_from(head)
    checksums = head[BLOB_HEADER_BYTES:]
    if magic != _BLOB_MAGIC or len(checksums) != 4 * page_count(size):
        return None
    (checksum,) = _CRC.unpack_from(head, _FIELDS.size)
    if crc32c(checksums, crc32c(head[: _FIELDS.size])) != checksum:
        return None
    return RecordHeader(BlobKey(blob), size, commit, flags, bytes(checksums))


def _verify_pages(pages: memoryview, checksums: bytes, first: int, last: int, blob: BlobKey, where: str) -> None:
    """Compare the pages of [first, last) with their checksums; BlobCorrupt names the first bad page."""
    wanted = struct.unpack_from(f">{page_count(last - first)}I", checksums, first // SEGMENT_PAGE_BYTES * 4)
    wrong = first_wrong_page(pages, wanted)
    if wrong is not None:
        raise BlobCorrupt(blob, first + wrong * SEGMENT_PAGE_BYTES, where)
    if len(pages) != last - first:
        raise BlobCorrupt(blob, first + len(pages) // SEGMENT_PAGE_BYTES * SEGMENT_PAGE_BYTES, where)
