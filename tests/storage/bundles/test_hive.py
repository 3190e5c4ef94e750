"""The hive: what it knows survives restarts, its limits, and states of cells that only go forward."""

import pytest

from pqbroker.storage.bundles.bundle import BundleRefused, new_bundle
from pqbroker.storage.bundles.hive import BUNDLES_MAX, HIVE_TABLET_ID, CellState, Hive
from pqbroker.storage.engine import CommitRefused
from pqbroker.storage.memory import MemoryEngine
from pqbroker.storage.tablets.cell import Cell
from pqbroker.storage.tablets.hosting import TabletHost


async def opened(engine: MemoryEngine) -> tuple[TabletHost, Hive]:
    host = TabletHost(await Cell.open(engine))
    return host, await Hive.open(host)


async def test_a_node_without_changes_has_no_hive_tablet() -> None:
    host, hive = await opened(MemoryEngine(1 << 20))
    assert (list(hive.bundles), dict(hive.cells)) == (["default"], {})
    assert HIVE_TABLET_ID not in host.cell.tablets()


async def test_bundles_and_cells_survive_and_ids_are_never_given_out_twice() -> None:
    engine = MemoryEngine(1 << 20)
    _, hive = await opened(engine)
    bundle = new_bundle("b", {"peer_count": 1}, "x")
    await hive.create_bundle(bundle)
    first = await hive.add_cell("b", 9)
    await hive.set_state(first.cell, CellState.READY)
    second = await hive.add_cell("b", 9)
    await hive.forget_cell(second.cell)
    engine.crash()
    _, hive = await opened(engine)
    assert hive.bundles["b"] == bundle
    assert [(one.cell, one.state) for one in hive.cells.values()] == [(1, CellState.READY)]
    assert (await hive.add_cell("b", 9)).cell == 3


async def test_a_cell_that_is_being_removed_stays_so() -> None:
    _, hive = await opened(MemoryEngine(1 << 20))
    record = await hive.add_cell("default", 9)
    await hive.set_state(record.cell, CellState.REMOVING)
    with pytest.raises(BundleRefused, match="being removed"):
        await hive.set_state(record.cell, CellState.READY)


async def test_what_is_refused_changes_nothing() -> None:
    engine = MemoryEngine(1 << 20)
    _, hive = await opened(engine)
    for refused in ("b", "default"):
        engine.faults.refuse_next()
        with pytest.raises(CommitRefused):
            await hive.create_bundle(new_bundle("b", {}, ""))
        assert list(hive.bundles) == ["default"], refused
    await hive.create_bundle(new_bundle("b", {}, ""))
    with pytest.raises(BundleRefused, match="exists already"):
        await hive.create_bundle(new_bundle("b", {}, ""))
    await hive.add_cell("b", 1)
    with pytest.raises(BundleRefused, match=r"pqbroker\.cells\.max"):
        await hive.add_cell("b", 1)
    with pytest.raises(BundleRefused, match="no bundle 'c'"):
        await hive.add_cell("c", 9)


async def test_there_are_so_many_bundles() -> None:
    _, hive = await opened(MemoryEngine(1 << 20))
    for number in range(BUNDLES_MAX - 1):
        await hive.create_bundle(new_bundle(f"b{number}", {}, ""))
    with pytest.raises(BundleRefused, match=f"there are {BUNDLES_MAX} bundles"):
        await hive.create_bundle(new_bundle("more", {}, ""))
