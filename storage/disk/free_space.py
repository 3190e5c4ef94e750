"""Free space, asked before a round so that the index never meets a full disk; and the ballast to delete with."""

import logging
import os
import time
from collections.abc import Callable, Mapping
from errno import EDQUOT, EFBIG, ENOSPC
from pathlib import Path
from types import TracebackType
from typing import Protocol

from pqbroker.storage.engine import Batch, DiskFull, NoRoom
from pqbroker.storage.pool_status import DEFAULT_THRESHOLDS, Colour, Thresholds

_log = logging.getLogger(__name__)
NO_ROOM = frozenset((ENOSPC, EDQUOT, EFBIG))
"""Errors of a write for which there was no room."""
INDEX_RESERVE_BYTES = 32 << 20
"""Kept free where the index is: for the commit log and one flush of the index."""
POOL_RESERVE_BYTES = 16 << 20
"""Kept free in a pool on a disk of its own. Of every reserve a half may be used to empty mostly dead segments."""
ASKED_BYTES = 1 << 20
"""Bytes that a user is asked to free. A cell opens with less, and takes deletes then."""
FLOOR_BYTES = 448 << 10
"""Below this even deletes are refused, so that the next start finds room."""
LOOK_SECONDS = 0.005
"""Age of a look at the disk that is new enough for a round; what others take meanwhile comes out of the reserve."""
START_BYTES = 384 << 10
"""Free space without which a cell opens for reading only: the index takes 40 KB, the first commit two rows for each
tablet."""
START_FLOOR_BYTES = 192 << 10
"""Free bytes that the first commit must leave."""


_LOOK_SECONDS = 1.0
_ANXIOUS_LOOK_SECONDS = 0.2
"""Between looks while nothing is committed: when all is green, and when a colour is to clear."""


class StatVfs(Protocol):
    """The part of `os.statvfs`'s answer that counts."""

    @property
    def f_bavail(self) -> int: ...

    @property
    def f_blocks(self) -> int: ...

    @property
    def f_frsize(self) -> int: ...


class FreeSpace:
    """Free space where `path` is, beyond a reserve: looked up now and then (2 µs), counted down meanwhile."""

    def __init__(
        self,
        path: Path,
        reserve_bytes: int,
        look: Callable[[Path], StatVfs] = os.statvfs,
        thresholds: Thresholds = DEFAULT_THRESHOLDS,
    ) -> None:
        self.colour = Colour.GREEN
        """Colour at the last look. Other threads read it."""
        self.free = 0
        """Bytes at the last look, less what was taken since."""
        self.reserve_bytes = reserve_bytes
        self._path = path
        self._total = 0
        self._look = look
        self._thresholds = thresholds

    def refresh(self) -> None:
        """Look."""
        space = self._look(self._path)
        self.free = space.f_bavail * space.f_frsize
        self._total = space.f_blocks * space.f_frsize
        self.colour = self._colour_less(0)

    def would_stop(self, size: int) -> bool:
        """Return True if users may write, and may not once `size` bytes more are taken."""
        return self.colour < Colour.YELLOW_STOP <= self._colour_less(size)

    def _colour_less(self, size: int) -> Colour:
        return self._thresholds.colour(self.free - size - self.reserve_bytes, self._total)

    def take(self, size: int, *, from_reserve: bool = False) -> bool:
        """Return True if `size` bytes more leave the reserve untouched, or half of it; count them as taken if so."""
        kept = self.reserve_bytes // 2 if from_reserve else self.reserve_bytes
        if self.free - size < kept:
            return False
        self.free -= size
        return True

    def take_last(self, size: int, floor_bytes: int) -> bool:
        """Take as `take` does, down to a floor."""
        is_there = self.free - size >= floor_bytes
        if is_there:
            self.free -= size
        return is_there


class Ballast:
    """A file that occupies room until a full disk must be deleted from; put back when there is plenty again."""

    def __init__(self, file: Path, size: int) -> None:
        self.is_wanted = size > 0
        """Neither taken nor tried in vain since it was released."""
        self._file = file
        self._size = size

    def restore(self, space: FreeSpace) -> None:
        """Take the room again once there is plenty, and never room that lets users write: they would wait for what the
        broker itself has taken. Where a quota, say, forbids it, the broker does without."""
        if not self.is_wanted or space.free <= space.reserve_bytes + 2 * self._size:
            return
        if self._file.exists():
            self.is_wanted = False
        elif not space.would_stop(self._size):
            self.is_wanted = False
            lets_write = space.colour < Colour.YELLOW_STOP
            self._take()
            space.refresh()
            if lets_write and space.colour >= Colour.YELLOW_STOP:  # another cell of the disk took its own meanwhile
                self.release()

    def _take(self) -> None:
        descriptor = os.open(self._file, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            _allocate(descriptor, self._size)
        except OSError as failure:
            if failure.errno not in NO_ROOM:
                raise
            _log.warning("no room for the ballast %s, the broker serves without: %s", self._file, failure)
            self._file.unlink()
        finally:
            os.close(descriptor)

    def release(self) -> int:
        """Give the room up: how many bytes that was."""
        self.is_wanted = self._size > 0
        try:
            size = self._file.stat().st_size
            self._file.unlink()
        except FileNotFoundError:
            return 0
        return size


class CellSpace:
    """Free space of a cell: where its index is, with the pools there, and of each pool on a disk of its own."""

    def __init__(
        self, index: FreeSpace, elsewhere: Mapping[str, FreeSpace], ballast: Ballast, *, index_blob_bytes_max: int
    ) -> None:
        """`index_blob_bytes_max`: smaller blobs are rows of the index."""
        self._index_blob_bytes_max = index_blob_bytes_max
        self._index = index
        self._elsewhere = elsewhere
        self._ballast = ballast
        self._is_start = True
        """A cell's start is one commit, the first."""
        self._look_due = 0.0
        self.is_green = False
        """True if the last look found enough space everywhere."""
        self.is_full = False
        """Return True if a pool takes no writes of users, by the last look."""

    @property
    def look_seconds(self) -> float:
        """Return how many seconds to wait between looks while nothing is committed."""
        return _LOOK_SECONDS if self.is_green else _ANXIOUS_LOOK_SECONDS

    def look(self) -> None:
        """See what is free now; take the ballast's room again once there is plenty."""
        self._look_due = time.monotonic() + LOOK_SECONDS
        spaces = (self._index, *self._elsewhere.values())
        for space in spaces:
            space.refresh()
        self.is_green = all(space.colour is Colour.GREEN for space in spaces)
        self.is_full = any(space.colour >= Colour.YELLOW_STOP for space in spaces)
        if self._ballast.is_wanted:
            self._ballast.restore(self._index)

    def colour(self, pool: str) -> Colour:
        """Return the pool's colour at the last look. A full index stops every pool."""
        own = self._elsewhere.get(pool)
        return self._index.colour if own is None else max(own.colour, self._index.colour)

    def take_all(self, size: int) -> bool:
        """Return True if there is plenty for a round of `size` bytes, by a look that may be a little old.

        If not, or where there are several disks: this was a look, and each of its commits has to be asked for.
        """
        if self._elsewhere:
            self.look()
            return False
        has_room = time.monotonic() < self._look_due and self._index.take(size)
        if not has_room:
            self.look()
            has_room = self._index.take(size)
        if has_room:
            self._is_start = False
        return has_room

    def take(self, batch: Batch) -> bool:
        """Return True if there is room for a commit.

        One of rows alone may use the reserve, and the ballast's room: deletes are such, and what the scheme and the
        coordinators write down of them.
        """
        is_start, self._is_start = self._is_start, False
        from_reserve = bool(batch.moves)
        bytes_here = self._take_elsewhere(batch, from_reserve) if self._elsewhere else batch.bytes
        if bytes_here is None:
            return False
        if self._index.take(bytes_here, from_reserve=from_reserve):
            return True
        if batch.moves or any(size >= self._index_blob_bytes_max for _, _, size, _ in batch.blobs):
            return False
        self._index.free += self._ballast.release()
        return self._index.take_last(bytes_here, START_FLOOR_BYTES if is_start else FLOOR_BYTES)

    def refusal(self, batch: Batch) -> DiskFull:
        """The refusal of a batch that found no room."""
        return full(batch)

    def _take_elsewhere(self, batch: Batch, from_reserve: bool) -> int | None:
        """Bytes of the batch that are left to go where the index is; None when another disk has no room."""
        left = batch.bytes
        sizes = [(pool, size) for _, _, size, pool in batch.blobs if size >= self._index_blob_bytes_max]
        sizes += [(move.pool, len(move.content)) for move in batch.moves]
        for pool, size in sizes:
            space = self._elsewhere.get(pool)
            if space is None:
                continue
            if not space.take(size, from_reserve=from_reserve):
                return None
            left -= size
        return left


class TellsFullDisk:
    """A context in which what failed for want of room becomes a NoRoom that says so."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def __enter__(self) -> None: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None and wants_room(error):
            raise full_disk(self._directory, str(error)) from error


def wants_room(error: BaseException) -> bool:
    """Return True for what a write raises without room.

    RocksDB's errors are plain Exceptions, with the system's words in their text.
    """
    return any(os.strerror(code) in str(error) for code in NO_ROOM)


def full_disk(directory: Path, cause: str) -> NoRoom:
    """The refusal of a start for want of room."""
    return NoRoom(f"the disk of {directory} is full: {cause}. No record is lost: {room_cure()}")


def room_cure() -> str:
    """Return what helps a cell that has no room for its log."""
    return (
        f"free at least {ASKED_BYTES >> 20} MiB by deleting files that are not the broker's, or enlarge the disk"
    )


def full(batch: Batch) -> DiskFull:
    """The refusal of a batch for which there is no room."""
    return DiskFull(f"no room for {batch.bytes} bytes: delete records, or other files on the disk, or enlarge it")


def _allocate(descriptor: int, size: int) -> None:
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(descriptor, 0, size)
        return
    block = bytes(1 << 20)
    for position in range(0, size, len(block)):
        os.pwrite(descriptor, block[: size - position], position)
