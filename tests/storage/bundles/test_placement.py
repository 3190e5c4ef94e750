"""Homes of cells among several nodes, and places of new tablets in cells that other nodes have open."""

from collections import Counter

import pytest

from pqbroker.storage.bundles.hive import CellState, Hive
from pqbroker.storage.bundles.open_cells import OpenCells
from pqbroker.storage.bundles.placement import NoHealthyCell, home_of
from pqbroker.storage.ids import SYSTEM_CELL, CellId, TabletId
from pqbroker.storage.memory import MemoryEngine
from pqbroker.storage.tablets.cell import Cell
from pqbroker.storage.tablets.hosting import TabletHost


def test_cells_are_spread_over_the_nodes_and_the_first_has_the_system_cell() -> None:
    for nodes in range(1, 6):
        assert home_of(SYSTEM_CELL, nodes) == 1
        assert Counter(home_of(CellId(cell), nodes) for cell in range(1, 4 * nodes + 1)) == dict.fromkeys(
            range(1, nodes + 1), 4
        )


async def test_new_tablets_go_to_cells_of_other_nodes_too_and_not_to_the_system_cell() -> None:
    host = TabletHost(await Cell.open(MemoryEngine(1 << 24)))
    hive = await Hive.open(host)
    for _ in range(2):
        record = await hive.add_cell("default", 4)
        await hive.set_state(record.cell, CellState.READY)
    elsewhere: dict[CellId, dict[TabletId, int]] = {}
    cells = OpenCells(host, hive, elsewhere, spreads=True)
    with pytest.raises(NoHealthyCell):
        cells.place("default", 1)
    elsewhere |= {CellId(1): {TabletId(9): 1, TabletId(10): 1}, CellId(2): {}, CellId(7): {}}
    assert sorted(cells.place("default", 4)) == [1, 2, 2, 2]
    assert [cells.is_elsewhere(CellId(cell)) for cell in range(4)] == [False, True, True, False]
    cells.leaving.add(CellId(2))
    assert cells.place("default", 1) == [1]
