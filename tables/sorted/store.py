"""The memory store of a sorted tablet: versions by key, as they were logged (C.2).

It has no order: who needs one sorts once. A store is active until it rotates, then passive until its rows are in a
chunk; no row leaves it.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from pqbroker.tables.sorted.packed_rows import timestamp_of

KEY_MEMORY: Final = 205
"""Bytes that a key takes besides its own and its version's: the entry of a dict, two objects (measured)."""
VERSION_MEMORY: Final = 48
"""Bytes that each further version of a key takes besides its own."""

KeyVersions = bytes | list[bytes]
"""One version of a key, or several, the oldest first."""


class RowStore:
    """Rows of one store."""

    __slots__ = ("_ordered", "_rows", "begun_ms", "least_timestamp", "memory_bytes", "number", "row_count")

    def __init__(self, number: int, begun_ms: int) -> None:
        """`begun_ms`: milliseconds since 1970."""
        self.number = number
        self.begun_ms = begun_ms
        self.row_count = 0
        """KeyVersions."""
        self.memory_bytes = 0
        self.least_timestamp: int | None = None
        """None: it has no row."""
        self._rows: dict[bytes, KeyVersions] = {}
        self._ordered: list[bytes] | None = None
        """Keys in order, since the last prefix that was looked for; new keys make it stale."""

    def __len__(self) -> int:
        """Return how many keys it has."""
        return len(self._rows)

    def apply(self, rows: Iterable[tuple[bytes, bytes]]) -> None:
        """Add versions that are durable, each behind its key; of one key they come in the order of their timestamps."""
        known = self._rows
        count = memory = 0
        for key, version in rows:
            if self.least_timestamp is None:
                self.least_timestamp = timestamp_of(version)
            before = known.setdefault(key, version)
            memory += len(version)
            if before is version:
                memory += KEY_MEMORY + len(key)
                self._ordered = None
            elif isinstance(before, list):
                before.append(version)
                memory += VERSION_MEMORY
            else:
                known[key] = [before, version]
                memory += VERSION_MEMORY
            count += 1
        self.row_count += count
        self.memory_bytes += memory

    def versions(self, key: bytes) -> Sequence[bytes]:
        """Return the versions of a key, the oldest first."""
        found = self._rows.get(key)
        return () if found is None else found if isinstance(found, list) else (found,)

    def keys(self, first: bytes, end: bytes | None) -> Iterator[bytes]:
        """Yield the keys from `first` to before `end` (None: to the last one), in order."""
        if self._ordered is None:
            self._ordered = sorted(self._rows)
        keys = self._ordered
        for index in range(bisect_left(keys, first), len(keys)):
            if end is not None and keys[index] >= end:
                return
            yield keys[index]
