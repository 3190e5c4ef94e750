"""Picking and the clean-up of versions together: whatever is picked, readers find the rows of a naive model (C.8).

Tasks run beside each other, and beside writes and flushes: what they may remove is decided when they begin.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import pytest

from pqbroker.conf.sorted_attributes import SortedAttributes, sorted_in_force
from pqbroker.pq.log.commit_timestamps import milliseconds_of, timestamp_of
from pqbroker.tables.sorted.picking.facts import ChunkStore, DynamicStore, PartitionChunks, TabletStores, partition_of
from pqbroker.tables.sorted.picking.major_timestamp import major_timestamp
from pqbroker.tables.sorted.picking.survey import ChunkTask, TaskKind, in_order, survey
from pqbroker.tables.sorted.versions import CleanUp, Version, clean, seen
from tests.support.depth import some
from tests.tables.sorted.picking.stores import NOW, key

pytestmark = pytest.mark.spec("C.8")

KEYS = 4
TASKS_MAX = 3
SEEDS = 400
Rows = dict[int, list[Version]]
"""Versions by key, the newest first."""


@dataclass(frozen=True)
class Running:
    """A task that has read its chunks and has not named its own yet."""

    task: ChunkTask
    made: tuple[Rows, ...]


class Table:
    """One tablet with rows; its chunks are as many bytes as they have versions."""

    def __init__(self, attributes: SortedAttributes, cuts: Iterable[int]) -> None:
        self.attributes = attributes
        self.pivots = [b"", *map(key, sorted(cuts))]
        self.now_ms = NOW
        self.last_timestamp = timestamp_of(NOW)
        self.active: Rows = {}
        self.passive: list[Rows] = []
        self.chunks: dict[int, tuple[ChunkStore, Rows]] = {}
        self.running: list[Running] = []
        self.model: dict[int, Version] = {}
        self.kinds: set[TaskKind] = set()
        self._next_number = 1

    def write(self, number: int, value: int | None) -> None:
        """Write a value of a key, or delete it: None."""
        self.last_timestamp = max(self.last_timestamp + 1, timestamp_of(self.now_ms))
        version = Version(self.last_timestamp, None if value is None else [value])
        self.active.setdefault(number, []).insert(0, version)
        self.model[number] = version

    def rotate(self) -> None:
        self.passive.append(self.active)
        self.active = {}

    def flush(self, index: int) -> None:
        """Flush a passive store, whichever is ready first, or else the active one."""
        if not self.passive:
            self.rotate()
        self._add(self.passive.pop(index % len(self.passive)))

    def begin(self) -> None:
        """Begin the most urgent task."""
        tablet = self._tablet()
        found = in_order(survey(tablet, self.now_ms).tasks())
        if found and len(self.running) < TASKS_MAX:
            task = found[0]
            self.kinds.add(task.kind)
            self.running.append(Running(task, tuple(self._made(tablet, task))))

    def end(self, index: int) -> None:
        """Put the chunks of a task in the place of those that it read."""
        if self.running:
            ended = self.running.pop(index % len(self.running))
            for number in ended.task.choice.numbers:
                del self.chunks[number]
            for rows in ended.made:
                self._add(rows)

    def check(self) -> None:
        """Compare each row with the model: what has expired may be gone, and nothing else is found."""
        for number in range(KEYS):
            held = [self.active, *self.passive, *(rows for _, rows in self.chunks.values())]
            versions = _newest_first(each for rows in held for each in rows.get(number, []))
            found = seen(versions, self.last_timestamp, [0])
            newest = self.model.get(number)
            wanted = None if newest is None or newest.values is None else list(newest.values)
            if found != wanted:
                assert found is None, f"{number} has {found}, and not {wanted}"
                assert newest is not None
                age_ms = self.now_ms - milliseconds_of(newest.timestamp)
                assert self.attributes.min_data_versions == 0
                assert age_ms > self.attributes.max_data_ttl

    def _made(self, tablet: TabletStores, task: ChunkTask) -> Iterable[Rows]:
        if task.kind is TaskKind.DISCARD:
            return
        numbers = task.choice.numbers
        rules = self._rules(major_timestamp(tablet, numbers))
        merged: defaultdict[int, list[Version]] = defaultdict(list)
        for number in numbers:
            for row, versions in self.chunks[number][1].items():
                merged[row] += versions
        left = {row: clean(_newest_first(versions), 1, rules) for row, versions in merged.items()}
        if task.kind is TaskKind.COMPACTION:
            yield left
            return
        for each in tablet.partitions:
            inside = (row for row in left if each.pivot <= key(row) and (each.end is None or key(row) < each.end))
            yield {row: left[row] for row in inside}

    def _rules(self, major: int) -> CleanUp:
        known = self.attributes
        return CleanUp(
            now_ms=self.now_ms, min_data_ttl=known.min_data_ttl, max_data_ttl=known.max_data_ttl,
            min_data_versions=known.min_data_versions, max_data_versions=known.max_data_versions,
            major=major, retained=self.last_timestamp, hidden_before=major,
        )  # fmt: skip

    def _tablet(self) -> TabletStores:
        busy = {number for each in self.running for number in each.task.choice.numbers}
        of_partition: defaultdict[int | None, list[ChunkStore]] = defaultdict(list)
        for number, (chunk, _) in sorted(self.chunks.items()):
            index = partition_of(chunk.first_key, chunk.last_key, self.pivots, None)
            of_partition[index].append(replace(chunk, is_busy=number in busy))
        ends = [*self.pivots[1:], None]
        partitions = tuple(
            PartitionChunks(pivot, end, tuple(of_partition[index]))
            for index, (pivot, end) in enumerate(zip(self.pivots, ends, strict=True))
        )
        is_partitioning = any(each.task.kind is TaskKind.PARTITIONING for each in self.running)
        return TabletStores(
            1, self.attributes, partitions, tuple(of_partition[None]),
            active=_store(self.active), passive=tuple(map(_store, self.passive)),
            barrier=self.last_timestamp + 1, is_eden_partitioning=is_partitioning,
        )  # fmt: skip

    def _add(self, rows: Rows) -> None:
        held = {row: versions for row, versions in rows.items() if versions}
        if held:
            stamps = [each.timestamp for versions in held.values() for each in versions]
            chunk = ChunkStore(
                number=self._next_number, compressed_bytes=len(stamps), uncompressed_bytes=len(stamps),
                rows=len(stamps), created_ms=self.now_ms, least_timestamp=min(stamps), greatest_timestamp=max(stamps),
                first_key=key(min(held)), last_key=key(max(held)), revision=0,
            )  # fmt: skip
            self.chunks[self._next_number] = chunk, held
            self._next_number += 1


def _store(rows: Rows) -> DynamicStore:
    stamps = [each.timestamp for versions in rows.values() for each in versions]
    return DynamicStore(0, len(stamps), len(stamps), min(stamps, default=None), NOW)


def _newest_first(versions: Iterable[Version]) -> list[Version]:
    return sorted(versions, key=lambda each: each.timestamp, reverse=True)


STEPS = {"write": 4, "delete": 4, "rotate": 2, "flush": 4, "begin": 3, "end": 3, "wait": 1}
"""How often a step is drawn beside the others."""
CHOICES: dict[str, list[Any]] = {
    "min_data_ttl": [0, 0, 20], "max_data_ttl": [0, 0, 20, 60], "min_data_versions": [0, 0, 0, 1, 2],
    "max_data_versions": [1, 2], "min_compaction_store_count": [2, 3], "min_partitioning_data_size": [2, 6],
    "auto_compaction_period": [None, 30], "periodic_compaction_mode": ["store", "partition"],
    "max_overlapping_store_count": [3, 30],
}  # fmt: skip


@pytest.mark.parametrize("seed", some(range(SEEDS)))
def test_rows_are_those_of_a_naive_model_whatever_is_picked(seed: int) -> None:
    chance = Random(seed)
    attributes = {name: chance.choice(values) for name, values in CHOICES.items()}
    table = Table(sorted_in_force(attributes), chance.sample(range(1, KEYS), chance.randrange(3)))
    for step in chance.choices(list(STEPS), list(STEPS.values()), k=150):
        number = chance.randrange(KEYS)
        if step in ("write", "delete"):
            table.write(number, table.last_timestamp % 100 if step == "write" else None)
        elif step == "wait":
            table.now_ms += 1 + 8 * number
        elif step == "flush":
            table.flush(number)
        elif step == "rotate":
            table.rotate()
        elif step == "begin":
            table.begin()
        else:
            table.end(number)
        table.check()
