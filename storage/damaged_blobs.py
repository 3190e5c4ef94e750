"""Damaged blobs of an open cell: a read found other bytes than were written. They are known until they are deleted.

A start does not read them, so the next opening knows those alone that are read again.
"""

import threading
from collections.abc import Iterable

from pqbroker.storage.engine import BlobCorrupt, BlobKey

DAMAGED_BLOBS_MAX = 1000
"""Blobs known one by one; more are left to `pqbroker doctor`."""


class DamagedBlobs:
    """Every thread may note one and read them."""

    __slots__ = ("_found", "_lock")

    def __init__(self) -> None:
        self._found: dict[BlobKey, str] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._found)

    def note(self, corrupt: BlobCorrupt) -> None:
        """Remember a blob, and what is wrong with it."""
        with self._lock:
            if len(self._found) < DAMAGED_BLOBS_MAX:
                self._found.setdefault(corrupt.blob, str(corrupt))

    def found(self) -> dict[BlobKey, str]:
        """Return what is wrong, by blob."""
        with self._lock:
            return dict(self._found)

    def forget(self, blobs: Iterable[BlobKey]) -> None:
        """Forget blobs that were deleted."""
        with self._lock:
            for blob in blobs:
                self._found.pop(blob, None)
