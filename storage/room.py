"""Free space, asked before a round so that the index never meets a full disk; and the ballast to delete with."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from pqbroker.storage.status import DEFAULT_THRESHOLDS, Colour, Thresholds


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
        self._path = path
        self._reserve_bytes = reserve_bytes
        self._look = look
        self._thresholds = thresholds
        self._free = 0

    def refresh(self) -> int:
        """Look; the bytes that are free."""
        space = self._look(self._path)
        self._free = space.f_bavail * space.f_frsize
        self.colour = self._thresholds.colour(self._free - self._reserve_bytes, space.f_blocks * space.f_frsize)
        return self._free

    def take(self, size: int) -> bool:
        """Whether `size` bytes more leave the reserve untouched; counts them as taken if so."""
        if self._free - size < self._reserve_bytes:
            return False
        self._free -= size
        return True


class Ballast:
    """A file that occupies room until a full disk must be deleted from; put back when there is plenty again."""

    def __init__(self, file: Path, size: int) -> None:
        self._file = file
        self._size = size
        self._is_there = False

    def restore(self, free: int, reserve_bytes: int) -> None:
        """Take the room again once there is plenty."""
        if self._is_there or not self._size or free <= reserve_bytes + 2 * self._size:
            return
        self._is_there = True
        if not self._file.exists():
            descriptor = os.open(self._file, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                _allocate(descriptor, self._size)
            finally:
                os.close(descriptor)

    def release(self) -> None:
        """Give the room up."""
        self._is_there = False
        self._file.unlink(missing_ok=True)


def _allocate(descriptor: int, size: int) -> None:
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(descriptor, 0, size)
        return
    block = bytes(1 << 20)
    for position in range(0, size, len(block)):
        os.pwrite(descriptor, block[: size - position], position)
