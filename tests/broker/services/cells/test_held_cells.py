"""A cell that was salvaged, and whose salvage nobody has accepted: nothing leaves it, nothing of it is removed."""

from pathlib import Path

import pytest

from pqbroker.broker.services.cells.tablet_gluing import Glue
from pqbroker.broker.services.topics.staged_places import RowsToStage, StagedPlaces
from pqbroker.broker.services.topics.staged_rows import look_after
from pqbroker.pq.log.sessions import Fence
from pqbroker.pq.serving.offsets import nobody_knows
from pqbroker.storage.bundles.bundle import BundleRefused, new_bundle
from pqbroker.storage.disk.mending.salvage_mark import MarkState, SalvageMark, accept_mark, write_mark
from pqbroker.storage.ids import CellId, TabletId
from pqbroker.storage.tablets.scheme_state import Resharded, TopicRecord
from tests.broker.services.cells.test_data_cells import CONFIG, ONE, ends, fill, partition, started
from tests.pq.rig import START_MS, batch, table_that_keeps_facts

TWO = CellId(2)


def hold(path: Path) -> None:
    """Mark cell 1 as a salvage leaves it."""
    write_mark(path / "data" / "cells" / "1", SalvageMark(MarkState.HELD, {"commit 9": "it was given up"}))


async def test_a_tablet_does_not_leave_a_held_cell(tmp_path: Path) -> None:
    async with started(tmp_path) as opened:
        await fill(opened)
    hold(tmp_path)
    async with started(tmp_path) as opened:
        topic = opened.topics.get("t")
        assert topic is not None
        homes = {topic.record.cell_of(number): tablet for number, tablet in enumerate(topic.record.tablets)}
        with pytest.raises(BundleRefused, match="the cell was salvaged, so nothing leaves it"):
            await opened.others.move_tablet(opened.topics.owner_of(topic), homes[ONE], TWO)
        await opened.others.move_tablet(opened.topics.owner_of(topic), homes[TWO], ONE)
        assert await ends(opened) == [1, 1, 1]
    accept_mark(tmp_path / "data" / "cells" / "1")
    async with started(tmp_path) as opened:
        topic = opened.topics.get("t")
        assert topic is not None
        await opened.others.move_tablet(opened.topics.owner_of(topic), homes[ONE], TWO)


async def test_a_held_cell_is_not_removed(tmp_path: Path) -> None:
    async with started(tmp_path) as opened:
        await opened.topics.create("s", 1, {})
        await opened.hive.create_bundle(new_bundle("b", {}, ""))
        for _ in range(2):
            await opened.others.create("b")
    hold(tmp_path)
    async with started(tmp_path) as opened:
        with pytest.raises(BundleRefused, match="cell 1 was salvaged, so it is not removed"):
            await opened.others.remove(ONE)
        await opened.others.remove(TWO)
    assert [path.name for path in (tmp_path / "data" / "cells").iterdir()] == ["1"]
    accept_mark(tmp_path / "data" / "cells" / "1")
    async with started(tmp_path) as opened:
        await opened.others.remove(ONE)


async def test_retention_waits_for_the_partitions_of_a_held_cell(tmp_path: Path) -> None:
    async with started(tmp_path) as opened:
        await fill(opened)
        await opened.topics.create("aged", 2, {**CONFIG, "retention.ms": "1000"})
        for index in (0, 1):
            await partition(opened, index, "aged").write(*batch())
    hold(tmp_path)
    async with started(tmp_path, START_MS + 10_000) as opened:
        topic = opened.topics.get("aged")
        assert topic is not None
        await opened.topics.retain(nobody_knows)
        starts = {topic.record.cell_of(index): partition(opened, index, "aged").start_offset for index in (0, 1)}
        assert starts == {ONE: 0, TWO: 1}
    accept_mark(tmp_path / "data" / "cells" / "1")
    async with started(tmp_path, START_MS + 10_000) as opened:
        await opened.topics.retain(nobody_knows)
        assert [partition(opened, index, "aged").start_offset for index in (0, 1)] == [1, 1]


async def test_a_tablet_of_a_held_cell_is_not_glued(tmp_path: Path) -> None:
    """Its rows would be copied into a whole cell, and what is left would be removed."""
    async with started(tmp_path) as opened:
        await opened.hive.create_bundle(new_bundle("b", {}, ""))
        for _ in range(2):
            await opened.others.create("b")
        await opened.topics.create("t", 2, CONFIG, table_that_keeps_facts(2))
        for index in (0, 1):
            await partition(opened, index).write(*batch(b"%d" % index))
    hold(tmp_path)
    async with started(tmp_path) as opened:
        topic = opened.topics.get("t")
        assert topic is not None
        assert set(topic.record.cells) == {ONE, TWO}
        for glue in (Glue(0, [1]), Glue(0, [1], b"0" * 16)):
            with pytest.raises(BundleRefused, match="the cell was salvaged, so nothing leaves it"):
                await opened.others.glue(topic, glue, never)
        assert [partition(opened, index).end_offset for index in (0, 1)] == [1, 1]
    accept_mark(tmp_path / "data" / "cells" / "1")
    async with started(tmp_path) as opened:
        topic = opened.topics.get("t")
        assert topic is not None
        with pytest.raises(AssertionError, match="now it is glued"):
            await opened.others.glue(topic, Glue(0, [1]), never)


def never(record: TopicRecord, tablet_id: TabletId) -> Resharded:
    raise AssertionError("now it is glued")


async def test_staged_rows_of_a_held_cell_do_not_expire(tmp_path: Path) -> None:
    """The decision that names them may be among what was given up."""
    async with started(tmp_path) as opened:
        await fill(opened)
        topic = opened.topics.get("t")
        assert topic is not None
        for index in (0, 1):
            rows = RowsToStage(index, batch(b"staged")[0], None)
            await StagedPlaces.here(topic, 1 << 20).of(index).stage(Fence("s", 1), rows)
    hold(tmp_path)
    late_ms = START_MS + 10_000
    async with started(tmp_path, late_ms) as opened:
        (topic,) = await opened.topics.retain(nobody_knows)
        await look_after(topic, late_ms)
        kept = {topic.record.cell_of(index): topic.partitions[index].staged.count for index in (0, 1)}
        assert kept == {ONE: 1, TWO: 0}
    accept_mark(tmp_path / "data" / "cells" / "1")
    async with started(tmp_path, late_ms) as opened:
        (topic,) = await opened.topics.retain(nobody_knows)
        await look_after(topic, late_ms)
        assert [topic.partitions[index].staged.count for index in (0, 1)] == [0, 0]
