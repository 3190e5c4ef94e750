"""The hive knows how each cell was opened last: by whom, in which generation, its tablets' epochs; removals of cells
count every tablet."""

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from pqbroker.protocol.errors import KafkaError
from pqbroker.storage.bundles.bundle import BundleRefused
from pqbroker.storage.bundles.cell_opening import CellOpening
from pqbroker.storage.bundles.hive import HiveState
from pqbroker.storage.engine import ShardLost
from pqbroker.storage.ids import SYSTEM_CELL, CellId, TabletId
from pqbroker.storage.tablets.mirror import Mirror
from pqbroker.storage.tablets.tablet import TabletType
from tests.broker.services.cells.memory_cells import CONFIG, ONE, TWO, MemoryCells, memory_cells
from tests.pq.rig import batch


@pytest.fixture
async def cells() -> AsyncIterator[MemoryCells]:
    """Topic t has a tablet in each of the cells 1 and 2."""
    async with memory_cells(MemoryCells()) as made:
        await made.opened.topics.create("t", 2, CONFIG)
        yield made


async def leave_out(cells: MemoryCells) -> None:
    """Start the node again, as one that the bundle's filter excludes."""
    await cells.opened.hive.change_bundle("b", lambda bundle: replace(bundle, node_tag_filter="other"))
    await cells.reopen()
    assert [cells.opened.others.health(cell) for cell in (ONE, TWO)] == ["offline", "offline"]


async def test_an_opening_is_known_with_node_generation_and_epochs(cells: MemoryCells) -> None:
    first, second = cells.topic.record.tablets
    for generation in (2, 3):
        await cells.reopen()
        assert cells.opened.hive.openings == {
            ONE: CellOpening(ONE, 1, generation, {first: generation}),
            TWO: CellOpening(TWO, 1, generation, {second: generation}),
        }
        assert [one.leader_epoch for one in cells.topic.partitions] == [generation] * 2


async def test_a_node_without_the_cell_answers_with_the_last_known_epoch(cells: MemoryCells) -> None:
    """It answered 1, which clients that know a later one drop."""
    await cells.reopen()
    await cells.reopen()
    assert [one.leader_epoch for one in cells.topic.partitions] == [3, 3]
    await leave_out(cells)
    assert [one.leader_epoch for one in cells.topic.partitions] == [3, 3]
    assert all(one.is_lost for one in cells.topic.partitions)


async def test_a_node_without_the_cell_answers_without_an_epoch_that_it_does_not_know(cells: MemoryCells) -> None:
    await leave_out(cells)
    assert [one.leader_epoch for one in cells.topic.partitions] == [-1, -1]


async def test_restarts_and_moves_are_known(cells: MemoryCells) -> None:
    first, _ = cells.topic.record.tablets
    await cells.opened.others.move_tablet(cells.owner, first, TWO)
    moved = cells.partition(0).leader_epoch
    assert cells.opened.hive.openings[TWO].epochs[first] == moved
    await cells.opened.others.move_tablet(cells.owner, first, ONE)
    again = cells.partition(0).leader_epoch
    assert again > moved
    await leave_out(cells)
    assert cells.partition(0).leader_epoch == again


async def test_an_opening_of_the_past_is_not_noted(cells: MemoryCells) -> None:
    await cells.reopen()
    hive = cells.opened.hive
    known = hive.openings[ONE]
    assert known.generation == 2
    number = hive.changes.number
    assert await hive.note_opening(known)
    assert hive.changes.number == number, "nothing is stored again"
    assert not await hive.note_opening(CellOpening(ONE, 2, 1, {}))
    assert not await hive.note_opening(CellOpening(CellId(99), 2, 7, {}))
    assert hive.openings[ONE] == known
    assert await hive.note_opening(CellOpening(ONE, 2, 3, {TabletId(5): 6}))
    assert hive.openings[ONE].node == 2


async def test_mirrors_know_openings_and_removed_cells_have_none(cells: MemoryCells) -> None:
    await cells.opened.topics.delete("t")
    mirror = Mirror(HiveState)
    for portion in cells.opened.hive.changes.snapshot().portions():
        mirror.take(portion)
    assert mirror.state.openings == dict(cells.opened.hive.openings)
    assert set(mirror.state.openings) == {ONE, TWO}
    await cells.opened.others.remove(TWO)
    assert set(cells.opened.hive.openings) == {ONE}


async def test_a_cell_is_served_though_the_hive_takes_nothing(cells: MemoryCells) -> None:
    await cells.reopen()
    cells.faults(ONE).lose_next()
    with pytest.raises((KafkaError, ShardLost)):
        await cells.partition(0).write(*batch(b"lost"))
    cells.faults(SYSTEM_CELL).refuse_next()
    watched = cells.opened.others
    await cells.opened.others.reopen("b")
    assert watched.health(ONE) == "good"
    await cells.partition(0).write(*batch(b"kept"))
    assert await cells.values() == [b"kept"]


@pytest.mark.parametrize("evacuate", [False, True])
async def test_a_cell_with_tablets_of_the_broker_itself_is_not_removed(cells: MemoryCells, evacuate: bool) -> None:
    """No topic names a coordinator: it was deleted with the cell."""
    await cells.opened.topics.delete("t")
    await cells.host(TWO).cell.create_tablets([(TabletId(16), TabletType.COORDINATOR, "coordinator")])
    with pytest.raises(BundleRefused, match=r"cell 2 has tablets of the broker itself \(coordinator\)"):
        await cells.opened.others.remove(TWO, evacuate=evacuate)
    assert await cells.holds(TWO, TabletId(16))
    await cells.opened.others.remove(ONE, evacuate=evacuate)
