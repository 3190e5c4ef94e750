"""Metrics of the cleaner of compacted topics, read at scrape time."""

from collections.abc import Sequence

from pqbroker.broker.ground.metrics import Sample, Sampling
from pqbroker.broker.services.cleaning.callers import CleaningNode
from pqbroker.broker.services.cleaning.cleaner import due_of
from pqbroker.broker.services.topics.partitions import needs_keys
from pqbroker.pq.serving.topic import Topic

_PARTITIONS_AT_ONCE = 100
_TOPICS_AT_ONCE = 1000


def cleaning_samples(node: CleaningNode, topics: Sequence[Topic]) -> Sampling:
    """Passes, what they read, wrote and took away, their processes, and how dirty compacted partitions are."""
    cleaner, now_ms = node.cleaner, node.clock()
    dirty_bytes, ratio, looked_at = 0, 0.0, 0
    for number, topic in enumerate(topics):
        if number % _TOPICS_AT_ONCE == _TOPICS_AT_ONCE - 1:
            yield
        for server in topic.partitions if needs_keys(topic) else ():
            due = due_of(topic, server, now_ms)
            dirty_bytes += due.dirty_bytes
            ratio = max(ratio, due.dirty_ratio)
            looked_at += 1
            if looked_at % _PARTITIONS_AT_ONCE == 0:
                yield
    counters, running = cleaner.counters, list(cleaner.running.values())
    return [
        Sample("cleaning_passes", counters.done, ("done",)),
        Sample("cleaning_passes", counters.failed, ("failed",)),
        Sample("cleaning_passes", counters.stopped, ("stopped",)),
        Sample("cleaning_passes_under_way", len(running)),
        Sample("cleaning_failed_partitions", len(cleaner.failed)),
        Sample("cleaning_read_bytes", counters.bytes_read + sum(each.bytes_read for each in running)),
        Sample("cleaning_written_bytes", counters.bytes_written + sum(each.bytes_written for each in running)),
        Sample("cleaning_freed_bytes", counters.bytes_freed),
        Sample("cleaning_removed_records", counters.records_gone),
        Sample("cleaning_removed_tombstones", counters.tombstones_gone),
        Sample("cleaning_dirty_bytes", dirty_bytes),
        Sample("cleaning_dirty_ratio_max", ratio),
        Sample("cleaning_workers", len(cleaner.worker_pids)),
        Sample("cleaning_workers_started", counters.workers_started),
        Sample("cleaning_workers_lost", counters.workers_lost),
    ]
