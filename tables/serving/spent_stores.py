"""Stores that were flushed: their memory is freed in slices of a turn of the loop, once the last reader has let go."""

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
        self._unread: list[SpentRows] = []

    def add(self, store: "RowStore") -> None:
        """Take a store that its tablet gives up: lookups under way may read it."""
        self._read.append((weakref.ref(store), store.spent_rows()))

    def look(self) -> None:
        """Free from now on what nobody reads any more."""
        before, self._read = self._read, []
        is_busy = bool(self._unread)
        for store, rows in before:
            if store() is None:
                self._unread.append(rows)
            else:
                self._read.append((store, rows))
        if self._unread and not is_busy:
            self._free()

    def _free(self) -> None:
        """Free some rows, and others in another turn."""
        if not self._unread[-1].drop(ROWS_FREED_AT_ONCE):
            self._unread.pop()
        if self._unread:
            asyncio.get_running_loop().call_soon(self._free)
