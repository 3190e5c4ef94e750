"""Cells whose log was cut off behind a whole record, or that hide it: a start refuses them, and so does the doctor."""

import asyncio
import json
import os
from pathlib import Path

import pytest

from pqbroker.storage.disk import free_space
from pqbroker.storage.disk.backups.restoring import restore
from pqbroker.storage.disk.commits.commit_scan import scan_commits
from pqbroker.storage.disk.commits.log_end import known_ends
from pqbroker.storage.disk.offline import look_into
from pqbroker.storage.disk.rocks_index import RocksIndex
from pqbroker.storage.engine import EngineError, Shard
from tests.storage.cells import MIB, RocksCell, blob_key, blobs, content, copy_alive, rows, seed_of, until

COUNT = 6
FORMAT_1 = "is of format 1, .* commit 3fae7f5da9eb of pqbroker"
CUT_OFF = "the commit log ends at commit .* was synced: acknowledged rows are lost; restore a copy"


@pytest.fixture
def cell(tmp_path: Path) -> RocksCell:
    return RocksCell(tmp_path / "cell")


async def fill(shard: Shard, size: int) -> None:
    for number in range(COUNT):
        await shard.commit(blobs(shard, [(number, content(number, size))]))


def told_end(cell: RocksCell) -> int:
    seed = seed_of(cell.path)
    return max(each.number for each in known_ends(cell.index() / "commits", seed))


def last_record(cell: RocksCell) -> tuple[Path, int]:
    """The file of the last round, and where it begins, payload and all."""
    seed = seed_of(cell.path)
    files = [*cell.segments(), *(cell.index() / "commits").glob("*.commits")]
    records = [each for file in files for each in scan_commits(file, 0, seed).records]
    last = max(records, key=lambda at: at.header.number)
    return last.path, last.position - last.header.payload_bytes


def killed(cell: RocksCell, name: str = "killed") -> RocksCell:
    copy = RocksCell(cell.path.with_name(name))
    copy_alive(cell.path, copy.path)
    return copy


@pytest.mark.parametrize("size", [50, 20_000], ids=["in the log", "behind its payload"])
async def test_a_log_cut_off_behind_a_whole_record_is_refused_after_a_kill(
    cell: RocksCell, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(free_space, "_LOOK_SECONDS", 100)  # it is for the end's sake that the thread wakes
    shard = await cell.open()
    await fill(shard, size)
    await until(lambda: told_end(cell) >= COUNT)
    whole, cut = killed(cell, "whole"), killed(cell)
    await shard.close()
    os.truncate(*last_record(cut))
    with pytest.raises(EngineError, match=CUT_OFF):
        await cut.open()
    with pytest.raises(EngineError, match=CUT_OFF), look_into(cut.path, {}):
        pass
    shard = await whole.open()
    found = await shard.read([(blob_key(number), 0, MIB) for number in range(COUNT)])
    assert [bytes(part) for part in found] == [content(number, size) for number in range(COUNT)]
    await shard.close()


@pytest.mark.parametrize("size", [50, 20_000], ids=["in the log", "behind its payload"])
async def test_a_log_cut_off_in_a_backup_is_named_by_the_doctor_and_when_it_is_restored(
    cell: RocksCell, size: int
) -> None:
    shard = await cell.open()
    await fill(shard, size)
    backup = RocksCell(Path((await shard.backup("one")).directory))
    await shard.close()
    restore(backup.path, cell.path.with_name("whole"), {}, lambda size: None)
    whole = await RocksCell(cell.path.with_name("whole")).open()
    found = await whole.read([(blob_key(number), 0, MIB) for number in range(COUNT)])
    assert [bytes(part) for part in found] == [content(number, size) for number in range(COUNT)]
    await whole.close()
    os.truncate(*last_record(backup))
    with pytest.raises(EngineError, match=CUT_OFF), look_into(backup.path, {}):
        pass
    restore(backup.path, cell.path.with_name("restored"), {}, lambda size: None)
    with pytest.raises(EngineError, match=CUT_OFF):
        await RocksCell(cell.path.with_name("restored")).open()


async def test_a_log_cut_off_is_refused_after_a_kill_amid_a_clean_end(
    cell: RocksCell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pqbroker.storage.disk.commits.round_writer._IDLE_SECONDS", 100)
    shard = await cell.open()
    await fill(shard, 50)
    left: list[RocksCell] = []
    with monkeypatch.context() as patch:
        patch.setattr(RocksIndex, "flush", lambda index, *, wait=False: left.append(killed(cell)))
        await shard.close()
    assert told_end(left[0]) >= COUNT
    os.truncate(*last_record(left[0]))
    with pytest.raises(EngineError, match=CUT_OFF):
        await left[0].open()


async def test_an_end_is_written_at_a_clean_end_though_the_cell_was_never_idle(
    cell: RocksCell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pqbroker.storage.disk.commits.round_writer._IDLE_SECONDS", 100)
    shard = await cell.open()
    before = told_end(cell)
    await fill(shard, 50)
    assert told_end(cell) == before
    await shard.close()
    assert told_end(cell) == before + COUNT


async def test_only_rounds_that_are_synced_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(free_space, "_LOOK_SECONDS", 0.02)
    cell = RocksCell(tmp_path / "cell", durability="none")
    shard = await cell.open()
    before = told_end(cell)
    await fill(shard, 50)
    await asyncio.sleep(0.3)  # the thread has looked many times meanwhile
    assert told_end(cell) == before
    left = killed(cell)
    await shard.close()
    assert told_end(cell) == before + COUNT
    os.truncate(*last_record(left))
    await (await left.open()).close()


async def test_rounds_that_are_synced_later_are_told_then(tmp_path: Path) -> None:
    cell = RocksCell(tmp_path / "cell", durability="interval")
    shard = await cell.open()
    before = told_end(cell)
    await fill(shard, 50)
    await until(lambda: told_end(cell) == before + COUNT)
    await shard.close()


async def test_an_owner_that_lost_the_cell_and_says_more_does_not_stop_the_next(cell: RocksCell) -> None:
    first = await cell.open()
    await fill(first, 50)
    second = await cell.take_over()
    old = killed(cell)
    with pytest.raises(Exception, match="later owner"):
        await first.commit(rows((b"K", b"late")))
    await second.commit(rows((b"L", b"taken")))
    await until(lambda: told_end(cell) > COUNT)
    left = killed(cell, "left")
    for each in (old, left):
        shard = await each.open()
        assert not await shard.scan(b"K", b"K\0", 9)
        await shard.close()
    await second.close()
    await first.close()


async def test_format_1_is_refused_and_names_the_commit_that_carries_it_over(cell: RocksCell) -> None:
    """One flipped bit makes a 3 a 1, so a commit log may be there."""
    shard = await cell.open()
    await fill(shard, 50)
    left = killed(cell)
    await shard.close()
    facts = left.path / "cell"
    facts.write_text(json.dumps({**json.loads(facts.read_text()), "format": 1}))
    (left.path / "cell.copy").unlink()
    with pytest.raises(EngineError, match=FORMAT_1), look_into(left.path, {}):
        pass
    with pytest.raises(EngineError, match=FORMAT_1):
        await left.open()
    assert list((left.index() / "commits").glob("*.commits"))
