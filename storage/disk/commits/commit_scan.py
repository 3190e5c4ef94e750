"""Finds every commit record of a file, a log or a segment, and tells what a power cut tore from what was damaged.

A file is records end to end, behind the last one zeros or nothing. Where bytes are no record, the search continues for
the next that is one, wherever it begins: lengths cannot be trusted there. A sector that a power cut left out holds
zeros, since files are never used again: so bytes that are no record, and lack no sector, were damaged later.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from crc32c import crc32c

from pqbroker.storage.disk.commits.commit_record import COMMIT_HEADER_BYTES, COMMIT_MAGIC, CommitHeader, parse_commit
from pqbroker.storage.disk.segments import BLOB_HEADER_BYTES, blob_header_at, blob_header_bytes_told, wrong_pages

_SECTOR_BYTES = 512
_CHUNK_BYTES = 1 << 20


class CommitAt(NamedTuple):
    """A whole record, and where its header begins."""

    path: Path
    position: int
    header: CommitHeader

    @property
    def place(self) -> str:
        return f"byte {self.position} of {self.path}"

    def content(self) -> bytes:
        """Its content, as it was when it was found. OSError."""
        with _opened(self.path) as file:
            return os.pread(file, self.header.size, self.position + COMMIT_HEADER_BYTES)


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


@dataclass(frozen=True, slots=True)
class Scanned:
    """What a file holds."""

    path: Path
    records: tuple[CommitAt, ...]
    rest: Unreadable | None


def scan_commits(path: Path, position: int, seed: int) -> Scanned:
    """Every whole commit record of a file from `position` on, past records of blobs. OSError."""
    found: list[CommitAt] = []
    rest: Unreadable | None = None
    with _opened(path) as file:
        while True:
            position = _behind_blobs(file, position)
            commit = _commit_at(file, path, position, seed)
            if commit is None:
                rest = _unreadable(file, path, position, seed)
                commit = _next_commit(file, path, position + 1, seed)
            if commit is None:
                return Scanned(path, tuple(found), rest)
            found.append(commit)
            position = commit.position + commit.header.record_bytes


def payload_is_torn(record: CommitAt) -> bool:
    """Whether the payload right before a record lacks a sector, as it does when a power cut came before its sync.

    Damage of another kind is told when the blob is read. OSError.
    """
    position = record.position - record.header.payload_bytes
    with _opened(record.path) as file:
        while position < record.position:
            header = blob_header_at(file, position)
            if header is None:
                return _lacks_a_sector(file, position, min(_told_end(file, position), record.position))
            if any(_lacks_a_sector(file, *page) for page in wrong_pages(file, position, header)):
                return True
            position += header.record_bytes
    return False


def _behind_blobs(file: int, position: int) -> int:
    """Where the records of blobs end that begin at a position."""
    while (blob := blob_header_at(file, position)) is not None:
        position += blob.record_bytes
    return position


def _commit_at(file: int, path: Path, position: int, seed: int) -> CommitAt | None:
    header = parse_commit(os.pread(file, COMMIT_HEADER_BYTES, position), seed)
    if header is None:
        return None
    content = os.pread(file, header.size, position + COMMIT_HEADER_BYTES)
    is_whole = len(content) == header.size and crc32c(content, seed) == header.crc
    return CommitAt(path, position, header) if is_whole else None


def _next_commit(file: int, path: Path, position: int, seed: int) -> CommitAt | None:
    """The next whole record that begins at `position` or later."""
    overlap = len(COMMIT_MAGIC) - 1
    while chunk := os.pread(file, _CHUNK_BYTES, position):
        at = chunk.find(COMMIT_MAGIC)
        while at >= 0:
            found = _commit_at(file, path, position + at, seed)
            if found is not None:
                return found
            at = chunk.find(COMMIT_MAGIC, at + 1)
        if len(chunk) <= overlap:
            return None
        position += len(chunk) - overlap
    return None


def _unreadable(file: int, path: Path, position: int, seed: int) -> Unreadable | None:
    """What is at a position where no record is; None for zeros."""
    head = os.pread(file, COMMIT_HEADER_BYTES, position)
    if not any(head):
        return None
    header = parse_commit(head, seed)
    is_torn = _lacks_a_sector(file, position, position + header.record_bytes if header else _told_end(file, position))
    return Unreadable(path, position, is_torn, header.number if header else None)


def _told_end(file: int, position: int) -> int:
    """Where the header at a position ends, which does not verify."""
    told = blob_header_bytes_told(os.pread(file, BLOB_HEADER_BYTES, position))
    return position + (told or COMMIT_HEADER_BYTES)


def _lacks_a_sector(file: int, start: int, end: int) -> bool:
    """Whether one of the sectors' parts that make up [start, end) holds zeros alone, or is behind the file's end."""
    while start < end:
        stop = min(start - start % _SECTOR_BYTES + _CHUNK_BYTES, end)
        piece = os.pread(file, stop - start, start)
        if len(piece) < stop - start:
            return True
        first = _SECTOR_BYTES - start % _SECTOR_BYTES
        parts = (piece[:first], *(piece[at : at + _SECTOR_BYTES] for at in range(first, len(piece), _SECTOR_BYTES)))
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
