"""The system cell is lost: its own tablets alone are given up, the other cells serve until it is open again."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest

from pqbroker.broker.services.cells.cell_owner import CellOwner
from pqbroker.conf.broker import BrokerSettings
from pqbroker.protocol.errors import KafkaError
from pqbroker.storage.engine import ShardLost
from pqbroker.storage.ids import SYSTEM_CELL, TabletId
from tests.broker.conftest import until
from tests.broker.services.cells.memory_cells import CONFIG, ONE, TWO, MemoryCells, memory_cells
from tests.pq.rig import START_MS, batch


class WatchedCells(MemoryCells):
    """Cells that their owner opens again."""

    async def open(self) -> None:
        self.node = CellOwner(self.engine, BrokerSettings(), lambda: START_MS)
        self.opened = await self.node.open()
        self.watching = asyncio.create_task(self.node.watch(self.follow))

    def follow(self) -> None:
        self.opened = self.node.current

    async def close(self) -> None:
        self.watching.cancel()
        await asyncio.wait([self.watching])
        for cell in (SYSTEM_CELL, ONE, TWO):
            self.faults(cell).clear()
        with suppress(ShardLost):
            await self.node.close()

    async def lose_system_cell(self) -> None:
        """Lose it so that it cannot be opened again before its faults are cleared."""
        faults = self.faults(SYSTEM_CELL)
        faults.lose_next()
        with pytest.raises(ShardLost):
            await self.opened.scheme.producer_id_block()
        faults.hold()

    async def reopened(self) -> None:
        before = self.opened
        self.faults(SYSTEM_CELL).release()
        await until(lambda: self.opened is not before)


@pytest.fixture
async def cells() -> AsyncIterator[WatchedCells]:
    """Topic t has a tablet in each of the cells 1 and 2, topic s one in the system cell."""
    async with memory_cells(WatchedCells()) as made:
        await made.opened.topics.create("t", 2, CONFIG)
        await made.opened.topics.create("s", 1, {})
        yield made


async def test_other_cells_serve_while_the_system_cell_is_lost(cells: WatchedCells) -> None:
    await cells.partition(0).write(*batch(b"before"))
    await cells.lose_system_cell()
    lost = cells.opened.topics.get("s")
    assert lost is not None
    assert lost.partitions[0].is_lost
    for index in (0, 1):
        assert not cells.partition(index).is_lost
        await cells.partition(index).write(*batch(b"meanwhile"))
    assert await cells.values(0) == [b"before", b"meanwhile"]
    generation = cells.host(ONE).cell.generation
    await cells.reopened()
    assert cells.host(ONE).cell.generation == generation + 1
    assert [await cells.values(index) for index in (0, 1)] == [[b"before", b"meanwhile"], [b"meanwhile"]]
    served = cells.opened.topics.get("s")
    assert served is not None
    await served.partitions[0].write(*batch(b"again"))


async def test_what_waits_in_another_cell_when_its_opening_ends_fails_or_is_kept(cells: WatchedCells) -> None:
    await cells.lose_system_cell()
    cells.faults(ONE).hold()
    writing = asyncio.ensure_future(cells.partition(0).write(*batch(b"x")))
    await until(lambda: bool(cells.partition(0).writer.queue.in_flight_bytes))
    before = cells.opened
    cells.faults(SYSTEM_CELL).release()
    await asyncio.sleep(0)
    cells.faults(ONE).release()
    await until(lambda: cells.opened is not before)
    with suppress(KafkaError, ShardLost):
        await writing
        assert await cells.values(0) == [b"x"], "it was acknowledged"


async def test_a_cell_that_is_lost_meanwhile_waits_for_the_scheme(cells: WatchedCells) -> None:
    """Its last changes are not known then: what looks dead may have been named by one of them."""
    await cells.partition(0).write(*batch(b"kept"))
    await cells.lose_system_cell()
    generation = cells.host(ONE).cell.generation
    cells.faults(ONE).lose_next()
    with pytest.raises((KafkaError, ShardLost)):
        await cells.partition(0).write(*batch(b"lost"))
    await until(lambda: cells.opened.cells.host(ONE) is None)
    await until(lambda: cells.opened.others.health(ONE) == "failed")
    await cells.partition(1).write(*batch(b"other"))
    assert cells.opened.cells.host(ONE) is None
    await cells.reopened()
    assert cells.host(ONE).cell.generation == generation + 1
    assert await cells.values(0) == [b"kept"]


async def test_a_move_whose_outcome_is_lost_is_decided_by_the_scheme_alone(cells: WatchedCells) -> None:
    """Durable, and never acknowledged: the copy looks dead to the scheme as it is in memory."""
    await cells.partition(0).write(*batch(b"kept"))
    moved: TabletId = cells.topic.record.tablets[0]
    system = cells.faults(SYSTEM_CELL)
    system.lose_next(stored=True)
    with pytest.raises(ShardLost):
        await cells.opened.others.move_tablet(cells.owner, moved, TWO)
    system.hold()
    assert cells.topic.record.home_of(moved) == ONE
    cells.opened.scheme.reclaim(cells.host(TWO), TWO)
    assert await cells.holds(TWO, moved)
    await cells.reopened()
    assert cells.topic.record.home_of(moved) == TWO
    assert await cells.values(0) == [b"kept"]
