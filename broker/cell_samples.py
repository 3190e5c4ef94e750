"""Metrics of the floors below the server, read from them at scrape time."""

from pqbroker.broker.cell_owner import OpenCell
from pqbroker.broker.metrics import Sample


def cell_samples(opened: OpenCell) -> list[Sample]:
    """The cell's commits and pools, and every partition's ends and size."""
    stats = opened.cell.stats()
    samples = [
        Sample("cell_generation", opened.cell.generation),
        Sample("commits", stats.commits),
        Sample("commit_rounds", stats.rounds),
        Sample("commit_syncs", stats.syncs),
        Sample("stored_bytes", stats.bytes_written),
    ]
    for pool in stats.pools:
        samples.append(Sample("pool_free_bytes", pool.free_bytes, (pool.name,)))
        samples.append(Sample("pool_live_bytes", pool.live_bytes, (pool.name,)))
    return samples + _memory_samples(opened) + _topic_samples(opened)


def _memory_samples(opened: OpenCell) -> list[Sample]:
    cache, heads = opened.groups.memory.cache, opened.groups.memory.heads
    return [
        Sample("cache_hits", cache.hits),
        Sample("cache_misses", cache.misses),
        Sample("cache_evictions", cache.evictions),
        Sample("cache_bytes", cache.size),
        Sample("head_bytes", heads.size),
    ]


def _topic_samples(opened: OpenCell) -> list[Sample]:
    groups = [group for name in opened.groups.names() if (group := opened.groups.get(name)) is not None]
    samples = [Sample("topics", len(groups))]
    for group in groups:
        for partition in group.partitions:
            labels = (group.topic.name, str(partition.index))
            samples.append(Sample("partition_start_offset", partition.start_offset, labels))
            samples.append(Sample("partition_end_offset", partition.end_offset, labels))
            samples.append(Sample("partition_size_bytes", partition.size_bytes, labels))
    return samples
