"""An explanation of compaction: the tasks that a table calls for now, in order, and what keeps other chunks out."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from heapq import nsmallest
from itertools import islice
from typing import Final, NamedTuple

from pqbroker.tables.sorted.picking.balancing import PartitionMerge, PartitionSplit, pick_merges, pick_splits
from pqbroker.tables.sorted.picking.choice import Choice
from pqbroker.tables.sorted.picking.facts import TabletStores
from pqbroker.tables.sorted.picking.survey import ChunkTask, TaskKind, survey

ALL_RUN: Final = "the node runs as many tasks of this kind as it may"
SWITCHED_OFF: Final = "enable_compaction_and_partitioning is false"
EXAMPLES_MAX: Final = 10
"""Chunks that stand for all with the same reason to be left out, and tablets for all that rest."""


class WaitingTask(NamedTuple):
    """A task that a tablet calls for, and why it waits; empty: it begins with the next look."""

    tablet_index: int
    task: ChunkTask
    waits: str


class LeftOutChunks(NamedTuple):
    """Chunks that one kind of task leaves out for one reason; the first ones, by tablet index and number."""

    chunk_count: int
    examples: tuple[tuple[int, int], ...]


@dataclass(slots=True)
class Explanation:
    """All that the tablets of a table call for. `tasks_max`: tasks that are kept, the most urgent ones."""

    tasks_max: int
    task_count: int = 0
    splits: list[tuple[int, PartitionSplit]] = field(default_factory=list)
    """Partitions to be split, by tablet index."""
    merges: list[tuple[int, PartitionMerge]] = field(default_factory=list)
    left_out: dict[tuple[TaskKind, str], LeftOutChunks] = field(default_factory=dict)
    rests: dict[str, list[int]] = field(default_factory=dict)
    """Indexes of the first tablets whose chunks no task takes, by the cause."""
    _tasks: list[tuple[int, ChunkTask, str]] = field(default_factory=list)

    def add(self, index: int, facts: Callable[[], TabletStores], now_ms: int, rests: str) -> None:
        """Take in one tablet. `rests`: what keeps its tasks from running; empty: nothing does."""
        seen = survey(facts(), now_ms)
        tasks = list(seen.tasks())
        self.task_count += len(tasks)
        self._tasks = nsmallest(
            self.tasks_max, [*self._tasks, *((index, task, rests) for task in tasks)], key=lambda each: each[1].place
        )
        if rests:
            known = self.rests.setdefault(rests, [])
            known += [index] if len(known) < EXAMPLES_MAX else []
        if rests in ("", SWITCHED_OFF):
            splits = pick_splits(seen.tablet, seen.overlaps, now_ms)
            merges = pick_merges(seen.tablet, splits, now_ms)
            self.splits += [(index, split) for split in splits[: self.tasks_max - len(self.splits)]]
            self.merges += [(index, merge) for merge in merges[: self.tasks_max - len(self.merges)]]
        self._leave_out(index, TaskKind.PARTITIONING, seen.partitioning)
        self._leave_out(index, TaskKind.COMPACTION, seen.eden)
        for choice in seen.partitions:
            self._leave_out(index, TaskKind.COMPACTION, choice)

    def tasks(self, running: Mapping[str, tuple[int, int]]) -> list[WaitingTask]:
        """Return the tasks in the order in which they begin. `running`: tasks of the node under way by kind, each with
        the most at once."""
        free = {kind: most - count for kind, (count, most) in running.items()}
        found = []
        for index, task, rests in self._tasks:
            waits = rests or ("" if free[task.kind] > 0 else ALL_RUN)
            free[task.kind] -= not rests
            found.append(WaitingTask(index, task, waits))
        return found

    def _leave_out(self, tablet_index: int, kind: TaskKind, choice: Choice) -> None:
        for why, count in Counter(choice.left_out.values()).items():
            known = self.left_out.get((kind, why), LeftOutChunks(0, ()))
            numbers = (number for number, each in choice.left_out.items() if each is why)
            examples = ((tablet_index, number) for number in islice(numbers, EXAMPLES_MAX - len(known.examples)))
            self.left_out[kind, why] = LeftOutChunks(known.chunk_count + count, (*known.examples, *examples))
