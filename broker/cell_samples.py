"""Metrics of the floors below the server, read from them at scrape time."""

from collections import Counter

from pqbroker.broker.cell_owner import OpenCell
from pqbroker.broker.metrics import Sample
from pqbroker.broker.partition_samples import Sums, partition_samples


def cell_samples(opened: OpenCell, partition_series_max: int, sums: Sums) -> list[Sample]:
    """The cell's commits, pools, blobs and tablets, the node's memory, and partitions."""
    stats = opened.cell.stats()
    samples = [
        Sample("cell_generation", opened.cell.generation),
        Sample("cell_unreadable_places", len(opened.cell.quarantine.damages)),
        Sample("commits", stats.commits),
        Sample("commit_rounds", stats.rounds),
        Sample("commit_syncs", stats.syncs),
        Sample("commits_refused", stats.refused),
        Sample("stored_bytes", stats.bytes_written),
        Sample("compaction_moved_bytes", stats.moved_bytes),
    ]
    for pool in stats.pools:
        labels = (pool.name,)
        samples += [
            Sample("pool_free_bytes", pool.free_bytes, labels),
            Sample("pool_total_bytes", pool.total_bytes, labels),
            Sample("pool_live_bytes", pool.live_bytes, labels),
            Sample("pool_trash_bytes", pool.stored_bytes - pool.live_bytes, labels),
            Sample("disk_colour", pool.colour, labels),
        ]
    blobs = opened.cell.blob_counters
    samples += [
        Sample("blob_puts", blobs.puts),
        Sample("blob_put_bytes", blobs.put_bytes),
        Sample("blob_blocked", blobs.blocked),
        Sample("garbage_collections", blobs.collections),
    ]
    tablets = Counter(record.type.name.lower() for record in opened.cell.tablets().values())
    samples += [Sample("tablets", count, (kind,)) for kind, count in tablets.items()]
    return samples + _memory_samples(opened) + _topic_samples(opened, partition_series_max, sums)


def _memory_samples(opened: OpenCell) -> list[Sample]:
    memory = opened.groups.memory
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


def _topic_samples(opened: OpenCell, partition_series_max: int, sums: Sums) -> list[Sample]:
    groups = [group for name in opened.groups.names() if (group := opened.groups.get(name)) is not None]
    partitions = sum(len(group.partitions) for group in groups)
    counts = [Sample("topics", len(groups)), Sample("partitions", partitions)]
    return counts + partition_samples(groups, partition_series_max, sums)
