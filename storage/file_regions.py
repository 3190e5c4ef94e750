"""Bytes that stay in their files on the way to a socket: a reading thread verified them, the kernel sends them."""

import os
from collections.abc import Sequence

from pqbroker.storage.engine import Buffer, FileRange

SENDS_FILES = hasattr(os, "sendfile") and hasattr(os, "preadv")
"""True if this system can send files; else everything is read into memory."""
_WARM_BYTES = 262_144


class _OpenFile:
    """A file, closed when nobody needs it any more. `numbers` are those of all that are open."""

    __slots__ = ("_numbers", "number")

    def __init__(self, path: str, numbers: set[int]) -> None:
        self.number = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._numbers = numbers
        numbers.add(self.number)

    def __del__(self) -> None:
        if hasattr(self, "_numbers"):
            self._numbers.discard(self.number)
            os.close(self.number)


class FileRegion:
    """The rest of an open file's range that is still to be sent. `verified_s`: loop time when it was verified."""

    __slots__ = ("_file", "position", "size", "verified_s")

    def __init__(self, file: _OpenFile, position: int, size: int, verified_s: float) -> None:
        self._file = file
        self.position = position
        self.size = size
        self.verified_s = verified_s

    def __len__(self) -> int:
        return self.size

    def send(self, socket: int) -> int:
        """Give the socket what it takes; how many bytes that were. OSError, BlockingIOError among them."""
        sent = os.sendfile(socket, self._file.number, self.position, self.size)
        if not sent:
            raise OSError(f"a segment ends {self.size} bytes early")
        self.position += sent
        self.size -= sent
        return sent

    def warm(self) -> None:
        """Read the bytes, so that sending them waits for no disk. Blocks; OSError."""
        position, end = self.position, self.position + self.size
        scratch = bytearray(min(_WARM_BYTES, self.size))
        while position < end:
            count = os.preadv(self._file.number, [scratch], position)
            if not count:
                return
            position += count


class SentFiles:
    """Opens what is to be sent, a bounded number of files at once."""

    __slots__ = ("_numbers", "files_max")

    def __init__(self, files_max: int) -> None:
        self.files_max = files_max
        self._numbers: set[int] = set()

    def __len__(self) -> int:
        """Return how many files are open."""
        return len(self._numbers)

    def open(self, pieces: Sequence[Buffer | FileRange], verified_s: float) -> list[Buffer | FileRegion] | None:
        """The pieces ready to be sent. None when a file is gone, as what it held was deleted or moved, or when too many
        are open."""
        found: list[Buffer | FileRegion] = []
        path, file = "", None
        for piece in pieces:
            if not isinstance(piece, FileRange):
                found.append(piece)
                continue
            if file is None or piece.path != path:
                if len(self._numbers) >= self.files_max:
                    return None
                path = piece.path
                try:
                    file = _OpenFile(path, self._numbers)
                except OSError:
                    return None
            found.append(FileRegion(file, piece.position, piece.size, verified_s))
        return found
