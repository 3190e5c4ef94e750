"""Ends up to which queries read the log of a compacted partition: no cleaning that begins meanwhile looks behind them.

A query reads up to the end that the log had when it began. Were a record taken out because a later one behind that end
has its key, the query would miss the key.
"""

from collections import Counter


class OpenScans:
    """The ends of the queries that are open at one partition."""

    __slots__ = ("_ends",)

    def __init__(self) -> None:
        self._ends: Counter[int] | None = None
        """None: no query has come yet, the usual case."""

    def open(self, end_offset: int) -> None:
        """Note that a query reads up to an offset; `close` must follow."""
        if self._ends is None:
            self._ends = Counter()
        self._ends[end_offset] += 1

    def close(self, end_offset: int) -> None:
        ends = self._ends
        assert ends is not None, end_offset
        ends[end_offset] -= 1
        if not ends[end_offset]:
            del ends[end_offset]

    def bound(self, end_offset: int) -> int:
        """Return the offset, or the end of the query that reads least far if that is less."""
        return min((end_offset, *self._ends)) if self._ends else end_offset
