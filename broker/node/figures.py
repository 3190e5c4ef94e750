"""The main figures of a node, read where they are counted."""

import time

from pqbroker.broker.ground.metrics import Metrics
from pqbroker.broker.node.process_samples import read_use
from pqbroker.broker.services.cells.cell_owner import OpenCell


def read_figures(metrics: Metrics, opened: OpenCell) -> dict[str, float]:
    """All COUNTERS and GAUGES, now."""
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
