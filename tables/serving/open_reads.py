"""Timestamps at which queries read the sorted tables of a node: no clean-up removes what they see.

A query reads tablet after tablet, each as it is stored by then. So it sees all tablets at its timestamp only if what is
merged meanwhile keeps the versions of that timestamp; what expires by its age goes nevertheless.
"""


class OpenReads:
    """Timestamps of the queries that are open."""

    __slots__ = ("_timestamps",)

    def __init__(self) -> None:
        self._timestamps: dict[int, int] = {}
        """Queries by timestamp."""

    def open(self, timestamp: int) -> None:
        """Note that a query reads at a timestamp; `close` must follow."""
        self._timestamps[timestamp] = self._timestamps.get(timestamp, 0) + 1

    def close(self, timestamp: int) -> None:
        left = self._timestamps.pop(timestamp) - 1
        if left:
            self._timestamps[timestamp] = left

    def bound(self, retained: int) -> int:
        """Return the timestamp, or that of the oldest query if it is less: a clean-up keeps what is seen from there on.
        """
        return min((retained, *self._timestamps))
