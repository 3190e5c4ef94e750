"""Client that writes a compacted topic, has it cleaned, trims, moves and reads it, while its cleaner runs all the
time."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from tests.simulation.compacted_story import BATCH_RECORDS_MAX, KEYS, CompactedStory
from tests.simulation.world import World

ROUNDS_A_SECOND = 6.0
AT_ONCE_MAX = 4
DELETED = 0.3
PADDINGS = (0, 0, 300, 1500)
CODECS = (0, 0, 3)
CHANGES = (
    {"cleanup.policy": "delete"}, {"cleanup.policy": "compact"}, {"cleanup.policy": "compact,delete"},
    {"retention.bytes": "8000"}, {"retention.bytes": "-1"}, {"min.compaction.lag.ms": "500"},
    {"min.compaction.lag.ms": "0"}, {"max.compaction.lag.ms": "500"},
    {"min.cleanable.dirty.ratio": "0"},
)  # fmt: skip
_Step = Callable[[], Coroutine[Any, Any, None]]


class SimulatedCompactedTopic:
    """Lives the story of a world that has a compacted topic."""

    def __init__(self, world: World, story: CompactedStory) -> None:
        self._world = world
        self._chance = world.chance("compacted topic")
        self.story = story

    async def run(self) -> None:
        story = self.story
        await story.create({"delete.retention.ms": self._chance.choice(("300", "20000"))})
        steps: list[_Step] = [self._write] * 6 + [story.clean, story.clean, story.flush, self._trim, self._configure]
        steps += [story.restart_tablet]
        if self._world.has_cells:
            steps += [self._move] * 2
        while not self._world.is_ending:
            await asyncio.sleep(self._chance.expovariate(ROUNDS_A_SECOND))
            chosen = self._chance.choices(steps, k=self._chance.randint(1, AT_ONCE_MAX))
            self._world.note(f"compacted topic: {', '.join(step.__name__ for step in chosen)}")
            await asyncio.gather(story.read(), *(step() for step in chosen))
            await story.read()
        await story.settle()
        await story.read()

    async def _write(self) -> None:
        count = self._chance.randint(1, BATCH_RECORDS_MAX)
        keys = [self._chance.randrange(len(KEYS)) for _ in range(count)]
        deleted = [self._chance.random() < DELETED for _ in range(count)]
        await self.story.write(keys, deleted, self._chance.choice(PADDINGS), self._chance.choice(CODECS))

    async def _trim(self) -> None:
        await self.story.trim(self._chance.choice((0.1, 0.5, 1.0)))

    async def _configure(self) -> None:
        await self.story.configure(self._chance.choice(CHANGES))

    async def _move(self) -> None:
        await self.story.move(self._chance.randrange(2))
