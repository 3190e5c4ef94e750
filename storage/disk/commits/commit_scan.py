"""Finds every commit record of a file, a log or a segment, and tells what a power cut tore from what was damaged.

A file is records end to end, behind the last one zeros or nothing. Where bytes are no record, the search continues for
the next that is one, wherever it begins: lengths cannot be trusted there. A sector that a power cut left out holds
zeros, since files are never used again, and a round names those of its sectors that are zeros by what was written: so
bytes that are no record, and of which no other sector is zeros, were damaged later. Records of the earlier form name
none: any sector of theirs that is zeros counts as left out.
"""

import os
from collections.abc import Container, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from crc32c import crc32c

from pqbroker.storage.disk.commits.commit_record import COMMIT_HEADER_BYTES, COMMIT_MAGICS, CommitHeader, parse_commit
from pqbroker.storage.disk.commits.zero_sectors import SECTOR_BYTES, Run, decode_runs
from pqbroker.storage.disk.segments import BLOB_HEADER_BYTES, blob_header_at, blob_header_bytes_told, wrong_pages

_CHUNK_BYTES = 1 << 20


class CommitAt(NamedTuple):
    """A whole record, and where its header begins."""

    path: Path
    position: int
    header: CommitHeader
    stand_in: bytes | None = None
    """The content to take in place of what the file has; None: the file's."""

    @property
    def place(self) -> str:
        return f"byte {self.position} of {self.path}"

    def content(self) -> bytes:
        """Return the record's content, as it was when the record was found. Raises OSError."""
        if self.stand_in is not None:
            return self.stand_in
        with _opened(self.path) as file:
            return os.pread(file, self.header.size, self.position + self.header.header_bytes)


@dataclass(frozen=True, slots=True)
class Unreadable:
    """Bytes behind the last whole record of a file that are neither a record nor zeros."""

    path: Path
    position: int
    is_torn: bool
    number: int | None
    """The round's, where the header is whole."""

    @property
    def place(self) -> str:
        return f"byte {self.position} of {self.path}"


class Gap(NamedTuple):
    """Bytes [position, end) that are neither a record nor the payload of the record behind them."""

    path: Path
    position: int
    end: int
    payload_bytes: int = 0
    """Bytes of blobs right before the gap, which belong to the same round."""


@dataclass(frozen=True, slots=True)
class Scanned:
    """Contents of a file."""

    path: Path
    records: tuple[CommitAt, ...]
    rest: Unreadable | None
    gaps: tuple[Gap, ...] = ()
    """Gaps in order; the last one reaches to the end of the file if `rest` describes its content."""


def scan_commits(path: Path, position: int, seed: int) -> Scanned:
    """Return every whole commit record of a file from `position` on, past records of blobs. OSError."""
    found: list[CommitAt] = []
    gaps: list[Gap] = []
    rest: Unreadable | None = None
    with _opened(path) as file:
        while True:
            start, position = position, behind_blobs(file, position)
            commit = _commit_at(file, path, position, seed)
            if commit is None:
                rest = _unreadable(file, path, position, seed)
                commit = _next_commit(file, path, position + 1, seed)
                gaps += _gap_before(commit, file, Gap(path, position, position, position - start))
            if commit is None:
                return Scanned(path, tuple(found), rest, tuple(gaps))
            found.append(commit)
            position = commit.position + commit.header.record_bytes


def _gap_before(commit: CommitAt | None, file: int, begin: Gap) -> list[Gap]:
    """The gap that begins so and ends before the payload of the next record, or with what was written of the file."""
    end = commit.position - commit.header.payload_bytes if commit else _written_end(file, begin.position)
    return [begin._replace(end=end)] if end > begin.position else []


def payload_is_torn(record: CommitAt) -> bool:
    """Return True if the payload right before a record lacks a sector, as when a power cut came before its sync.

    Damage of another kind is reported when the blob is read. OSError.
    """
    header = record.header
    start = record.position - header.payload_bytes
    with _opened(record.path) as file:
        if header.has_earlier_form:
            return _earlier_payload_is_torn(file, start, record.position)
        encoded = os.pread(file, header.map_bytes, _map_at(record.position, header))
        named = decode_runs(encoded) if encoded else ()
        return _lacks_a_sector(file, start, record.position, _sectors_of(named, start))


def _earlier_payload_is_torn(file: int, position: int, end: int) -> bool:
    while position < end:
        header = blob_header_at(file, position)
        if header is None:
            return _lacks_a_part(file, position, min(_told_end(file, position), end))
        if any(_lacks_a_part(file, *page) for page in wrong_pages(file, position, header)):
            return True
        position += header.record_bytes
    return False


def behind_blobs(file: int, position: int) -> int:
    """Return where the records of blobs end that begin at a position."""
    while (blob := blob_header_at(file, position)) is not None:
        position += blob.record_bytes
    return position


def _commit_at(file: int, path: Path, position: int, seed: int) -> CommitAt | None:
    header = parse_commit(os.pread(file, COMMIT_HEADER_BYTES, position), seed)
    if header is None:
        return None
    content = os.pread(file, header.size, position + header.header_bytes)
    is_whole = len(content) == header.size and crc32c(content, seed) == header.crc
    return CommitAt(path, position, header) if is_whole and _map_of(file, position, header, seed) is not None else None


def _written_end(file: int, position: int) -> int:
    """Return where the last sector ends that holds anything but zeros, or the file; `position` for zeros alone."""
    start = end = position
    while chunk := os.pread(file, _CHUNK_BYTES, position):
        written = len(chunk.rstrip(b"\0"))
        end = position + written if written else end
        position += len(chunk)
    return min(end + -end % SECTOR_BYTES, position) if end > start else start


def _map_at(position: int, header: CommitHeader) -> int:
    """Return where the map of the record begins whose header is at `position`."""
    return position + header.header_bytes + header.size


def _map_of(file: int, position: int, header: CommitHeader, seed: int) -> Sequence[Run] | None:
    """The sectors that a record names as zeros; None when its map does not verify."""
    encoded = os.pread(file, header.map_bytes, _map_at(position, header))
    if len(encoded) < header.map_bytes or (encoded and crc32c(encoded, seed) != header.map_crc):
        return None
    return decode_runs(encoded) if encoded else ()


def _next_commit(file: int, path: Path, position: int, seed: int) -> CommitAt | None:
    """The next whole record that begins at `position` or later."""
    overlap = len(COMMIT_MAGICS) - 1
    while chunk := os.pread(file, _CHUNK_BYTES, position):
        at = chunk.find(COMMIT_MAGICS)
        while at >= 0:
            found = _commit_at(file, path, position + at, seed)
            if found is not None:
                return found
            at = chunk.find(COMMIT_MAGICS, at + 1)
        if len(chunk) <= overlap:
            return None
        position += len(chunk) - overlap
    return None


def _unreadable(file: int, path: Path, position: int, seed: int) -> Unreadable | None:
    """Return what is at a position where no record is; None for zeros."""
    head = os.pread(file, COMMIT_HEADER_BYTES, position)
    if not any(head):
        return None
    header = parse_commit(head, seed)
    if header is None:
        return Unreadable(path, position, _lacks_a_sector(file, position, _told_end(file, position)), None)
    return Unreadable(path, position, _record_is_torn(file, position, header, seed), header.number)


def _record_is_torn(file: int, position: int, header: CommitHeader, seed: int) -> bool:
    """Return True if a record with a whole header lacks a sector."""
    end = position + header.record_bytes
    if header.has_earlier_form:
        return _lacks_a_part(file, position, end)
    named = _map_of(file, position, header, seed)
    if named is None:  # its bytes are never zeros
        return _lacks_a_part(file, _map_at(position, header), end)
    return _lacks_a_sector(file, position, end, _sectors_of(named, position - header.payload_bytes))


def _told_end(file: int, position: int) -> int:
    """Return where the header at a position ends, which does not verify."""
    told = blob_header_bytes_told(os.pread(file, BLOB_HEADER_BYTES, position))
    return position + (told or COMMIT_HEADER_BYTES)


def _sectors_of(named: Sequence[Run], begin: int) -> set[int]:
    """The sectors of the file that a round names as zeros, which begins at `begin`, payload and all."""
    of_round = begin // SECTOR_BYTES
    return {of_round + number for first, count in named for number in range(first, first + count)}


def _lacks_a_sector(file: int, start: int, end: int, zeros: Container[int] = ()) -> bool:
    """Return True if one of the sectors that [start, end) touches holds zeros alone from `start` on, whatever is behind
    `end`, and is not one of the file's sectors `zeros`; or if the file ends before."""
    while start < end:
        stop = min(start - start % SECTOR_BYTES + _CHUNK_BYTES, end + -end % SECTOR_BYTES)
        piece = os.pread(file, stop - start, start)
        if len(piece) < min(stop, end) - start:
            return True
        sector, size = start // SECTOR_BYTES, SECTOR_BYTES - start % SECTOR_BYTES
        at = 0
        while at < len(piece):
            if sector not in zeros and not any(piece[at : at + size]):
                return True
            at, sector, size = at + size, sector + 1, SECTOR_BYTES
        start = stop
    return False


def _lacks_a_part(file: int, start: int, end: int) -> bool:
    """Return True if one of the sectors' parts that make up [start, end) holds zeros alone, or the file ends before."""
    while start < end:
        stop = min(start - start % SECTOR_BYTES + _CHUNK_BYTES, end)
        piece = os.pread(file, stop - start, start)
        if len(piece) < stop - start:
            return True
        first = SECTOR_BYTES - start % SECTOR_BYTES
        parts = (piece[:first], *(piece[at : at + SECTOR_BYTES] for at in range(first, len(piece), SECTOR_BYTES)))
        if not all(map(any, parts)):
            return True
        start = stop
    return False


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield file
    finally:
        os.close(file)
