"""Space on disk: segments come and go, a full disk refuses and recovers, a write that fails loses the cell."""

import asyncio
import errno
import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from pqbroker.storage.disk import free_space
from pqbroker.storage.disk.committer import Committer
from pqbroker.storage.disk.free_space import (
    FLOOR_BYTES,
    INDEX_RESERVE_BYTES,
    START_BYTES,
    Ballast,
    CellSpace,
    FreeSpace,
)
from pqbroker.storage.disk.rocks_index import RocksIndex
from pqbroker.storage.engine import Batch, Buffer, DiskFull, NoRoom, Shard, StoreFailed
from pqbroker.storage.pool_status import Colour
from tests.storage.cells import MIB, Disk, RocksCell, blob_key, blobs, content, dead, rows, until

END = b"\xff"


@pytest.fixture
def cell(tmp_path: Path) -> RocksCell:
    return RocksCell(tmp_path / "cell")


@pytest.fixture(autouse=True)
def every_round_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(free_space, "LOOK_SECONDS", 0)


async def store(shard: Shard, numbers: Sequence[int], size: int = 300_000) -> None:
    for number in numbers:
        await shard.commit(blobs(shard, [(number, content(number, size))]))


async def test_a_full_segment_is_followed_by_the_next_and_gives_back_its_spare_room(cell: RocksCell) -> None:
    shard = await cell.open()
    await store(shard, range(5))
    first, second = cell.segments()
    assert first.stat().st_size < MIB
    stored = shard.stats().pools[0].stored_bytes
    rows_bytes = stored - 5 * (300_000 + 48 + 4 * 10)
    assert 0 < rows_bytes < 5 * 300
    await shard.close()
    assert first.stat().st_size + second.stat().st_size == stored


async def test_a_blob_larger_than_a_segment_has_one_to_itself(cell: RocksCell) -> None:
    shard = await cell.open()
    await store(shard, [1, 2, 3], 2 * MIB)
    assert len(cell.segments()) == 3
    await shard.close()


async def test_segments_are_small_where_little_is_free(cell: RocksCell) -> None:
    cell.disk.f_bavail = 50 * MIB // 4096
    shard = await cell.open()
    await store(shard, range(4), 200_000)
    assert len(cell.segments()) == 2
    await shard.close()


async def test_one_round_may_fill_several_segments(cell: RocksCell) -> None:
    shard = await cell.open()
    await shard.commit(blobs(shard, [(number, content(number, 300_000)) for number in range(10)]))
    assert len(cell.segments()) == 4
    found = await shard.read([(blob_key(number), 0, MIB) for number in range(10)])
    assert [bytes(part) for part in found] == [content(number, 300_000) for number in range(10)]
    await shard.close()


async def test_a_sealed_segment_is_unlinked_with_its_last_blob(cell: RocksCell) -> None:
    shard = await cell.open()
    await store(shard, range(5))
    first, second = cell.segments()
    await shard.commit(dead(0, 1))
    assert first.exists()
    await shard.commit(dead(2))
    await until(lambda: cell.segments() == [second])
    await shard.close()


async def test_live_bytes_outlive_the_owner_and_a_later_one_unlinks_and_never_appends(cell: RocksCell) -> None:
    shard = await cell.open()
    await store(shard, range(2))
    live = shard.stats().pools[0].live_bytes
    await shard.close()
    (old,) = cell.segments()
    size = old.stat().st_size
    shard = await cell.open()
    assert shard.stats().pools[0].live_bytes == live
    await store(shard, [7])
    assert old.stat().st_size == size
    assert len(cell.segments()) == 2
    await shard.commit(dead(0, 1))
    assert old not in cell.segments()
    await shard.close()


async def test_the_emptied_active_segment_goes_with_the_next_owner(cell: RocksCell) -> None:
    shard = await cell.open()
    await store(shard, [1])
    await shard.commit(dead(1))
    await shard.close()
    shard = await cell.open()
    await shard.commit(rows((b"K", b"v")))
    assert cell.segments() == []
    await shard.close()


async def test_a_blob_is_missing_and_not_corrupt_once_its_segment_is_unlinked(cell: RocksCell) -> None:
    shard = await cell.open()
    await store(shard, range(5))

    async def read_until_gone(number: int) -> None:
        while await shard.scan_blobs(blob_key(number), blob_key(number + 1), 1):
            results = await asyncio.gather(shard.read([(blob_key(number), 0, 10)]), return_exceptions=True)
            assert isinstance(results[0], list) or type(results[0]).__name__ == "BlobMissing"

    await asyncio.gather(read_until_gone(0), read_until_gone(1), shard.commit(dead(0, 1, 2)))
    await shard.close()


async def test_a_full_disk_refuses_blobs_takes_deletes_and_recovers(cell: RocksCell) -> None:
    shard = await cell.open()
    ballast = cell.path / "ballast"
    await store(shard, range(4))
    assert ballast.stat().st_size == MIB
    cell.disk.f_bavail = 20 * MIB // 4096
    refused = shard.commit(blobs(shard, [(9, content(9, 20 * MIB // 4))]))
    with pytest.raises(DiskFull):
        await refused
    assert shard.stats().refused == 1
    await shard.commit(rows((b"K", b"a generation")))
    assert not ballast.exists()
    await shard.commit(blobs(shard, [(8, content(8, 200))]))  # a row: what a deletion writes down
    await shard.commit(dead(0, 1, 2, 3))
    cell.disk.f_bavail = 100_000
    await store(shard, [9])
    assert not shard.lost.done()
    await shard.close()
    await (await cell.open()).close()
    assert ballast.exists()


async def test_with_nearly_nothing_free_even_rows_are_refused_before_the_index_fails(cell: RocksCell) -> None:
    shard = await cell.open()
    await shard.commit(rows((b"K", b"v")))
    (cell.path / "ballast").unlink()
    cell.disk.f_bavail = 0
    with pytest.raises(DiskFull):
        await shard.commit(rows((b"K", b"v")))
    await shard.close()


async def test_a_start_on_a_full_disk_has_the_ballast_and_leaves_in_the_log_what_the_log_holds(cell: RocksCell) -> None:
    first = await cell.open()
    await first.commit(rows((b"K", b"a row")))
    cell.disk.f_bavail = 4 * MIB // 4096
    second = await cell.take_over()
    assert not (cell.path / "ballast").exists()
    assert not list(cell.index().glob("*.sst"))
    cell.disk.f_bavail = 100_000
    shard = await cell.take_over()
    assert (cell.path / "ballast").exists()
    assert list(cell.index().glob("*.sst"))
    assert await shard.get([b"K"]) == [b"a row"]
    for each in (first, second, shard):
        await each.close()


class BehindBallast(Disk):
    """A disk that is full as long as the ballast is there."""

    def __init__(self, ballast: Path) -> None:
        super().__init__()
        self._ballast = ballast

    def __getattribute__(self, name: str) -> object:
        if name == "f_bavail":
            return 0 if self._ballast.exists() else START_BYTES // 4096
        return super().__getattribute__(name)


async def test_the_ballast_is_room_for_a_start(cell: RocksCell) -> None:
    await (await cell.open()).close()
    cell.disk = BehindBallast(cell.path / "ballast")
    shard = await cell.open()
    await shard.commit(rows((b"K", b"the start's")))
    await shard.close()


async def test_the_index_writes_what_it_has_while_a_filling_disk_has_room(cell: RocksCell) -> None:
    shard = await cell.open()
    for number in range(30):
        await shard.commit(rows((b"K%d" % number, bytes(20_000))))
    assert not list(cell.index().glob("*.sst"))
    cell.disk.f_bavail = 36 * MIB // 4096
    await until(lambda: bool(list(cell.index().glob("*.sst"))))
    assert await shard.get([b"K7"]) == [bytes(20_000)]
    await shard.close()


async def test_deletes_leave_the_room_that_the_next_start_takes(cell: RocksCell) -> None:
    shard = await cell.open()
    await shard.commit(rows((b"K", b"the start's")))
    (cell.path / "ballast").unlink()
    cell.disk.f_bavail = FLOOR_BYTES // 4096
    with pytest.raises(DiskFull):
        await shard.commit(rows((b"K", None)))
    await shard.close()
    cell.disk.f_bavail = START_BYTES // 4096
    shard = await cell.open()
    await shard.commit(rows((b"K", b"the next start's")))
    with pytest.raises(DiskFull, match="delete records, or other files on the disk"):
        await shard.commit(rows((b"K", None)))
    await shard.close()


async def test_a_start_without_even_that_room_changes_nothing_and_says_how_much_it_takes(cell: RocksCell) -> None:
    await (await cell.open()).close()
    (cell.path / "ballast").unlink()
    before = cell.index()
    cell.disk.f_bavail = 2
    with pytest.raises(NoRoom, match=r"8192 bytes are free\. No record is lost: free at least 1 MiB") as refused:
        await cell.open()
    assert "restore" not in str(refused.value)
    assert cell.index() == before


def full_after(writes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the disk be full at the given write to a segment, half of which is still done."""
    real, left = os.pwritev, [writes]

    def pwritev(file: int, buffers: Sequence[Buffer], position: int) -> int:
        left[0] -= 1
        if left[0] != 0:
            return real(file, buffers, position)
        real(file, [bytes(buffers[0])[:20]], position)
        raise OSError(errno.ENOSPC, "no space left")

    monkeypatch.setattr(os, "pwritev", pwritev)


@pytest.mark.parametrize("size", [200_000, 3 * MIB], ids=["in the active segment", "in a new one"])
async def test_a_disk_full_amid_a_write_refuses_what_has_payload_and_leaves_no_trace(
    cell: RocksCell, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    shard = await cell.open()
    await store(shard, [1])
    before = shard.stats().pools[0]
    full_after(1, monkeypatch)
    results = await asyncio.gather(
        shard.commit(blobs(shard, [(2, content(2, size))])),
        shard.commit(rows((b"K", b"v"))),
        return_exceptions=True,
    )
    assert isinstance(results[0], DiskFull)
    assert results[1] is None
    (segment,) = cell.segments()
    assert segment.read_bytes()[before.stored_bytes :].strip(b"\0") == b""
    assert shard.stats().pools[0] == before
    await store(shard, [2])
    assert await shard.scan_blobs(b"", END, 9) == [(blob_key(1), 300_000), (blob_key(2), 300_000)]
    await shard.close()
    await (await cell.open()).close()


async def test_short_writes_are_continued(cell: RocksCell, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.pwritev

    def pwritev(file: int, buffers: Sequence[Buffer], position: int) -> int:
        return real(file, [bytes(buffers[0])[:9_999]], position)

    monkeypatch.setattr(os, "pwritev", pwritev)
    shard = await cell.open()
    batch = Batch()
    whole = content(1, 100_000)
    batch.put_blob(blob_key(1), [whole[:30_000], whole[30_000:]], 100_000, "main")
    await shard.commit(batch)
    (found,) = await shard.read([(blob_key(1), 0, 100_000)])
    assert bytes(found) == whole
    await shard.close()


@pytest.mark.parametrize("call", ["pwritev", "fdatasync"])
async def test_a_write_or_sync_that_fails_loses_the_cell_and_is_not_retried(
    cell: RocksCell, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    shard = await cell.open()
    await store(shard, [1])
    calls = 0

    def fail(*_: object) -> int:
        nonlocal calls
        calls += 1
        raise OSError(errno.EIO, "broken")

    with monkeypatch.context() as patch:
        patch.setattr(os, call, fail)
        commits = [shard.commit(blobs(shard, [(number, content(number, 5_000))])) for number in range(2, 9)]
        results = await asyncio.gather(*commits, return_exceptions=True)
    assert {type(result) for result in results} == {StoreFailed}
    assert isinstance(await shard.lost, StoreFailed)
    assert calls == 1
    with pytest.raises(StoreFailed):
        await shard.commit(rows((b"K", b"v")))
    await shard.close()
    shard = await cell.open()
    assert await shard.scan_blobs(b"", END, 9) == [(blob_key(1), 300_000)]
    await shard.close()


async def test_every_round_is_one_write_and_one_sync(cell: RocksCell, monkeypatch: pytest.MonkeyPatch) -> None:
    shard = await cell.open()
    steps = noted_steps(monkeypatch)
    await store(shard, [1], 20_000)
    await store(shard, [2], 20)
    await shard.commit(rows((b"K", b"v")))
    assert steps == ["write", "sync", "index", "answer"] * 3
    assert shard.stats().syncs == 3
    await shard.close()


async def test_a_round_in_several_segments_has_its_payload_on_disk_before_its_rows(
    cell: RocksCell, monkeypatch: pytest.MonkeyPatch
) -> None:
    shard = await cell.open()
    await store(shard, [1], 20_000)
    steps = noted_steps(monkeypatch)
    await shard.commit(blobs(shard, [(number, content(number, 600_000)) for number in range(2, 5)]))
    last_payload = max(at for at, step in enumerate(steps[:-4]) if step == "sync")
    assert steps[last_payload:] == ["sync", "write", "sync", "index", "answer"]
    await shard.close()


def noted_steps(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What commits do from now on, in order; of the same step again and again one."""
    steps: list[str] = []

    def noted(step: str, call: Callable[..., object]) -> Callable[..., object]:
        def noting(*arguments: object) -> object:
            if steps[-1:] != [step]:
                steps.append(step)
            return call(*arguments)

        return noting

    monkeypatch.setattr(os, "pwritev", noted("write", os.pwritev))
    monkeypatch.setattr(os, "fdatasync", noted("sync", os.fdatasync))
    monkeypatch.setattr(RocksIndex, "write", noted("index", RocksIndex.write))
    monkeypatch.setattr(Committer, "_post", noted("answer", Committer._post))
    return steps


async def test_commits_that_gather_during_a_sync_share_the_next_round(
    cell: RocksCell, monkeypatch: pytest.MonkeyPatch
) -> None:
    shard = await cell.open()
    syncing, go_on = threading.Event(), threading.Event()
    real = os.fdatasync

    def fdatasync(file: int) -> None:
        syncing.set()
        go_on.wait(10)
        real(file)

    monkeypatch.setattr(os, "fdatasync", fdatasync)
    first = shard.commit(blobs(shard, [(0, content(0, 5_000))]))
    await asyncio.to_thread(syncing.wait, 10)
    later = [shard.commit(rows((b"K%d" % number, b"v"))) for number in range(100)]
    go_on.set()
    await asyncio.gather(first, *later)
    assert (shard.stats().commits, shard.stats().rounds) == (101, 2)
    await shard.close()


async def test_interval_durability_syncs_by_itself_and_none_does_not(tmp_path: Path) -> None:
    syncs = {}
    for durability in ("interval", "none"):
        shard = await RocksCell(tmp_path / durability, durability=durability).open()
        await store(shard, [1])
        loop = asyncio.get_running_loop()
        deadline = loop.time() + (5 if durability == "interval" else 0.05)
        while shard.stats().syncs == 0 and loop.time() < deadline:
            await shard.confirm()
        syncs[durability] = shard.stats().syncs
        await shard.close()
    assert syncs == {"interval": 1, "none": 0}


def test_room_beyond_the_reserve_is_counted_down_until_the_next_look(tmp_path: Path) -> None:
    disk = Disk(f_bavail=100, f_frsize=2)
    space = FreeSpace(tmp_path, 40, lambda _: disk)
    space.refresh()
    assert space.free == 200
    assert space.take(100)
    assert not space.take(61)
    assert space.take(60)
    assert not space.take(1)
    space.refresh()
    assert space.take(160)
    assert space.take(20, from_reserve=True)
    assert not space.take(1, from_reserve=True)


def test_a_round_believes_a_look_for_a_while_and_looks_again_before_it_refuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(free_space, "LOOK_SECONDS", 1000)
    looks = 0

    def look(_: Path) -> Disk:
        nonlocal looks
        looks += 1
        return disk

    disk = Disk(f_bavail=INDEX_RESERVE_BYTES + 100, f_frsize=1)
    index = FreeSpace(tmp_path, INDEX_RESERVE_BYTES, look)
    cell = CellSpace(index, {}, Ballast(tmp_path / "ballast", 0), index_blob_bytes_max=1)
    assert cell.take_all(60)
    assert cell.take_all(40)
    assert looks == 1
    assert cell.take_all(60)
    assert looks == 2
    disk.f_bavail = INDEX_RESERVE_BYTES
    assert cell.take_all(40)
    assert not cell.take_all(40)
    assert looks == 3


class SharedDisk(Disk):
    """A disk of which ballasts take their part; beside them and a reserve of 1000 bytes users need 2000."""

    def __init__(self, path: Path, free: int) -> None:
        super().__init__(f_bavail=free, f_frsize=1, f_blocks=20_000)
        self._path = path

    def space(self, number: int) -> tuple[FreeSpace, Ballast]:
        """What a cell of the disk knows of it."""
        return FreeSpace(self._path, 1000, self.look), Ballast(self._path / f"ballast-{number}", 1000)

    def look(self, _: Path) -> Disk:
        taken = sum(file.stat().st_size for file in self._path.glob("ballast-*"))
        return Disk(f_bavail=self.f_bavail - taken, f_frsize=1, f_blocks=self.f_blocks)


def test_ballast_is_put_back_only_with_room_to_spare(tmp_path: Path) -> None:
    disk = SharedDisk(tmp_path, 0)
    space, ballast = disk.space(1)
    for free, has_ballast in ((2999, False), (3001, False), (3999, False), (4001, True), (3001, True)):
        disk.f_bavail = free
        space.refresh()
        ballast.restore(space)
        assert (tmp_path / "ballast-1").exists() is has_ballast, free
    assert (tmp_path / "ballast-1").stat().st_size == 1000
    ballast.release()
    ballast.release()
    assert not (tmp_path / "ballast-1").exists()


def test_ballast_is_put_back_where_users_do_not_write_anyway(tmp_path: Path) -> None:
    disk = SharedDisk(tmp_path, 10_000)
    disk.f_blocks = 1_000_000
    space, ballast = disk.space(1)
    space.refresh()
    assert space.colour is Colour.YELLOW_STOP
    ballast.restore(space)
    assert (tmp_path / "ballast-1").exists()


def test_ballasts_of_two_cells_on_one_disk_never_stop_the_writes_that_there_is_room_for(tmp_path: Path) -> None:
    """Both look before one of them takes its room."""
    disk = SharedDisk(tmp_path, 4500)
    spaces = [disk.space(number) for number in (1, 2)]
    for space, _ in spaces:
        space.refresh()
    for space, ballast in spaces:
        ballast.restore(space)
    for space, ballast in spaces:
        space.refresh()
        ballast.restore(space)
        assert space.colour < Colour.YELLOW_STOP
    assert [file.name for file in tmp_path.glob("ballast-*")] == ["ballast-1"]


@pytest.mark.parametrize("reason", [errno.ENOSPC, errno.EDQUOT])
async def test_a_cell_opens_without_ballast_when_its_room_is_not_to_be_had(
    cell: RocksCell, monkeypatch: pytest.MonkeyPatch, reason: int
) -> None:
    def refuse(file: int, position: int, size: int) -> None:
        raise OSError(reason, "no room")

    with monkeypatch.context() as patch:
        patch.setattr(os, "posix_fallocate", refuse)
        shard = await cell.open()
    assert not (cell.path / "ballast").exists()
    await store(shard, range(2))
    assert len(await shard.scan_blobs(b"", END, 10)) == 2
    await shard.close()
    shard = await cell.open()
    assert (cell.path / "ballast").exists()
    await shard.close()
