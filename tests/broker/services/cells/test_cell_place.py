"""Places of nodes: the cells that each opens, those that a start makes, and those that leave and come back."""

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from pqbroker.broker.services.cells.cell_homing import CellHoming
from pqbroker.broker.services.cells.cell_owner import CellSurroundings, open_around
from pqbroker.broker.services.cells.cell_place import CellPlace
from pqbroker.broker.services.coordination.coordinators import COORDINATOR_IDS
from pqbroker.conf.broker import BrokerSettings
from pqbroker.pq.transactions.stored_forms import ParticipantId
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.storage.bundles.bundle import BundleRefused
from pqbroker.storage.bundles.cell_homes import CellHome
from pqbroker.storage.bundles.hive import Hive
from pqbroker.storage.ids import SYSTEM_CELL, CellId, TabletId
from pqbroker.storage.memory import MemoryEngine
from pqbroker.storage.tablets.cell import Cell
from pqbroker.storage.tablets.hosting import TabletHost
from pqbroker.storage.tablets.scheme import Scheme

ENGINE = MemoryEngine(1 << 20)
CELLS = [CellId(cell) for cell in range(1, 7)]


def test_a_start_makes_one_cell_for_each_node_that_would_have_none() -> None:
    first = CellPlace(ENGINE, 1, 3)
    assert [first.missing_cells(CELLS[:known]) for known in range(5)] == [3, 2, 1, 0, 0]
    assert CellPlace(ENGINE).missing_cells([]) == 0
    assert CellPlace(ENGINE, 2, 3, mirrored=cast(Any, object())).missing_cells([]) == 0


async def _hive() -> Hive:
    hive = await Hive.open(TabletHost(await Cell.open(MemoryEngine(1 << 24))))
    for _ in CELLS:
        await hive.add_cell("default", len(CELLS))
    return hive


def _homing(hive: Hive, number: int, count: int, place: CellPlace | None = None) -> CellHoming:
    return CellHoming(place or CellPlace(ENGINE, number, count), hive, dict)


async def test_one_node_runs_all_cells_and_several_share_them() -> None:
    hive = await _hive()
    assert all(_homing(hive, 1, 1).runs(cell) for cell in (SYSTEM_CELL, *CELLS))
    assert not any(_homing(hive, number, 3).runs(CELLS[0]) for number in (1, 2, 3))
    await _homing(hive, 1, 1).settle()
    assert not hive.homes  # a broker of one node stores none
    await _homing(hive, 1, 3).settle()
    homings = [_homing(hive, number, 3) for number in (1, 2, 3)]
    assert [[cell for cell in CELLS if one.runs(cell)] for one in homings] == [[1, 4], [2, 5], [3, 6]]
    assert [one.runs(SYSTEM_CELL) for one in homings] == [True, False, False]


async def test_cells_of_nodes_that_a_start_does_not_have_go_to_others() -> None:
    hive = await _hive()
    await _homing(hive, 1, 3).settle()
    await _homing(hive, 1, 2).settle()
    assert {cell: home.node for cell, home in hive.homes.items()} == {1: 1, 4: 1, 2: 2, 5: 2, 3: 1, 6: 2}


async def test_cells_of_a_node_that_is_gone_are_run_by_others_and_come_back() -> None:
    hive = await _hive()
    place = CellPlace(ENGINE, 1, 3, present={1, 2, 3})
    homing = _homing(hive, 1, 3, place)
    await homing.settle()
    place.elsewhere.update({CELLS[1]: {TabletId(9): 1}, CELLS[2]: {}})
    place.present.discard(2)
    assert await homing.leave(2) == [2, 5]
    assert [hive.homes[CellId(cell)] for cell in (2, 5)] == [CellHome(CellId(2), 1, 2), CellHome(CellId(5), 3, 2)]
    assert CELLS[1] not in place.elsewhere  # what the node before has named counts no more
    assert CELLS[2] in place.elsewhere
    assert await homing.leave(2) == []
    assert homing.away({1, 3}) is None
    assert homing.away({1, 2}) == hive.homes[CellId(2)]
    await homing.settle()
    assert hive.homes[CellId(2)].node == 1  # a start leaves it where it is
    place.present.clear()
    assert await homing.leave(1) == []
    assert homing.node_of(CELLS[0]) == 1


@pytest.mark.parametrize(
    ("cell", "node", "count", "cause"),
    [
        (0, 2, 3, "stays at the first node"), (9, 2, 3, "there is no cell 9"), (1, 4, 3, "the nodes 1, 2 do"),
        (1, 3, 3, "node 3 does not serve now"), (1, 2, 1, "this broker has one node"),
        (0, 2, 1, "stays at the first node"),
    ],
)  # fmt: skip
async def test_a_cell_is_not_given_to_a_node_that_cannot_have_it(cell: int, node: int, count: int, cause: str) -> None:
    hive = await _hive()
    homing = _homing(hive, 1, count, CellPlace(ENGINE, 1, count, present={1, 2}))
    await homing.settle()
    before = dict(hive.homes)
    with pytest.raises(BundleRefused, match=cause):
        await homing.give(CellId(cell), node)
    assert dict(hive.homes) == before


async def test_a_cell_that_was_given_away_stays_there() -> None:
    hive = await _hive()
    homing = _homing(hive, 1, 3, CellPlace(ENGINE, 1, 3, present={1, 2, 3}))
    await homing.settle()
    await homing.give(CellId(1), 3)
    assert homing.node_of(CellId(1)) == 3
    await homing.give(SYSTEM_CELL, 1)
    await _homing(hive, 1, 1).give(CellId(2), 1)
    assert homing.away({1, 2, 3}) is None


async def test_a_cell_that_is_given_away_comes_back_to_be_removed() -> None:
    engine = MemoryEngine(1 << 24)
    place = CellPlace(engine, 1, 2, present={1, 2})
    opened = await open_around(CellSurroundings(engine, place, BrokerSettings(), lambda: 0))
    assert opened.others.node_of(CELLS[0]) == 1
    giving = asyncio.ensure_future(opened.others.between.give(CELLS[0], 2))
    await asyncio.sleep(0)  # its commit is on its way
    assert opened.others.node_of(CELLS[0]) == 1
    await opened.others.remove(CELLS[0])
    assert CELLS[0] not in opened.hive.cells
    giving.cancel()  # the other node is none that opens it
    await opened.stop()


async def test_a_borrowed_cell_goes_back_behind_its_last_borrower() -> None:
    place = CellPlace(ENGINE, 1, 2, present={1, 2})
    homing = _homing(await _hive(), 1, 2, place)
    await homing.settle()
    cell = homing.given_to(2)[0]
    homing.want([cell])
    assert await homing.borrow([cell]) == [cell]
    assert homing.node_of(cell) == 1
    homing.want([cell, SYSTEM_CELL])
    assert await homing.borrow([cell, SYSTEM_CELL]) == []
    assert homing.away({1, 2}) is None, "it stays while it is borrowed"
    assert homing.done_with([cell]) == []
    assert [(home.cell, home.given) for home in homing.done_with([cell, SYSTEM_CELL])] == [(cell, 2)]


async def test_a_borrower_that_gives_up_while_it_waits_leaves_the_cell_to_another_one() -> None:
    place = CellPlace(MemoryEngine(1 << 24), 1, 2, present={1, 2})
    opened = await open_around(CellSurroundings(place.engine, place, BrokerSettings(), lambda: 0))
    cells = opened.others
    cell = next(each for each in CELLS[:2] if cells.node_of(each) == 2)
    async with cells.between.here([cell]):
        async with cells.unchanged():
            waiting = asyncio.ensure_future(cells.between.here([cell]).__aenter__())
            await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.wait([waiting])
        assert not await cells.between.give_back({2})
        assert cells.node_of(cell) == 1
        place.present.discard(2)  # it is none that opens the cell
    await opened.stop()


async def test_a_borrowed_cell_goes_back_later_where_its_node_is_gone() -> None:
    place = CellPlace(ENGINE, 1, 2, present={1, 2})
    homing = _homing(await _hive(), 1, 2, place)
    await homing.settle()
    cell = homing.given_to(2)[0]
    homing.want([cell])
    await homing.borrow([cell])
    place.present.discard(2)
    assert homing.done_with([cell]) == []
    home = homing.away({2})
    assert home is not None
    assert (home.cell, home.node, home.given) == (cell, 1, 2)


async def test_a_cell_that_is_removed_is_not_given_away_meanwhile() -> None:
    engine = MemoryEngine(1 << 24)
    place = CellPlace(engine, 1, 2, present={1, 2})
    opened = await open_around(CellSurroundings(engine, place, BrokerSettings(), lambda: 0))
    removing = asyncio.ensure_future(opened.others.remove(CELLS[0]))
    await asyncio.sleep(0)
    with pytest.raises(BundleRefused, match="there is no cell 1"):
        await opened.others.between.give(CELLS[0], 2)
    await removing
    await opened.stop()


class NoRows:
    """Rows of another node, which has none."""

    async def fill(self, hive: Hive, scheme: Scheme) -> None:
        """Leave both as they are."""

    async def note_ready(self, cell: CellId) -> None:
        """Have no hive note it."""


async def test_a_node_with_a_copy_of_the_scheme_coordinates_nothing_and_is_no_home_without_decisions() -> None:
    engine = MemoryEngine(1 << 24)
    place = CellPlace(engine, 2, 2, mirrored=NoRows())
    opened = await open_around(CellSurroundings(engine, place, BrokerSettings(), lambda: 0))
    asked: list[Callable[[], object]] = [
        lambda: opened.coordinators.check_commit("g", "", None, -1, has_offsets=lambda _: True),
        lambda: opened.coordinators.modern_group("g"),
        lambda: opened.transactional_producers.find("t"),
        lambda: opened.transactional_producers.find_open("t"),
    ]
    for ask in asked:
        with pytest.raises(KafkaError) as refused:
            ask()
        assert refused.value.code is ErrorCode.NOT_COORDINATOR
    assert opened.coordinators.are_elsewhere
    assert list(opened.coordinators.groups()) == []
    for home in map(ParticipantId, COORDINATOR_IDS):  # else rows that another node has committed would be dropped
        assert opened.commits.find(home) is None
        assert opened.commits.has(home)
    await opened.stop()
