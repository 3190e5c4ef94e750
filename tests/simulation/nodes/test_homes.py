"""Cells whose home changes while their node does not hear of it."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from pqbroker.broker.services.cells.data_cells import DataCells
from pqbroker.storage.ids import CellId
from tests.simulation.ledger import expect
from tests.simulation.nodes.cluster import Cluster, replaced
from tests.simulation.nodes.mishaps import FIRST, give
from tests.simulation.nodes.network import NodesLoop
from tests.simulation.nodes.processes import SimulatedProcess
from tests.simulation.nodes.run import TEXTS, THREAD_S, end_rest
from tests.simulation.run import defects_logged

CUT_S = 0.5
"""Seconds between two changes of a home, shorter than a link may be silent."""
PATIENCE_S = 10.0
OTHER = 2


def test_a_cell_that_is_given_away_and_back_unseen_is_served_again() -> None:
    """Its node has it open all the time, and hears of both changes at once."""

    async def live(loop: NodesLoop, first: SimulatedProcess, cell: CellId) -> None:
        loop.network.cut((FIRST, OTHER))
        for number in (FIRST, OTHER):
            _begin(first, give(first.server, cell, number))
            await asyncio.sleep(CUT_S)
        assert _cells(first).health(cell) == "offline"
        loop.network.heal((FIRST, OTHER))

    _play(live, has_locks=True)


def test_a_cell_that_was_borrowed_without_its_node_knowing_is_opened_there_again() -> None:
    """The node is fenced, where there are no locks, and hears at once that its cell was taken and given back."""

    async def live(loop: NodesLoop, first: SimulatedProcess, cell: CellId) -> None:
        loop.network.cut((FIRST, OTHER))
        _begin(first, _borrow(first, cell))
        await asyncio.sleep(CUT_S)
        assert _cells(first).health(cell) == "offline"
        loop.network.heal((FIRST, OTHER))

    _play(live, has_locks=False)


Life = Callable[[NodesLoop, SimulatedProcess, CellId], Awaitable[None]]


def _play(life: Life, *, has_locks: bool) -> None:
    """Have a broker of two nodes live so, with a cell of the second one, which has to be served in the end."""
    defects: list[str] = []
    loop = NodesLoop(lambda: THREAD_S, defects)
    with defects_logged(defects), asyncio.Runner(loop_factory=lambda: loop) as runner:
        try:
            runner.run(_live(loop, life, has_locks=has_locks))
            assert not defects
        finally:
            loop.end_all()
            runner.run(end_rest())


async def _live(loop: NodesLoop, life: Life, *, has_locks: bool) -> None:
    cluster = Cluster(loop, OTHER, TEXTS, has_locks=has_locks)
    with replaced(cluster):
        await cluster.start()
        first = cluster.processes[FIRST]
        cell = next(CellId(each) for each in (1, 2) if _cells(first).node_of(CellId(each)) == OTHER)
        await life(loop, first, cell)
        deadline = loop.time() + PATIENCE_S
        while _cells(first).health(cell) != "good":
            expect(loop.time() < deadline, "the cell is not served, as far as the first node knows")
            await asyncio.sleep(CUT_S)
        await cluster.stop()


async def _borrow(first: SimulatedProcess, cell: CellId) -> None:
    async with _cells(first).between.here([cell]):
        pass


def _cells(first: SimulatedProcess) -> DataCells:
    cells: DataCells = first.server.node.cell.current.others
    return cells


def _begin(process: SimulatedProcess, work: Coroutine[Any, Any, None]) -> None:
    """Have a process begin to do something."""
    process.run(lambda: process.work.add(asyncio.get_running_loop().create_task(work)))
