"""Every metric of the server: plain integers where requests pass, read by one collector at scrape time.

prometheus_client is imported by `broker.http` only when a scrape asks; this file declares names, types and help.
"""

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass

from pqbroker.protocol.errors import ErrorCode

LATENCY_BOUNDS_S = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)


class Histogram:
    """Counts per bucket; bounds in seconds."""

    __slots__ = ("buckets", "total")

    def __init__(self) -> None:
        self.buckets = [0] * (len(LATENCY_BOUNDS_S) + 1)
        self.total = 0.0

    def observe(self, seconds: float) -> None:
        self.buckets[bisect_left(LATENCY_BOUNDS_S, seconds)] += 1
        self.total += seconds

    @property
    def count(self) -> int:
        return sum(self.buckets)


class RouteMetrics(Histogram):
    """One API in one version: how many requests, and how long each took from its decoding to its answer."""

    __slots__ = ("api", "version")

    def __init__(self, api: str, version: int) -> None:
        super().__init__()
        self.api = api
        self.version = version


class Metrics:
    """The server's counters; seconds and bytes."""

    __slots__ = (
        "bytes_in", "bytes_out", "cell_openings", "connections", "connections_refused", "errors", "loop_lag_worst_s",
        "overstay", "overstay_worst_s", "protocol_errors", "routes", "sources",
    )  # fmt: skip

    def __init__(self) -> None:
        self.routes: list[RouteMetrics] = []
        self.errors: dict[ErrorCode, int] = {}
        self.bytes_in = 0
        self.bytes_out = 0
        self.connections = 0
        self.connections_refused = 0
        self.protocol_errors = 0
        self.overstay = Histogram()
        self.overstay_worst_s = 0.0
        self.loop_lag_worst_s = 0.0
        self.cell_openings = 0
        self.sources: list[Callable[[], list[Sample]]] = []
        """Asked at scrape time for the samples of the lower floors."""

    def route(self, api: str, version: int) -> RouteMetrics:
        metrics = RouteMetrics(api, version)
        self.routes.append(metrics)
        return metrics

    def count_error(self, code: ErrorCode) -> None:
        self.errors[code] = self.errors.get(code, 0) + 1

    def observe_overstay(self, seconds: float) -> None:
        """How long a parked Fetch outlived the arrival of the next request on its connection."""
        self.overstay.observe(seconds)
        self.overstay_worst_s = max(self.overstay_worst_s, seconds)

    def observe_loop_lag(self, seconds: float) -> None:
        self.loop_lag_worst_s = max(self.loop_lag_worst_s, seconds)


@dataclass(frozen=True, slots=True)
class Family:
    """One metric's declaration: name without prefix, type, help, label names."""

    name: str
    type: str
    help: str
    labels: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Sample:
    """One value of a family; `labels` in the family's order. A histogram sets `histogram` instead of `value`."""

    name: str
    value: float = 0.0
    labels: tuple[str, ...] = ()
    histogram: Histogram | None = None


FAMILIES = (
    Family("request_seconds", "histogram", "Requests, with the time from decoding to answer.", ("api", "version")),
    Family("errors", "counter", "Error codes sent, by Kafka's name.", ("error",)),
    Family("protocol_errors", "counter", "Connections closed because the peer broke the protocol."),
    Family("connections", "gauge", "Connections open."),
    Family("connections_refused", "counter", "Connections closed at once: above max.connections."),
    Family("bytes_in", "counter", "Bytes read from clients."),
    Family("bytes_out", "counter", "Bytes of answers to clients."),
    Family("parked_fetch_overstay_seconds", "histogram", "How long a parked Fetch outlived the request after it."),
    Family("parked_fetch_overstay_worst_seconds", "gauge", "The longest such time since the start."),
    Family("loop_lag_worst_seconds", "gauge", "The latest that a timer of the event loop fired since the start."),
    Family("cell_openings", "counter", "How often the cell was opened, the start included."),
    Family("cell_generation", "gauge", "The cell's generation."),
    Family("commits", "counter", "Batches committed by the engine since the cell was opened."),
    Family("commit_rounds", "counter", "Group commits."),
    Family("commit_syncs", "counter", "Syncs to disk."),
    Family("stored_bytes", "counter", "Bytes the engine has written since the cell was opened."),
    Family("pool_free_bytes", "gauge", "Free space of a pool.", ("pool",)),
    Family("pool_live_bytes", "gauge", "Bytes of a pool's blobs that are in use.", ("pool",)),
    Family("cache_hits", "counter", "Pages of stored blobs found in the node's cache."),
    Family("cache_misses", "counter", "Pages that had to be read."),
    Family("cache_evictions", "counter", "Pages dropped for newer ones."),
    Family("cache_bytes", "gauge", "Bytes in the cache."),
    Family("head_bytes", "gauge", "Bytes of the newest records kept in memory, all partitions together."),
    Family("durability", "gauge", "1 for what pqbroker.durability is set to.", ("mode",)),
    Family("topics", "gauge", "Topics."),
    Family("partition_start_offset", "gauge", "First offset that can be read.", ("topic", "partition")),
    Family("partition_end_offset", "gauge", "High watermark.", ("topic", "partition")),
    Family("partition_size_bytes", "gauge", "Bytes of a partition.", ("topic", "partition")),
)  # fmt: skip


def samples(metrics: Metrics) -> list[Sample]:
    """Every value, taken now."""
    taken = [
        Sample("request_seconds", labels=(route.api, str(route.version)), histogram=route) for route in metrics.routes
    ]
    taken += [Sample("errors", count, (code.name,)) for code, count in metrics.errors.items()]
    taken += [
        Sample("protocol_errors", metrics.protocol_errors),
        Sample("connections", metrics.connections),
        Sample("connections_refused", metrics.connections_refused),
        Sample("bytes_in", metrics.bytes_in),
        Sample("bytes_out", metrics.bytes_out),
        Sample("parked_fetch_overstay_seconds", histogram=metrics.overstay),
        Sample("parked_fetch_overstay_worst_seconds", metrics.overstay_worst_s),
        Sample("loop_lag_worst_seconds", metrics.loop_lag_worst_s),
        Sample("cell_openings", metrics.cell_openings),
    ]
    for source in metrics.sources:
        taken += source()
    return taken
