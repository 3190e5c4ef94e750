"""Free space, asked before a round so that the index never meets a full disk; and the ballast to delete with."""

import logging
import os
from collections.abc import Callable, Mapping
from errno import EDQUOT, EFBIG, ENOSPC
from pathlib import Path
from typing import Protocol

from pqbroker.storage.engine import Batch
from pqbroker.storage.status import DEFAULT_THRESHOLDS, Colour, Thresholds

_log = logging.getLogger(__name__)
NO_ROOM = frozenset((ENOSPC, EDQUOT, EFBIG))
"""Errors of a write for which there was no room."""
INDEX_RESERVE_BYTES = 32 << 20
"""Kept free where the index is: for its write-ahead log and one flush."""
POOL_RESERVE_BYTES = 16 << 20
"""Kept free in a pool on a disk of its own. Of every reserve a half may be used to empty mostly dead segments."""
FLOOR_BYTES = 4 << 20
"""Below this even deletes are refused."""


class Space(Protocol):
    """The part of `os.statvfs`'s answer that counts."""

    @property
    def f_bavail(self) -> int: ...

    @property
    def f_blocks(self) -> int: ...

    @property
    def f_frsize(self) -> int: ...


class Room:
    """What is free where `path` is, beyond a reserve: looked up once a round (2 µs), counted down within it."""

    def __init__(
        self,
        path: Path,
        reserve_bytes: int,
        look: Callable[[Path], Space] = os.statvfs,
        thresholds: Thresholds = DEFAULT_THRESHOLDS,
    ) -> None:
        self.colour = Colour.GREEN
        """At the last look. Other threads read it."""
        self.free = 0
        """Bytes at the last look, less what was taken since."""
        self._path = path
        self._reserve_bytes = reserve_bytes
        self._look = look
        self._thresholds = thresholds

    def refresh(self) -> None:
        """Look."""
        space = self._look(self._path)
        self.free = space.f_bavail * space.f_frsize
        self.colour = self._thresholds.colour(self.free - self._reserve_bytes, space.f_blocks * space.f_frsize)

    def take(self, size: int, *, from_reserve: bool = False) -> bool:
        """Whether `size` bytes more leave the reserve untouched, or half of it; counts them as taken if so."""
        kept = self._reserve_bytes // 2 if from_reserve else self._reserve_bytes
        if self.free - size < kept:
            return False
        self.free -= size
        return True


class Ballast:
    """A file that occupies room until a full disk must be deleted from; put back when there is plenty again."""

    def __init__(self, file: Path, size: int) -> None:
        self._file = file
        self._size = size
        self._is_there = False
        """Or was not to be had: it is tried again once it would have been released."""

    def restore(self, free: int, reserve_bytes: int) -> None:
        """Take the room again once there is plenty. Where it is not to be had, as for a quota, it is done without."""
        if self._is_there or not self._size or free <= reserve_bytes + 2 * self._size:
            return
        self._is_there = True
        if self._file.exists():
            return
        descriptor = os.open(self._file, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            _allocate(descriptor, self._size)
        except OSError as failure:
            if failure.errno not in NO_ROOM:
                raise
            _log.warning("no room for %s: %s", self._file, failure)
            self._file.unlink()
        finally:
            os.close(descriptor)

    def release(self) -> None:
        """Give the room up."""
        self._is_there = False
        self._file.unlink(missing_ok=True)


class Rooms:
    """The room of a cell: where its index is, with the pools there, and of each pool on a disk of its own."""

    def __init__(
        self, index: Room, elsewhere: Mapping[str, Room], ballast: Ballast, *, index_blob_bytes_max: int
    ) -> None:
        """`index_blob_bytes_max`: smaller blobs are rows of the index."""
        self._index_blob_bytes_max = index_blob_bytes_max
        self._index = index
        self._elsewhere = elsewhere
        self._ballast = ballast

    def look(self) -> None:
        """See what is free now."""
        self._index.refresh()
        for room in self._elsewhere.values():
            room.refresh()

    def colour(self, pool: str) -> Colour:
        """At the last look. A full index stops every pool."""
        own = self._elsewhere.get(pool)
        return self._index.colour if own is None else max(own.colour, self._index.colour)

    @property
    def is_green(self) -> bool:
        return all(room.colour is Colour.GREEN for room in (self._index, *self._elsewhere.values()))

    def restore_ballast(self) -> None:
        """Take the ballast's room again once there is plenty."""
        self._ballast.restore(self._index.free, INDEX_RESERVE_BYTES)

    def take(self, batch: Batch) -> bool:
        """Whether there is room for a commit.

        One of rows alone may use the reserve, and the ballast's room: deletes are such, and what the scheme and the
        coordinators write down of them.
        """
        from_reserve = bool(batch.moves)
        bytes_here = self._take_elsewhere(batch, from_reserve) if self._elsewhere else batch.bytes
        if bytes_here is None:
            return False
        if self._index.take(bytes_here, from_reserve=from_reserve):
            return True
        if batch.moves or any(size >= self._index_blob_bytes_max for _, _, size, _ in batch.blobs):
            return False
        self._ballast.release()
        self._index.refresh()
        return self._index.free >= bytes_here + FLOOR_BYTES

    def _take_elsewhere(self, batch: Batch, from_reserve: bool) -> int | None:
        """Bytes of the batch that are left to go where the index is; None when another disk has no room."""
        left = batch.bytes
        sizes = [(pool, size) for _, _, size, pool in batch.blobs if size >= self._index_blob_bytes_max]
        sizes += [(move.pool, len(move.content)) for move in batch.moves]
        for pool, size in sizes:
            room = self._elsewhere.get(pool)
            if room is None:
                continue
            if not room.take(size, from_reserve=from_reserve):
                return None
            left -= size
        return left


def _allocate(descriptor: int, size: int) -> None:
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(descriptor, 0, size)
        return
    block = bytes(1 << 20)
    for position in range(0, size, len(block)):
        os.pwrite(descriptor, block[: size - position], position)
