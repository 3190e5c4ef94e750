"""Bytes of the values that a merge or a scan reads: regions of segment files, and parts of a message's payload."""

import os
from collections.abc import Sequence
from types import TracebackType
from typing import Self

StoredPiece = tuple[str, int, int] | int
"""Path, position and size; or the size of what the payload has."""


class StoredFiles:
    """Files that were named, each open until the end: what the broker moves meanwhile stays readable."""

    __slots__ = ("_files",)

    def __init__(self) -> None:
        self._files: dict[str, int] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for file in self._files.values():
            os.close(file)
        self._files.clear()

    def open(self, path: str) -> int:
        """Return the number of an open file. OSError."""
        if path not in self._files:
            self._files[path] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        return self._files[path]


class StoredValue:
    """One value, its pieces end to end: each a path, a position and a size, or the size of what the payload has."""

    __slots__ = ("_pieces", "size")

    def __init__(self, pieces: Sequence[StoredPiece], payload: memoryview, files: StoredFiles) -> None:
        """Take the first bytes of the payload for the pieces without a path. OSError."""
        self._pieces: list[tuple[int, int, memoryview | int, int]] = []
        """Begin and end of each in the value; the bytes, or a file and the position there."""
        self.size = taken = 0
        for piece in pieces:
            if isinstance(piece, int):
                size = piece
                self._pieces.append((self.size, self.size + size, payload[taken : taken + size], 0))
                taken += size
            else:
                path, position, size = piece
                self._pieces.append((self.size, self.size + size, files.open(path), position))
            self.size += size

    def read(self, position: int, size: int) -> bytearray:
        """Return a part of the value. OSError where a file ends early."""
        found = bytearray(size)
        self.read_into(memoryview(found), position)
        return found

    def read_into(self, room: memoryview, position: int) -> None:
        """Fill the room with the part that begins at a position. OSError where a file ends early."""
        end = position + len(room)
        for first, last, where, file_position in self._pieces:
            begin, until = max(first, position), min(last, end)
            if begin >= until:
                continue
            part = room[begin - position : until - position]
            if not isinstance(where, int):
                part[:] = where[begin - first : until - first]
            elif os.preadv(where, [part], file_position + begin - first) != len(part):
                raise OSError(f"a file of stored values ends before byte {file_position + until - first}")


def payload_bytes(pieces: Sequence[StoredPiece]) -> int:
    """Return how many bytes of the payload the pieces take."""
    return sum(piece for piece in pieces if isinstance(piece, int))
