"""A client of transactions over a sorted and an ordered table in two cells, whose tablets move meanwhile."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

from tests.simulation.sorted_story import KEYS, TABLETS, NotServed
from tests.simulation.transaction_story import LOG_TABLETS, PlannedWrites, TransactionStory
from tests.simulation.world import BACK_OFF_S, World

THINKS_S = (0.0, 0.0, 0.01, 0.5)
BETWEEN_CELLS_S = (0.0, 0.01, 0.1)
"""Seconds between the moments of two cells in one backup."""


class SimulatedTransactions:
    """Its steps are taken among those of the sorted table."""

    def __init__(self, world: World, story: TransactionStory) -> None:
        self._world = world
        self._chance = world.chance("transactions")
        self._story = story
        assert world.backup_story is not None
        self._backups = world.backup_story

    @property
    def steps(self) -> list[Callable[[], Coroutine[Any, Any, None]]]:
        often = [self._transact] * 8 + [self._send_again] * 2 + [self._back_up] * 2
        return [*often, self._abort, self._move, self._remount, self._reshard, self._reshard_log]

    async def begin(self) -> None:
        """Create the ordered table, and have its tablets lie in two cells."""
        while self._story.log is None:
            with suppress(NotServed):
                await self._story.create()
            await asyncio.sleep(BACK_OFF_S)
        with suppress(NotServed):
            await self._story.move_log(1, 1)

    async def end(self) -> None:
        """Have the ordered table mounted."""
        while (log := self._story.log) is None or {*log.states} != {"mounted"}:
            with suppress(NotServed):
                await self._story.mount_log()
            await asyncio.sleep(BACK_OFF_S)

    def compare_reads(self) -> None:
        self._story.compare_reads()

    async def _transact(self) -> None:
        await self._story.transact(self._reads(), self._writes(), think_s=self._chance.choice(THINKS_S))

    async def _abort(self) -> None:
        await self._story.abort(self._reads(), self._writes(), by_timeout=self._chance.random() < 0.5)

    async def _send_again(self) -> None:
        await self._story.send_again(self._chance.randrange(1000))

    async def _move(self) -> None:
        await self._story.move_log(self._chance.randrange(LOG_TABLETS), self._chance.randrange(2))

    async def _reshard(self) -> None:
        """Have the tablets of the sorted table begin at other keys."""
        await self._story.story.reshard(sorted(self._chance.sample(range(1, KEYS), TABLETS - 1)))

    async def _reshard_log(self) -> None:
        await self._story.reshard_log(self._chance.randint(1, LOG_TABLETS + 1))

    async def _back_up(self) -> None:
        await self._backups.take(self._chance.choice(BETWEEN_CELLS_S))

    async def _remount(self) -> None:
        await self._story.remount_log(self._chance.randrange(LOG_TABLETS))

    def _reads(self) -> list[int]:
        return self._chance.sample(range(KEYS), self._chance.randint(0, 3))

    def _writes(self) -> PlannedWrites:
        keys = self._chance.sample(range(KEYS), self._chance.randint(0, 5))
        first, second = sorted(self._chance.choices(range(len(keys) + 1), k=2))
        logged = [self._chance.randrange(LOG_TABLETS) for _ in range(self._chance.choice((0, 0, 1, 2)))]
        return PlannedWrites(keys[:first], keys[first:second], keys[second:], logged)
