"""Every metric of the server: plain integers where requests pass, read by one collector at scrape time.

prometheus_client is imported by `broker.http` only when a scrape asks; this file declares names, types and help.
"""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pqbroker.protocol.errors import ErrorCode
from pqbroker.storage.counters import Histogram

PREFIX = "pqbroker_"
PROCESS = "process_"
"""Before every name."""


class RouteMetrics(Histogram):
    """One API in one version: how many requests, and how long each took from its decoding to its answer."""

    __slots__ = ("api", "version")

    def __init__(self, api: str, version: int) -> None:
        super().__init__()
        self.api = api
        self.version = version


class TableCounters:
    """Rows that passed over HTTP, and their bytes as records."""

    __slots__ = (
        "advances", "inserted_bytes", "inserted_rows", "looked_up_keys", "lookups", "offset_conflicts", "pulls",
        "read_bytes", "read_rows", "refused_pushes", "skipped_rows",
    )  # fmt: skip

    def __init__(self) -> None:
        self.inserted_rows = 0
        self.inserted_bytes = 0
        self.read_rows = 0
        self.read_bytes = 0
        self.lookups = 0
        self.looked_up_keys = 0
        self.pulls = 0
        self.advances = 0
        self.offset_conflicts = 0
        self.skipped_rows = 0
        self.refused_pushes = 0


class Metrics:
    """The server's counters; seconds and bytes."""

    __slots__ = (
        "bytes_in", "bytes_out", "cell_openings", "connections", "connections_gave_way", "connections_refused",
        "connections_unread", "deep_pass_worst_s", "errors", "http_requests", "login_refusals", "logins", "loop_lag",
        "loop_lag_worst_s", "loop_turn_worst_s", "overstay", "overstay_worst_s", "protocol_errors", "routes", "sampler",
        "sessions_expired", "tables", "unfinished_closed",
    )  # fmt: skip

    def __init__(self, sampler: "Callable[[], Sampling] | None" = None) -> None:
        """`sampler`: called at each scrape for the samples of the lower floors."""
        self.sampler = sampler
        self.routes: list[RouteMetrics] = []
        self.errors: dict[ErrorCode, int] = {}
        self.http_requests: dict[tuple[str, str, str], int] = {}
        self.logins: dict[str, int] = {}
        self.login_refusals: dict[tuple[str, str], int] = {}
        self.sessions_expired = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self.connections = 0
        self.connections_refused = 0
        self.connections_gave_way = 0
        self.connections_unread = 0
        self.protocol_errors = 0
        self.unfinished_closed = 0
        self.overstay = Histogram()
        self.overstay_worst_s = 0.0
        self.loop_lag = Histogram()
        self.loop_lag_worst_s = 0.0
        self.loop_turn_worst_s = 0.0
        self.deep_pass_worst_s = 0.0
        self.cell_openings = 0
        self.tables = TableCounters()

    def route(self, api: str, version: int) -> RouteMetrics:
        metrics = RouteMetrics(api, version)
        self.routes.append(metrics)
        return metrics

    def count_error(self, code: ErrorCode) -> None:
        self.errors[code] = self.errors.get(code, 0) + 1

    def count_login(self, mechanism: str) -> None:
        """Count a client that has logged in, or has done so again."""
        self.logins[mechanism] = self.logins.get(mechanism, 0) + 1

    def count_login_refusal(self, mechanism: str, cause: str) -> None:
        """`mechanism`: empty before one was chosen; `cause`: a word of ours."""
        key = (mechanism, cause)
        self.login_refusals[key] = self.login_refusals.get(key, 0) + 1

    def count_http(self, method: str, route: str, status: int) -> None:
        """`route` is a path as declared, empty for one that is none of ours."""
        key = (method if route else "", route, str(status))
        self.http_requests[key] = self.http_requests.get(key, 0) + 1

    @property
    def http_refused(self) -> int:
        """Return the count of connections that were refused before their request was read."""
        return self.http_requests.get(("", "", "503"), 0)

    def observe_overstay(self, seconds: float) -> None:
        """Record how long a parked Fetch outlived the arrival of the next request on its connection."""
        self.overstay.observe(seconds)
        self.overstay_worst_s = max(self.overstay_worst_s, seconds)

    def observe_loop_lag(self, seconds: float) -> None:
        """Record how late a timer of the event loop fired."""
        self.loop_lag.observe(seconds)
        self.loop_lag_worst_s = max(self.loop_lag_worst_s, seconds)

    def observe_deep_pass(self, seconds: float) -> None:
        """CPU time in which Python's collector looked at everything that the process holds."""
        self.deep_pass_worst_s = max(self.deep_pass_worst_s, seconds)

    def observe_loop_turn(self, seconds: float) -> None:
        """CPU time, of the loop's thread alone, in which it did not let a timer fire that was due."""
        self.loop_turn_worst_s = max(self.loop_turn_worst_s, seconds)


@dataclass(frozen=True, slots=True)
class Family:
    """One metric's declaration: name without prefix, type, help, label names, its name in the version before."""

    name: str
    type: str
    help: str
    labels: tuple[str, ...] = ()
    earlier: str = ""

    @property
    def exposed_name(self) -> str:
        """Return the name as Prometheus has it, a counter's without suffix. Those of the process have the usual names
        of every program's, so that dashboards know them."""
        return self.name if self.name.startswith(PROCESS) else PREFIX + self.name


class Sample(NamedTuple):
    """One value of a family; `labels` in the family's order. A histogram sets `histogram` instead of `value`."""

    name: str
    value: float = 0.0
    labels: tuple[str, ...] = ()
    histogram: Histogram | None = None


Sampling = Generator[None, None, list[Sample]]
"""Takes samples in short steps, between which the loop may do other work: many partitions would hold it up."""


_PARTITION = ("topic", "partition")
_CELL = ("cell",)
_POOL = ("cell", "pool")
_OFFSET = ("group", *_PARTITION)
_BUFFER_FULL = "Time with more than pqbroker.write.border.bytes in flight, in which writers had to pause."
_QUOTA_WAIT = "Pauses that quotas (pq.write.speed…) imposed on writers, summed over writers."

_FAMILIES = (
    Family("request_seconds", "histogram", "Time from decoding a request to its answer.", ("api", "version")),
    Family("errors", "counter", "Error codes sent to clients, by Kafka's name.", ("error",)),
    Family("access_rules", "gauge", "Access rules (ACLs); 0 also where there is no access control."),
    Family("access_rules_unreadable", "gauge", "Unreadable access rules; above 0 only super users are served."),
    Family("access_decisions_kept", "gauge", "Decisions by access rules in memory (pqbroker.access.decisions.max)."),
    Family("audit_lines", "counter", "Lines of the audit log: written, suppressed as too many, or lost.", ("outcome",)),
    Family("quota_throttle_ms", "counter", "Milliseconds for which clients were paused by their quotas.", ("quota",)),
    Family("protocol_errors", "counter", "Connections closed because the client broke the protocol."),
    Family("unfinished_requests_closed", "counter", "Connections closed to free memory amid a request."),
    Family("request_bytes", "gauge", "Bytes of requests being served or arriving (pqbroker.inflight.bytes.max)."),
    Family("unfinished_request_bytes", "gauge", "Bytes of requests that have arrived in part."),
    Family("fetch_sessions", "gauge", "Incremental fetch sessions kept."),
    Family("fetch_session_partitions", "gauge", "Partitions in all incremental fetch sessions."),
    Family("connections", "gauge", "Open connections of Kafka clients."),
    Family("connections_refused", "counter", "Connections closed at once: over max.connections, or one address's."),
    Family("connections_gave_way", "counter", "Connections closed to make room; their address had the most."),
    Family("connections_unread", "counter", "Connections closed: their unread answers took memory that others needed."),
    Family("logins", "counter", "Successful logins of clients, re-authentications included.", ("mechanism",)),
    Family(
        "login_refusals", "counter",
        "Logins refused, by cause: credentials, mechanism, message, busy, time; of tokens also algorithm, audience, "
        "claims, issuer, signature.", ("mechanism", "cause"),
    ),
    Family("sessions_expired", "counter", "Connections closed: their clients did not log in again in time."),
    Family("tls_handshakes", "counter", "TLS handshakes that ended, by outcome: made or failed.", ("outcome",)),
    Family("tls_handshakes_under_way", "gauge", "TLS handshakes under way (pqbroker.handshakes.max)."),
    Family("tls_certificate_days_left", "gauge", "Days until a listener's certificate expires.", ("listener",)),
    Family("http_requests", "counter", "HTTP requests, by documented path.", ("method", "path", "status")),
    Family("bytes_in", "counter", "Bytes read from clients."),
    Family("bytes_out", "counter", "Bytes sent to clients."),
    Family("parked_fetch_overstay_seconds", "histogram", "Stay of a parked Fetch after the next request came."),
    Family("parked_fetch_overstay_worst_seconds", "gauge", "Longest stay of a parked Fetch after the next request."),
    Family("loop_lag_seconds", "histogram", "Delay of timers of the event loop, sampled all the time."),
    Family("loop_lag_worst_seconds", "gauge", "Longest delay of a timer of the event loop since the start."),
    Family("loop_turn_worst_seconds", "gauge", "Longest CPU time of one turn of the event loop since the start."),
    Family("memory_pass_worst_seconds", "gauge", "Longest garbage collection of all memory, in one turn."),
    Family("conditions", "gauge", "Problems of the node, by kind; /health explains each.", ("kind",)),
    Family("cell_openings", "counter", "Openings of the system cell, the one at the start included."),
    Family("cell_open", "gauge", "1 while the cell is open, else 0.", _CELL),
    Family("cell_generation", "gauge", "The cell's generation.", _CELL),
    Family("cell_reading_only", "gauge", "1: the cell is open for reading only, since its disk is full.", _CELL),
    Family("cell_unreadable_places", "gauge", "Damaged places in the cell; above 0 nothing in it is removed.", _CELL),
    Family("commits", "counter", "Batches committed since the cell was opened.", _CELL),
    Family("commit_rounds", "counter", "Group commits: rounds of batches with one sync.", _CELL),
    Family("commit_syncs", "counter", "Syncs to disk.", _CELL),
    Family("commits_refused", "counter", "Batches refused, mostly because the disk is full.", _CELL),
    Family("stored_bytes", "counter", "Bytes written to disk since the cell was opened.", _CELL),
    Family(
        "segment_emptying_moved_bytes", "counter", "Bytes of blobs moved to empty mostly dead segments.",
        _CELL, earlier="compaction_moved_bytes",
    ),
    Family("pool_free_bytes", "gauge", "Free bytes on the disk of a pool.", _POOL),
    Family("pool_total_bytes", "gauge", "Bytes on the disk of a pool, used or free.", _POOL),
    Family("pool_live_bytes", "gauge", "Bytes of blobs in use in a pool.", _POOL),
    Family("pool_trash_bytes", "gauge", "Bytes of deleted blobs that segments of a pool still hold.", _POOL),
    Family("disk_colour", "gauge", "State of a pool's disk: 10 green, 15 move channels, 20 no writes, 30 full.", _POOL),
    Family("blob_puts", "counter", "Blobs written.", _CELL),
    Family("blob_put_bytes", "counter", "Bytes of blobs written.", _CELL),
    Family("blob_blocked", "counter", "Writes refused because a later instance of the tablet runs (BLOCKED).", _CELL),
    Family("garbage_collections", "counter", "Garbage collections: barriers moved, blobs behind them deleted.", _CELL),
    Family("cache_hits", "counter", "Pages found in the cache."),
    Family("cache_misses", "counter", "Pages read from disk because the cache did not have them."),
    Family("cache_evictions", "counter", "Pages dropped from the cache for newer ones."),
    Family("cache_unused_evictions", "counter", "Pages dropped from the cache before any read used them."),
    Family("cache_kept_seconds", "counter", "Time that dropped pages had been in the cache, summed over pages."),
    Family("cache_bytes", "gauge", "Bytes in the cache."),
    Family("cache_pages", "gauge", "Pages and blob indexes in the cache."),
    Family("head_bytes", "gauge", "Bytes of the newest records in memory, all partitions together."),
    Family("head_drops", "counter", "Partitions whose newest records were dropped from memory to free it."),
    Family("durability", "gauge", "1 for the value of pqbroker.durability.", ("mode",)),
    Family("tablets", "gauge", "Tablets by type.", ("type",)),
    Family("residents", "gauge", "Residents of coordinator tablets, such as consumer groups with members.", ("kind",)),
    Family("topics", "gauge", "Topics."),
    Family("partitions", "gauge", "Partitions of all topics."),
    Family("write_cycle_seconds", "histogram", "Time of a partition's write cycle, from plan to durable."),
    Family("tablet_start_seconds", "histogram", "Time a PQ tablet takes to start, from the first row read to serving."),
    Family("kv_request_seconds", "histogram", "Time of a request to a KV tablet, from plan to durable."),
    Family("kv_commands", "counter", "Commands in requests to KV tablets."),
    Family("kv_written_bytes", "counter", "Bytes of rows and blobs that requests to KV tablets wrote."),
    Family("kv_failed", "counter", "Requests to KV tablets that the store refused or lost."),
    Family("kv_reads", "counter", "Ranges of values read from KV tablets because the cache did not have them."),
    Family("partition_start_offset", "gauge", "First offset of a partition that can be read.", _PARTITION),
    Family("partition_end_offset", "gauge", "High watermark of a partition.", _PARTITION),
    Family("partition_leader_epoch", "gauge", "Leader epoch of a partition; absent where series are sums.", _PARTITION),
    Family("partition_size_bytes", "gauge", "Bytes of records in a partition.", _PARTITION),
    Family("partition_head_blobs", "gauge", "Newest, small blobs of a partition (its head).", (*_PARTITION, "level")),
    Family("partition_body_blobs", "gauge", "Older, large blobs of a partition (its body).", _PARTITION),
    Family("partition_producers", "gauge", "Idempotent producers that a partition remembers.", _PARTITION),
    Family("partition_producers_created", "counter", "Idempotent producers new to a partition.", _PARTITION),
    Family("partition_producers_forgotten", "counter", "Idempotent producers that a partition forgot.", _PARTITION),
    Family("partition_producers_evicted", "counter", "Idempotent producers above pq.producer.ids.max.", _PARTITION),
    Family("partition_queue_batches", "gauge", "Batches that wait for a write cycle.", _PARTITION),
    Family("partition_queue_bytes", "gauge", "Bytes of batches that wait for a write cycle.", _PARTITION),
    Family("partition_queue_wait_seconds", "counter", "Time in which batches waited for a write cycle.", _PARTITION),
    Family("partition_in_flight_bytes", "gauge", "Bytes of batches received and not yet durable.", _PARTITION),
    Family("partition_buffer_full_seconds", "counter", _BUFFER_FULL, _PARTITION),
    Family("partition_quota_wait_seconds", "counter", _QUOTA_WAIT, _PARTITION),
    Family("partition_written_records", "counter", "Records written to a partition.", _PARTITION),
    Family("partition_written_bytes", "counter", "Bytes of batches written to a partition.", _PARTITION),
    Family("partition_duplicate_records", "counter", "Records sent again, acknowledged without writing.", _PARTITION),
    Family("partition_duplicate_bytes", "counter", "Bytes sent again, acknowledged without writing.", _PARTITION),
    Family("partition_write_errors", "counter", "Batches refused, by Kafka's error name.", (*_PARTITION, "error")),
    Family("partition_write_cycles", "counter", "Write cycles of a partition, each one commit.", _PARTITION),
    Family("partition_blob_bytes", "counter", "Bytes of blobs written for a partition, merging included.", _PARTITION),
    Family("partition_reads", "counter", "Reads of a partition answered.", _PARTITION),
    Family("partition_store_reads", "counter", "Reads of a partition that went to the disk.", _PARTITION),
    Family("partition_read_bytes", "counter", "Bytes of batches sent to readers of a partition.", _PARTITION),
    Family("groups", "gauge", "Consumer groups, by state and by protocol: classic or consumer.", ("state", "type")),
    Family("groups_bytes", "gauge", "Bytes of members and assignments of all groups (pqbroker.groups.bytes.max)."),
    Family("group_members", "gauge", "Members of a consumer group.", ("group",)),
    Family("group_lag_records", "gauge", "Records after the offset that a group has committed.", _OFFSET),
    Family("group_lag_summed", "gauge", "1 if lags are sums because of pqbroker.metrics.offsets.max, else 0."),
    Family("tables", "gauge", "Tables by state: a mount state, mixed, transient, or static.", ("state",)),
    Family("table_tablets", "gauge", "Tablets of tables by mount state.", ("state",)),
    Family("table_inserted_rows", "counter", "Rows inserted over HTTP; those of staged batches when they are staged."),
    Family("table_inserted_bytes", "counter", "Bytes of rows inserted over HTTP, as record batches."),
    Family("table_read_rows", "counter", "Rows of tablets read over HTTP, without those that SQL reads."),
    Family("table_read_bytes", "counter", "Bytes of rows of tablets read over HTTP, as records."),
    Family("queue_consumers", "gauge", "Registrations of consumers with queues, vital ones and others.", ("vital",)),
    Family("queue_auto_trims", "gauge", "Topics with auto trim (pq.auto.trim)."),
    Family("queue_pulls", "counter", "Pulls of rows of queues over HTTP."),
    Family("queue_advances", "counter", "Advances of consumers of queues that were committed."),
    Family("queue_offset_conflicts", "counter", "Advances refused because the consumer had another offset."),
    Family("queue_skipped_rows", "counter", "Pushed rows left out because their session had them already."),
    Family("queue_refused_pushes", "counter", "Pushes refused for an epoch that is not the session's."),
    Family("sorted_lookups", "counter", "Lookups of rows of sorted tables, each of some keys."),
    Family("sorted_looked_up_keys", "counter", "Keys that were looked up in sorted tables."),
    Family("sorted_stores_bytes", "gauge", "Memory of rows of sorted tables that are in no chunk yet."),
    Family("sorted_stores_limit_bytes", "gauge", "Limit of pqbroker_sorted_stores_bytes."),
    Family("sorted_blocks_bytes", "gauge", "Memory of kept blocks of sorted tables (pqbroker.table.blocks.bytes.max)."),
    Family("sorted_blocks_hit", "counter", "Blocks of chunks that lookups found in memory."),
    Family("sorted_blocks_missed", "counter", "Blocks of chunks that lookups read from disk."),
    Family("sorted_chunks", "gauge", "Chunks of all sorted tables."),
    Family("sorted_overlap_max", "gauge", "Most chunks over one key, of all tablets of sorted tables."),
    Family("sorted_blocked_tablets", "gauge", "Tablets of sorted tables that take no writes, by the cause.", ("code",)),
    Family("sorted_tasks", "counter", "Tasks of sorted tables that ended: done, or failed.", ("kind", "outcome")),
    Family("sorted_task_reasons", "counter", "Tasks of sorted tables that were done, by reason.", ("kind", "reason")),
    Family("sorted_tasks_under_way", "gauge", "Tasks of sorted tables that run now.", ("kind",)),
    Family("sorted_task_read_bytes", "counter", "Bytes that tasks of sorted tables have read.", ("kind",)),
    Family("sorted_task_written_bytes", "counter", "Bytes that tasks of sorted tables have written.", ("kind",)),
    Family("sorted_task_written_rows", "counter", "Rows that tasks of sorted tables have written.", ("kind",)),
    Family("sorted_change_records", "counter", "Records written to change feeds of sorted tables."),
    Family("sorted_change_bytes", "counter", "Bytes written to change feeds of sorted tables, as record batches."),
    Family("sorted_workers", "gauge", "Worker processes that flush and compact sorted tables."),
    Family("sorted_workers_started", "counter", "Worker processes of sorted tables started."),
    Family("sorted_workers_lost", "counter", "Worker processes of sorted tables that failed or ran out of memory."),
    Family("staged_pieces", "gauge", "Pieces of rows that are staged and not written yet."),
    Family("staged_bytes", "gauge", "Bytes of staged pieces; in a tablet at most pqbroker.staged.bytes.max."),
    Family("staged_batches", "gauge", "Batches of staged rows whose commit has begun and not ended."),
    Family("table_feeds", "gauge", "Materializations (sorted tables fed by topics), by state.", ("state",)),
    Family("table_feed_lag_records", "gauge", "Offsets that a materialization has not read yet.", ("table",)),
    Family("table_feed_records", "counter", "Records of topics that were read to become rows of sorted tables."),
    Family("table_feed_rows", "counter", "Rows written and deleted by materializations."),
    Family("table_feed_dead_letters", "counter", "Records that could not become rows of their table."),
    Family("cleaning_passes", "counter", "Passes over compacted topics: done, failed, stopped.", ("outcome",)),
    Family("cleaning_passes_under_way", "gauge", "Passes of the cleaner that run now (log.cleaner.threads)."),
    Family("cleaning_failed_partitions", "gauge", "Compacted partitions whose last pass of the cleaner failed."),
    Family("cleaning_read_bytes", "counter", "Bytes of record batches that passes of the cleaner have read."),
    Family("cleaning_written_bytes", "counter", "Bytes of record batches that passes of the cleaner have written."),
    Family("cleaning_freed_bytes", "counter", "Bytes by which passes of the cleaner made logs smaller."),
    Family("cleaning_removed_records", "counter", "Records that passes of the cleaner removed from logs."),
    Family("cleaning_removed_tombstones", "counter", "Tombstones that passes of the cleaner removed."),
    Family("cleaning_dirty_bytes", "gauge", "Bytes of compacted partitions that no pass has reached, without heads."),
    Family("cleaning_dirty_ratio_max", "gauge", "Greatest dirty share of a compacted partition, 0 to 1."),
    Family("cleaning_workers", "gauge", "Worker processes that clean compacted topics, or wait for a pass."),
    Family("cleaning_workers_started", "counter", "Worker processes for cleaning started."),
    Family("cleaning_workers_lost", "counter", "Worker processes for cleaning that failed or ran out of memory."),
    Family("transactions_open", "gauge", "Transactions over tables that are open (pqbroker.transactions.max)."),
    Family("transactions_started", "counter", "Transactions over tables that clients have started."),
    Family("transactions_committed", "counter", "Transactions over tables that were committed."),
    Family("transactions_aborted", "counter", "Transactions over tables that were refused, aborted or timed out."),
    Family("transactions_timed_out", "counter", "Transactions over tables aborted by timeout or age."),
    Family("transactional_ids", "gauge", "Transactional ids of Kafka producers, by state.", ("state",)),
    Family("transactional_ids_bytes", "gauge", "Bytes of transactional ids (pqbroker.transactional.ids.bytes.max)."),
    Family("transactional_ends", "counter", "Transactions of Kafka producers that ended, by outcome.", ("outcome",)),
    Family("transactional_oldest_seconds", "gauge", "Age of the oldest open transaction of a Kafka producer, or 0."),
    Family("stable_offset_oldest_seconds", "gauge", "Longest time for which a last stable offset has not moved, or 0."),
    Family("commits_over_cells", "counter", "Commits of rows to tablets of several cells, insertions included."),
    Family("commits_over_nodes", "counter", "Commits of rows to tablets that several nodes of the broker run."),
    Family("transaction_participants_unfinished", "gauge", "Tablets with a part of a commit that is not finished."),
    Family("sql_queries_under_way", "gauge", "SQL queries that run, and those that wait for a worker.", ("state",)),
    Family("sql_queries", "counter", "SQL queries that ended: answered, left, failed, or the refusal.", ("outcome",)),
    Family("sql_query_seconds", "histogram", "Time of an SQL query, from its request to its end."),
    Family("worker_processes", "gauge", "Worker processes for SQL and for rows in Arrow."),
    Family("worker_processes_started", "counter", "Worker processes started."),
    Family("worker_processes_lost", "counter", "Worker processes that failed or ran out of memory."),
    Family("worker_resident_bytes", "gauge", "Memory of all worker processes that is not swapped out."),
    Family("searches_under_way", "gauge", "Searches in topics that run, and that wait for a worker.", ("state",)),
    Family("searches", "counter", "Searches in topics that ended: searched, left, failed, or refusal.", ("outcome",)),
    Family("search_seconds", "histogram", "Time of a search in a topic, from its request to its end."),
    Family("search_processes", "gauge", "Worker processes for searches in topics."),
    Family("search_processes_started", "counter", "Worker processes for searches started."),
    Family("search_processes_lost", "counter", "Worker processes for searches that failed or ran out of memory."),
    Family("search_resident_bytes", "gauge", "Memory of the worker processes for searches that is not swapped out."),
    Family("build_info", "gauge", "1 for the version that runs.", ("version", "python")),
    Family("process_start_time_seconds", "gauge", "Time at which the node opened its cell, in seconds since 1970."),
    Family("process_cpu_seconds", "counter", "CPU time of the process, all threads."),
    Family("process_resident_memory_bytes", "gauge", "Memory of the process that is not swapped out."),
    Family("process_virtual_memory_bytes", "gauge", "Address space of the process."),
    Family("process_open_fds", "gauge", "Open files of the process, connections included."),
    Family("process_max_fds", "gauge", "Files that the process may have open at most."),
    Family("process_threads", "gauge", "Threads of the process."),
)  # fmt: skip

_EARLIER = {family.name: family.earlier for family in _FAMILIES if family.earlier}
FAMILIES = _FAMILIES + tuple(
    Family(family.earlier, family.type, f"Deprecated: the earlier name of {PREFIX}{family.name}.", family.labels)
    for family in _FAMILIES
    if family.earlier
)


def samples(metrics: Metrics) -> Sampling:
    """Return every value, without those under earlier names (`with_earlier_names`)."""
    taken = [
        Sample("request_seconds", labels=(route.api, str(route.version)), histogram=route) for route in metrics.routes
    ]
    taken += [Sample("errors", count, (code.name,)) for code, count in metrics.errors.items()]
    taken += [Sample("http_requests", count, labels) for labels, count in metrics.http_requests.items()]
    taken += [Sample("logins", count, (mechanism,)) for mechanism, count in metrics.logins.items()]
    taken += [Sample("login_refusals", count, labels) for labels, count in metrics.login_refusals.items()]
    taken += [
        Sample("sessions_expired", metrics.sessions_expired),
        Sample("protocol_errors", metrics.protocol_errors),
        Sample("unfinished_requests_closed", metrics.unfinished_closed),
        Sample("connections", metrics.connections),
        Sample("connections_refused", metrics.connections_refused),
        Sample("connections_gave_way", metrics.connections_gave_way),
        Sample("connections_unread", metrics.connections_unread),
        Sample("bytes_in", metrics.bytes_in),
        Sample("bytes_out", metrics.bytes_out),
        Sample("parked_fetch_overstay_seconds", histogram=metrics.overstay),
        Sample("parked_fetch_overstay_worst_seconds", metrics.overstay_worst_s),
        Sample("loop_lag_seconds", histogram=metrics.loop_lag),
        Sample("loop_lag_worst_seconds", metrics.loop_lag_worst_s),
        Sample("loop_turn_worst_seconds", metrics.loop_turn_worst_s),
        Sample("memory_pass_worst_seconds", metrics.deep_pass_worst_s),
        Sample("cell_openings", metrics.cell_openings),
    ]
    if metrics.sampler is not None:
        taken += yield from metrics.sampler()
    return taken


def with_earlier_names(taken: Sequence[Sample]) -> list[Sample]:
    """Samples, and again under the earlier name those whose family has one."""
    return [*taken, *(sample._replace(name=_EARLIER[sample.name]) for sample in taken if sample.name in _EARLIER)]
