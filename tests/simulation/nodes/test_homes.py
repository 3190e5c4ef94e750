"""Cells whose home changes while their node does not hear of it."""

import asyncio

from pqbroker.storage.ids import CellId
from tests.simulation.ledger import expect
from tests.simulation.nodes.cluster import Cluster, replaced
from tests.simulation.nodes.mishaps import FIRST, give
from tests.simulation.nodes.network import NodesLoop
from tests.simulation.nodes.run import TEXTS, THREAD_S, end_rest
from tests.simulation.run import defects_logged

CUT_S = 0.5
"""Seconds between two changes of a home, shorter than a link may be silent."""
PATIENCE_S = 10.0
OTHER = 2


def test_a_cell_that_is_given_away_and_back_unseen_is_served_again() -> None:
    defects: list[str] = []
    loop = NodesLoop(lambda: THREAD_S, defects)
    with defects_logged(defects), asyncio.Runner(loop_factory=lambda: loop) as runner:
        try:
            runner.run(_give_and_take_back(loop))
        finally:
            loop.end_all()
            runner.run(end_rest())
    assert not defects


async def _give_and_take_back(loop: NodesLoop) -> None:
    """The node has its cell open all the time: it hears of both changes at once."""
    cluster = Cluster(loop, OTHER, TEXTS, has_locks=True)
    with replaced(cluster):
        await cluster.start()
        first = cluster.processes[FIRST]
        cells = first.server.node.cell.current.others
        cell = next(CellId(each) for each in (1, 2) if cells.node_of(CellId(each)) == OTHER)
        loop.network.cut((FIRST, OTHER))
        for number in (FIRST, OTHER):
            first.run(lambda number=number: first.work.add(loop.create_task(give(first.server, cell, number))))
            await asyncio.sleep(CUT_S)
        assert cells.health(cell) == "offline"
        loop.network.heal((FIRST, OTHER))
        deadline = loop.time() + PATIENCE_S
        while cells.health(cell) != "good":
            expect(loop.time() < deadline, "the node has its cell open, and the first one does not know")
            await asyncio.sleep(CUT_S)
        await cluster.stop()
