"""What goes wrong in a run: all sorts of things at random, or one loss at one commit."""

import asyncio
from typing import Protocol

from pqbroker.broker.services.cells.data_cells import BACK_OFF_FIRST_S
from pqbroker.storage.faults import Faults
from pqbroker.storage.memory import MemoryEngine
from tests.simulation.world import World

RUN_S = 5.0
CALM_RUN_S = 3.5
"""Seconds of simulated time, with mishaps and without."""
MISHAPS_A_SECOND = 2.0


class Chaos(Protocol):
    """`run` lasts as long as the run's busy part."""

    async def run(self, world: World) -> None: ...


class Mishaps:
    """Refusals, losses, delays, a full disk, a killed node, a second owner; never two kills at once."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._chance = world.chance("mishaps")
        self._engine = world.node.engine

    async def run(self, world: World) -> None:
        loop = asyncio.get_running_loop()
        end = loop.time() + RUN_S
        mishaps = (
            self._refuse, self._refuse, self._lose, self._lose, self._hold, self._hold, self._fill, self._kill,
            self._kill, self._take_over,
        )  # fmt: skip
        while loop.time() < end:
            await asyncio.sleep(self._chance.expovariate(MISHAPS_A_SECOND))
            await self._chance.choice(mishaps)()
        for engine in world.node.engines:
            engine.faults.clear()

    def _any_faults(self) -> Faults:
        """Of any cell."""
        engines = self._world.node.engines
        return (self._chance.choice(engines) if engines[1:] else self._engine).faults

    async def _refuse(self) -> None:
        faults = self._any_faults()
        for _ in range(self._chance.choice((1, 1, 3))):
            faults.refuse_next(after=self._chance.randint(0, 5))
        self._world.note("some commit will be refused")

    async def _lose(self) -> None:
        self._any_faults().lose_next(after=self._chance.randint(0, 5), stored=self._chance.random() < 0.5)
        self._world.note("some commit will be lost")

    async def _hold(self) -> None:
        self._world.note("commits take their time")
        self._engine.faults.hold()
        await asyncio.sleep(self._chance.choice((0.005, 0.1, 2.0)) * self._chance.random())
        self._engine.faults.release()

    async def _fill(self) -> None:
        self._world.note("the disk is full")
        self._engine.faults.fill()
        await asyncio.sleep(self._chance.random())
        self._engine.faults.make_room()

    async def _kill(self) -> None:
        """With commits on their way, of which some have become durable; and some more trouble at the start."""
        self._engine.faults.hold()
        await asyncio.sleep(self._chance.random() * 0.3)
        self._world.note("the node is killed")
        await self._world.node.kill(self._chance.choice((0, 0, 1, 2, 5)))
        await asyncio.sleep(self._chance.random() * 0.5)
        if self._chance.random() < 0.3:
            self._engine.faults.lose_next(after=self._chance.randint(0, 3), stored=self._chance.random() < 0.5)
        if self._chance.random() < 0.3:
            self._engine.faults.refuse_next(after=self._chance.randint(0, 3))
        await self._world.node.start()
        self._world.note("the node is up")

    async def _take_over(self) -> None:
        self._world.note("another owner comes")
        await self._world.node.start()


class LossAt:
    """One loss, at one commit counted from the very first of a cell: before it is stored or, `stored`, once it is. The
    cell is the system cell or, `of_second`, the other one."""

    def __init__(self, world: World, commit: int, *, stored: bool = False, of_second: bool = False) -> None:
        self._engine: MemoryEngine | None = None
        self._commit = commit
        self._is_stored = stored
        self.of_second = of_second
        if not of_second:
            self._lose_at(world.node.engine)

    def _lose_at(self, engine: MemoryEngine) -> None:
        self._engine = engine
        engine.faults.lose_next(after=max(self._commit - engine.faults.commits, 0), stored=self._is_stored)

    async def run(self, world: World) -> None:
        """Until the loss, before the cell is opened again; or as long as everybody else."""
        loop = asyncio.get_running_loop()
        end = loop.time() + CALM_RUN_S
        while True:
            if self._engine is None and len(world.node.engines) > 1:
                self._lose_at(world.node.engines[1])
            if loop.time() >= end or (not self.of_second and self._is_lost):
                return
            await asyncio.sleep(BACK_OFF_FIRST_S / 4)

    @property
    def _is_lost(self) -> bool:
        return self._engine is not None and self._engine.faults.commits > self._commit
