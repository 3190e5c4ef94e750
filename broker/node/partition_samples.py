"""Metrics of partitions, read at scrape time. The number of series is bounded: many partitions become one series a
topic, many topics one in all."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence

from pqbroker.broker.ground.metrics import FAMILIES, Sample, Sampling
from pqbroker.pq.serving.partition_server import PartitionServer
from pqbroker.pq.serving.topic import Topic

_UNLABELLED = ""
"""Label of what a sum runs over; Prometheus takes an empty label for none."""



def _waiting_seconds(one: PartitionServer) -> float:
    return one.writer.counters.waiting.total(asyncio.get_running_loop().time())


def _full_seconds(one: PartitionServer) -> float:
    return one.writer.counters.full.total(asyncio.get_running_loop().time())


_COUNTERS = {family.name for family in FAMILIES if family.type == "counter"}
_VALUES: tuple[tuple[str, Callable[[PartitionServer], float]], ...] = (
    ("partition_start_offset", lambda one: one.start_offset),
    ("partition_end_offset", lambda one: one.end_offset),
    ("partition_size_bytes", lambda one: one.size_bytes),
    ("partition_body_blobs", lambda one: len(one.state.bodies)),
    ("partition_producers", lambda one: len(one.state.producers.producers)),
    ("partition_producers_created", lambda one: one.state.producers.created),
    ("partition_producers_forgotten", lambda one: one.state.producers.forgotten),
    ("partition_producers_evicted", lambda one: one.state.producers.evicted),
    ("partition_queue_batches", lambda one: len(one.writer.queue)),
    ("partition_queue_bytes", lambda one: one.writer.queue.bytes),
    ("partition_queue_wait_seconds", _waiting_seconds),
    ("partition_in_flight_bytes", lambda one: one.writer.queue.in_flight_bytes),
    ("partition_buffer_full_seconds", _full_seconds),
    ("partition_quota_wait_seconds", lambda one: one.writer.counters.quota_wait_ms / 1000),
    ("partition_written_records", lambda one: one.writer.counters.written),
    ("partition_written_bytes", lambda one: one.writer.counters.bytes_written),
    ("partition_duplicate_records", lambda one: one.writer.counters.duplicates),
    ("partition_duplicate_bytes", lambda one: one.writer.counters.duplicate_bytes),
    ("partition_write_cycles", lambda one: one.writer.counters.cycles),
    ("partition_blob_bytes", lambda one: one.writer.counters.blob_bytes),
    ("partition_reads", lambda one: one.reader.counters.reads),
    ("partition_store_reads", lambda one: one.reader.counters.reads_from_store),
    ("partition_read_bytes", lambda one: one.reader.counters.bytes_read),
)


class Sums:
    """Counters summed over partitions, which do not fall when one of these is deleted or restarts.

    Prometheus would take that for a new start from 0, and all that is left of the sum for what came since. What came
    between the same two scrapes as something was deleted may count less.
    """

    def __init__(self) -> None:
        self._earlier: dict[Sample, tuple[float, float]] = {}
        """Last sum of each counter, and all that had gone from it by then, by sample without its value."""

    def rising(self, sums: Sequence[Sample]) -> Sampling:
        """All sums of now, counters with what has gone from them. What has no sample any more is forgotten."""
        earlier, self._earlier = self._earlier, {}
        samples: list[Sample] = []
        for sample in sums:
            if sample.name in _COUNTERS:
                key = sample._replace(value=0.0)
                last, gone = earlier.get(key, (0.0, 0.0))
                gone += max(0.0, last - sample.value)
                self._earlier[key] = sample.value, gone
                sample = sample._replace(value=sample.value + gone)
            samples.append(sample)
            yield
        return samples


def partition_samples(topics: Sequence[Topic], series_max: int, sums: Sums) -> Sampling:
    """Samples of every partition, labelled by topic and partition, at most `series_max` such pairs (one at least)."""
    if sum(len(topic.partitions) for topic in topics) <= series_max:
        return (yield from _each(topics))
    summed: list[Sample] = []
    if len(topics) <= series_max:
        for topic in topics:
            summed += yield from _sum(topic.record.name, topic.partitions)
    else:
        summed += yield from _sum(_UNLABELLED, [partition for topic in topics for partition in topic.partitions])
    return (yield from sums.rising(summed))


def _each(topics: Sequence[Topic]) -> Sampling:
    samples: list[Sample] = []
    for topic in topics:
        for partition in topic.partitions:
            labels = (topic.record.name, str(partition.index))
            samples.append(Sample("partition_leader_epoch", partition.leader_epoch, labels))
            samples += [Sample(name, value(partition), labels) for name, value in _VALUES]
            samples += [Sample(name, value, (*labels, label)) for name, label, value in _labelled(partition)]
            yield
    return samples


def _sum(topic: str, partitions: Sequence[PartitionServer]) -> Sampling:
    labels = (topic, _UNLABELLED)
    values = [0.0] * len(_VALUES)
    labelled: defaultdict[tuple[str, str], int] = defaultdict(int)
    for partition in partitions:
        for number, (_, value) in enumerate(_VALUES):
            values[number] += value(partition)
        for name, label, count in _labelled(partition):
            labelled[name, label] += count
        yield
    return [
        *(Sample(name, total, labels) for (name, _), total in zip(_VALUES, values, strict=True)),
        *(Sample(name, total, (*labels, label)) for (name, label), total in labelled.items()),
    ]


def _labelled(partition: PartitionServer) -> Iterator[tuple[str, str, int]]:
    """Values with a label of their own: name, label, value."""
    for level, count in enumerate(partition.state.head.levels.counts):
        yield "partition_head_blobs", str(level), count
    for code, count in partition.writer.counters.errors.items():
        yield "partition_write_errors", code.name, count
