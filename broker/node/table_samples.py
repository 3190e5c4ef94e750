"""Metrics of tables, transactions, staged rows, SQL queries, searches and worker processes, read at scrape time."""

import resource
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path

from pqbroker.broker.ground.metrics import Sample, Sampling, TableCounters
from pqbroker.broker.services.commits.commits import Commits
from pqbroker.broker.services.materializing.callers import FeedingNode
from pqbroker.broker.services.queues.registrations import registered
from pqbroker.broker.services.sql.workers import Workers
from pqbroker.broker.services.workers.task_pool import TaskPool
from pqbroker.pq.serving.topic import Topic
from pqbroker.storage.tablets.scheme_materializations import MaterializationChanges
from pqbroker.storage.tablets.scheme_objects import MATERIALIZATIONS
from pqbroker.tables.serving.tables import SortedTables

_LOOKS_AT_ONCE = 500
_STATIC = "static"


def table_samples(topics: Sequence[Topic], counted: TableCounters) -> Sampling:
    """Tables and their tablets by state, and what is staged. `topics`: static tables too."""
    tables, tablets = Counter[str](), Counter[str]()
    pieces = staged_bytes = batches = 0
    consumers, auto_trims = Counter[bool](), 0
    for topic in topics:
        if topic.config.pq_important_groups or topic.config.pq_registered_groups:
            consumers.update(registered(topic.config).values())
        auto_trims += topic.config.pq_auto_trim
        if topic.record.is_static:
            tables[_STATIC] += 1
        elif topic.record.table is not None:
            of_table = Counter(topic.states)
            tablets.update(of_table)
            tables[_state(of_table)] += 1
        partitions = iter(topic.partitions)
        while some := list(islice(partitions, _LOOKS_AT_ONCE)):
            for partition in some:
                pieces += partition.staged.count
                staged_bytes += partition.staged.bytes
                batches += partition.staged.decision_count
            yield
    return [
        *(Sample("tables", count, (state,)) for state, count in tables.items()),
        *(Sample("table_tablets", count, (state,)) for state, count in tablets.items()),
        Sample("table_inserted_rows", counted.inserted_rows),
        Sample("table_inserted_bytes", counted.inserted_bytes),
        Sample("table_read_rows", counted.read_rows),
        Sample("table_read_bytes", counted.read_bytes),
        *(Sample("queue_consumers", consumers[vital], (str(vital).lower(),)) for vital in (True, False)),
        Sample("queue_auto_trims", auto_trims),
        Sample("queue_pulls", counted.pulls),
        Sample("queue_advances", counted.advances),
        Sample("queue_offset_conflicts", counted.offset_conflicts),
        Sample("queue_skipped_rows", counted.skipped_rows),
        Sample("queue_refused_pushes", counted.refused_pushes),
        Sample("sorted_lookups", counted.lookups),
        Sample("sorted_looked_up_keys", counted.looked_up_keys),
        Sample("staged_pieces", pieces),
        Sample("staged_bytes", staged_bytes),
        Sample("staged_batches", batches),
    ]


def sorted_samples(sorted_tables: SortedTables) -> Sampling:
    """Stores, chunks and tasks of sorted tables, and their processes; nothing before the first table."""
    background = sorted_tables.used_background
    if background is None:
        return []
    share, chunks, overlap = sorted_tables.share, 0, 0
    for table in list(sorted_tables.tables.values()):
        for number, tablet in enumerate(table.tablets):
            chunks += len(tablet.structure.chunks)
            overlap = max(overlap, tablet.structure.overlap)
            if number % _LOOKS_AT_ONCE == 0:
                yield
    taken = [
        Sample("sorted_stores_bytes", share.stores_bytes),
        Sample("sorted_stores_limit_bytes", share.settings.stores_bytes_max),
        Sample("sorted_chunks", chunks),
        Sample("sorted_overlap_max", overlap),
        Sample("sorted_change_records", share.changes.records),
        Sample("sorted_change_bytes", share.changes.bytes_written),
        Sample("sorted_workers_started", share.counters.workers_started),
        Sample("sorted_workers_lost", share.counters.workers_lost),
        *(Sample("sorted_blocked_tablets", count, (code,)) for code, count in background.blocks.by_code().items()),
        *(
            Sample("sorted_tasks_under_way", count, (kind,))
            for kind, (count, _) in background.running_by_kind().items()
        ),
    ]
    workers, blocks = share.used_workers, share.used_blocks
    taken += [
        Sample("sorted_workers", 0 if workers is None else len(workers.pids)),
        Sample("sorted_blocks_bytes", 0 if blocks is None else blocks.size + blocks.pinned_size),
        Sample("sorted_blocks_hit", 0 if blocks is None else blocks.hits),
        Sample("sorted_blocks_missed", 0 if blocks is None else blocks.misses),
    ]
    for kind, totals in share.counters.tasks.items():
        taken += [
            Sample("sorted_tasks", totals.done, (kind, "done")),
            Sample("sorted_tasks", totals.failed, (kind, "failed")),
            *(Sample("sorted_task_reasons", count, (kind, str(why))) for why, count in totals.reasons.items()),
            Sample("sorted_task_read_bytes", totals.bytes_read, (kind,)),
            Sample("sorted_task_written_bytes", totals.bytes_written, (kind,)),
            Sample("sorted_task_written_rows", totals.rows_written, (kind,)),
        ]
    return taken


def feed_samples(node: FeedingNode) -> Sampling:
    """Sorted tables that topics feed, by state, their lag, and what was fed."""
    counters = node.feeding.counters
    found: list[Sample] = []
    states = Counter[str]()
    opened = node.cell.current
    if opened.scheme.rows(MATERIALIZATIONS):
        from pqbroker.broker.services.materializing.views import view_of

        for table_id, record in MaterializationChanges(opened.scheme).known().items():
            table = opened.sorted_tables.by_id(table_id)
            if table is not None:
                view = view_of(node, table, record)
                states[view.state] += 1
                found.append(Sample("table_feed_lag_records", view.lag, (table.record.name,)))
            yield
    return [
        *found,
        *(Sample("table_feeds", count, (state,)) for state, count in states.items()),
        Sample("table_feed_records", counters.records),
        Sample("table_feed_rows", counters.rows),
        Sample("table_feed_dead_letters", counters.dead_letters),
    ]


def transaction_samples(commits: Commits) -> list[Sample]:
    """Transactions over tables that were started and have ended, those that are open, and what commits have left."""
    counters = commits.counters
    return [
        Sample("transactions_started", counters.started),
        Sample("transactions_committed", counters.committed),
        Sample("transactions_aborted", counters.aborted),
        Sample("transactions_timed_out", counters.timed_out),
        Sample("commits_over_cells", counters.over_cells),
        Sample("commits_over_nodes", counters.over_nodes),
        Sample("transactions_open", commits.open_count),
        Sample("transaction_participants_unfinished", commits.unfinished_count),
    ]


def _state(tablets: Iterable[str]) -> str:
    """Return the state of a table by the states of its tablets; what knows of states is loaded with the first table."""
    from pqbroker.tables.mount import MountState, table_state

    return table_state(map(MountState, tablets))


def sql_samples(workers: Workers) -> list[Sample]:
    """SQL queries, those under way and those that ended, and worker processes."""
    counters, pids, running = workers.counters, workers.pids, workers.running
    asked = workers.slots.running + workers.slots.waiting
    return [
        Sample("sql_queries_under_way", running, ("running",)),
        Sample("sql_queries_under_way", max(asked - running, 0), ("waiting",)),
        *(Sample("sql_queries", count, (outcome,)) for outcome, count in counters.ended.items()),
        Sample("sql_query_seconds", histogram=counters.seconds),
        Sample("worker_processes", len(pids)),
        Sample("worker_processes_started", counters.workers_started),
        Sample("worker_processes_lost", counters.workers_lost),
        Sample("worker_resident_bytes", _resident_bytes(pids)),
    ]


def search_samples(searchers: TaskPool) -> list[Sample]:
    """Searches in topics, those under way and those that ended, and their worker processes."""
    counters, pids, running = searchers.counters, searchers.pids, searchers.running
    asked = searchers.slots.running + searchers.slots.waiting
    return [
        Sample("searches_under_way", running, ("running",)),
        Sample("searches_under_way", max(asked - running, 0), ("waiting",)),
        *(Sample("searches", count, (outcome,)) for outcome, count in counters.ended.items()),
        Sample("search_seconds", histogram=counters.seconds),
        Sample("search_processes", len(pids)),
        Sample("search_processes_started", counters.workers_started),
        Sample("search_processes_lost", counters.workers_lost),
        Sample("search_resident_bytes", _resident_bytes(pids)),
    ]


def _resident_bytes(pids: Iterable[int]) -> int:
    """The memory of these processes that is not swapped out; 0 where the system has no /proc."""
    pages = 0
    for pid in pids:
        with suppress(OSError):  # it has ended
            pages += int(Path(f"/proc/{pid}/statm").read_bytes().split()[1])
    return pages * resource.getpagesize()
