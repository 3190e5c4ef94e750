"""Any order of writes, flushes, compactions, moves and losses: a sorted table is read as the naive one of its books.

At every timestamp at or above the retained one, while background work runs as it does; in the end nothing is left in
the stores that no tablet knows of.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from pqbroker.conf.broker import BrokerSettings
from pqbroker.tables.mount import MountCommand
from tests.simulation.inline_workers import inline_workers
from tests.simulation.loop import VirtualLoop
from tests.simulation.node import SimulatedNode
from tests.simulation.sorted_story import KEYS, TABLETS, SortedStory
from tests.support.depth import examples

THREAD_S = 0.002
STEP_S = 300.0
"""Simulated time that a step may take."""
STEPS = 40
PADDING = 300
"""Bytes with which a few rows fill a partition."""
INLINE_BYTES = (100, 8192)
"""Settings with which log entries are blobs, and rows."""
LAST = TABLETS - 1

indexes = st.integers(0, LAST)
some_keys = st.lists(st.integers(0, KEYS - 1), min_size=1, max_size=KEYS, unique=True)
keys_of_tablet = st.tuples(indexes, st.lists(st.integers(0, 3), min_size=1, max_size=4, unique=True)).map(
    lambda drawn: [drawn[0] * (KEYS // TABLETS) + key for key in drawn[1]]
)
keys = keys_of_tablet | some_keys
columns = st.sampled_from(("ab", "a", "b", "", "aB", "Ab", "AB"))
attributes = st.sampled_from((
    {"max_data_ttl": 50_000}, {"max_data_ttl": 5_000}, {"max_data_versions": 3}, {"max_data_versions": 1},
    {"min_data_versions": 0}, {"min_data_versions": 2}, {"merge_rows_on_flush": True}, {"merge_rows_on_flush": False},
    {"merge_deletions_on_flush": True}, {"forced_compaction_revision": 1},
    {"auto_compaction_period": 10_000, "periodic_compaction_mode": "store"},
    {"auto_compaction_period": 10_000, "periodic_compaction_mode": "partition"}, {"auto_compaction_period": None},
    {"enable_compaction_and_partitioning": False}, {"enable_compaction_and_partitioning": True},
))  # fmt: skip


class SortedTableStory(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self._workers_killed = 0
        self._inline = inline_workers(self._is_killed)
        self._inline.__enter__()
        self._loop = VirtualLoop(lambda: THREAD_S)
        self._runner = asyncio.Runner(loop_factory=lambda: self._loop)

    def _is_killed(self) -> bool:
        self._workers_killed -= 1
        return self._workers_killed == 0

    def _run(self, *steps: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        """Take steps at once, and let the node recover."""

        async def take() -> None:
            async with asyncio.timeout(STEP_S):
                await asyncio.gather(*(step() for step in steps))
            await self.story.settle()

        self._runner.run(take())
        assert not self._loop.defects

    @initialize(inline_bytes=st.sampled_from(INLINE_BYTES), backoff_ms=st.sampled_from((1_000, 10_000)))
    def begin(self, inline_bytes: int, backoff_ms: int) -> None:
        async def start() -> None:
            chosen = replace(BrokerSettings(), inline_bytes_max=inline_bytes, table_backoff_ms=backoff_ms)
            node = SimulatedNode(chosen)
            await node.start()
            self.story = SortedStory(node)
            await self.story.create()
            await self.story.add_cell()

        self._runner.run(start())

    @rule(keys=keys, columns=columns, is_update=st.booleans(), padding=st.sampled_from((0, 0, PADDING)))
    def write(self, keys: Sequence[int], columns: str, is_update: bool, padding: int) -> None:
        self._run(lambda: self.story.write(keys, columns, is_update=is_update, padding=padding))

    @rule(writes=st.lists(st.tuples(keys, columns, st.booleans()), min_size=2, max_size=8))
    def write_at_once(self, writes: Sequence[tuple[Sequence[int], str, bool]]) -> None:
        def step(some: Sequence[int], columns: str, is_update: bool) -> Callable[[], Coroutine[Any, Any, Any]]:
            return lambda: self.story.write(some, columns, is_update=is_update)

        self._run(*(step(*one) for one in writes))

    @rule(keys=keys)
    def delete(self, keys: Sequence[int]) -> None:
        self._run(lambda: self.story.delete(keys))

    @rule(seconds=st.sampled_from((0.001, 0.5, 3.0, 20.0)))
    def pass_time(self, seconds: float) -> None:
        self._run(lambda: self.story.pass_time(seconds))

    @rule(index=indexes)
    def rotate(self, index: int) -> None:
        self.story.rotate(index)

    @rule(keys=keys)
    def flush_beside_a_write(self, keys: Sequence[int]) -> None:
        async def flush() -> None:
            await self.story.command(MountCommand.FREEZE, 0, LAST)
            await self.story.command(MountCommand.UNFREEZE, 0, LAST)

        self._run(flush, lambda: self.story.write(keys, "ab", is_update=False))

    @rule(bounds=st.tuples(indexes, indexes).map(sorted), is_forced=st.booleans(), stays=st.booleans())
    def unmount(self, bounds: Sequence[int], is_forced: bool, stays: bool) -> None:
        self._run(lambda: self.story.command(MountCommand.UNMOUNT, bounds[0], bounds[1], is_forced=is_forced))
        if not stays:
            self.mount()

    @rule()
    def mount(self) -> None:
        self._run(self.story.mount_all)

    @rule(index=indexes, place=st.integers(0, 1), keys=keys)
    def move_beside_writes(self, index: int, place: int, keys: Sequence[int]) -> None:
        self._run(
            lambda: self.story.write(keys, "ab", is_update=True),
            lambda: self.story.move(index, place),
            lambda: self.story.write(keys, "ab", is_update=False),
        )

    @rule(index=indexes, keys=keys)
    def restart_beside_a_write(self, index: int, keys: Sequence[int]) -> None:
        self._run(
            lambda: self.story.restart_tablet(index), lambda: self.story.write(keys, "a", is_update=True)
        )

    @rule(given=attributes)
    def set_attributes(self, given: dict[str, Any]) -> None:
        self._run(lambda: self.story.set_attributes(given))

    @rule(after=st.integers(1, 5))
    def kill_a_worker(self, after: int) -> None:
        """At one of its next messages."""
        self._workers_killed = after

    @rule(place=st.integers(0, 1), after=st.integers(0, 4))
    def refuse(self, place: int, after: int) -> None:
        self.story.node.engines[place].faults.refuse_next(after=after)

    @rule(place=st.integers(0, 1), after=st.integers(0, 4), stored=st.booleans())
    def lose(self, place: int, after: int, stored: bool) -> None:
        self.story.node.engines[place].faults.lose_next(after=after, stored=stored)

    @rule(durable=st.integers(0, 3), keys=keys)
    def kill_the_node(self, durable: int, keys: Sequence[int]) -> None:
        async def kill() -> None:
            node = self.story.node
            node.engine.faults.hold()
            writing = asyncio.ensure_future(self.story.write(keys, "ab", is_update=False))
            await asyncio.sleep(THREAD_S)
            await node.kill(durable)
            await node.start()
            await writing

        self._run(kill)

    @rule(key=st.integers(0, KEYS - 1), back=st.integers(0, 20), before=st.integers(0, 1))
    def read(self, key: int, back: int, before: int) -> None:
        """At a timestamp of the row, or just before it; or as of now."""
        stamps = self.story.book.timestamps(key)
        timestamp = stamps[-back] - before if 0 < back <= len(stamps) else None
        self._run(lambda: self.story.read(key, timestamp))

    def teardown(self) -> None:
        try:
            if hasattr(self, "story"):
                self._runner.run(self._verify())
        finally:
            self._runner.close()
            self._inline.__exit__(None, None, None)

    async def _verify(self) -> None:
        story, self._workers_killed = self.story, 0
        for engine in story.node.engines:
            engine.faults.clear()
        await story.settle()
        await story.mount_all()
        await story.verify()
        await story.node.kill()
        await story.node.start()
        await story.verify()
        await story.node.stop()
        assert not self._loop.defects


SortedTableStory.TestCase.settings = settings(
    max_examples=examples(400), stateful_step_count=STEPS, deadline=None
)  # fmt: skip
TestSortedTableStory = pytest.mark.timeout(600)(SortedTableStory.TestCase)
