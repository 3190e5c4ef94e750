"""A backup of an open cell: what it holds, what stays of one that fails, and what it costs the cell meanwhile."""

import asyncio
import os
import threading
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from crc32c import crc32c

from pqbroker.storage.disk.backups import backup as backups
from pqbroker.storage.disk.backups.backup import BackupDirectory
from pqbroker.storage.disk.backups.index_copy import copy_index
from pqbroker.storage.disk.backups.moment import take_moment
from pqbroker.storage.disk.backups.restoring import restore
from pqbroker.storage.disk.offline import look_into
from pqbroker.storage.disk.rocks import RocksEngine
from pqbroker.storage.engine import BackupRefused, EngineCannot, EngineError, Shard, ShardLost
from pqbroker.storage.outcome import Outcome
from tests.storage.cells import MemoryCell, RocksCell, blob_key, blobs, content, dead, rows, until
from tests.storage.committing import IN_FLIGHT, blob_size, is_kept, last_number, numbered


class Writing:
    """Commits numbered batches without a pause; `acknowledged` is the last that is durable."""

    def __init__(self, shard: Shard) -> None:
        self.acknowledged = -1
        self._shard = shard
        self._stopping = False
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        self._stopping = True
        await self._task

    async def reach(self, number: int) -> None:
        async with asyncio.timeout(30):
            while self.acknowledged < number:  # noqa: ASYNC110 - the load's own pace
                await asyncio.sleep(0.001)

    async def _run(self) -> None:
        waiting: deque[tuple[int, Outcome[None]]] = deque()
        number = 0
        while not self._stopping or waiting:
            if not self._stopping:
                waiting.append((number, self._shard.commit(numbered(self._shard, number))))
                number += 1
            if self._stopping or len(waiting) >= IN_FLIGHT:
                last, commit = waiting.popleft()
                await commit
                self.acknowledged = last


async def check_whole(shard: Shard, last: int) -> None:
    """All that the first `last` + 1 batches leave is there, and nothing of a later one."""
    found = await shard.scan(b"Kn", b"Ko", 1_000_000)
    assert [key for key, _ in found] == [b"Kn%012d" % number for number in range(last + 1)]
    for number in range(last + 1):
        (place,) = await shard.places([blob_key(number)])
        assert (place is not None) == is_kept(number, last)
        if place is not None:
            (read,) = await shard.read([(blob_key(number), 0, blob_size(number))])
            assert bytes(read) == content(number, blob_size(number))


def checksums(directory: Path) -> dict[str, int]:
    return {str(path): crc32c(path.read_bytes()) for path in directory.rglob("*") if path.is_file()}


async def open_restored(backup: Path, directory: Path) -> Shard:
    restore(backup, directory, {}, lambda size: None)
    return await RocksCell(directory).open()


@pytest.mark.parametrize("durability", ["fsync", "interval", "none"])
async def test_a_backup_under_load_holds_one_moment_with_all_that_was_acknowledged(
    tmp_path: Path, durability: str
) -> None:
    shard = await RocksCell(tmp_path / "cell", durability=durability).open()
    load = Writing(shard)
    known = []
    for turn in range(5):
        await load.reach(150 * (turn + 1))
        known.append(load.acknowledged)
        facts = await shard.backup(f"turn-{turn}")
        assert facts.linked_bytes
        assert facts.copied_bytes
    await load.stop()
    await shard.close()
    for turn, acknowledged in enumerate(known):
        restored = await open_restored(tmp_path / "cell" / "backups" / f"turn-{turn}", tmp_path / f"restored-{turn}")
        last = await last_number(restored)
        assert last >= acknowledged
        await check_whole(restored, last)
        await restored.close()


async def test_nothing_of_a_backup_changes_when_the_cell_goes_on(tmp_path: Path) -> None:
    """The segment that grows is written to next, and sealed later."""
    shard = await RocksCell(tmp_path / "cell").open()
    for number in range(50):
        await shard.commit(numbered(shard, number))
    await shard.backup("one")
    backup = tmp_path / "cell" / "backups" / "one"
    before = checksums(backup)
    for number in range(50, 100):
        await shard.commit(numbered(shard, number))
        assert number not in (50, 51, 52) or checksums(backup) == before
    await shard.close()
    assert checksums(backup) == before


async def test_nothing_is_removed_until_the_backup_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cell = RocksCell(tmp_path / "cell")
    shard = await cell.open()
    for number in range(4):
        await shard.commit(blobs(shard, [(number, content(number, 600_000))]))
    begun, may_end = threading.Event(), threading.Event()

    def wait(*arguments: Any) -> None:
        begun.set()
        assert may_end.wait(30)
        copy_index(*arguments)

    monkeypatch.setattr(backups, "copy_index", wait)
    making = asyncio.create_task(shard.backup("one"))
    await asyncio.to_thread(begun.wait, 30)
    before = cell.segments()
    for number in range(3):
        await shard.commit(dead(number))
    await shard.commit(rows((b"Ka", b"")))
    assert cell.segments() == before
    may_end.set()
    await making
    await until(lambda: len(cell.segments()) == 1)
    await shard.close()
    restored = await open_restored(tmp_path / "cell" / "backups" / "one", tmp_path / "restored")
    (read,) = await restored.read([(blob_key(3), 0, 600_000)])
    assert bytes(read) == content(3, 600_000)
    await restored.close()


async def test_a_backup_on_another_file_system_is_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(source: Path, target: Path) -> None:
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", refuse)
    shard = await RocksCell(tmp_path / "cell").open()
    load = Writing(shard)
    await load.reach(100)
    facts = await shard.backup("far")
    await load.stop()
    await shard.close()
    assert facts.linked_bytes == 0
    restored = await open_restored(tmp_path / "cell" / "backups" / "far", tmp_path / "restored")
    await check_whole(restored, await last_number(restored))
    await restored.close()


async def test_pools_outside_the_directory_are_in_the_backup(tmp_path: Path) -> None:
    pools = {"main": tmp_path / "cell" / "blobs", "far": tmp_path / "far"}
    shard = await RocksEngine(tmp_path / "cell", pools=pools, ballast_bytes=0).open()
    batch = rows((b"Ka", b"1"))
    batch.put_blob(blob_key(1), [content(1, 50_000)], 50_000, "far")
    await shard.commit(batch)
    await shard.backup("one")
    await shard.close()
    backup = tmp_path / "cell" / "backups" / "one"
    with look_into(backup, {"far": backup / "pools" / "far"}) as found:
        assert bytes(found.content(blob_key(1))) == content(1, 50_000)
    with pytest.raises(EngineError, match="--pool far=DIR"):
        restore(backup, tmp_path / "restored", {}, lambda size: None)
    restore(backup, tmp_path / "restored", {"far": tmp_path / "elsewhere"}, lambda size: None)
    pools = {"main": tmp_path / "restored" / "blobs", "far": tmp_path / "elsewhere"}
    restored = await RocksEngine(tmp_path / "restored", pools=pools, ballast_bytes=0).open()
    (read,) = await restored.read([(blob_key(1), 0, 50_000)])
    assert bytes(read) == content(1, 50_000)
    await restored.close()


@pytest.mark.parametrize("name", ["", "..", "a/b", "../b", ".hidden", "/tmp/elsewhere", "a b", "x" * 101])
async def test_a_name_that_leads_elsewhere_is_refused(tmp_path: Path, name: str) -> None:
    shard = await RocksCell(tmp_path / "cell").open()
    with pytest.raises(BackupRefused):
        await shard.backup(name)
    assert not (tmp_path / "cell" / "backups").exists()
    await shard.close()


async def test_a_path_right_below_the_directory_of_backups_is_a_name(tmp_path: Path) -> None:
    shard = await RocksCell(tmp_path / "cell").open()
    await shard.commit(rows((b"Ka", b"1")))
    facts = await shard.backup(str(tmp_path / "cell" / "backups" / "one"))
    assert facts.directory == str(tmp_path / "cell" / "backups" / "one")
    await shard.close()


async def test_what_lasts_for_the_moments_of_all_cells_ends_before_the_copies_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All indexes are copied before it, and all that is linked and copied behind the moments comes after it."""
    shards = [await RocksCell(tmp_path / name).open() for name in ("cell", "other", "third")]
    for shard in shards:
        await shard.commit(blobs(shard, [(1, content(1, 600_000))]))
    steps: list[str] = []

    def copied(*arguments: Any) -> None:
        steps.append("index")
        copy_index(*arguments)

    def taken(*arguments: Any, **more: Any) -> Any:
        steps.append("moment")
        return take_moment(*arguments, **more)

    def ended(copy: Any, moment: Any) -> None:
        steps.append("end")
        end(copy, moment)

    @asynccontextmanager
    async def during() -> AsyncIterator[None]:
        steps.append("held back")
        yield
        steps.append("let go")

    end = backups.CellCopy._end
    monkeypatch.setattr(backups, "take_moment", taken)
    monkeypatch.setattr(backups, "copy_index", copied)
    monkeypatch.setattr(backups.CellCopy, "_end", ended)
    await shards[0].backup("one", {"1": shards[1], "2": shards[2]}, during())
    assert steps == [*["index"] * 3, "held back", *["moment"] * 3, "let go", *["end"] * 3]
    for shard in shards:
        await shard.close()


async def test_what_refuses_the_moments_leaves_nothing_of_a_backup(tmp_path: Path) -> None:
    @asynccontextmanager
    async def during() -> AsyncIterator[None]:
        raise BackupRefused("not now")
        yield

    shards = [await RocksCell(tmp_path / name).open() for name in ("cell", "other")]
    with pytest.raises(BackupRefused, match="not now"):
        await shards[0].backup("one", {"1": shards[1]}, during())
    assert os.listdir(tmp_path / "cell" / "backups") == []
    await shards[0].backup("two", {"1": shards[1]})
    for shard in shards:
        await shard.close()


async def test_another_cell_that_closes_ends_the_backup(tmp_path: Path) -> None:
    shards = [await RocksCell(tmp_path / name).open() for name in ("cell", "other")]

    @asynccontextmanager
    async def during() -> AsyncIterator[None]:
        await shards[1].close()
        yield

    with pytest.raises((BackupRefused, ShardLost)):
        await shards[0].backup("one", {"1": shards[1]}, during())
    assert os.listdir(tmp_path / "cell" / "backups") == []
    await shards[0].close()


async def test_a_backup_is_not_overwritten(tmp_path: Path) -> None:
    shard = await RocksCell(tmp_path / "cell").open()
    await shard.backup("one")
    with pytest.raises(BackupRefused, match="exists"):
        await shard.backup("one")
    await shard.close()


async def test_one_backup_at_a_time_and_no_more_than_the_limit(tmp_path: Path) -> None:
    engine = RocksEngine(tmp_path / "cell", ballast_bytes=0, backups=BackupDirectory(tmp_path / "kept", 1))
    shard = await engine.open()
    first = asyncio.create_task(shard.backup("one"))
    await asyncio.sleep(0)
    with pytest.raises(BackupRefused, match="already"):
        await shard.backup("two")
    await first
    with pytest.raises(BackupRefused, match=r"pqbroker\.backups\.max is 1"):
        await shard.backup("two")
    assert os.listdir(tmp_path / "kept") == ["one"]
    await shard.close()


async def test_a_closed_cell_ends_its_backup_and_leaves_nothing_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: object) -> None:
        monkeypatch.setattr(backups, "copy_index", None)
        raise AssertionError("the cell was closed before")

    shard = await RocksCell(tmp_path / "cell").open()
    making = asyncio.create_task(shard.backup("one"))
    await asyncio.sleep(0)
    monkeypatch.setattr(backups, "copy_index", never)
    await shard.close()
    with pytest.raises(BackupRefused, match="make it again"):
        await making
    assert not list((tmp_path / "cell").glob("backups/*"))
    with pytest.raises(ShardLost):
        await shard.backup("two")


async def test_a_backup_of_a_cell_that_another_owner_took_is_refused(tmp_path: Path) -> None:
    cell = RocksCell(tmp_path / "cell")
    shard = await cell.open()
    await shard.commit(rows((b"Ka", b"1")))
    later = await cell.take_over()
    with pytest.raises((ShardLost, BackupRefused)):
        await shard.backup("one")
    assert not list((tmp_path / "cell").glob("backups/*"))
    await later.close()
    await shard.close()


async def test_memory_has_no_backups() -> None:
    shard = await MemoryCell().open()
    with pytest.raises(EngineCannot, match="memory engine cannot make a backup"):
        await shard.backup("one")
    await shard.close()


def test_a_directory_that_is_not_empty_is_not_restored_to(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="no backup"):
        restore(tmp_path, tmp_path / "new", {}, lambda size: None)


async def test_what_a_restore_left_half_way_is_not_served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shard = await RocksCell(tmp_path / "cell").open()
    await shard.backup("one")
    await shard.close()
    backup = tmp_path / "cell" / "backups" / "one"
    restore(backup, tmp_path / "restored", {}, lambda size: None)
    (tmp_path / "restored" / "cell").unlink()
    (tmp_path / "restored" / "cell.copy").unlink()
    with pytest.raises(EngineError, match="cell is missing"):
        await RocksCell(tmp_path / "restored").open()
    with pytest.raises(EngineError, match="not empty"):
        restore(backup, tmp_path / "restored", {}, lambda size: None)




def test_the_directory_of_backups_is_durable_before_there_is_one_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[Path] = []
    monkeypatch.setattr(backups, "fsync_directory", synced.append)
    BackupDirectory(tmp_path / "backups", 1).make()
    assert synced == [tmp_path]
