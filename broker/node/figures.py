"""The main figures of a node, read where they are counted; and of several nodes together."""

import time
from collections.abc import Iterable, Mapping

from pqbroker.broker.ground.metrics import Metrics
from pqbroker.broker.ground.other_nodes import NodeState
from pqbroker.broker.ground.series import COUNTERS, GAUGES
from pqbroker.broker.node.process_samples import read_use
from pqbroker.broker.services.cells.cell_owner import OpenCell
from pqbroker.storage.ids import SYSTEM_CELL


def read_figures(metrics: Metrics, opened: OpenCell, *, with_system: bool = True) -> dict[str, float]:
    """All COUNTERS and GAUGES, now. `with_system`: the system cell counts, which is one in memory at most nodes."""
    memory, hosts = opened.topics.memory, opened.cells.hosts()
    stats = [host.cell.stats() for cell, host in hosts if with_system or cell != SYSTEM_CELL]
    pools = [pool for one in stats for pool in one.pools] or opened.cell.stats().pools
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
        "commits": sum(one.commits for one in stats),
        "stored_bytes": sum(one.bytes_written for one in stats),
        "cpu_seconds": round(time.process_time(), 3),
        "connections": metrics.connections,
        "cache_bytes": memory.cache.size,
        "head_bytes": memory.heads.size,
        "free_bytes": min(pool.free_bytes for pool in pools),
        "resident_bytes": read_use().resident_bytes,
        "loop_lag_worst_seconds": round(metrics.loop_lag_worst_s, 6),
    }


def whole_figures(own: Mapping[str, float], others: Iterable[NodeState]) -> dict[str, float]:
    """Return the figures of a node and of others together: sums, but the least free space and the worst lag."""
    known = [own, *(state.figures for state in others)]
    whole = {name: sum(figures.get(name, 0.0) for figures in known) for name in (*COUNTERS, *GAUGES)}
    whole["free_bytes"] = min(figures.get("free_bytes", own["free_bytes"]) for figures in known)
    whole["loop_lag_worst_seconds"] = max(figures.get("loop_lag_worst_seconds", 0.0) for figures in known)
    return whole
