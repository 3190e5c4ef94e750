"""Any order of writes, cleanings, trims, moves, changed policies and losses: each reader of a compacted topic gets at
least its final state, in order, and a cleaning that is asked for leaves no more."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from pqbroker.conf.broker import BrokerSettings
from tests.simulation.compacted_story import BATCH_RECORDS_MAX, KEYS, CompactedStory, cleaning
from tests.simulation.inline_workers import inline_workers
from tests.simulation.loop import VirtualLoop
from tests.simulation.node import SimulatedNode
from tests.support.depth import examples

THREAD_S = 0.002
STEP_S = 300.0
"""Simulated time that a step may take."""
STEPS = 40

written = st.lists(st.tuples(st.integers(0, len(KEYS) - 1), st.booleans()), min_size=1, max_size=BATCH_RECORDS_MAX)
paddings = st.sampled_from((0, 0, 300, 1500))
codecs = st.sampled_from((0, 0, 1, 3))
configs = st.sampled_from((
    {"cleanup.policy": "delete"}, {"cleanup.policy": "compact"}, {"cleanup.policy": "compact,delete"},
    {"retention.bytes": "8000"}, {"retention.bytes": "-1"}, {"retention.ms": "30000"}, {"retention.ms": "-1"},
    {"min.compaction.lag.ms": "10000", "max.compaction.lag.ms": "20000"}, {"min.compaction.lag.ms": "0"},
    {"min.compaction.lag.ms": "0", "max.compaction.lag.ms": "500"}, {"delete.retention.ms": "1000"},
    {"min.cleanable.dirty.ratio": "0"}, {"min.cleanable.dirty.ratio": "1"},
))  # fmt: skip


class CompactedTopicStory(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self._worker_killed = 0
        self._inline = inline_workers(self._is_killed)
        self._inline.__enter__()
        self._loop = VirtualLoop(lambda: THREAD_S)
        self._runner = asyncio.Runner(loop_factory=lambda: self._loop)

    def _is_killed(self) -> bool:
        self._worker_killed -= 1
        return self._worker_killed == 0

    def _run(self, *steps: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        """Take steps at once, beside a reader, and let the node recover."""

        async def take() -> None:
            async with asyncio.timeout(STEP_S):
                await asyncio.gather(*(step() for step in steps))
                await self.story.read()

        self._runner.run(take())
        assert not self._loop.defects

    @initialize(has_room=st.booleans())
    def begin(self, has_room: bool) -> None:
        async def start() -> None:
            node = SimulatedNode(cleaning(BrokerSettings(), has_room=has_room))
            await node.start()
            self.story = CompactedStory(node)
            await self.story.create()
            await self.story.add_cell()

        self._runner.run(start())

    @rule(records=written, padding=paddings, codec=codecs)
    def write(self, records: Sequence[tuple[int, bool]], padding: int, codec: int) -> None:
        keys, deleted = zip(*records, strict=True)
        self._run(lambda: self.story.write(keys, deleted, padding, codec))

    @rule(many=st.lists(st.tuples(written, paddings), min_size=2, max_size=8))
    def write_much_beside_a_reader(self, many: Sequence[tuple[Sequence[tuple[int, bool]], int]]) -> None:
        async def write() -> None:
            for records, padding in many:
                keys, deleted = zip(*records, strict=True)
                await self.story.write(keys, deleted, padding)

        self._run(write, self.story.read)

    @rule(seconds=st.sampled_from((0.05, 3.0, 25.0)))
    def pass_time(self, seconds: float) -> None:
        self._run(lambda: asyncio.sleep(seconds))

    @rule()
    def clean(self) -> None:
        self._run(self.story.clean)

    @rule()
    def clean_beside_a_reader_and_a_flush(self) -> None:
        self._run(self.story.clean, self.story.read, self.story.flush)

    @rule(share=st.sampled_from((0.0, 0.1, 0.5, 1.0)), pause_s=st.sampled_from((0.0, 0.02)))
    def trim_beside_a_cleaning(self, share: float, pause_s: float) -> None:
        async def trim() -> None:
            await asyncio.sleep(pause_s)
            await self.story.trim(share)

        self._run(self.story.clean, trim, self.story.read)

    @rule(changed=configs)
    def configure(self, changed: dict[str, str]) -> None:
        self._run(lambda: self.story.configure(changed), self.story.read)

    @rule(place=st.integers(0, 1), records=written)
    def move_beside_a_cleaning(self, place: int, records: Sequence[tuple[int, bool]]) -> None:
        keys, deleted = zip(*records, strict=True)
        self._run(
            lambda: self.story.write(keys, deleted, 0), lambda: self.story.move(place), self.story.clean,
            self.story.read,
        )  # fmt: skip

    @rule()
    def restart_beside_a_cleaning(self) -> None:
        self._run(self.story.clean, self.story.restart_tablet, self.story.read)

    @rule(after=st.integers(1, 12))
    def kill_a_worker(self, after: int) -> None:
        """At one of its next messages."""
        self._worker_killed = after

    @rule(place=st.integers(0, 1), after=st.integers(0, 4))
    def refuse(self, place: int, after: int) -> None:
        self.story.node.engines[place].faults.refuse_next(after=after)

    @rule(place=st.integers(0, 1), after=st.integers(0, 4), stored=st.booleans())
    def lose(self, place: int, after: int, stored: bool) -> None:
        self.story.node.engines[place].faults.lose_next(after=after, stored=stored)

    @rule(durable=st.integers(0, 3), records=written)
    def kill_the_node(self, durable: int, records: Sequence[tuple[int, bool]]) -> None:
        async def kill() -> None:
            node = self.story.node
            keys, deleted = zip(*records, strict=True)
            node.engine.faults.hold()
            writing = asyncio.ensure_future(self.story.write(keys, deleted, 0))
            cleaning = asyncio.ensure_future(self.story.clean())
            await asyncio.sleep(20 * THREAD_S)
            await node.kill(durable)
            await node.start()
            await asyncio.gather(writing, cleaning)

        self._run(kill)

    def teardown(self) -> None:
        try:
            if hasattr(self, "story"):
                self._runner.run(self._verify())
        finally:
            self._runner.close()
            self._inline.__exit__(None, None, None)

    async def _verify(self) -> None:
        story, self._worker_killed = self.story, 0
        for engine in story.node.engines:
            engine.faults.clear()
        await story.verify()
        await story.node.kill()
        await story.node.start()
        await story.verify()
        await story.node.stop()
        assert not self._loop.defects


CompactedTopicStory.TestCase.settings = settings(
    max_examples=examples(200), stateful_step_count=STEPS, deadline=None
)  # fmt: skip
TestCompactedTopicStory = pytest.mark.spec("G.3")(pytest.mark.timeout(600)(CompactedTopicStory.TestCase))
