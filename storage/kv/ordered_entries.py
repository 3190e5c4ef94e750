"""A KV tablet's entries by key. Their order is kept for those who walk, and brought up to date only when one does.

The usual request puts a key or two that a later one deletes again: of most keys the order never hears.
"""

from collections.abc import Iterator, Mapping

from sortedcontainers import SortedList

from pqbroker.storage.kv.rows import Entry

CHANGED_MAX = 1000
"""Keys that the order lacks, or has too many: more are not left for later, as to add them takes milliseconds."""


class OrderedEntries:
    """The ordered entries of one tablet."""

    __slots__ = ("_changed", "_order", "by_key", "get")

    def __init__(self) -> None:
        self.by_key: dict[bytes, Entry] = {}
        """Only to be looked at."""
        self.get = self.by_key.get
        self._order: SortedList[bytes] = SortedList()
        self._changed: set[bytes] = set()
        """Keys that are in the order or in `by_key`, not in both."""

    def __len__(self) -> int:
        return len(self.by_key)

    def __contains__(self, key: bytes) -> bool:
        return key in self.by_key

    def __getitem__(self, key: bytes) -> Entry:
        return self.by_key[key]

    def __iter__(self) -> Iterator[bytes]:
        """All keys in order."""
        if self._changed:
            self._order_changed()
        return iter(self._order)

    def irange(self, lo: bytes, hi: bytes | None, inclusive: tuple[bool, bool]) -> Iterator[bytes]:
        """The keys from `lo` to `hi` (None: the end) in order, with the ends where `inclusive` says so."""
        if self._changed:
            self._order_changed()
        keys: Iterator[bytes] = self._order.irange(lo, hi, inclusive)
        return keys

    def apply(self, changes: Mapping[bytes, Entry | None]) -> None:
        """Set keys to their new entries; None deletes the key if it exists."""
        by_key, changed = self.by_key, self._changed
        for key, entry in changes.items():
            if (key in by_key) is (entry is None):
                if key in changed:
                    changed.remove(key)
                else:
                    changed.add(key)
            if entry is not None:
                by_key[key] = entry
            elif key in by_key:
                del by_key[key]
        if len(changed) > CHANGED_MAX:
            self._order_changed()

    def _order_changed(self) -> None:
        changed, order, by_key = self._changed, self._order, self.by_key
        for key in changed:
            if key not in by_key:
                order.remove(key)
        order.update(changed.intersection(by_key))
        changed.clear()
