"""Who has a sorted table: writes rows, flushes, moves and mounts its tablets, and reads them at any timestamp.

Steps are taken in rounds, some at once; after each the client waits until the node is well, and learns what became of
writes in doubt.
"""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

from pqbroker.tables.mount import MountCommand
from tests.simulation.sorted_story import KEYS, TABLETS, NotServed, SortedStory
from tests.simulation.transacting import SimulatedTransactions
from tests.simulation.world import BACK_OFF_S, World

ROUNDS_A_SECOND = 8.0
AT_ONCE_MAX = 3
COLUMNS = ("ab", "a", "b", "aB")
KEPT_MS = 60_000
"""Longer than a run: what is in doubt is not cleaned up before it is known."""
PADDINGS = (0, 0, 300)
LAST = TABLETS - 1
_Step = Callable[[], Coroutine[Any, Any, None]]


class SimulatedSortedTable:
    """Lives the story of a world that has a sorted table."""

    def __init__(self, world: World, story: SortedStory) -> None:
        self._world = world
        self._chance = world.chance("sorted table")
        self.story = story

    async def run(self) -> None:
        while not (self._world.node.is_up and self.story.is_created):
            if self._world.node.is_up:
                await self.story.create(min_data_ttl=KEPT_MS, max_data_ttl=KEPT_MS)
            await asyncio.sleep(BACK_OFF_S)
        await self.story.settle()
        transacting = None
        if self._world.transaction_story is not None:
            transacting = SimulatedTransactions(self._world, self._world.transaction_story)
            await transacting.begin()
        steps: list[_Step] = [self._write] * 6 + [self._delete, self._flush, self._flush, self._unmount, self._restart]
        if self._world.has_cells:
            steps += [self._move] * 2
        if transacting is not None:
            steps += transacting.steps
        while not self._world.is_ending:
            await asyncio.sleep(self._chance.expovariate(ROUNDS_A_SECOND))
            await self.story.settle()
            chosen = self._chance.choices(steps, k=self._chance.randint(1, AT_ONCE_MAX))
            self._world.note(f"sorted table: {', '.join(step.__name__ for step in chosen)}")
            await asyncio.gather(*map(self._take, chosen))
            await self.story.settle()
            await self.story.read(self._chance.randrange(KEYS), None)
            await self._read_earlier()
            if transacting is not None:
                transacting.compare_reads()
        await self.story.settle()
        while not self.story.is_mounted:
            await self._take(self.story.mount_all)
            await asyncio.sleep(BACK_OFF_S)
            await self.story.settle()
        await self.story.read_all()
        if transacting is not None:
            await transacting.end()

    async def _take(self, step: _Step) -> None:
        with suppress(NotServed):
            await step()

    def _keys(self) -> list[int]:
        """Of one tablet mostly: tablets may live in several cells."""
        if self._chance.random() < 0.3:
            return self._chance.sample(range(KEYS), self._chance.randint(1, KEYS))
        first = self._chance.randrange(TABLETS) * (KEYS // TABLETS)
        return self._chance.sample(range(first, first + KEYS // TABLETS), self._chance.randint(1, 3))

    async def _write(self) -> None:
        is_update, padding = self._chance.random() < 0.5, self._chance.choice(PADDINGS)
        await self.story.write(self._keys(), self._chance.choice(COLUMNS), is_update=is_update, padding=padding)

    async def _delete(self) -> None:
        await self.story.delete(self._keys())

    async def _flush(self) -> None:
        await self.story.command(MountCommand.FREEZE, 0, LAST)
        await self.story.command(MountCommand.UNFREEZE, 0, LAST)

    async def _unmount(self) -> None:
        first = self._chance.randrange(TABLETS)
        is_forced = self._chance.random() < 0.3
        await self.story.command(MountCommand.UNMOUNT, first, LAST, is_forced=is_forced)
        await self.story.mount_all()

    async def _restart(self) -> None:
        await self.story.restart_tablet(self._chance.randrange(TABLETS))

    async def _move(self) -> None:
        await self.story.move(self._chance.randrange(TABLETS), self._chance.randrange(2))

    async def _read_earlier(self) -> None:
        key = self._chance.randrange(KEYS)
        stamps = self.story.book.timestamps(key)
        if stamps:
            await self.story.read(key, self._chance.choice(stamps) - self._chance.randrange(2))
