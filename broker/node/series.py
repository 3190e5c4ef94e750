"""The main figures of the last fifteen minutes, in memory: enough for a look without Prometheus, and bounded."""

import time
from collections import deque
from collections.abc import Mapping, Sequence

from pqbroker.broker.apis.context import Node
from pqbroker.broker.node.process_samples import read_use

PERIOD_S = 5.0
POINTS_MAX = 180
COUNTERS = (
    "bytes_in", "bytes_out", "requests", "produce_requests", "fetch_requests", "errors", "commits", "stored_bytes",
    "cpu_seconds",
)  # fmt: skip
"""Figures that rise from the start of the node, or of what counts them, on."""
GAUGES = ("connections", "cache_bytes", "head_bytes", "free_bytes", "resident_bytes", "loop_lag_worst_seconds")


class Series:
    """Points of all figures, the oldest first."""

    def __init__(self) -> None:
        self._points: deque[tuple[int, Mapping[str, float]]] = deque(maxlen=POINTS_MAX)

    def take(self, now_ms: int, figures: Mapping[str, float]) -> None:
        """Add a point; beyond POINTS_MAX the oldest goes."""
        self._points.append((now_ms, figures))

    def after(self, time_ms: int) -> Sequence[tuple[int, Mapping[str, float]]]:
        """The points later than a time."""
        return [point for point in self._points if point[0] > time_ms]


def read_figures(node: Node) -> dict[str, float]:
    """All COUNTERS and GAUGES, now."""
    metrics, opened = node.metrics, node.cell.current
    stats, memory = opened.cell.stats(), opened.topics.memory
    requests = {"Produce": 0, "Fetch": 0}
    every = 0
    for route in metrics.routes:
        count = route.count
        every += count
        if route.api in requests:
            requests[route.api] += count
    return {
        "bytes_in": metrics.bytes_in,
        "bytes_out": metrics.bytes_out,
        "requests": every,
        "produce_requests": requests["Produce"],
        "fetch_requests": requests["Fetch"],
        "errors": sum(metrics.errors.values()),
        "commits": stats.commits,
        "stored_bytes": stats.bytes_written,
        "cpu_seconds": round(time.process_time(), 3),
        "connections": metrics.connections,
        "cache_bytes": memory.cache.size,
        "head_bytes": memory.heads.size,
        "free_bytes": min(pool.free_bytes for pool in stats.pools),
        "resident_bytes": read_use().resident_bytes,
        "loop_lag_worst_seconds": round(metrics.loop_lag_worst_s, 6),
    }
