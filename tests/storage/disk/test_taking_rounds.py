"""Cells whose last rounds are in the commit log, or in the log of an earlier form: every start has all of them, however
short the one before was cut, and whoever else still writes."""

import asyncio
import json
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from pqbroker.storage.disk.commits import commit_history
from pqbroker.storage.disk.commits.commit_record import COMMIT_HEADER_BYTES, TAKEN
from pqbroker.storage.disk.commits.index_changes import IndexChanges
from pqbroker.storage.disk.directory import FORMAT, FORMAT_MIN, fsync_directory, sync_data
from pqbroker.storage.disk.free_space import FLOOR_BYTES
from pqbroker.storage.disk.mending.facts_copy import FACTS_COPY, FACTS_FILE, encode_copy
from pqbroker.storage.disk.rocks_index import RocksIndex
from pqbroker.storage.engine import Fenced, Shard
from tests.storage.cells import MIB, RocksCell, blob_key, blobs, content, copy_alive, dead, rows, until

COUNT = 12
SIZES = (50, 3_000, 20_000, 300_000)
STEPS = ("rename", "fsync", "fdatasync", "write", "pwritev", "posix_fallocate", "ftruncate")


@pytest.fixture
def cell(tmp_path: Path) -> RocksCell:
    return RocksCell(tmp_path / "cell")


async def fill(shard: Shard, numbers: range) -> None:
    """A row and a blob each, of sizes that go to the index, to a segment, and to a new one."""
    for number in numbers:
        batch = blobs(shard, [(number, content(number, SIZES[number % 4]))])
        batch.put(b"K%02d" % number, b"%d" % number)
        await shard.commit(batch)


async def expect(shard: Shard, numbers: range) -> None:
    assert await shard.scan(b"K", b"L", 100) == [(b"K%02d" % number, b"%d" % number) for number in numbers]
    found = await shard.read([(blob_key(number), 0, MIB) for number in numbers])
    assert [bytes(part) for part in found] == [content(number, SIZES[number % 4]) for number in numbers]


def format_of(path: Path) -> int:
    written = json.loads((path / "cell").read_text())["format"]
    assert isinstance(written, int)
    return written


def killed(cell: RocksCell, name: str = "killed") -> RocksCell:
    """What kill -9 would leave of the cell now."""
    copy = RocksCell(cell.path.with_name(name))
    copy_alive(cell.path, copy.path)
    return copy


async def test_what_a_killed_owner_may_not_have_synced_is_synced_before_the_index_has_it(
    cell: RocksCell, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(await cell.open(), range(COUNT))
    left, done = killed(cell), list[str]()
    write = RocksIndex.write

    def sync(file: int) -> None:
        done.append(Path(os.readlink(f"/proc/self/fd/{file}")).suffix)
        sync_data(file)

    def sync_names(directory: Path) -> None:
        done.append(directory.name)
        fsync_directory(directory)

    def apply(index: RocksIndex, changes: IndexChanges, number: int) -> None:
        done.append("index")
        write(index, changes, number)

    monkeypatch.setattr(f"{commit_history.__name__}.sync_data", sync)
    monkeypatch.setattr(f"{commit_history.__name__}.fsync_directory", sync_names)
    monkeypatch.setattr(RocksIndex, "write", apply)
    await left.open()
    assert {".segment", ".commits", "blobs", "commits"} <= set(done[: done.index("index")])


async def test_what_only_the_log_has_is_there_after_a_kill(cell: RocksCell) -> None:
    shard = await cell.open()
    await fill(shard, range(COUNT))
    left = killed(cell)
    await shard.close()
    assert not list(left.index().glob("*.sst"))
    for _ in range(2):
        shard = await left.open()
        await expect(shard, range(COUNT))
        await shard.close()
    assert list(left.index().glob("*.sst"))


@pytest.mark.parametrize("durability", ["fsync", "interval", "none"])
async def test_a_clean_end_leaves_a_log_without_rounds(tmp_path: Path, durability: str) -> None:
    cell = RocksCell(tmp_path / "cell", durability=durability)
    for numbers in (range(COUNT), range(COUNT, 2 * COUNT)):
        shard = await cell.open()
        await fill(shard, numbers)
        await shard.close()
        (log,) = cell.index().glob("commits/*.commits")
        assert log.stat().st_size == COMMIT_HEADER_BYTES + TAKEN.size
    shard = await cell.open()
    await expect(shard, range(2 * COUNT))
    await shard.close()


async def test_an_end_without_room_leaves_the_rounds_in_the_log(cell: RocksCell) -> None:
    shard = await cell.open()
    await fill(shard, range(COUNT))
    cell.disk.f_bavail = 100
    await shard.close()
    assert sum(log.stat().st_size for log in cell.index().glob("commits/*.commits")) > COUNT * 40
    cell.disk.f_bavail = 100_000
    shard = await cell.open()
    await expect(shard, range(COUNT))
    await shard.close()


async def test_log_files_and_segments_go_when_the_index_has_on_disk_what_stands_in_them(cell: RocksCell) -> None:
    shard = await cell.open()
    await fill(shard, range(COUNT))
    first, *_ = cell.segments()
    await shard.commit(dead(*range(COUNT)))
    left = killed(cell)
    await until(lambda: not first.exists())
    late = killed(cell, "late")
    await shard.close()
    for copy in (left, late):
        shard = await copy.open()
        assert await shard.scan_blobs(b"", b"\xff" * 24, 100) == []
        assert len(await shard.scan(b"K", b"L", 100)) == COUNT
        assert len(list(copy.index().glob("commits/*.commits"))) == 1
        await shard.close()


def snapshots(cell: RocksCell, patch: pytest.MonkeyPatch) -> list[RocksCell]:
    """What a kill at each change of the directory would leave, from now on."""
    found: list[RocksCell] = []
    lock = threading.Lock()

    def kept(change: Callable[..., object]) -> Callable[..., object]:
        def step(*arguments: object, **options: object) -> object:
            with lock:
                copy = RocksCell(cell.path.with_name(f"step-{len(found)}"))
                found.append(copy)
                copy_alive(cell.path, copy.path)
            return change(*arguments, **options)

        return step

    for name in STEPS:
        patch.setattr(os, name, kept(getattr(os, name)))
    patch.setattr(Path, "mkdir", kept(Path.mkdir))
    patch.setattr(Path, "unlink", kept(Path.unlink))
    return found


async def test_a_start_that_is_cut_short_anywhere_loses_no_round(
    cell: RocksCell, monkeypatch: pytest.MonkeyPatch
) -> None:
    living = await cell.open()
    await fill(living, range(COUNT))
    left = killed(cell)
    await living.close()
    with monkeypatch.context() as patch:
        steps = snapshots(left, patch)
        shard = await left.open()
        await fill(shard, range(COUNT, COUNT + 2))
    await shard.close()
    assert len(steps) > 8
    for number, each in enumerate(steps):
        shard = await each.open()
        found = len(await shard.scan(b"K", b"L", 100))
        assert COUNT <= found <= COUNT + 2, number
        await expect(shard, range(found))
        await fill(shard, range(found, COUNT + 3))
        await shard.close()
        shard = await each.open()
        await expect(shard, range(COUNT + 3))
        await shard.close()


async def test_an_opened_cell_is_of_this_form_before_anything_is_committed(
    cell: RocksCell, monkeypatch: pytest.MonkeyPatch
) -> None:
    living = await cell.open()
    await fill(living, range(COUNT))
    left = killed(cell)
    await living.close()
    earlier = json.dumps(json.loads((left.path / FACTS_FILE).read_text()) | {"format": FORMAT_MIN}).encode()
    (left.path / FACTS_FILE).write_bytes(earlier)
    (left.path / FACTS_COPY).write_bytes(encode_copy(earlier))
    with monkeypatch.context() as patch:
        steps = snapshots(left, patch)
        shard = await left.open()
        before_first = len(steps)
        await fill(shard, range(COUNT, COUNT + 1))
    await shard.close()
    forms = [format_of(each.path) for each in steps]
    assert (forms, forms[0]) == (sorted(forms), FORMAT_MIN)
    assert {FORMAT} == {*forms[before_first:], format_of(left.path)}
    for each in steps:
        shard = await each.open()
        await expect(shard, range(len(await shard.scan(b"K", b"L", 100))))
        await shard.close()
        assert format_of(each.path) == FORMAT


class Stop:
    """Stops the first thread that makes a call, before it, until it is told to go on."""

    def __init__(self, patch: pytest.MonkeyPatch, name: str) -> None:
        self.reached = threading.Event()
        self.go_on = threading.Event()
        real: Callable[..., object] = getattr(os, name)

        def stopping(*arguments: object) -> object:
            if not self.reached.is_set():
                self.reached.set()
                self.go_on.wait(30)
            return real(*arguments)

        patch.setattr(os, name, stopping)


@pytest.mark.parametrize("size", [50, 20_000], ids=["in the log", "behind its payload"])
@pytest.mark.parametrize("call", ["pwritev", "fdatasync"])
async def test_an_owner_stopped_amid_a_round_and_woken_after_a_takeover_changes_nothing(
    cell: RocksCell, monkeypatch: pytest.MonkeyPatch, call: str, size: int
) -> None:
    first = await cell.open()
    await fill(first, range(8))
    with monkeypatch.context() as patch:
        stop = Stop(patch, call)
        late = first.commit(blobs(first, [(90, content(90, size))]))
        await asyncio.to_thread(stop.reached.wait, 30)
        second = await cell.take_over()
        taken = len(await second.scan_blobs(blob_key(90), blob_key(91), 1))
        assert taken == (call == "fdatasync")
        await fill(second, range(8, 10))
        killed_late = killed(cell, "killed-before")
        stop.go_on.set()
        with pytest.raises(Fenced):
            await late
    await fill(second, range(10, COUNT))
    left = killed(cell)
    await second.close()
    await first.close()
    for copy, count in ((killed_late, 10), (left, COUNT), (cell, COUNT)):
        third = await copy.open()
        await expect(third, range(count))
        assert len(await third.scan_blobs(blob_key(90), blob_key(91), 1)) == taken
        await fill(third, range(count, COUNT + 1))
        await third.close()
        third = await copy.open()
        await expect(third, range(COUNT + 1))
        await third.close()


async def test_on_a_full_disk_rounds_stay_in_the_log_and_nothing_is_taken_beforehand(cell: RocksCell) -> None:
    shard = await cell.open()
    await fill(shard, range(COUNT))
    left = killed(cell)
    await shard.close()
    left.disk.f_bavail = 4 * MIB // 4096
    shard = await left.open()
    await expect(shard, range(COUNT))
    await shard.commit(rows((b"L", b"v")))
    assert not list(left.index().glob("*.sst"))
    newest = max(left.index().glob("commits/*.commits"))
    assert newest.stat().st_size < 1_000
    assert len(list(left.index().glob("commits/*.commits"))) == 2
    again = killed(left, "again")
    await shard.close()
    again.disk.f_bavail = 4 * MIB // 4096
    shard = await again.open()
    await expect(shard, range(COUNT))
    assert await shard.get([b"L"]) == [b"v"]
    await shard.close()


async def test_on_a_full_disk_a_segment_waits_for_the_index_to_have_its_rows_on_disk(cell: RocksCell) -> None:
    shard = await cell.open()
    await fill(shard, range(COUNT))
    left = killed(cell)
    await shard.close()
    left.disk.f_frsize = 1
    left.disk.f_bavail = FLOOR_BYTES + 2_000  # enough for the round to come, but not for the index to write its rows
    shard = await left.open()
    first, *_ = left.segments()
    await shard.commit(dead(*range(COUNT)))
    again = killed(left, "again")
    assert first.exists()
    left.disk.f_bavail = 100 * MIB
    await until(lambda: not first.exists())
    await shard.close()
    shard = await again.open()
    assert await shard.scan_blobs(b"", b"\xff" * 24, 100) == []
    assert len(await shard.scan(b"K", b"L", 100)) == COUNT
    await shard.close()
