"""Places of nodes: the cells that each opens, and those that a start makes."""

from typing import Any, cast

from pqbroker.broker.services.cells.cell_place import CellPlace
from pqbroker.storage.ids import SYSTEM_CELL, CellId
from pqbroker.storage.memory import MemoryEngine

ENGINE = MemoryEngine(1 << 20)
CELLS = [CellId(cell) for cell in range(1, 7)]


def test_one_node_runs_all_cells_and_several_share_them() -> None:
    assert all(CellPlace(ENGINE).runs(cell) for cell in (SYSTEM_CELL, *CELLS))
    places = [CellPlace(ENGINE, number, 3) for number in (1, 2, 3)]
    assert [[cell for cell in CELLS if place.runs(cell)] for place in places] == [[1, 4], [2, 5], [3, 6]]
    assert [place.runs(SYSTEM_CELL) for place in places] == [True, False, False]


def test_a_start_makes_cells_where_a_node_would_have_none() -> None:
    first = CellPlace(ENGINE, 1, 3)
    assert [first.missing_cells(CELLS[:known]) for known in range(5)] == [6, 5, 4, 0, 0]
    assert CellPlace(ENGINE).missing_cells([]) == 0
    assert CellPlace(ENGINE, 2, 3, mirrored=cast(Any, object())).missing_cells([]) == 0
