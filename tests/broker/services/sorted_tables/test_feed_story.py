"""Any order of writes, flushes, moves and losses: the change feed of a sorted table has each change once, in order."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from pqbroker.conf.broker import BrokerSettings
from tests.broker.services.sorted_tables.test_story import STEPS, SortedTableStory, indexes, keys
from tests.simulation.feed_story import FeedStory
from tests.simulation.node import SimulatedNode
from tests.support.depth import examples


class ChangeFeedStory(SortedTableStory):
    story: FeedStory

    @initialize(inline_bytes=st.sampled_from((100, 8192)), backoff_ms=st.just(1_000))
    def begin(self, inline_bytes: int, backoff_ms: int) -> None:
        async def start() -> None:
            chosen = replace(BrokerSettings(), inline_bytes_max=inline_bytes, table_backoff_ms=backoff_ms)
            node = SimulatedNode(chosen)
            await node.start()
            self.story = FeedStory(node)
            await self.story.create()
            await self.story.add_cell()

        self._runner.run(start())


    @rule(index=indexes, keys=keys)
    def restart_the_feed_beside_writes(self, index: int, keys: Sequence[int]) -> None:
        self._run(
            lambda: self.story.restart_partition(index),
            lambda: self.story.write(keys, "a", is_update=True),
            lambda: self.story.write(keys, "b", is_update=True),
        )

    @rule(index=indexes, place=st.integers(0, 1), keys=keys)
    def move_the_feed_beside_writes(self, index: int, place: int, keys: Sequence[int]) -> None:
        self._run(
            lambda: self.story.write(keys, "ab", is_update=True),
            lambda: self.story.move_partition(index, place),
            lambda: self.story.delete(keys[:1]),
        )


ChangeFeedStory.TestCase.settings = settings(
    max_examples=examples(200), stateful_step_count=STEPS, deadline=None
)  # fmt: skip
TestChangeFeedStory: Any = pytest.mark.timeout(600)(ChangeFeedStory.TestCase)
