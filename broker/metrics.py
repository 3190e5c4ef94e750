"""Every metric of the server: plain integers where requests pass, read by one collector at scrape time.

prometheus_client is imported by `broker.http` only when a scrape asks; this file declares names, types and help.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from pqbroker.protocol.errors import ErrorCode
from pqbroker.storage.counters import Histogram

PREFIX = "pqbroker_"
"""Before every name."""


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
        "bytes_in", "bytes_out", "cell_openings", "connections", "connections_refused", "errors", "http_requests",
        "loop_lag", "loop_lag_worst_s", "loop_turn_worst_s", "overstay", "overstay_worst_s", "protocol_errors",
        "routes", "sources", "unfinished_closed",
    )  # fmt: skip

    def __init__(self) -> None:
        self.routes: list[RouteMetrics] = []
        self.errors: dict[ErrorCode, int] = {}
        self.http_requests: dict[tuple[str, str, str], int] = {}
        self.bytes_in = 0
        self.bytes_out = 0
        self.connections = 0
        self.connections_refused = 0
        self.protocol_errors = 0
        self.unfinished_closed = 0
        self.overstay = Histogram()
        self.overstay_worst_s = 0.0
        self.loop_lag = Histogram()
        self.loop_lag_worst_s = 0.0
        self.loop_turn_worst_s = 0.0
        self.cell_openings = 0
        self.sources: list[Callable[[], list[Sample]]] = []
        """Asked at scrape time for the samples of the lower floors."""

    def route(self, api: str, version: int) -> RouteMetrics:
        metrics = RouteMetrics(api, version)
        self.routes.append(metrics)
        return metrics

    def count_error(self, code: ErrorCode) -> None:
        self.errors[code] = self.errors.get(code, 0) + 1

    def count_http(self, method: str, route: str, status: int) -> None:
        """`route` is a path as declared, empty for one that is none of ours."""
        key = (method if route else "", route, str(status))
        self.http_requests[key] = self.http_requests.get(key, 0) + 1

    def observe_overstay(self, seconds: float) -> None:
        """How long a parked Fetch outlived the arrival of the next request on its connection."""
        self.overstay.observe(seconds)
        self.overstay_worst_s = max(self.overstay_worst_s, seconds)

    def observe_loop_lag(self, seconds: float) -> None:
        """How late a timer of the event loop fired."""
        self.loop_lag.observe(seconds)
        self.loop_lag_worst_s = max(self.loop_lag_worst_s, seconds)


    def observe_loop_turn(self, seconds: float) -> None:
        """CPU time, of the loop's thread alone, in which it did not let a timer fire that was due."""
        self.loop_turn_worst_s = max(self.loop_turn_worst_s, seconds)


@dataclass(frozen=True, slots=True)
class Family:
    """One metric's declaration: name without prefix, type, help, label names."""

    name: str
    type: str
    help: str
    labels: tuple[str, ...] = ()


class Sample(NamedTuple):
    """One value of a family; `labels` in the family's order. A histogram sets `histogram` instead of `value`."""

    name: str
    value: float = 0.0
    labels: tuple[str, ...] = ()
    histogram: Histogram | None = None


_PARTITION = ("topic", "partition")
_OFFSET = ("group", *_PARTITION)
_BUFFER_FULL = "Time in which more than pqbroker.write.border.bytes was in flight, so that writers had to pause."
_QUOTA_WAIT = "Pauses that the quotas of pq.write.speed… asked of writers, each writer's counted."

FAMILIES = (
    Family("request_seconds", "histogram", "Requests, with the time from decoding to answer.", ("api", "version")),
    Family("errors", "counter", "Error codes sent, by Kafka's name.", ("error",)),
    Family("protocol_errors", "counter", "Connections closed because the peer broke the protocol."),
    Family("unfinished_requests_closed", "counter", "Connections closed to make room: their request did not arrive."),
    Family("request_bytes", "gauge", "Bytes of requests in work or still arriving (pqbroker.inflight.bytes.max)."),
    Family("unfinished_request_bytes", "gauge", "Bytes of requests that are still arriving."),
    Family("fetch_sessions", "gauge", "Incremental fetch sessions kept."),
    Family("fetch_session_partitions", "gauge", "Partitions that these sessions name."),
    Family("connections", "gauge", "Connections open."),
    Family("connections_refused", "counter", "Connections closed at once: above max.connections."),
    Family("http_requests", "counter", "HTTP requests, by path as documented.", ("method", "path", "status")),
    Family("bytes_in", "counter", "Bytes read from clients."),
    Family("bytes_out", "counter", "Bytes of answers to clients."),
    Family("parked_fetch_overstay_seconds", "histogram", "How long a parked Fetch outlived the request after it."),
    Family("parked_fetch_overstay_worst_seconds", "gauge", "The longest such time since the start."),
    Family("loop_lag_seconds", "histogram", "How late timers of the event loop fired, sampled all the time."),
    Family("loop_lag_worst_seconds", "gauge", "The latest such time since the start."),
    Family("loop_turn_worst_seconds", "gauge", "Longest CPU time of one turn of the event loop since the start."),
    Family("cell_openings", "counter", "How often the cell was opened, the start included."),
    Family("cell_generation", "gauge", "The cell's generation."),
    Family("cell_unreadable_places", "gauge", "Places of the cell that are damaged; above 0 nothing of it is removed."),
    Family("commits", "counter", "Batches committed by the engine since the cell was opened."),
    Family("commit_rounds", "counter", "Group commits."),
    Family("commit_syncs", "counter", "Syncs to disk."),
    Family("commits_refused", "counter", "Batches refused, for want of room above all: the disk is full."),
    Family("stored_bytes", "counter", "Bytes the engine has written since the cell was opened."),
    Family("compaction_moved_bytes", "counter", "Bytes of blobs moved to empty mostly dead segments."),
    Family("pool_free_bytes", "gauge", "Free space of a pool.", ("pool",)),
    Family("pool_total_bytes", "gauge", "Space of a pool, used or not.", ("pool",)),
    Family("pool_live_bytes", "gauge", "Bytes of a pool's blobs that are in use.", ("pool",)),
    Family("pool_trash_bytes", "gauge", "Bytes of a pool's segments whose blobs are deleted.", ("pool",)),
    Family("disk_colour", "gauge", "10 green, 15 move, 20 users stop writing, 30 out of space.", ("pool",)),
    Family("blob_puts", "counter", "Blobs handed to the store."),
    Family("blob_put_bytes", "counter", "Their bytes."),
    Family("blob_blocked", "counter", "Writes refused since a later instance of their tablet runs (BLOCKED)."),
    Family("garbage_collections", "counter", "Barriers moved, with the garbage behind them deleted."),
    Family("cache_hits", "counter", "Pages of stored blobs found in the node's cache."),
    Family("cache_misses", "counter", "Pages that had to be read."),
    Family("cache_evictions", "counter", "Pages dropped for newer ones."),
    Family("cache_unused_evictions", "counter", "Those of them that no read had found in the cache."),
    Family("cache_kept_seconds", "counter", "For how long pages had been there when they were dropped, all together."),
    Family("cache_bytes", "gauge", "Bytes in the cache."),
    Family("cache_pages", "gauge", "Pages and indexes of blobs in the cache."),
    Family("head_bytes", "gauge", "Bytes of the newest records kept in memory, all partitions together."),
    Family("head_drops", "counter", "Partitions whose newest records were dropped from memory for want of room."),
    Family("durability", "gauge", "1 for what pqbroker.durability is set to.", ("mode",)),
    Family("tablets", "gauge", "Tablets by type.", ("type",)),
    Family("topics", "gauge", "Topics."),
    Family("partitions", "gauge", "Partitions of all topics."),
    Family("write_cycle_seconds", "histogram", "Write cycles of all partitions, from their plan to durable."),
    Family("tablet_start_seconds", "histogram", "Starts of PQ tablets, from the first row read to serving."),
    Family("kv_request_seconds", "histogram", "Requests to KV tablets, from their plan to durable."),
    Family("kv_commands", "counter", "Commands of these requests."),
    Family("kv_written_bytes", "counter", "Rows and blobs of these requests, in bytes."),
    Family("kv_failed", "counter", "Requests to KV tablets that the store refused or lost."),
    Family("kv_reads", "counter", "Ranges of values read from KV tablets: reads that the cache had no answer to."),
    Family("partition_start_offset", "gauge", "First offset that can be read.", _PARTITION),
    Family("partition_end_offset", "gauge", "High watermark.", _PARTITION),
    Family("partition_leader_epoch", "gauge", "Generation of the tablet; not told where series are sums.", _PARTITION),
    Family("partition_size_bytes", "gauge", "Bytes of a partition.", _PARTITION),
    Family("partition_head_blobs", "gauge", "Keys of the head: the newest, small blobs.", (*_PARTITION, "level")),
    Family("partition_body_blobs", "gauge", "Keys of the body: the older, large blobs.", _PARTITION),
    Family("partition_producers", "gauge", "Idempotent producers remembered.", _PARTITION),
    Family("partition_producers_created", "counter", "Idempotent producers that came.", _PARTITION),
    Family("partition_producers_forgotten", "counter", "Idempotent producers forgotten.", _PARTITION),
    Family("partition_producers_evicted", "counter", "Those forgotten early, for want of room.", _PARTITION),
    Family("partition_queue_batches", "gauge", "Batches that wait for a write cycle.", _PARTITION),
    Family("partition_queue_bytes", "gauge", "Their bytes.", _PARTITION),
    Family("partition_queue_wait_seconds", "counter", "Time in which there were batches that waited.", _PARTITION),
    Family("partition_in_flight_bytes", "gauge", "Bytes of batches that are not durable yet.", _PARTITION),
    Family("partition_buffer_full_seconds", "counter", _BUFFER_FULL, _PARTITION),
    Family("partition_quota_wait_seconds", "counter", _QUOTA_WAIT, _PARTITION),
    Family("partition_written_records", "counter", "Records stored.", _PARTITION),
    Family("partition_written_bytes", "counter", "Bytes of the batches stored.", _PARTITION),
    Family("partition_duplicate_records", "counter", "Records acknowledged that were stored before.", _PARTITION),
    Family("partition_duplicate_bytes", "counter", "Bytes of their batches.", _PARTITION),
    Family("partition_write_errors", "counter", "Batches not stored, by Kafka's name of why.", (*_PARTITION, "error")),
    Family("partition_write_cycles", "counter", "Write cycles: commits that a partition asked for.", _PARTITION),
    Family("partition_blob_bytes", "counter", "Bytes of blobs written, merging included.", _PARTITION),
    Family("partition_reads", "counter", "Reads answered.", _PARTITION),
    Family("partition_store_reads", "counter", "Those that found not all in the head or the cache.", _PARTITION),
    Family("partition_read_bytes", "counter", "Bytes of batches given to readers.", _PARTITION),
    Family("groups", "gauge", "Consumer groups, by state.", ("state",)),
    Family("groups_bytes", "gauge", "Bytes of members and assignments of all groups (pqbroker.groups.bytes.max)."),
    Family("group_members", "gauge", "Members of a consumer group.", ("group",)),
    Family("group_lag_records", "gauge", "Records behind the offset that a group has committed.", _OFFSET),
    Family("group_lag_summed", "gauge", "1 where these are sums: too many offsets for a series each, else 0."),
)  # fmt: skip


def samples(metrics: Metrics) -> list[Sample]:
    """Every value, taken now."""
    taken = [
        Sample("request_seconds", labels=(route.api, str(route.version)), histogram=route) for route in metrics.routes
    ]
    taken += [Sample("errors", count, (code.name,)) for code, count in metrics.errors.items()]
    taken += [Sample("http_requests", count, labels) for labels, count in metrics.http_requests.items()]
    taken += [
        Sample("protocol_errors", metrics.protocol_errors),
        Sample("unfinished_requests_closed", metrics.unfinished_closed),
        Sample("connections", metrics.connections),
        Sample("connections_refused", metrics.connections_refused),
        Sample("bytes_in", metrics.bytes_in),
        Sample("bytes_out", metrics.bytes_out),
        Sample("parked_fetch_overstay_seconds", histogram=metrics.overstay),
        Sample("parked_fetch_overstay_worst_seconds", metrics.overstay_worst_s),
        Sample("loop_lag_seconds", histogram=metrics.loop_lag),
        Sample("loop_lag_worst_seconds", metrics.loop_lag_worst_s),
        Sample("loop_turn_worst_seconds", metrics.loop_turn_worst_s),
        Sample("cell_openings", metrics.cell_openings),
    ]
    for source in metrics.sources:
        taken += source()
    return taken
