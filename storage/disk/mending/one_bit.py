"""Finds the one wrong bit of a damaged commit record by its checksums. Pure.

A checksum that is wrong by one bit says which bit it is: the difference to the right one, carried back byte by byte,
meets the difference that a bit of that byte makes. Damage of more bits meets none, but for one case in 2^32 for each
bit of the record, so a part of a record may be SEARCHED_BYTES_MAX long, and what is mended has to be rows of its round.
"""

from collections.abc import Iterator
from typing import NamedTuple

from crc32c import crc32c

from pqbroker.storage.disk.commits.commit_record import BEGIN, COMMIT_HEADER_BYTES, TAKEN, CommitHeader, parse_commit
from pqbroker.storage.disk.commits.index_changes import decode_changes
from pqbroker.storage.disk.commits.zero_sectors import decode_runs
from pqbroker.storage.disk.index_rows import number_row

SEARCHED_BYTES_MAX = 1 << 20
"""Longest rows, or map, that are searched: above it chance would meet a bit too easily."""
RECORD_BYTES_MAX = COMMIT_HEADER_BYTES + 2 * SEARCHED_BYTES_MAX
"""Longest record that is mended."""


class WrongBit(NamedTuple):
    """The byte at `position` of a record is to be `byte`; `header` and `content` are the whole record's."""

    position: int
    byte: int
    header: CommitHeader
    content: bytes


def find_wrong_bit(record: bytes, seed: int) -> WrongBit | None:
    """Return the one bit that makes the bytes begin with a whole record of the cell; None if no single bit does."""
    header = parse_commit(record[:COMMIT_HEADER_BYTES], seed)
    if header is None:
        return _in_header(record, seed)
    at = _in_parts(header, record, seed)
    if at is None:
        return None
    position, byte = at
    return _checked(header, record[:position] + bytes((byte,)) + record[position + 1 :], position, seed)


def _in_header(record: bytes, seed: int) -> WrongBit | None:
    head = record[:COMMIT_HEADER_BYTES]
    for position, byte in _flips(head):
        mended = head[:position] + bytes((byte,)) + head[position + 1 :]
        header = parse_commit(mended, seed)
        if header is not None:
            return _checked(header, mended + record[COMMIT_HEADER_BYTES:], position, seed)
    return None


def _flips(head: bytes) -> Iterator[tuple[int, int]]:
    for position, byte in enumerate(head):
        for bit in range(8):
            yield position, byte ^ 1 << bit


def _in_parts(header: CommitHeader, record: bytes, seed: int) -> tuple[int, int] | None:
    """Find the wrong bit of a record with a whole header, and the byte as it should be: in its rows or its map,
    whichever does not match its checksum."""
    rows_at, map_at = header.header_bytes, header.header_bytes + header.size
    for start, size, crc in ((rows_at, header.size, header.crc), (map_at, header.map_bytes, header.map_crc)):
        part = record[start : start + size]
        if len(part) < size or size > SEARCHED_BYTES_MAX:
            return None
        if size and crc32c(part, seed) != crc:
            found = _position(part, crc32c(part, seed) ^ crc)
            return None if found is None else (start + found[0], part[found[0]] ^ found[1])
    return None


def _position(part: bytes, difference: int) -> tuple[int, int] | None:
    """The byte of a part, and the bit of it, that make such a difference of its checksum."""
    for position in range(len(part) - 1, -1, -1):
        bit = _BIT_OF.get(difference)
        if bit is not None:
            return position, bit
        index = _INDEX_OF[difference >> 24]
        difference = ((difference ^ _STEPS[index]) & 0xFFFFFF) << 8 | index
    return None


def _checked(header: CommitHeader, mended: bytes, position: int, seed: int) -> WrongBit | None:
    """The wrong bit, if with it the whole record verifies and is one that a broker writes."""
    map_at = header.header_bytes + header.size
    content, zeros = mended[header.header_bytes : map_at], mended[map_at : map_at + header.map_bytes]
    is_whole = len(content) == header.size and len(zeros) == header.map_bytes and crc32c(content, seed) == header.crc
    if not is_whole or (zeros and crc32c(zeros, seed) != header.map_crc) or not _is_written(header, content, zeros):
        return None
    return WrongBit(position, mended[position], header, content)


def _is_written(header: CommitHeader, content: bytes, zeros: bytes) -> bool:
    """Return True if the content is rows, the number of their round among them, or that of a file's first record."""
    if header.flags & BEGIN:
        return len(content) == TAKEN.size
    try:
        changes = decode_changes(content)
        if zeros:
            decode_runs(zeros)
    except ValueError:
        return False
    return changes.deletes_ranges or number_row(header.number) in list(changes.rows())


def _steps() -> list[int]:
    """Return what a byte makes of the checksum that all that follows is carried on with."""
    steps = []
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        steps.append(value)
    return steps


_STEPS = _steps()
_INDEX_OF = {value >> 24: index for index, value in enumerate(_STEPS)}
_BIT_OF = {_STEPS[1 << bit]: 1 << bit for bit in range(8)}
