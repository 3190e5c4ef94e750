"""All that a tablet's structure calls for now: a choice for each place, and tasks in the order in which they are run.

Overlap near the limit comes first, then the task that ends more chunks (C.5.4). Splits and merges are in
`balancing.py`: they move no bytes.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from pqbroker.tables.sorted.picking.choice import Choice
from pqbroker.tables.sorted.picking.compaction import pick_in_eden, pick_in_partition
from pqbroker.tables.sorted.picking.facts import PartitionChunks, TabletStores
from pqbroker.tables.sorted.picking.major_timestamp import expired
from pqbroker.tables.sorted.picking.overlap import Overlap, critical_keys, overlaps
from pqbroker.tables.sorted.picking.partitioning import pick_partitioning


class TaskKind(StrEnum):
    """Tasks on chunks."""

    COMPACTION = "compaction"
    PARTITIONING = "partitioning"
    DISCARD = "discard"
    """Chunks are dropped unread."""


@dataclass(frozen=True, slots=True)
class ChunkTask:
    """A task that could run now."""

    kind: TaskKind
    tablet_id: int
    partition: PartitionChunks | None
    """None: Eden."""
    choice: Choice
    slack: int
    """Chunks over one key that still fit below the limit where the task is."""
    effect: int
    """Chunks that the task makes fewer."""

    @property
    def place(self) -> tuple[int, int, int, str, bool, bytes]:
        """Return the task's place among others, on all tablets of a node: the smallest runs first, no two are equal."""
        in_partition = (False, b"") if self.partition is None else (True, self.partition.pivot)
        return self.slack, -self.effect, self.tablet_id, self.kind, *in_partition


@dataclass(frozen=True, slots=True)
class Survey:
    """One look at a tablet."""

    tablet: TabletStores
    overlaps: tuple[Overlap, ...]
    """Overlap of each partition."""
    partitioning: Choice
    eden: Choice
    """Compaction of Eden."""
    partitions: tuple[Choice, ...]
    """Compaction of each partition, or its chunks to be dropped unread."""
    expired: frozenset[int]
    """Indexes of the latter."""

    @property
    def overlap(self) -> Overlap:
        """Return the tablet's overlapping store count, and the first key with that many chunks over it."""
        return max(self.overlaps, key=lambda overlap: overlap.count)

    def tasks(self) -> Iterator[ChunkTask]:
        """Yield the tasks that could run now, in no order; none while the tablet's attributes switch them off."""
        if not self.tablet.attributes.enable_compaction_and_partitioning:
            return
        slack = self._slack(max(self.overlap.count, self._eden_fill()))
        for kind, choice in ((TaskKind.PARTITIONING, self.partitioning), (TaskKind.COMPACTION, self.eden)):
            if choice.inputs:
                yield ChunkTask(kind, self.tablet.tablet_id, None, choice, slack, len(choice.inputs) - 1)
        for index, choice in enumerate(self.partitions):
            if choice.inputs:
                yield self._in_partition(index, choice)

    def _in_partition(self, index: int, choice: Choice) -> ChunkTask:
        is_discard = index in self.expired
        kind = TaskKind.DISCARD if is_discard else TaskKind.COMPACTION
        effect = len(choice.inputs) - (not is_discard)
        slack = self._slack(self.overlaps[index].count)
        return ChunkTask(kind, self.tablet.tablet_id, self.tablet.partitions[index], choice, slack, effect)

    def _slack(self, overlap: int) -> int:
        return max(0, self.tablet.attributes.critical_overlap - overlap)

    def _eden_fill(self) -> int:
        """Return how near Eden is to its own limit, as an overlap of the same part of that limit."""
        attributes = self.tablet.attributes
        return len(self.tablet.eden) * attributes.critical_overlap // attributes.max_eden_stores_per_tablet


def survey(tablet: TabletStores, now_ms: int) -> Survey:
    """Look at a tablet at a time in milliseconds since 1970.

    100 partitions of five chunks take 1 CPU-ms, 10 000 take 70: facts never change, so a thread may look.
    """
    found = overlaps(tablet)
    critical = critical_keys(tablet, found)
    partitioning = pick_partitioning(tablet, critical, now_ms)
    in_eden = pick_in_eden(tablet, critical, now_ms, partitioning.numbers)
    choices, discarded = [], set()
    for index, partition in enumerate(tablet.partitions):
        choice = expired(tablet, partition, now_ms)
        if choice.inputs:
            discarded.add(index)
        else:
            choice = pick_in_partition(tablet, partition, critical.get(index), now_ms)
        choices.append(choice)
    return Survey(tablet, found, partitioning, in_eden, tuple(choices), frozenset(discarded))


def in_order(tasks: Iterable[ChunkTask]) -> list[ChunkTask]:
    """Return the tasks of all tablets of a node, the most urgent first."""
    return sorted(tasks, key=lambda task: task.place)
