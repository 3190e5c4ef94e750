"""Stores that were flushed: their memory is freed in slices of a turn of the loop, once the last reader has let go.

Who adds rows to a store frees as many: writes may come faster than turns would free their rows later.
"""

import asyncio
import weakref
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pqbroker.tables.sorted.store import RowStore, SpentRows

ROWS_FREED_AT_ONCE: Final = 2_000
"""Rows that one turn frees: half a millisecond, several where other processes use the caches."""


class SpentStores:
    """Rows of the stores that a node's tablets do not have any more."""

    def __init__(self) -> None:
        self._read: list[tuple[weakref.ref[RowStore], SpentRows]] = []
        """Stores that somebody may read, and their rows."""
        self.unread: list[SpentRows] = []
        """Rows that nobody reads any more, and that are not freed yet; the oldest first."""
        self._is_freeing = False
        """True while a turn of the loop will free some."""

    def add(self, store: "RowStore") -> None:
        """Take a store that its tablet gives up: lookups under way may read it."""
        self._read.append((weakref.ref(store), store.spent_rows()))

    def look(self) -> None:
        """Free from now on what nobody reads any more."""
        before, self._read = self._read, []
        for store, rows in before:
            if store() is None:
                self.unread.append(rows)
            else:
                self._read.append((store, rows))
        if self.unread and not self._is_freeing:
            self._is_freeing = True
            self._free()

    def drop(self, rows: int) -> None:
        """Free at most this many rows; there are some."""
        if not self.unread[0].drop(rows):
            del self.unread[0]

    def _free(self) -> None:
        """Free some rows, and others in another turn."""
        if self.unread:
            self.drop(ROWS_FREED_AT_ONCE)
        self._is_freeing = bool(self.unread)
        if self._is_freeing:
            asyncio.get_running_loop().call_soon(self._free)
