"""Reads blobs from segments and index rows, in whatever thread calls. Every byte handed out has been verified."""

import errno
import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from pqbroker.storage.damaged_blobs import DamagedBlobs
from pqbroker.storage.disk import index_rows
from pqbroker.storage.disk.segments import (
    Location,
    SegmentFile,
    locate_range,
    read_range,
    record_bytes,
    segment_name,
    verify_range,
)
from pqbroker.storage.engine import BlobCorrupt, BlobKey, BlobMissing, Buffer, EngineError, FileRange

_log = logging.getLogger(__name__)
_STRETCH_BYTES_MAX = 2 << 20
"""Read in one call at most, where blobs lie end to end."""
_SCRATCH_BYTES = 256 << 10
"""Verified at once of what is not kept: it stays in the processor's cache."""
SegmentKey = tuple[str, int, int]
_CURE = "delete the records before it, or restore a copy"


class BlobReader:
    """Looks locations up with `get` and reads ranges. Files are opened again each time: that costs 5 µs, and a cache
    would have to know about unlinked segments."""

    def __init__(self, get: Callable[[list[bytes]], list[bytes | None]], pools: Mapping[str, Path]) -> None:
        self._get = get
        self._pools = pools
        self.damaged = DamagedBlobs()

    def read(self, ranges: Sequence[tuple[BlobKey, int, int]]) -> list[Buffer]:
        """Bytes of each (blob, offset, size). Raises BlobMissing and BlobCorrupt for the first that is."""
        rows = self._rows([blob for blob, _, _ in ranges])
        places = [None if row is None else _place(item[0], row) for item, row in zip(ranges, rows, strict=True)]
        found: list[Buffer] = []
        expected = 0
        with self._opened_files() as files:
            for number, (blob, offset, size) in enumerate(ranges):
                row, at = rows[number], places[number]
                if row is None:
                    raise BlobMissing(blob.hex())
                if at is None:
                    found.append(index_rows.inline_payload(blob, row)[offset : offset + size])
                    continue
                file, at = self._file(files, blob, row, at)
                places[number] = at
                begins = number >= expected
                if begins:
                    expected, end = _neighbours(places, number)
                if begins and expected > number + 1 and not offset:
                    file.expect(at.position, end)
                found.append(self._range(file, blob, at, offset, size))
        return found

    def verify(self, ranges: Sequence[tuple[BlobKey, int, int]]) -> list[Buffer | FileRange]:
        """Read as `read` does, but return only where bytes in a segment lie: they are verified, and not kept."""
        rows = self._rows([blob for blob, _, _ in ranges])
        found: list[Buffer | FileRange] = []
        scratch = bytearray(_SCRATCH_BYTES)
        with self._opened_files() as files:
            for (blob, offset, size), row in zip(ranges, rows, strict=True):
                at = None if row is None else _place(blob, row)
                if row is None:
                    raise BlobMissing(blob.hex())
                if at is None:
                    found.append(index_rows.inline_payload(blob, row)[offset : offset + size])
                    continue
                file, at = self._file(files, blob, row, at)
                path = self._path(at)
                with self._read_errors(blob, offset, path):
                    begin, count = verify_range(file.file, blob, at, (offset, size), path, scratch)
                found.append(FileRange(path, begin, count))
        return found

    def locate(self, ranges: Sequence[tuple[BlobKey, int, int]]) -> list[Buffer | FileRange]:
        """Return what `verify` returns, but do not read what lies in a segment: its reader may find by then that it is
        gone, or other bytes."""
        rows = self._rows([blob for blob, _, _ in ranges])
        found: list[Buffer | FileRange] = []
        for (blob, offset, size), row in zip(ranges, rows, strict=True):
            if row is None:
                raise BlobMissing(blob.hex())
            at = _place(blob, row)
            if at is None:
                found.append(index_rows.inline_payload(blob, row)[offset : offset + size])
            else:
                found.append(FileRange(self._path(at), *locate_range(at, (offset, size))))
        return found

    def content(self, blob: BlobKey, row: bytes) -> Buffer:
        """The whole blob that an index row is about. Raises BlobCorrupt."""
        at = _place(blob, row)
        if at is None:
            return index_rows.inline_payload(blob, row)
        file, at = self._open(blob, row, at)
        try:
            return self._range(file, blob, at, 0, at.size)
        finally:
            os.close(file.file)

    @contextmanager
    def _opened_files(self) -> Iterator[dict[SegmentKey, SegmentFile]]:
        """Yield the segments that one call opens, and close them at its end; damage that it finds is logged with its
        cure."""
        files: dict[SegmentKey, SegmentFile] = {}
        try:
            yield files
        except BlobCorrupt as corrupt:
            _log.error("%s; %s", corrupt, _CURE)
            self.damaged.note(corrupt)
            raise
        finally:
            for file in files.values():
                os.close(file.file)

    def _rows(self, blobs: Sequence[BlobKey]) -> list[bytes | None]:
        """The index rows of the blobs, None where absent. BlobCorrupt where they cannot be read."""
        try:
            return self._get([index_rows.BLOB + blob for blob in blobs])
        except EngineError as damage:
            raise BlobCorrupt(blobs[0], 0, str(damage)) from damage

    def _range(self, file: SegmentFile, blob: BlobKey, at: Location, offset: int, size: int) -> Buffer:
        path = self._path(at)
        with self._read_errors(blob, offset, path):
            return read_range(file, blob, at, offset, size, path)

    @contextmanager
    def _read_errors(self, blob: BlobKey, offset: int, path: str) -> Iterator[None]:
        """Bytes that the disk does not give back are as bad as wrong ones."""
        try:
            yield
        except OSError as failure:
            if failure.errno != errno.EIO:
                raise
            raise BlobCorrupt(blob, offset, f"{path}: {failure.strerror}") from failure

    def _file(
        self, files: dict[SegmentKey, SegmentFile], blob: BlobKey, row: bytes, at: Location
    ) -> tuple[SegmentFile, Location]:
        """The blob's segment, and where in it the blob is by now."""
        file = files.get(at[:3])
        if file is None:
            file, at = self._open(blob, row, at)
            known = files.setdefault(at[:3], file)
            if known is not file:
                os.close(file.file)
                file = known
        return file, at

    def _open(self, blob: BlobKey, row: bytes, at: Location) -> tuple[SegmentFile, Location]:
        """Open where the blob is. Moved or deleted since the look-up: it is looked up again."""
        while True:
            try:
                return self._opened(at), at
            except FileNotFoundError:
                newer = self._rows([blob])[0]
            if newer is None:
                raise BlobMissing(blob.hex())
            if newer == row:
                raise BlobCorrupt(blob, 0, f"{self._path(at)} is gone")
            moved = _place(blob, newer)
            if moved is None:
                raise BlobCorrupt(blob, 0, "its index row, which another kind of row has replaced")
            row, at = newer, moved

    def _opened(self, at: Location) -> SegmentFile:
        return SegmentFile(os.open(self._path(at), os.O_RDONLY | os.O_CLOEXEC))

    def _path(self, at: Location) -> str:
        return f"{self._pools[at.pool]}/{segment_name(at.generation, at.sequence)}"


def _place(blob: BlobKey, row: bytes) -> Location | None:
    """Return where a blob lies; None: in its index row. Raises BlobCorrupt for a row of no known kind."""
    try:
        return index_rows.location(row)
    except ValueError as bad:
        raise BlobCorrupt(blob, 0, str(bad)) from bad


def _neighbours(places: Sequence[Location | None], first: int) -> tuple[int, int]:
    """Return how far records from `first` on lie end to end in one segment: the number behind them, their end."""
    at = places[first]
    assert at is not None
    start, end = at.position, at.position + record_bytes(at.size)
    number = first + 1
    while number < len(places):
        following = places[number]
        if following is None or following[:3] != at[:3] or following.position != end:
            break
        if end + record_bytes(following.size) - start > _STRETCH_BYTES_MAX:
            break
        end += record_bytes(following.size)
        number += 1
    return number, end
