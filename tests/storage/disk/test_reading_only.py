"""A cell that is open for reading only, since its disk has no room for a log: what it serves, refuses, and leaves."""

import asyncio
import hashlib
import os
from pathlib import Path

import pytest

from pqbroker.storage.disk import reading_only
from pqbroker.storage.disk.commits.unwritten_rows import CountedBatch, UnwrittenRows
from pqbroker.storage.disk.free_space import ASKED_BYTES, START_BYTES
from pqbroker.storage.disk.reading_only import ReadingSpace
from pqbroker.storage.engine import (
    BackupRefused,
    CommitRefused,
    EngineError,
    Fenced,
    LogDamaged,
    NoRoom,
    ReadingOnly,
    RoomAgain,
    Shard,
    StoreFull,
)
from pqbroker.storage.ids import TabletId
from pqbroker.storage.pool_status import Colour
from pqbroker.storage.quarantine import Quarantined
from pqbroker.storage.tablets.cell import Cell
from pqbroker.storage.tablets.tablet import TabletType
from tests.storage.cells import Disk, RocksCell, blob_key, blobs, content, copy_alive, rows

CAUSE = "the disk of it is full"


@pytest.fixture
def cell(tmp_path: Path) -> RocksCell:
    return RocksCell(tmp_path / "cell")


async def opened(cell: RocksCell) -> Shard:
    """An opening for reading only, of a disk without a free byte, that is not released yet."""
    cell.disk.f_bavail = 0
    opener = cell.engine().for_reading(CAUSE)
    assert opener is not None
    return await opener.open()


async def left_behind(cell: RocksCell) -> None:
    """Rows, a blob of the index and one in a segment, left by an owner that was killed."""
    alive = RocksCell(cell.path.with_name("alive"))
    shard = await alive.open()
    await shard.commit(rows((b"K", b"v")))
    await shard.commit(blobs(shard, [(1, content(1, 300)), (2, content(2, 200_000))]))
    copy_alive(alive.path, cell.path)
    await shard.close()


def listing(path: Path) -> dict[str, tuple[str, int]]:
    """What every file holds, and when it was changed."""
    files = (file for file in path.rglob("*") if file.is_file())
    return {str(file): (hashlib.sha256(file.read_bytes()).hexdigest(), file.stat().st_mtime_ns) for file in files}


async def test_everything_that_was_committed_is_read_and_no_file_is_changed(cell: RocksCell) -> None:
    await left_behind(cell)
    before = listing(cell.path)
    shard = await opened(cell)
    await shard.commit(rows((b"A", b"the start's")))
    await shard.release()
    assert await shard.get([b"K", b"A"]) == [b"v", b"the start's"]
    found = await shard.read([(blob_key(1), 0, 300), (blob_key(2), 0, 200_000)])
    assert [bytes(part) for part in found] == [content(1, 300), content(2, 200_000)]
    assert shard.stats().pools[0].live_bytes > 200_000
    await shard.close()
    assert listing(cell.path) == before


async def test_what_a_start_commits_is_gone_at_the_next_opening(cell: RocksCell) -> None:
    await left_behind(cell)
    shard = await opened(cell)
    await shard.commit(rows((b"K", b"of the start")))
    await shard.commit(blobs(shard, [(7, content(7, 50_000))]))
    assert bytes((await shard.read([(blob_key(7), 0, 50_000)]))[0]) == content(7, 50_000)
    await shard.close()
    cell.disk.f_bavail = 100_000
    shard = await cell.open()
    assert await shard.get([b"K"]) == [b"v"]
    assert await shard.places([blob_key(7)]) == [None]
    await shard.close()


async def test_every_commit_behind_the_start_is_refused_with_cause_and_cure(cell: RocksCell) -> None:
    await left_behind(cell)
    shard = await opened(cell)
    await shard.release()
    for batch in (rows((b"K", None)), blobs(shard, [(9, content(9, 100))])):
        with pytest.raises(ReadingOnly, match=r"opened for reading only, since its disk is full: free at least 1 MiB"):
            await shard.commit(batch)
    assert await shard.get([b"K"]) == [b"v"]
    assert shard.colour("main") is Colour.ORANGE_OUT_SPACE
    assert str(cell.path) in shard.reading_only
    await shard.close()


async def test_nothing_is_collected_from_it(cell: RocksCell) -> None:
    await left_behind(cell)
    shard = await opened(cell)
    waiting = asyncio.ensure_future(shard.quarantine.check())
    await shard.release()
    with pytest.raises(Quarantined, match="open for reading only: free at least 1 MiB"):
        await waiting
    await shard.close()


async def test_with_a_mebibyte_free_it_is_lost_and_the_next_opening_writes(cell: RocksCell) -> None:
    await left_behind(cell)
    shard = await opened(cell)
    await shard.release()
    await asyncio.sleep(0.05)
    assert not shard.lost.done()
    cell.disk.f_bavail = ASKED_BYTES // 4096
    async with asyncio.timeout(10):
        assert isinstance(await shard.lost, RoomAgain)
    with pytest.raises(RoomAgain):
        await shard.commit(rows((b"K", b"late")))
    await shard.close()
    (cell.path / "ballast").unlink()
    shard = await cell.open()
    assert not shard.reading_only
    await shard.commit(rows((b"K", b"the start's")))
    await shard.commit(rows((b"K", None)))
    assert await shard.get([b"K"]) == [None]
    await shard.close()


async def test_clients_that_write_all_the_time_do_not_keep_it_from_looking(cell: RocksCell) -> None:
    await left_behind(cell)
    shard = await opened(cell)
    await shard.release()
    cell.disk.f_bavail = ASKED_BYTES // 4096
    async with asyncio.timeout(10):
        while not shard.lost.done():
            with pytest.raises((ReadingOnly, RoomAgain)):
                await shard.commit(rows((b"K", b"v")))
    await shard.close()


async def test_it_is_not_lost_while_it_starts(cell: RocksCell) -> None:
    await left_behind(cell)
    shard = await opened(cell)
    cell.disk.f_bavail = 100_000
    await asyncio.sleep(0.1)
    assert not shard.lost.done()
    await shard.release()
    await shard.lost
    await shard.close()


async def test_a_later_owner_fences_it(cell: RocksCell) -> None:
    await left_behind(cell)
    shard = await opened(cell)
    await shard.confirm()
    (cell.path / "lock").unlink()
    cell.disk.f_bavail = 100_000
    later = await cell.open()
    with pytest.raises(Fenced):
        await shard.confirm()
    await shard.release()
    async with asyncio.timeout(10):
        assert isinstance(await shard.lost, Fenced)
    await shard.close()
    await later.close()


async def test_nobody_else_opens_it_meanwhile(cell: RocksCell) -> None:
    await left_behind(cell)
    shard = await opened(cell)
    cell.disk.f_bavail = 100_000
    with pytest.raises(EngineError, match="in use"):
        await cell.engine().open()
    await shard.close()


async def test_rounds_that_nobody_synced_are_synced_before_they_are_read(
    cell: RocksCell, monkeypatch: pytest.MonkeyPatch
) -> None:
    await left_behind(cell)
    synced: list[str] = []
    real = os.fdatasync

    def fdatasync(file: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{file}"))
        real(file)

    monkeypatch.setattr(os, "fdatasync", fdatasync)
    shard = await opened(cell)
    assert {Path(file).suffix for file in synced} >= {".commits", ".segment"}
    await shard.close()


async def test_damage_is_told_as_by_any_other_opening(cell: RocksCell) -> None:
    await left_behind(cell)
    (log,) = cell.index().glob("commits/*.commits")
    stored = bytearray(log.read_bytes())
    stored[stored.rindex(b"v")] ^= 1
    log.write_bytes(stored)
    with pytest.raises(LogDamaged, match="acknowledged rows are lost"):
        await opened(cell)


async def test_a_backup_is_refused_and_says_what_helps(cell: RocksCell) -> None:
    await left_behind(cell)
    shard = await opened(cell)
    await shard.release()
    with pytest.raises(BackupRefused, match="stop the broker and copy the directory, in which nothing is changed"):
        await shard.backup("b")
    await shard.close()


async def test_a_directory_that_never_was_a_cell_is_not_opened_for_reading(cell: RocksCell) -> None:
    with pytest.raises(NoRoom, match=CAUSE):
        await opened(cell)
    assert not cell.path.exists()


async def test_without_room_for_drafts_the_opening_says_what_to_set(
    cell: RocksCell, monkeypatch: pytest.MonkeyPatch
) -> None:
    await left_behind(cell)
    monkeypatch.setattr(reading_only, "_STAGING_PLACES", ("/nowhere/at/all", "/proc"))
    with pytest.raises(NoRoom, match=rf"{CAUSE}; nor is there room for drafts .*set TMPDIR"):
        await opened(cell)


async def test_nothing_is_left_of_the_drafts_while_it_is_open(
    cell: RocksCell, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    await left_behind(cell)
    (tmp_path / "drafts").mkdir()
    monkeypatch.setattr(reading_only, "_STAGING_PLACES", (str(tmp_path / "drafts"),))
    shard = await opened(cell)
    assert os.listdir(tmp_path / "drafts") == []
    assert await shard.get([b"K"]) == [b"v"]
    await shard.close()


async def test_a_write_without_room_loses_the_cell_as_a_full_disk_does(
    cell: RocksCell, monkeypatch: pytest.MonkeyPatch
) -> None:
    shard = await cell.open()

    def full(*_: object) -> int:
        raise OSError(28, os.strerror(28))

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwritev", full)
        with pytest.raises(StoreFull):
            await shard.commit(rows((b"K", b"v")))
    await shard.close()


async def test_a_start_whose_room_is_taken_amid_it_holds_nothing_and_says_so(
    cell: RocksCell, monkeypatch: pytest.MonkeyPatch
) -> None:
    await left_behind(cell)
    (cell.path / "ballast").unlink()
    cell.disk.f_bavail = START_BYTES // 4096

    engine = cell.engine()

    def take_meanwhile(files: list[Path]) -> None:
        cell.disk.f_bavail = 0

    monkeypatch.setattr("pqbroker.storage.disk.rocks.give_back", take_meanwhile)
    with pytest.raises(NoRoom, match="0 bytes are free"):
        await engine.open()
    opener = engine.for_reading(CAUSE)
    assert opener is not None
    shard = await opener.open()
    assert await shard.get([b"K"]) == [b"v"]
    await shard.close()


async def test_the_room_taken_beforehand_is_given_back_before_the_ballast_goes(
    cell: RocksCell, monkeypatch: pytest.MonkeyPatch
) -> None:
    await left_behind(cell)
    cell.disk.f_bavail = 1
    ballast = cell.path / "ballast"
    given: list[int] = []

    def give_back(files: list[Path]) -> None:
        given.append(ballast.stat().st_ino)
        cell.disk.f_bavail = 100_000

    monkeypatch.setattr("pqbroker.storage.disk.rocks.give_back", give_back)
    shard = await cell.open()
    assert given == [ballast.stat().st_ino], "a start makes one that has gone again"
    await shard.close()


async def test_a_tablet_that_has_started_writes_nothing_before_the_cell_is_released(cell: RocksCell) -> None:
    system = await Cell.open(cell.engine())
    tablet = TabletId(5)
    await system.create_tablets([(tablet, TabletType.PERSQUEUE, "t")])
    await system.close()
    cell.disk.f_bavail = 0
    opener = cell.engine().for_reading(CAUSE)
    assert opener is not None
    reading = await Cell.open(opener, releases=False)
    storage = reading.storage(tablet)
    await storage.commit(rows((b"K", b"its start")))
    storage.started()
    with pytest.raises(CommitRefused, match="opened for reading only"):
        await storage.commit(rows((b"K", b"a client's")))
    await reading.close()


def reading_space(disk: Disk) -> ReadingSpace:
    made = ReadingSpace(Path("/d"), CAUSE, lambda path: disk, 1.0)
    made.seal()
    return made


def test_an_opening_that_failed_with_room_is_tried_again_with_more_or_later(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("pqbroker.storage.disk.reading_only.time.monotonic", lambda: now[0])
    disk = Disk(f_bavail=2 * START_BYTES // 4096)
    waiting = reading_space(disk)
    waiting.look()
    disk.f_bavail = 3 * START_BYTES // 4096 - 1
    waiting.look()
    disk.f_bavail += 1
    with pytest.raises(RoomAgain):
        waiting.look()
    disk.f_bavail = START_BYTES // 4096
    waiting.look()
    now[0] += reading_only.TRY_AGAIN_SECONDS
    with pytest.raises(RoomAgain):
        waiting.look()
    disk.f_bavail -= 1
    waiting.look()


def test_deleted_rows_take_no_room_in_the_file_that_is_to_be_written() -> None:
    counted = UnwrittenRows()
    empty = counted.file_bytes
    batch = CountedBatch(NotedBatch(), counted)
    for number in range(100):
        batch.put(b"k%03d" % number, bytes(6000))
    assert counted.file_bytes > empty + 600_000
    for number in range(50):
        batch.delete(b"k%03d" % number)
    assert empty + 300_000 < counted.file_bytes < empty + 310_000
    batch.delete_range(b"k", b"l")
    assert empty < counted.file_bytes < empty + 100
    assert len(batch.batch.calls) == 151


class NotedBatch:
    """A batch of the index that notes its calls."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def put(self, key: bytes, value: bytes) -> None:
        self.calls.append("put")

    def delete(self, key: bytes) -> None:
        self.calls.append("delete")

    def delete_range(self, begin: bytes, end: bytes) -> None:
        self.calls.append("delete_range")
