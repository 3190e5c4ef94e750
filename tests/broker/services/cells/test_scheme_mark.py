"""Marks of cells: who knows less of the scheme than a cell has seen takes none of its tablets for dead."""

import asyncio
import logging
from collections.abc import AsyncIterator

import pytest

from pqbroker.storage.engine import Batch, CommitRefused
from pqbroker.storage.ids import SYSTEM_CELL, CellId, TabletId
from pqbroker.storage.tablets.cell import Cell
from pqbroker.storage.tablets.cell_facts import SCHEME_KEY
from pqbroker.storage.tablets.hosting import TabletHost
from pqbroker.storage.tablets.mirror import Mirror
from pqbroker.storage.tablets.scheme_mark import decode_mark, encode_mark
from pqbroker.storage.tablets.scheme_state import SchemeState
from pqbroker.storage.tablets.unowned_reclaim import KnownScheme, reclaim_unowned
from tests.broker.conftest import until
from tests.broker.services.cells.memory_cells import CONFIG, ONE, TWO, MemoryCells, memory_cells
from tests.pq.rig import batch


@pytest.fixture
async def cells() -> AsyncIterator[MemoryCells]:
    async with memory_cells(MemoryCells()) as made:
        yield made


def mirrored(cells: MemoryCells) -> Mirror[SchemeState]:
    """The scheme as another node knows it from now on."""
    mirror = Mirror(SchemeState)
    for portion in cells.opened.scheme.changes.snapshot().portions():
        mirror.take(portion)
    return mirror


async def create(cells: MemoryCells, partitions: int = 2) -> tuple[TabletId, ...]:
    """Create topic t, with a tablet in each of the cells 1 and 2, in turn."""
    await cells.opened.topics.create("t", partitions, CONFIG)
    for index in range(partitions):
        await cells.partition(index).write(*batch(b"%d" % index))
    return cells.topic.record.tablets


async def taken_over(cells: MemoryCells, cell: CellId, mirror: Mirror[SchemeState], *, is_mirror: bool = True) -> Cell:
    """Have another node open a cell, by what it knows of the scheme; the cell once all is removed that is to be."""
    host = TabletHost(await Cell.open(cells.engine_of(cell), name=str(cell)))
    assert mirror.number is not None
    reclaim_unowned(KnownScheme(mirror.row_sets, mirror.number, is_mirror), host, cell)
    await host.reclaimed()
    await host.stop()
    return host.cell


async def mark(cells: MemoryCells, cell: CellId) -> tuple[int, bool]:
    shard = await cells.engine_of(cell).open()
    (row,) = await shard.get([SCHEME_KEY])
    assert row is not None
    return decode_mark(row)


@pytest.mark.parametrize("is_mirror", [True, False])
async def test_a_node_with_an_older_scheme_removes_nothing_and_says_so(
    cells: MemoryCells, caplog: pytest.LogCaptureFixture, is_mirror: bool
) -> None:
    """Without a mirror: the system cell alone was restored from an older copy."""
    stale = mirrored(cells)
    first, _ = await create(cells)
    await cells.close()
    with caplog.at_level(logging.ERROR):
        cell = await taken_over(cells, ONE, stale, is_mirror=is_mirror)
    assert first in cell.tablets()
    assert "1 tablets of cell 1 that belong to no known topic or table are kept" in caplog.text
    assert f"this node knows the scheme up to change {stale.number}" in caplog.text


async def test_a_node_that_is_up_to_date_removes_what_is_dead(cells: MemoryCells) -> None:
    first, second = await create(cells)
    cells.faults(ONE).hold()  # so that the cell keeps the tablet of the deleted topic
    deleting = asyncio.create_task(cells.opened.topics.delete("t"))
    await until(lambda: "t" not in cells.opened.scheme.topics)
    fresh = mirrored(cells)
    await cells.close()
    await asyncio.wait([deleting])
    cells.faults(ONE).clear()
    assert first not in (await taken_over(cells, ONE, fresh)).tablets()
    assert second not in (await taken_over(cells, TWO, fresh)).tablets()


async def test_while_a_tablet_moves_no_mirror_removes_it_where_it_goes(cells: MemoryCells) -> None:
    first, _ = await create(cells)
    cells.faults(SYSTEM_CELL).hold()
    moving = asyncio.create_task(cells.opened.others.move_tablet(cells.owner, first, TWO))
    await until(lambda: first in cells.host(TWO).cell.tablets())
    fresh = mirrored(cells)
    assert fresh.state.topics["t"].cells[0] == ONE
    assert first in (await taken_over(cells, TWO, fresh)).tablets()
    assert (await mark(cells, TWO))[1]
    cells.faults(SYSTEM_CELL).clear()
    await asyncio.wait([moving], timeout=10)
    await cells.reopen()
    home = cells.topic.record.home_of(first)
    assert [cell for cell in (ONE, TWO) if await cells.holds(cell, first)] == [home], "the scheme itself can tell"
    assert await cells.values() == [b"0"]
    await cells.opened.topics.create("u", 2, CONFIG)
    await cells.close()
    assert not (await mark(cells, TWO))[1], "the next commit takes it back"


async def test_after_a_move_both_cells_have_seen_it(cells: MemoryCells) -> None:
    first, _ = await create(cells)
    stale = mirrored(cells)
    await cells.opened.others.move_tablet(cells.owner, first, TWO)
    number = cells.opened.scheme.changes.number
    assert not await cells.holds(ONE, first)
    await cells.close()
    assert [await mark(cells, cell) for cell in (ONE, TWO)] == [(number, False)] * 2
    assert first in (await taken_over(cells, TWO, stale)).tablets()


async def test_a_refused_move_leaves_nothing_ahead(cells: MemoryCells) -> None:
    first, _ = await create(cells)
    cells.faults(SYSTEM_CELL).refuse_next()
    with pytest.raises(CommitRefused):
        await cells.opened.others.move_tablet(cells.owner, first, TWO)
    assert not await cells.holds(TWO, first)
    await cells.opened.topics.grow("t", 4)
    await cells.close()
    assert [(await mark(cells, cell))[1] for cell in (ONE, TWO)] == [False, False]


async def test_a_mark_that_is_unreadable_keeps_everything(
    cells: MemoryCells, caplog: pytest.LogCaptureFixture
) -> None:
    stale = mirrored(cells)
    first, _ = await create(cells)
    await cells.close()
    shard = await cells.engine_of(ONE).open()
    for damaged in (b"", b"\x02" + encode_mark(1, is_ahead=False)[1:], encode_mark(1, is_ahead=False) + b"\0"):
        with pytest.raises(ValueError, match="no mark that this version reads"):
            decode_mark(damaged)
    changes = Batch()
    changes.put(SCHEME_KEY, b"\xff")
    await shard.commit(changes)
    with caplog.at_level(logging.ERROR):
        assert first in (await taken_over(cells, ONE, stale, is_mirror=False)).tablets()
    assert "its mark of the scheme is unreadable" in caplog.text
    await cells.open()
    assert await cells.values() == [b"0"], "it is served all the same"


async def test_the_system_cell_has_no_mark(cells: MemoryCells) -> None:
    await cells.opened.topics.create("s", 1, {})
    await cells.close()
    shard = await cells.engine.open()
    assert await shard.get([SCHEME_KEY]) == [None]
