"""The main figures of the last fifteen minutes, in memory: enough for a look without Prometheus, and bounded."""

from collections import deque
from collections.abc import Callable, Mapping, Sequence

PERIOD_S = 5.0
POINTS_MAX = 180
COUNTERS = (
    "bytes_in", "bytes_out", "requests", "produce_requests", "fetch_requests", "errors", "commits", "stored_bytes",
    "cpu_seconds",
)  # fmt: skip
"""Figures that rise from the start of the node, or of what counts them, on."""
GAUGES = ("connections", "cache_bytes", "head_bytes", "free_bytes", "resident_bytes", "loop_lag_worst_seconds")


class Series:
    """Points of all figures, the oldest first. `read`: all COUNTERS and GAUGES, now."""

    def __init__(self, read: Callable[[], Mapping[str, float]]) -> None:
        self.read = read
        self._points: deque[tuple[int, Mapping[str, float]]] = deque(maxlen=POINTS_MAX)

    def take(self, now_ms: int) -> None:
        """Add a point; beyond POINTS_MAX the oldest goes."""
        self._points.append((now_ms, self.read()))

    def after(self, time_ms: int) -> Sequence[tuple[int, Mapping[str, float]]]:
        """The points later than a time."""
        return [point for point in self._points if point[0] > time_ms]
