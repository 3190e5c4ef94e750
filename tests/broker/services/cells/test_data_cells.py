"""Cells beside the system cell on a disk: kills at every step of their lives, and damage to one of them."""

import asyncio
import json
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict
from pathlib import Path

import pytest

from pqbroker.broker.services.cells.cell_owner import OpenCell, open_cell
from pqbroker.conf.broker import BrokerSettings
from pqbroker.doctor.checkup import examine
from pqbroker.doctor.findings import Findings, Weight
from pqbroker.pq.serving.partition_server import PartitionServer
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.storage.bundles.bundle import new_bundle
from pqbroker.storage.bundles.hive import HIVE_TABLET_ID, CellState
from pqbroker.storage.disk.directory import FORMAT, CellFacts
from pqbroker.storage.disk.rocks import RocksEngine
from pqbroker.storage.engine import CommitRefused, EngineError, ShardLost
from pqbroker.storage.faults import Faults
from pqbroker.storage.ids import CellId
from pqbroker.storage.tablets.tablet import TabletType
from tests.broker.services.cells.memory_cells import MemoryCells
from tests.pq.rig import START_MS, batch, read_all

pytestmark = pytest.mark.spec("D.5")

ONE = CellId(1)
CONFIG = {"pq.bundle": "b", "pq.partitions.per.tablet": "1"}


ENGINES: dict[int, RocksEngine] = {}
"""Of the nodes that run, by the id of their opening."""


def engine_at(path: Path) -> RocksEngine:
    return RocksEngine(path / "data", ballast_bytes=0, faults=Faults(), pools={"main": path / "data" / "blobs"})


@asynccontextmanager
async def started(path: Path, now_ms: int = START_MS) -> AsyncIterator[OpenCell]:
    """A node's cells, closed with the block: what was acknowledged is on the disk then as after a kill."""
    engine = engine_at(path)
    opened = await open_cell(engine, BrokerSettings(), lambda: now_ms)
    ENGINES[id(opened)] = engine
    try:
        yield opened
    finally:
        del ENGINES[id(opened)]
        with suppress(ShardLost):
            await opened.stop()
        with suppress(ShardLost):
            await opened.cell.close()


def engine_of(opened: OpenCell) -> RocksEngine:
    return ENGINES[id(opened)]


def partition(opened: OpenCell, index: int, name: str = "t") -> PartitionServer:
    topic = opened.topics.get(name)
    assert topic is not None
    return topic.partitions[index]


async def fill(opened: OpenCell) -> None:
    """Cells 1 and 2, a topic t with a partition in each, a topic s in the system cell; a record in each partition."""
    await opened.hive.create_bundle(new_bundle("b", {}, ""))
    for _ in range(2):
        await opened.others.create("b")
    await opened.topics.create("t", 2, CONFIG)
    await opened.topics.create("s", 1, {})
    for server in (partition(opened, 0), partition(opened, 1), partition(opened, 0, "s")):
        await server.write(*batch())


async def ends(opened: OpenCell) -> list[int]:
    return [partition(opened, 0).end_offset, partition(opened, 1).end_offset, partition(opened, 0, "s").end_offset]


async def test_records_in_cells_survive_a_restart_of_the_node(tmp_path: Path) -> None:
    async with started(tmp_path) as opened:
        await fill(opened)
        found = await ends(opened)
    for generation in (2, 3):
        async with started(tmp_path) as opened:
            assert await ends(opened) == found
            assert len(await read_all(partition(opened, 1))) == found[1]
            host = opened.cells.host(ONE)
            assert host is not None
            assert host.cell.generation == generation


async def test_a_cell_that_is_gone_is_not_made_again_and_costs_its_partitions_alone(tmp_path: Path) -> None:
    async with started(tmp_path) as opened:
        await fill(opened)
    shutil.move(tmp_path / "data" / "cells" / "1", tmp_path / "elsewhere")
    async with started(tmp_path) as opened:
        assert opened.others.health(ONE) == "failed"
        assert "removed" in opened.others.failure(ONE)
        assert not (tmp_path / "data" / "cells" / "1").exists()
        assert partition(opened, 1).end_offset == 1
        with pytest.raises(KafkaError) as lost:
            await partition(opened, 0).write(*batch())
        assert lost.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        with pytest.raises(KafkaError) as unknown:
            opened.topics.offsets.at("g", ("t", 0))
        assert unknown.value.code == ErrorCode.NOT_COORDINATOR
        assert opened.topics.offsets.at("g", ("s", 0)) is None
    shutil.move(tmp_path / "elsewhere", tmp_path / "data" / "cells" / "1")
    async with started(tmp_path) as opened:
        assert partition(opened, 0).end_offset == 1


async def test_the_doctor_looks_into_every_cell(tmp_path: Path) -> None:
    async with started(tmp_path) as opened:
        await fill(opened)
    findings = await examined(tmp_path)
    assert (findings.found, findings.seen["partitions"]) == ([], 3)
    cells = tmp_path / "data" / "cells"
    (index,) = (cells / "2").glob("index-*")
    shutil.rmtree(cells / "1")
    index.rename(tmp_path / "elsewhere")
    first, *others = (await examined(tmp_path)).found
    assert first.where.startswith("cell 1: ")
    assert [finding.where.startswith("cell 2: ") for finding in others] == [True]


async def examined(path: Path) -> Findings:
    findings = Findings(lambda size: None)
    await examine(path / "data", {}, findings, lambda total: None)
    return findings


@pytest.mark.parametrize("cut", range(4))
async def test_the_doctor_calls_a_cell_half_made_wherever_the_power_was_cut(tmp_path: Path, cut: int) -> None:
    """As it is before its directory, in an empty one, with facts that say it was never opened whole, and before its
    index has a name."""
    async with started(tmp_path) as opened:
        await opened.hive.add_cell("default", 1)
    place = tmp_path / "data" / "cells" / "1"
    if cut:
        place.mkdir(parents=True)
    if cut > 1:
        facts = CellFacts(FORMAT, "7" * 32, (), "fsync", ready=False)
        (place / "cell").write_text(json.dumps(asdict(facts)))
        (place / "lock").touch()
    if cut > 2:
        (place / "blobs").mkdir()
    findings = await examined(tmp_path)
    assert not findings.damages
    told = [(f"cell 1: {place}", "it is half made")] if cut else []
    assert [(one.where, one.what) for one in findings.found] == told
    async with started(tmp_path) as opened:
        assert opened.others.health(ONE) == "good"
    assert (await examined(tmp_path)).found == []


async def test_the_doctor_calls_a_cell_half_removed_that_is_being_removed(tmp_path: Path) -> None:
    async with started(tmp_path) as opened:
        await opened.others.create("default")
        await opened.hive.set_state(ONE, CellState.REMOVING)
    place = tmp_path / "data" / "cells" / "1"
    (place / "cell").unlink()
    (place / "cell.copy").unlink()
    findings = await examined(tmp_path)
    assert [(one.where, one.what) for one in findings.found] == [(f"cell 1: {place}", "it is half removed")]
    assert not findings.damages
    async with started(tmp_path) as opened:
        assert not opened.hive.cells
    assert not place.exists()


async def test_the_doctor_misses_a_ready_cell_whose_directory_is_gone_and_that_no_topic_names(tmp_path: Path) -> None:
    async with started(tmp_path) as opened:
        await opened.others.create("default")
    shutil.rmtree(tmp_path / "data" / "cells" / "1")
    (found,) = (await examined(tmp_path)).found
    assert (found.weight, found.where) == (Weight.DAMAGE, f"cell 1: {tmp_path / 'data' / 'cells' / '1'}")


async def test_the_doctor_lets_a_hive_be_that_is_not_laid_out_yet(tmp_path: Path) -> None:
    async with started(tmp_path) as opened:
        await opened.cell.create_tablets([(HIVE_TABLET_ID, TabletType.HIVE, "hive")])
    assert (await examined(tmp_path)).found == []
    async with started(tmp_path) as opened:
        assert (await opened.hive.add_cell("default", 1)).cell == ONE


async def test_a_cell_is_made_or_not_wherever_its_making_is_cut(tmp_path: Path) -> None:
    for cut in range(4):
        place = tmp_path / str(cut)
        async with started(place) as opened:
            await opened.hive.create_bundle(new_bundle("b", {}, ""))
            faults = engine_of(opened).faults
            assert faults is not None
            faults.lose_next(after=cut)
            with suppress(CommitRefused, ShardLost):
                await opened.hive.add_cell("b", 1)
                await opened.hive.set_state(ONE, CellState.READY)
        async with started(place) as opened:
            states = [record.state for record in opened.hive.cells.values()]
            assert states in ([], [CellState.READY])


async def test_a_node_that_left_its_cells_opens_none_any_more(tmp_path: Path) -> None:
    async with started(tmp_path) as opened:
        await fill(opened)
        await opened.others.close()
        with pytest.raises(EngineError, match="cell 3 cannot be opened yet"):
            await opened.others.create("b")
        assert not (tmp_path / "data" / "cells" / "3").exists()
    async with started(tmp_path) as opened:
        assert [opened.others.health(CellId(cell)) for cell in (1, 2, 3)] == ["good"] * 3


async def test_who_creates_a_cell_is_answered_whenever_the_node_leaves_its_cells() -> None:
    for turns in range(40):
        cells = MemoryCells()
        await cells.open()
        creating = asyncio.ensure_future(cells.opened.others.create("default"))
        for _ in range(turns):
            await asyncio.sleep(0)
        async with asyncio.timeout(10):
            await cells.opened.others.close()
            with suppress(EngineError):
                await creating
        await cells.close()


async def test_a_removal_that_was_begun_ends_at_the_next_start(tmp_path: Path) -> None:
    async with started(tmp_path) as opened:
        await fill(opened)
        await opened.topics.delete("t")
        await opened.hive.set_state(ONE, CellState.REMOVING)
        assert (tmp_path / "data" / "cells" / "1").exists()
    async with started(tmp_path) as opened:
        assert list(opened.hive.cells) == [2]
        assert not (tmp_path / "data" / "cells" / "1").exists()
        assert (tmp_path / "data" / "cells" / "2").exists()


async def test_topics_are_created_whole_wherever_their_creation_is_cut(tmp_path: Path) -> None:
    for number, cell in enumerate(("", "", "1", "2")):
        place = tmp_path / str(number)
        async with started(place) as opened:
            await fill(opened)
            engine = engine_of(opened)
            cut = engine if not cell else engine.sibling(cell, must_exist=True)
            assert cut.faults is not None
            cut.faults.lose_next(stored=number == 1)
            with suppress(CommitRefused, ShardLost):
                await opened.topics.create("new", 4, CONFIG)
        async with started(place) as opened:
            topic = opened.topics.get("new")
            if topic is not None:
                assert [server.is_lost for server in topic.partitions] == [False] * 4
                assert sorted(topic.record.cells) == [1, 1, 2, 2]
            assert await ends(opened) == [1, 1, 1]
