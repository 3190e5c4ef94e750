"""A tablet's chunks as picking changes them: tasks are carried out on facts alone, over keys of even density."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from pqbroker.pq.log.commit_timestamps import timestamp_of
from pqbroker.tables.sorted.picking.balancing import PartitionMerge, PartitionSplit, pick_merges, pick_splits
from pqbroker.tables.sorted.picking.facts import ChunkStore, PartitionChunks, TabletStores, partition_of
from pqbroker.tables.sorted.picking.pivots import KeySample, split_pivots
from pqbroker.tables.sorted.picking.survey import ChunkTask, TaskKind, in_order, survey
from tests.tables.sorted.picking.stores import KEYS_END, chunk, key

SAMPLES = 50
"""Samples of a chunk."""


class Structure:
    """The chunks of one tablet; counts what its tasks read."""

    def __init__(self, tablet: TabletStores, now_ms: int, next_number: int | None = None) -> None:
        self.tablet = tablet
        self.now_ms = now_ms
        self.flushed_bytes = 0
        self.compacted_bytes = 0
        self.done: list[ChunkTask] = []
        self._next_number = next_number or 1 + max((each.number for each in tablet.chunks()), default=0)

    @property
    def amplification(self) -> float:
        """Return bytes that tasks read by bytes that were flushed."""
        return self.compacted_bytes / self.flushed_bytes

    @property
    def overlap(self) -> int:
        return survey(self.tablet, self.now_ms).overlap.count

    def flush(self, size: int, keys: tuple[int, int] = (0, KEYS_END - 1)) -> None:
        """Add a chunk as a flush does."""
        self.flushed_bytes += size
        stamp = timestamp_of(self.now_ms)
        facts = {"created_ms": self.now_ms, "least_timestamp": stamp, "greatest_timestamp": stamp}
        self._place([chunk(self._number(), size, keys, **facts)], dropped=())

    def run(self, steps_max: int) -> None:
        """Carry out what is picked until nothing is; more than `steps_max` steps are a failure."""
        for _ in range(steps_max):
            if not self.step():
                return
        raise AssertionError(f"{steps_max} steps did not end it: {[each.choice.reason for each in self.done[-5:]]}")

    def step(self) -> bool:
        """Carry out the most urgent task, or else a split or a merge. Return False if there is none."""
        found = survey(self.tablet, self.now_ms)
        tasks = in_order(found.tasks())
        if tasks:
            self._carry_out(tasks[0])
            return True
        splits = pick_splits(self.tablet, found.overlaps, self.now_ms)
        split = next((each for each in splits if self._pivots(each)), None)
        merges = pick_merges(self.tablet, splits, self.now_ms)
        if split is not None:
            self._split(split)
        elif merges:
            self._merge(merges[0])
        return split is not None or bool(merges)

    def _carry_out(self, task: ChunkTask) -> None:
        self.done.append(task)
        inputs = task.choice.inputs
        is_compaction = task.kind is TaskKind.COMPACTION
        made = [self._merged(inputs)] if is_compaction else list(self._partitioned(inputs))
        self.compacted_bytes += task.choice.compressed_bytes
        self._place(made, dropped=inputs)

    def _merged(self, inputs: Sequence[ChunkStore], sizes: Iterable[int] | None = None) -> ChunkStore:
        return replace(
            inputs[0],
            number=self._number(),
            compressed_bytes=max(1, sum(each.compressed_bytes for each in inputs) if sizes is None else sum(sizes)),
            created_ms=self.now_ms,
            first_key=min(each.first_key for each in inputs),
            last_key=max(each.last_key for each in inputs),
            least_timestamp=min(each.least_timestamp for each in inputs),
            greatest_timestamp=max(each.greatest_timestamp for each in inputs),
            revision=self._next_number,
        )

    def _partitioned(self, inputs: Sequence[ChunkStore]) -> Iterable[ChunkStore]:
        for partition in self.tablet.partitions:
            begin, end = _number_of(partition.pivot), KEYS_END if partition.end is None else _number_of(partition.end)
            parts = {each.number: _part(each, begin, end) for each in inputs if _part(each, begin, end) > 0}
            inside = [each for each in inputs if each.number in parts]
            if inside:
                merged = self._merged(inside, (int(each.compressed_bytes * parts[each.number]) for each in inside))
                first, last = max(merged.first_key, key(begin)), min(merged.last_key, key(end - 1))
                yield replace(merged, first_key=first, last_key=last)

    def _split(self, split: PartitionSplit) -> None:
        self._with_partitions([*(each.pivot for each in self.tablet.partitions), *self._pivots(split)])

    def _pivots(self, split: PartitionSplit) -> tuple[bytes, ...]:
        if split.pivots:
            return split.pivots
        samples = [sample for each in split.partition.chunks for sample in _samples(each)]
        return split_pivots(samples, split.parts, split.partition.pivot, split.partition.end, split.least_share)

    def _merge(self, merge: PartitionMerge) -> None:
        self._with_partitions([each.pivot for each in self.tablet.partitions if each.pivot != merge.right.pivot])

    def _with_partitions(self, pivots: Sequence[bytes]) -> None:
        ordered = sorted(pivots)
        ends = [*ordered[1:], self.tablet.end]
        partitions = tuple(PartitionChunks(*each) for each in zip(ordered, ends, strict=True))
        held = tuple(self.tablet.chunks())
        self.tablet = replace(self.tablet, partitions=partitions, eden=())
        self._place(held, dropped=())

    def _place(self, made: Sequence[ChunkStore], dropped: Sequence[ChunkStore]) -> None:
        gone = {each.number for each in dropped}
        pivots = [each.pivot for each in self.tablet.partitions]
        eden = [each for each in self.tablet.eden if each.number not in gone]
        held = [[each for each in one.chunks if each.number not in gone] for one in self.tablet.partitions]
        for each in made:
            index = partition_of(each.first_key, each.last_key, pivots, self.tablet.end)
            (eden if index is None else held[index]).append(each)
        partitions = zip(self.tablet.partitions, held, strict=True)
        self.tablet = replace(
            self.tablet,
            partitions=tuple(replace(partition, chunks=tuple(chunks)) for partition, chunks in partitions),
            eden=tuple(eden),
        )

    def _number(self) -> int:
        self._next_number += 1
        return self._next_number


def _samples(held: ChunkStore) -> Iterable[KeySample]:
    first, count = _number_of(held.first_key), _number_of(held.last_key) + 1 - _number_of(held.first_key)
    many = min(count, SAMPLES)
    return (KeySample(key(first + count * index // many), held.compressed_bytes // many) for index in range(many))


def _number_of(encoded: bytes) -> int:
    return int.from_bytes(encoded or b"\0", "big")


def _part(held: ChunkStore, begin: int, end: int) -> float:
    """Return the part of a chunk's keys that lies from `begin` to before `end`."""
    first, last = _number_of(held.first_key), _number_of(held.last_key)
    return max(0, min(last + 1, end) - max(first, begin)) / (last + 1 - first)
