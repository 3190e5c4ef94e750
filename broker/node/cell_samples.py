"""Metrics of the floors below the server, read from them at scrape time."""

from collections import Counter

from pqbroker.broker.ground.metrics import Sample, Sampling
from pqbroker.broker.node.partition_samples import Sums, partition_samples
from pqbroker.broker.services.cells.cell_owner import OpenCell
from pqbroker.storage.tablets.cell import Cell
from pqbroker.storage.tablets.tablet_kinds import TABLET_KINDS


def cell_samples(opened: OpenCell, partition_series_max: int, sums: Sums) -> Sampling:
    """Commits, pools, blobs and tablets of every cell, the node's memory, and partitions."""
    hosts = opened.cells.hosts()
    samples = [Sample("cell_open", 0, (str(cell),)) for cell in opened.hive.cells if opened.cells.host(cell) is None]
    tablets: Counter[str] = Counter()
    # A tablet gives the numbers of what it serves; where there is none of a kind, none of its things are served.
    served: dict[tuple[str, tuple[str, ...]], float] = {("partitions", ()): 0.0}
    for cell, host in hosts:
        samples += _samples_of(str(cell), host.cell)
        tablets.update(TABLET_KINDS[record.type].name for record in host.cell.tablets().values())
        for key, value in (yield from host.samples()).items():
            served[key] = served.get(key, 0) + value
    samples += [Sample("tablets", count, (kind,)) for kind, count in tablets.items()]
    samples += [Sample(name, count, labels) for (name, labels), count in served.items()]
    samples += _memory_samples(opened)
    topics = [topic for name in opened.topics.names() if (topic := opened.topics.get(name)) is not None]
    samples.append(Sample("topics", len(topics)))
    return samples + (yield from partition_samples(topics, partition_series_max, sums))


def _samples_of(name: str, cell: Cell) -> list[Sample]:
    """Return the samples of one open cell."""
    stats, blobs, labels = cell.stats(), cell.inspection.blob_counters, (name,)
    samples = [
        Sample("cell_open", not cell.lost.done(), labels),
        Sample("cell_reading_only", bool(cell.reading_only), labels),
        Sample("cell_generation", cell.generation, labels),
        Sample("cell_unreadable_places", len(cell.quarantine.damages), labels),
        Sample("commits", stats.commits, labels),
        Sample("commit_rounds", stats.rounds, labels),
        Sample("commit_syncs", stats.syncs, labels),
        Sample("commits_refused", stats.refused, labels),
        Sample("stored_bytes", stats.bytes_written, labels),
        Sample("segment_emptying_moved_bytes", stats.moved_bytes, labels),
        Sample("blob_puts", blobs.puts, labels),
        Sample("blob_put_bytes", blobs.put_bytes, labels),
        Sample("blob_blocked", blobs.blocked, labels),
        Sample("garbage_collections", blobs.collections, labels),
    ]
    for pool in stats.pools:
        of_pool = (name, pool.name)
        samples += [
            Sample("pool_free_bytes", pool.free_bytes, of_pool),
            Sample("pool_total_bytes", pool.total_bytes, of_pool),
            Sample("pool_live_bytes", pool.live_bytes, of_pool),
            Sample("pool_trash_bytes", pool.stored_bytes - pool.live_bytes, of_pool),
            Sample("disk_colour", pool.colour, of_pool),
        ]
    return samples


def _memory_samples(opened: OpenCell) -> list[Sample]:
    memory = opened.topics.memory
    cache, heads, key_values = memory.cache, memory.heads, memory.key_values
    return [
        Sample("cache_hits", cache.hits),
        Sample("cache_misses", cache.misses),
        Sample("cache_evictions", cache.evictions),
        Sample("cache_unused_evictions", cache.unused_evictions),
        Sample("cache_kept_seconds", cache.kept_seconds),
        Sample("cache_bytes", cache.size),
        Sample("cache_pages", len(cache)),
        Sample("head_bytes", heads.size),
        Sample("head_drops", heads.drops),
        Sample("write_cycle_seconds", histogram=memory.cycles),
        Sample("tablet_start_seconds", histogram=memory.starts),
        Sample("kv_request_seconds", histogram=key_values.requests),
        Sample("kv_commands", key_values.commands),
        Sample("kv_written_bytes", key_values.written_bytes),
        Sample("kv_failed", key_values.failed),
        Sample("kv_reads", key_values.reads),
    ]
