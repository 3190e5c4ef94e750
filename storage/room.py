"""Free space, asked before a round so that the index never meets a full disk; and the ballast to delete with."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

_LOOK_EVERY = 64
_LOOK_BYTES = 16 << 20


class Space(Protocol):
    """The part of `os.statvfs`'s answer that counts."""

    @property
    def f_bavail(self) -> int: ...

    @property
    def f_frsize(self) -> int: ...


class Room:
    """What is free where `path` is, beyond a reserve; looked up now and then, estimated between."""

    def __init__(self, path: Path, reserve_bytes: int, look: Callable[[Path], Space] = os.statvfs) -> None:
        self._path = path
        self._reserve_bytes = reserve_bytes
        self._look = look
        self._free = 0
        self._taken = 0
        self._asked = _LOOK_EVERY

    def take(self, size: int) -> bool:
        """Whether `size` bytes more leave the reserve untouched; counts them as taken if so."""
        self._asked += 1
        if self._asked >= _LOOK_EVERY or self._taken >= _LOOK_BYTES or not self._fits(size):
            self.refresh()
        if not self._fits(size):
            return False
        self._taken += size
        return True

    def _fits(self, size: int) -> bool:
        return self._free - self._taken - size >= self._reserve_bytes

    def refresh(self) -> int:
        """Look again; the bytes that are free."""
        space = self._look(self._path)
        self._free = space.f_bavail * space.f_frsize
        self._taken = self._asked = 0
        return self._free


class Ballast:
    """A file that occupies room until a full disk must be deleted from."""

    def __init__(self, file: Path, size: int) -> None:
        self._file = file
        self._size = size

    def restore(self, free: int, reserve_bytes: int) -> None:
        """Take the room again once there is plenty."""
        if self._size and free > reserve_bytes + 2 * self._size and not self._file.exists():
            descriptor = os.open(self._file, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                _allocate(descriptor, self._size)
            finally:
                os.close(descriptor)

    def release(self) -> None:
        """Give the room up."""
        self._file.unlink(missing_ok=True)


def _allocate(descriptor: int, size: int) -> None:
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(descriptor, 0, size)
        return
    block = bytes(1 << 20)
    for position in range(0, size, len(block)):
        os.pwrite(descriptor, block[: size - position], position)
