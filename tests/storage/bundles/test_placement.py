"""Homes of cells among several nodes, and places of new tablets in cells that other nodes have open."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from pqbroker.storage.bundles.cell_homes import CellHome, node_of, spread
from pqbroker.storage.bundles.hive import HIVE_TABLET_ID, CellState, Hive
from pqbroker.storage.bundles.open_cells import OpenCells
from pqbroker.storage.bundles.placement import NoHealthyCell
from pqbroker.storage.engine import ShardLost
from pqbroker.storage.ids import CellId, TabletId
from pqbroker.storage.memory import MemoryEngine
from pqbroker.storage.tablets.cell import Cell
from pqbroker.storage.tablets.hosting import TabletHost


def _cells(*numbers: int) -> list[CellId]:
    return [CellId(number) for number in numbers]


def _spread(cells: int, homes: dict[int, int], weights: dict[int, int], *nodes: int) -> list[int]:
    chosen = spread(
        _cells(*range(100, 100 + cells)), {CellId(cell): node for cell, node in homes.items()},
        {CellId(cell): weight for cell, weight in weights.items()}, nodes,
    )  # fmt: skip
    return [chosen[cell] for cell in sorted(chosen)]


def test_a_cell_goes_to_the_node_with_the_fewest_cells_then_the_fewest_tablets_then_the_lowest() -> None:
    assert _spread(6, {}, {}, 3, 1, 2) == [1, 2, 3, 1, 2, 3]
    assert _spread(2, {1: 1, 2: 1, 3: 2}, {}, 1, 2) == [2, 1]
    assert _spread(2, {1: 1, 2: 2}, {1: 9, 2: 4}, 1, 2) == [2, 1]
    assert _spread(2, {1: 7}, {1: 9, 100: 5}, 1, 2) == [1, 2]  # a node that is gone has no part in it
    assert _spread(0, {1: 1}, {}, 1) == []


def test_the_first_node_has_the_system_cell_and_a_home_that_does_not_exist_is_none() -> None:
    homes = {CellId(cell): CellHome(CellId(cell), cell, cell) for cell in (1, 2, 3)}
    assert [node_of(homes, cell, 2) for cell in _cells(0, 1, 2, 3, 4)] == [1, 1, 2, None, None]
    assert [node_of(homes, cell, 1) for cell in _cells(0, 3, 4)] == [1, 1, 1]


async def test_the_hive_knows_homes_after_a_start_and_forgets_them_with_their_cells() -> None:
    engine = MemoryEngine(1 << 24)
    cell = await Cell.open(engine)
    hive = await Hive.open(TabletHost(cell))
    for _ in range(2):
        await hive.add_cell("default", 4)
    homes = [CellHome(CellId(number), number, 3) for number in (1, 2, 9)]
    await hive.set_homes(homes)
    await hive.forget_cell(CellId(1))
    await hive.stop()
    await cell.close()
    again = await Hive.open(TabletHost(await Cell.open(engine)))
    assert dict(again.homes) == {CellId(2): homes[1]}
    number = again.changes.number
    await again.set_homes([homes[1]])
    assert again.changes.number == number  # nothing is stored where it is known


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


async def test_whoever_names_tablets_to_other_nodes_is_called_when_some_run_or_do_not_any_more() -> None:
    engine = MemoryEngine(1 << 24)
    called: list[str] = []

    @contextmanager
    def calls() -> Iterator[None]:
        called.clear()
        yield
        assert called

    host = TabletHost(await Cell.open(engine))
    with calls():
        cells = OpenCells(host, changed=lambda: called.append("changed"))
    hive = await Hive.open(host)
    with calls():
        await hive.add_cell("default", 4)
    with calls():
        await host.restart(HIVE_TABLET_ID)
    with calls():
        host.let_go(HIVE_TABLET_ID)
    with calls():
        await host.start(HIVE_TABLET_ID, hive)
    with calls():
        await host.stop_tablet(HIVE_TABLET_ID)
    another = TabletHost(await Cell.open(MemoryEngine(1 << 24)))
    with calls():
        cells.add(CellId(1), another)
    with calls():
        await (await Hive.open(another)).add_cell("default", 4)
    with calls():
        cells.remove(CellId(1))
    with calls():
        await Cell.open(engine)
        with pytest.raises(ShardLost):
            await host.cell.confirm()
