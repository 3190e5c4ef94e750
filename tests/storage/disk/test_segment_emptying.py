"""Mostly dead segments are emptied in the background: their room comes back, and no blob is lost on the way."""

import asyncio
import errno
import logging
import os
import shutil
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from pqbroker.storage.disk import free_space
from pqbroker.storage.disk.blob_reading import BlobReader
from pqbroker.storage.disk.free_space import INDEX_RESERVE_BYTES
from pqbroker.storage.disk.pools import Pool
from pqbroker.storage.disk.rocks_index import RocksIndex
from pqbroker.storage.disk.segment_emptying import EmptyingPace, SegmentEmptying
from pqbroker.storage.disk.shard import DiskShard
from pqbroker.storage.engine import Batch, BlobCorrupt, BlobMissing, DiskFull, Shard, StoreFailed
from tests.storage.cells import MIB, RocksCell, blob_key, blobs, content, dead, until

SIZE = 100_000
EAGER = EmptyingPace(look_seconds=0.005)


@pytest.fixture
def cell(tmp_path: Path) -> RocksCell:
    return RocksCell(tmp_path / "cell")


async def fill(shard: Shard, count: int = 25) -> None:
    """Ten blobs a segment."""
    await shard.commit(blobs(shard, [(number, content(number, SIZE)) for number in range(count)]))


async def expect(shard: Shard, numbers: Iterable[int]) -> None:
    """These blobs and no others are stored, each with its content."""
    wanted = sorted(numbers)
    assert await shard.scan_blobs(b"", b"\xff", 1000) == [(blob_key(number), SIZE) for number in wanted]
    found = await shard.read([(blob_key(number), 0, SIZE) for number in wanted])
    assert [bytes(part) for part in found] == [content(number, SIZE) for number in wanted]


def emptying_of(shard: Shard, commit: Callable[[Batch], Awaitable[None]] | None = None) -> SegmentEmptying:
    """One that runs only when it is told to."""
    assert isinstance(shard, DiskShard)

    async def in_thread(call: Callable[..., Any], *arguments: object) -> Any:
        return await asyncio.to_thread(call, *arguments)

    write = commit or shard.commit
    return SegmentEmptying(shard._cell.pools, shard._index.get, write, in_thread, EAGER)


async def empty_all(emptying: SegmentEmptying) -> None:
    while (found := emptying._sparsest()) is not None:
        await emptying._empty(*found)


@pytest.mark.spec("B.3")
async def test_what_lives_in_a_mostly_dead_segment_moves_and_its_room_comes_back(tmp_path: Path) -> None:
    cell = RocksCell(tmp_path / "cell", emptying=EAGER)
    shard = await cell.open()
    await fill(shard)
    first, *others = cell.segments()
    await shard.commit(dead(*range(1, 8)))
    await until(lambda: shard.stats().moved_bytes == 3 * SIZE)
    assert not first.exists()
    assert [path for path in others if not path.exists()] == []
    await expect(shard, {0, *range(8, 25)})
    await shard.close()
    shard = await cell.open()
    await expect(shard, {0, *range(8, 25)})
    await shard.close()


async def test_segments_of_earlier_generations_are_emptied_too(tmp_path: Path) -> None:
    shard = await RocksCell(tmp_path / "cell").open()
    await fill(shard)
    await shard.commit(dead(*range(1, 25)))
    await shard.close()
    cell = RocksCell(tmp_path / "cell", emptying=EAGER)
    old = cell.segments()
    shard = await cell.open()
    await until(lambda: not any(path.exists() for path in old))
    await expect(shard, {0})
    await shard.close()


async def test_a_segment_that_is_not_dead_enough_is_left_alone(cell: RocksCell) -> None:
    shard = await cell.open()
    await fill(shard)
    emptying = emptying_of(shard)
    await shard.commit(dead(1, 2, 3, 4))
    assert emptying._sparsest() is None
    await shard.commit(dead(5))
    assert emptying._sparsest() is not None
    await shard.close()


async def test_the_deadest_segment_comes_first(cell: RocksCell) -> None:
    shard = await cell.open()
    await fill(shard)
    await shard.commit(dead(0, 1, 2, 3, 4, 5, *range(10, 19)))
    found = emptying_of(shard)._sparsest()
    assert found is not None
    assert found[1].sequence == 2
    await shard.close()


async def test_a_blob_that_is_deleted_between_its_reading_and_its_move_stays_deleted(cell: RocksCell) -> None:
    shard = await cell.open()
    await fill(shard)
    await shard.commit(dead(*range(6)))
    first = cell.segments()[0]

    async def delete_before(batch: Batch) -> None:
        await asyncio.gather(shard.commit(dead(6)), shard.commit(batch))

    await empty_all(emptying_of(shard, delete_before))
    assert not first.exists()
    await expect(shard, range(7, 25))
    live = shard.stats().pools[0].live_bytes
    await shard.close()
    shard = await cell.open()
    assert shard.stats().pools[0].live_bytes == live
    await shard.close()


async def test_a_blob_may_be_deleted_in_the_round_that_moves_it(cell: RocksCell) -> None:
    shard = await cell.open()
    await fill(shard)
    await shard.commit(dead(*range(6)))

    async def delete_behind(batch: Batch) -> None:
        await asyncio.gather(shard.commit(batch), shard.commit(dead(6, 7)))

    await empty_all(emptying_of(shard, delete_behind))
    await expect(shard, range(8, 25))
    await shard.close()


@pytest.mark.spec("B.3")
@pytest.mark.parametrize("fate", ["moved", "deleted"])
async def test_a_read_that_meets_a_blob_on_the_move_looks_it_up_again(cell: RocksCell, fate: str) -> None:
    shard = await cell.open()
    assert isinstance(shard, DiskShard)
    await fill(shard)
    await shard.commit(dead(*range(1, 8)))
    loop, looked = asyncio.get_running_loop(), False

    async def interfere() -> None:
        await (empty_all(emptying_of(shard)) if fate == "moved" else shard.commit(dead(0, 8, 9)))

    def get(keys: list[bytes]) -> list[bytes | None]:
        nonlocal looked
        found = shard._index.get(keys)
        if not looked:
            looked = True
            asyncio.run_coroutine_threadsafe(interfere(), loop).result(10)
        return found

    reader = BlobReader(get, {"main": cell.path / "blobs"})
    reading = asyncio.to_thread(reader.read, [(blob_key(number), 10, 50) for number in (0, 8, 9, 12)])
    if fate == "moved":
        assert [bytes(part) for part in await reading] == [content(number, SIZE)[10:60] for number in (0, 8, 9, 12)]
    else:
        with pytest.raises(BlobMissing):
            await reading
    await shard.close()


async def test_a_segment_whose_file_is_gone_is_corrupt_and_not_looked_for_for_ever(cell: RocksCell) -> None:
    shard = await cell.open()
    await fill(shard)
    await shard.commit(dead(*range(1, 8)))
    cell.segments()[0].unlink()
    emptying = emptying_of(shard)
    await empty_all(emptying)
    assert emptying.moved_bytes == 0
    with pytest.raises(BlobCorrupt, match="is gone"):
        await shard.read([(blob_key(0), 0, SIZE)])
    await shard.close()


async def test_a_damaged_blob_stays_where_it_is_and_the_others_move(cell: RocksCell) -> None:
    shard = await cell.open()
    await fill(shard)
    await shard.commit(dead(*range(1, 8)))
    first = cell.segments()[0]
    with first.open("r+b") as file:
        file.seek(-SIZE // 2, os.SEEK_END)
        file.write(b"\xff\xff\xff\xff")
    emptying = emptying_of(shard)
    await empty_all(emptying)
    assert emptying.moved_bytes == 2 * SIZE
    with pytest.raises(BlobCorrupt):
        await shard.read([(blob_key(9), 0, SIZE)])
    await shard.commit(dead(9))
    assert not first.exists()
    await expect(shard, {0, 8, *range(10, 25)})
    await shard.close()


def failing_step(number: int, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Let the given step of all that change the disk fail; the steps that were taken."""
    steps: list[str] = []

    def counted(name: str, call: Callable[..., object]) -> Callable[..., object]:
        def counting(*arguments: Any, **named: Any) -> object:
            steps.append(name)
            if len(steps) == number:
                raise OSError(errno.EIO, "broken")
            return call(*arguments, **named)

        return counting

    monkeypatch.setattr(os, "pwritev", counted("write", os.pwritev))
    monkeypatch.setattr(os, "fdatasync", counted("sync", os.fdatasync))
    monkeypatch.setattr(RocksIndex, "write", counted("index", RocksIndex.write))
    monkeypatch.setattr(Pool, "unlink_emptied", counted("unlink", Pool.unlink_emptied))
    return steps


@pytest.mark.spec("B.3")
async def test_a_failure_at_any_step_of_a_move_leaves_every_blob_readable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shard = await RocksCell(tmp_path / "model").open()
    await fill(shard, 12)
    await shard.commit(dead(*range(1, 8)))
    await shard.close()
    number, ended = 0, False
    while not ended:
        number += 1
        cell = RocksCell(tmp_path / str(number))
        shutil.copytree(tmp_path / "model", cell.path)
        shard = await cell.open()
        with monkeypatch.context() as patch:
            steps = failing_step(number, patch)
            try:
                await empty_all(emptying_of(shard))
                ended = True
            except StoreFailed:
                assert len(steps) == number
        await shard.close()
        shard = await cell.open()
        await expect(shard, {0, *range(8, 12)})
        assert shard.stats().pools[0].live_bytes == 5 * (SIZE + 48 + 16)
        await shard.close()
    assert steps[-4:] == ["write", "sync", "index", "unlink"]


@pytest.mark.parametrize("durability", ["interval", "none"])
async def test_without_a_sync_at_each_round_the_old_segment_goes_only_after_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, durability: str
) -> None:
    cell = RocksCell(tmp_path / "cell", durability=durability)
    shard = await cell.open()
    await fill(shard)
    await shard.commit(dead(*range(1, 8)))
    first, steps = cell.segments()[0], []

    def noted(name: str, call: Callable[..., object]) -> Callable[..., object]:
        def noting(*arguments: object) -> object:
            steps.append((name, first.exists()))
            return call(*arguments)

        return noting

    monkeypatch.setattr(os, "pwritev", noted("write", os.pwritev))
    monkeypatch.setattr(os, "fdatasync", noted("sync", os.fdatasync))
    await empty_all(emptying_of(shard))
    await until(lambda: not first.exists())
    assert [name for name, there in steps if there][-1] == "sync"
    await expect(shard, {0, *range(8, 25)})
    await shard.close()


@pytest.mark.spec("B.3")
async def test_moving_is_bounded_in_rate(tmp_path: Path) -> None:
    pace = EmptyingPace(bytes_per_second=3_000_000, look_seconds=0.005)
    cell = RocksCell(tmp_path / "cell", emptying=pace)
    shard = await cell.open()
    await fill(shard, 45)
    olds = cell.segments()[:4]
    loop = asyncio.get_running_loop()
    began = loop.time()
    await shard.commit(dead(*(number for number in range(40) if number % 10 > 2)))
    await until(lambda: not any(path.exists() for path in olds))
    assert loop.time() - began >= 9 * SIZE / 3_000_000
    await shard.close()


async def test_compaction_may_use_half_of_the_reserve_and_waits_below(
    cell: RocksCell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(free_space, "LOOK_SECONDS", 0)
    shard = await cell.open()
    await fill(shard)
    await shard.commit(dead(*range(1, 8)))
    emptying = emptying_of(shard)
    first = cell.segments()[0]

    def leave(spare: int) -> None:
        cell.disk.f_bavail = (INDEX_RESERVE_BYTES + spare) // 4096

    leave(-INDEX_RESERVE_BYTES // 2)
    found = emptying._sparsest()
    assert found is not None
    await emptying._empty(*found)
    assert first.exists()
    leave(-INDEX_RESERVE_BYTES // 2 + MIB)
    with pytest.raises(DiskFull):
        await shard.commit(blobs(shard, [(99, content(99, SIZE))]))
    await empty_all(emptying)
    await until(lambda: not first.exists())
    await expect(shard, {0, *range(8, 25)})
    await shard.close()


async def test_the_active_segment_need_not_be_full_to_be_given_back_when_all_in_it_is_dead(cell: RocksCell) -> None:
    shard = await cell.open()
    await fill(shard, 4)
    await shard.commit(dead(*range(4)))
    assert len(cell.segments()) == 1
    await fill(shard, 6)
    await shard.commit(dead(*range(6)))
    await until(lambda: cell.segments() == [])
    await fill(shard, 2)
    await expect(shard, range(2))
    await shard.close()


async def test_many_portions_of_many_small_blobs_move(cell: RocksCell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pqbroker.storage.disk.segment_emptying._PORTION_BYTES", 10_000)
    monkeypatch.setattr("pqbroker.storage.disk.segment_emptying._PORTION_RECORDS", 7)
    shard = await cell.open()
    count = 700
    for number in range(0, count, 100):
        await shard.commit(blobs(shard, [(one, content(one, 2_000)) for one in range(number, number + 100)]))
    first = cell.segments()[0]
    await shard.commit(dead(*(number for number in range(count) if number % 3)))
    await empty_all(emptying_of(shard))
    await until(lambda: not first.exists())
    left = [number for number in range(count) if number % 3 == 0]
    found = await shard.read([(blob_key(number), 0, 2_000) for number in left])
    assert [bytes(part) for part in found] == [content(number, 2_000) for number in left]
    await shard.close()


async def test_a_segment_that_cannot_be_opened_now_is_emptied_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    cell = RocksCell(tmp_path / "cell", emptying=EAGER)
    shard = await cell.open()
    await fill(shard)
    first = cell.segments()[0]
    intact = os.open
    refused = []

    def no_file_is_left(path: Any, flags: int, *mode: int) -> int:
        if flags & os.O_WRONLY or str(path) != str(first):
            return intact(path, flags, *mode)
        refused.append(path)
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", no_file_is_left)
        await shard.commit(dead(*range(1, 8)))
        await until(lambda: len(refused) > 1)
    await until(lambda: not first.exists())
    assert "[Errno 24]" in caplog.text
    await expect(shard, {0, *range(8, 25)})
    await shard.close()
