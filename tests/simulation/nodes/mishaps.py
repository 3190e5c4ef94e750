"""Things go wrong among nodes: deaths, pauses, cuts of one direction, a store out of reach, duels, moves of cells."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from pqbroker.storage.bundles.bundle import BundleRefused
from pqbroker.storage.engine import CommitRefused, EngineError, ShardLost
from pqbroker.storage.ids import CellId
from tests.simulation.nodes.cluster import Cluster
from tests.simulation.nodes.directory import SharedCell
from tests.simulation.nodes.processes import PARENT
from tests.simulation.nodes.story import NodesStory

RUN_S = 25.0
MISHAPS_A_SECOND = 0.8
PAUSES_S = (0.3, 2.0, 4.0, 8.0)
CUTS_S = (0.5, 3.5, 5.0, 10.0)
FIRST = 1


class NodeMishaps:
    """Mishaps of one run; some overlap."""

    def __init__(self, story: NodesStory, cluster: Cluster) -> None:
        self._cluster = cluster
        self._chance = story.chance("mishaps")
        self._under_way: set[asyncio.Future[None]] = set()

    async def run(self) -> None:
        """Return when all is well again."""
        loop = asyncio.get_running_loop()
        end = loop.time() + RUN_S
        cluster, chance = self._cluster, self._chance
        cluster.directory.durable_of_the_dead = lambda: chance.choice((0, 0, 1, 3))  # type: ignore[method-assign]
        mishaps: tuple[Callable[[int], Awaitable[None]], ...]
        mishaps = (self._kill, self._pause, self._cut, self._cut, self._part, self._give, self._lose, self._refuse)
        mishaps += self._duel, self._duel, self._restart
        while loop.time() < end:
            await asyncio.sleep(chance.expovariate(MISHAPS_A_SECOND))
            task = asyncio.ensure_future(chance.choice(mishaps)(chance.randint(1, cluster.count)))
            self._under_way.add(task)
            task.add_done_callback(self._under_way.discard)
        await asyncio.gather(*self._under_way)
        cluster.loop.network.heal_all()
        cluster.directory.barred.clear()
        for cell in cluster.directory.cells.values():
            cell.faults.clear()

    async def _kill(self, number: int) -> None:
        await self._hold(number)
        self._cluster.processes[number].end(-9)

    async def _pause(self, number: int) -> None:
        """The process is stopped; where its parent kills it meanwhile, that may take until after it was continued."""
        await self._hold(number)
        process = self._cluster.processes[number]
        process.kill_delay_s = self._chance.choice((0.0, 0.0, 3.0, 6.0))
        process.pause()
        await asyncio.sleep(self._chance.choice(PAUSES_S) * self._chance.random())
        process.resume()

    async def _duel(self, number: int) -> None:
        """A process is taken for dead, and another one started, while it is only late. Locks would not have it."""
        if self._cluster.directory.has_locks:
            return
        await self._hold(number)
        process = self._cluster.processes[number]
        process.pause()
        process.presume_dead()
        await asyncio.sleep(self._chance.choice(PAUSES_S) * self._chance.random())
        process.resume()
        await asyncio.sleep(self._chance.choice(PAUSES_S))
        process.end(-9)

    async def _hold(self, number: int) -> None:
        """Have commits of a node's cells wait for a moment, so that some are on their way when it is stopped."""
        cells = [cell for cell in self._cluster.directory.cells.values() if cell.belongs_to(number)]
        for cell in cells:
            cell.faults.hold()
        await asyncio.sleep(self._chance.random() * 0.3)
        asyncio.get_running_loop().call_later(0.001, _release, cells)

    async def _restart(self, _: int) -> None:
        """The parent restarts all nodes, one after the other."""
        if self._chance.random() < 0.3:
            self._cluster.restart_all()

    async def _cut(self, number: int) -> None:
        """One direction between the first node, or the parent, and another is cut."""
        other = PARENT if self._chance.random() < 0.2 else FIRST
        way = (number, other) if self._chance.random() < 0.5 else (other, number)
        self._cluster.loop.network.cut(way)
        await asyncio.sleep(self._chance.choice(CUTS_S) * self._chance.random())
        self._cluster.loop.network.heal(way)

    async def _part(self, number: int) -> None:
        """A node reaches neither the store nor the first one; its parent sees nothing of it."""
        if number == FIRST:
            return
        self._cluster.directory.bar(number)
        self._cluster.loop.network.cut((FIRST, number))
        await asyncio.sleep(self._chance.choice(CUTS_S))
        self._cluster.directory.barred.discard(number)
        await asyncio.sleep(self._chance.choice((0.0, 6.0)))
        self._cluster.loop.network.heal((FIRST, number))

    async def _lose(self, _: int) -> None:
        cells = list(self._cluster.directory.cells.values())
        faults = self._chance.choice(cells).faults
        faults.lose_next(after=self._chance.randint(0, 5), stored=self._chance.random() < 0.5)

    async def _refuse(self, _: int) -> None:
        cells = list(self._cluster.directory.cells.values())
        self._chance.choice(cells).faults.refuse_next(after=self._chance.randint(0, 5))

    async def _give(self, number: int) -> None:
        """A cell is moved to a node."""
        first = self._cluster.processes[FIRST]
        if first.server is None or first.is_stopped:
            return
        cells = sorted(first.server.node.cell.current.hive.cells)
        first.run(self._begin_giving, first.server, self._chance.choice(cells), number)

    def _begin_giving(self, server: object, cell: CellId, number: int) -> None:
        task = asyncio.get_running_loop().create_task(give(server, cell, number))
        self._giving = task


def _release(cells: Sequence[SharedCell]) -> None:
    for cell in cells:
        cell.faults.release()


async def give(server: object, cell: CellId, number: int) -> None:
    try:
        await server.node.cell.current.others.between.give(cell, number)  # type: ignore[attr-defined]
    except (BundleRefused, CommitRefused, EngineError, ShardLost):
        return
