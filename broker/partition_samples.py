"""Metrics of partitions, read at scrape time. The number of series is bounded: many partitions are told per topic, many
topics as one."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence

from pqbroker.broker.metrics import FAMILIES, Sample
from pqbroker.pq.group import Group
from pqbroker.pq.partition_server import PartitionServer

_NOT_TOLD = ""
"""Label of what a sum runs over; Prometheus takes an empty label for none."""

_COUNTERS = {family.name for family in FAMILIES if family.type == "counter"}
_VALUES: tuple[tuple[str, Callable[[PartitionServer], float]], ...] = (
    ("partition_start_offset", lambda one: one.start_offset),
    ("partition_end_offset", lambda one: one.end_offset),
    ("partition_size_bytes", lambda one: one.size_bytes),
    ("partition_body_blobs", lambda one: len(one.state.bodies)),
    ("partition_producers", lambda one: len(one.state.sources.producers)),
    ("partition_producers_created", lambda one: one.state.sources.created),
    ("partition_producers_forgotten", lambda one: one.state.sources.forgotten),
    ("partition_producers_evicted", lambda one: one.state.sources.evicted),
    ("partition_queue_batches", lambda one: one.queue_length),
    ("partition_queue_bytes", lambda one: one.queued_bytes),
    ("partition_queue_wait_seconds", lambda one: one.waiting_seconds),
    ("partition_in_flight_bytes", lambda one: one.in_flight_bytes),
    ("partition_buffer_full_seconds", lambda one: one.full_seconds),
    ("partition_quota_wait_seconds", lambda one: one.counters.quota_wait_ms / 1000),
    ("partition_written_records", lambda one: one.counters.written),
    ("partition_written_bytes", lambda one: one.counters.bytes_written),
    ("partition_duplicate_records", lambda one: one.counters.duplicates),
    ("partition_duplicate_bytes", lambda one: one.counters.duplicate_bytes),
    ("partition_write_cycles", lambda one: one.counters.cycles),
    ("partition_blob_bytes", lambda one: one.counters.blob_bytes),
    ("partition_reads", lambda one: one.counters.reads),
    ("partition_store_reads", lambda one: one.counters.reads_from_store),
    ("partition_read_bytes", lambda one: one.counters.bytes_read),
)


class Sums:
    """Counters summed over partitions, which do not fall when one of these goes or starts anew.

    Prometheus would take that for a new start from 0, and all that is left of the sum for what came since. What came
    between the same two scrapes as something went may be told less.
    """

    def __init__(self) -> None:
        self._told: dict[Sample, tuple[float, float]] = {}
        """By sample without its value: the sum as it was last, and what had gone from it until then."""

    def rising(self, sums: Iterable[Sample]) -> list[Sample]:
        """All sums of now, counters with what has gone from them. What is told no longer is forgotten."""
        told, self._told = self._told, {}
        samples: list[Sample] = []
        for sample in sums:
            if sample.name in _COUNTERS:
                key = sample._replace(value=0.0)
                last, gone = told.get(key, (0.0, 0.0))
                gone += max(0.0, last - sample.value)
                self._told[key] = sample.value, gone
                sample = sample._replace(value=sample.value + gone)
            samples.append(sample)
        return samples


def partition_samples(groups: Sequence[Group], series_max: int, sums: Sums) -> list[Sample]:
    """Samples of every partition, labelled by topic and partition, at most `series_max` such pairs (one at least)."""
    if sum(len(group.partitions) for group in groups) <= series_max:
        return _each(groups)
    if len(groups) <= series_max:
        return sums.rising(sample for group in groups for sample in _sum(group.topic.name, group.partitions))
    return sums.rising(_sum(_NOT_TOLD, (partition for group in groups for partition in group.partitions)))


def _each(groups: Iterable[Group]) -> list[Sample]:
    samples: list[Sample] = []
    for group in groups:
        for partition in group.partitions:
            labels = (group.topic.name, str(partition.index))
            samples.append(Sample("partition_leader_epoch", partition.leader_epoch, labels))
            samples += [Sample(name, value(partition), labels) for name, value in _VALUES]
            samples += [Sample(name, value, (*labels, label)) for name, label, value in _labelled(partition)]
    return samples


def _sum(topic: str, partitions: Iterable[PartitionServer]) -> Iterator[Sample]:
    labels = (topic, _NOT_TOLD)
    values = [0.0] * len(_VALUES)
    labelled: defaultdict[tuple[str, str], int] = defaultdict(int)
    for partition in partitions:
        for number, (_, value) in enumerate(_VALUES):
            values[number] += value(partition)
        for name, label, count in _labelled(partition):
            labelled[name, label] += count
    for (name, _), total in zip(_VALUES, values, strict=True):
        yield Sample(name, total, labels)
    for (name, label), total in labelled.items():
        yield Sample(name, total, (*labels, label))


def _labelled(partition: PartitionServer) -> Iterator[tuple[str, str, int]]:
    """Values with a label of their own: name, label, value."""
    for level, count in enumerate(partition.state.head.levels.counts):
        yield "partition_head_blobs", str(level), count
    for code, count in partition.counters.errors.items():
        yield "partition_write_errors", code.name, count
