"""Reads blobs from segments and index rows, in whatever thread calls. Every byte handed out has been verified."""

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from pqbroker.storage import indexrows
from pqbroker.storage.engine import BlobCorrupt, BlobKey, BlobMissing, Buffer
from pqbroker.storage.segments import Location, read_range, segment_name

_log = logging.getLogger(__name__)
_CURE = "delete the records before it, or restore a copy"


class BlobReader:
    """Looks locations up with `get` and reads ranges. Files are opened anew each time: that costs 5 µs, and a cache
    would have to know about unlinked segments."""

    def __init__(self, get: Callable[[list[bytes]], list[bytes | None]], pools: Mapping[str, Path]) -> None:
        self._get = get
        self._pools = pools

    def read(self, ranges: Sequence[tuple[BlobKey, int, int]]) -> list[Buffer]:
        """Bytes of each (blob, offset, size). Raises BlobMissing and BlobCorrupt for the first that is."""
        rows = self._get([indexrows.BLOB + blob for blob, _, _ in ranges])
        files: dict[Path, int] = {}
        try:
            return [
                self._range(blob, row, offset, size, files)
                for (blob, offset, size), row in zip(ranges, rows, strict=True)
            ]
        except BlobCorrupt as corrupt:
            _log.error("%s; %s", corrupt, _CURE)
            raise
        finally:
            for file in files.values():
                os.close(file)

    def content(self, blob: BlobKey, row: bytes) -> Buffer:
        """The whole blob that an index row is about. Raises BlobCorrupt."""
        files: dict[Path, int] = {}
        try:
            return self._range(blob, row, 0, indexrows.blob_size(row), files)
        finally:
            for file in files.values():
                os.close(file)

    def _range(self, blob: BlobKey, row: bytes | None, offset: int, size: int, files: dict[Path, int]) -> Buffer:
        if row is None:
            raise BlobMissing(blob.hex())
        at = indexrows.location(row)
        if at is None:
            return indexrows.inline_payload(blob, row)[offset : offset + size]
        path = self._pools[at.pool] / segment_name(at.generation, at.sequence)
        file = files.get(path)
        if file is None:
            file = files[path] = self._open(path, blob, row, at)
        return read_range(file, blob, at, offset, size, str(path))

    def _open(self, path: Path, blob: BlobKey, row: bytes, at: Location) -> int:
        try:
            return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            # Deleted between the look-up and now, unless the index still says otherwise.
            if self._get([indexrows.BLOB + blob])[0] != row:
                raise BlobMissing(blob.hex()) from None
            raise BlobCorrupt(blob, 0, f"{path} is gone") from None
