"""Columns that queries have made, kept for the next ones: rows of a log never change, so there is nothing to compare
but the tablet's revision, which changes when a cleaner takes rows out.

A stretch of rows is kept whole, under what it is of (topic, schema, tablet) and where it begins; least recently used
ones go first. What a query has used itself it does not push out: a scan of more than there is room for keeps its part.
"""

from bisect import bisect_right, insort
from collections.abc import Sequence
from typing import Any, NamedTuple

TabletKey = tuple[str, str, int]
"""A topic's id and the tablet's revision, the topic's schema as text, the tablet."""


class Stretch(NamedTuple):
    """Rows [start, end) of a tablet, none missing, as a batch of Arrow with some of their columns."""

    start: int
    end: int
    blob: int
    batch: Any

    def rows(self, start: int, end: int, columns: Sequence[str]) -> Any:
        """Return the rows from `start` on and before `end`."""
        first = max(0, start - self.start)
        return self.batch.select(columns).slice(first, max(0, min(end, self.end) - self.start - first))


class KeptColumns:
    """The kept columns of one worker. `bytes_max` may change between queries."""

    __slots__ = ("_bytes", "_query", "_starts", "_stretches", "bytes_max")

    def __init__(self) -> None:
        self._stretches: dict[tuple[TabletKey, int], tuple[Stretch, int]] = {}
        """Stretches with the number of the query that used each last; least recently used first."""
        self._starts: dict[TabletKey, list[int]] = {}
        self._bytes = 0
        self._query = 0
        self.bytes_max = 0

    def begin(self, bytes_max: int) -> None:
        """Another query begins."""
        self._query += 1
        self.bytes_max = bytes_max

    def find(self, tablet_key: TabletKey, row: int, columns: Sequence[str]) -> Stretch | None:
        """Return what is kept of the rows from `row` on, with these columns."""
        starts = self._starts.get(tablet_key, [])
        at = bisect_right(starts, row) - 1
        if at < 0:
            return None
        key = (tablet_key, starts[at])
        stretch, _ = self._stretches[key]
        if row >= stretch.end or not set(columns) <= set(stretch.batch.schema.names):
            return None
        del self._stretches[key]
        self._stretches[key] = (stretch, self._query)
        return stretch

    def keep(self, tablet_key: TabletKey, stretch: Stretch) -> None:
        """Keep a stretch, with the columns that were kept of it before, if there is room. One with gaps is not kept."""
        if stretch.batch.num_rows != stretch.end - stretch.start:
            return
        key = (tablet_key, stretch.start)
        if key in self._stretches:
            stretch = _joined(self._drop(key), stretch)
        size = stretch.batch.nbytes
        while self._stretches and self._bytes + size > self.bytes_max:
            oldest = next(iter(self._stretches))
            if self._stretches[oldest][1] == self._query:
                return
            self._drop(oldest)
        if self._bytes + size <= self.bytes_max:
            self._stretches[key] = (stretch, self._query)
            insort(self._starts.setdefault(tablet_key, []), stretch.start)
            self._bytes += size

    def _drop(self, key: tuple[TabletKey, int]) -> Stretch:
        stretch, _ = self._stretches.pop(key)
        tablet_key, start = key
        starts = self._starts[tablet_key]
        starts.remove(start)
        if not starts:
            del self._starts[tablet_key]
        self._bytes -= stretch.batch.nbytes
        return stretch


def _joined(old: Stretch, new: Stretch) -> Stretch:
    """The new stretch, with columns that only the old one has, where both are the same rows."""
    if old.end != new.end:
        return new
    batch = new.batch
    for name in old.batch.schema.names:
        if name not in batch.schema.names:
            batch = batch.append_column(old.batch.schema.field(name), old.batch.column(name))
    return new._replace(batch=batch)
