"""A salvage of a node with several cells: the damaged one alone gives something up."""

from pathlib import Path

from pqbroker.doctor.salvaging.node import accept_node, salvage_node
from pqbroker.pq.log.consumers import ConsumerOffset
from pqbroker.pq.log.sessions import Fence
from pqbroker.pq.serving.joint_write import Share, write_together
from pqbroker.storage.disk.mending.salvage_mark import MarkState, read_mark
from pqbroker.storage.ids import CellId
from tests.broker.services.cells.test_data_cells import ONE, fill, partition, started
from tests.pq.rig import START_MS, batch, read_all
from tests.storage.cells import copy_alive
from tests.storage.disk.mending.cells import IN_ROWS, damage, rounds

RECORDS = 4


async def killed(path: Path) -> tuple[Path, int]:
    """A node's directory as kill -9 leaves it; the partition of its topic t that is in cell 1."""
    living = path / "living"
    async with started(living) as opened:
        await fill(opened)
        for number in range(1, RECORDS):
            for index in (0, 1):
                await partition(opened, index).write(*batch(b"%d" % number))
        topic = opened.topics.get("t")
        assert topic is not None
        index = 0 if topic.record.cell_of(0) == ONE else 1
        copy_alive(living / "data", path / "copy" / "data")
    return path / "copy", index


async def test_a_damaged_cell_is_salvaged_beside_whole_ones(tmp_path: Path) -> None:
    path, damaged = await killed(tmp_path)
    cell = path / "data" / "cells" / "1"
    damage(rounds(cell)[-2], IN_ROWS)
    shown = salvage_node(path / "data", {}, performs=False)
    assert shown.is_damaged
    assert {loss.where.partition(": ")[0] for loss in shown.losses} == {"cell 1"}
    (records,) = [loss for loss in shown.losses if loss.kind == "records"]
    assert records.where == f"cell 1: t-{damaged}"
    assert "offsets 2 to 2 are lost" in records.what
    assert salvage_node(path / "data", {}, performs=True) == shown
    assert read_mark(cell).state is MarkState.HELD
    async with started(path) as opened:
        assert [partition(opened, index).end_offset for index in (0, 1)] == [RECORDS, RECORDS]
        assert len(await read_all(partition(opened, 1 - damaged))) == RECORDS
        host = opened.cells.host(CellId(1))
        assert host is not None
        assert host.cell.quarantine.is_held
        assert not opened.cell.quarantine.is_held
    assert accept_node(path / "data", {}) == 1
    assert accept_node(path / "data", {}) == 0


async def test_groups_producers_and_sessions_whose_last_change_may_be_lost_are_named(tmp_path: Path) -> None:
    async with started(tmp_path / "living") as opened:
        await opened.topics.create("t", 1, {})
        server = partition(opened, 0)
        await server.write(*batch(b"0", producer=(7, 0, 0)))
        await write_together([Share(server, [batch(b"1")])], Fence("session", 1), lambda: START_MS)
        committed = {("t", 0): ConsumerOffset(1, 0, "", START_MS)}
        assert await opened.topics.offsets.commit("group", committed) == {("t", 0): None}
        await opened.topics.create("last", 1, {})
        copy_alive(tmp_path / "living" / "data", tmp_path / "copy")
    damage(rounds(tmp_path / "copy")[-1], IN_ROWS)
    shown = salvage_node(tmp_path / "copy", {}, performs=False)
    named = {loss.kind: loss.what.partition(": ")[2] for loss in shown.losses if loss.where == "t-0"}
    assert named.items() >= {"groups": "group at 1", "producers": "7", "sessions": "session"}.items()


async def test_one_wrong_bit_in_a_cell_costs_nothing(tmp_path: Path) -> None:
    path, damaged = await killed(tmp_path)
    damage(rounds(path / "data" / "cells" / "1")[-2], IN_ROWS, b"\x20")
    assert [loss.kind for loss in salvage_node(path / "data", {}, performs=True).losses] == ["mended"]
    async with started(path) as opened:
        assert len(await read_all(partition(opened, damaged))) == RECORDS
