"""A damaged manifest of RocksDB opens from its second copy, and from nothing else."""

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from pqbroker.storage.disk.commits.index_changes import IndexChanges
from pqbroker.storage.disk.directory import index_path
from pqbroker.storage.disk.mending.manifest_copy import COPY, CURRENT, ManifestCopy, find_mended, mend_manifest
from pqbroker.storage.disk.mending.set_aside import DAMAGED
from pqbroker.storage.disk.offline import look_into
from pqbroker.storage.disk.rocks_index import RocksIndex
from pqbroker.storage.engine import EngineError
from tests.faults.power.recording import resident
from tests.storage.cells import RocksCell, copy_alive, rows, until
from tests.storage.disk.mending.cells import pools

ROWS = 40


async def stopped(path: Path) -> RocksCell:
    """A cell whose index was flushed several times."""
    cell = RocksCell(path)
    for number in range(ROWS):
        if number % 10 == 0:
            shard = await cell.open()
        await shard.commit(rows((b"K%03d" % number, b"%d" % number)))
        if number % 10 == 9:
            await shard.close()
    return cell


def manifest_of(cell: RocksCell) -> Path:
    (found,) = cell.index().glob("MANIFEST-*")
    return found


def copy_of(cell: RocksCell) -> Path:
    (found,) = cell.index().glob(f"{COPY}*")
    return found


async def assert_whole(cell: RocksCell) -> None:
    shard = await cell.open()
    assert await shard.get([b"K%03d" % number for number in range(ROWS)]) == [b"%d" % number for number in range(ROWS)]
    await shard.commit(rows((b"L", b"1")))
    await shard.close()


def flip_bit(cell: RocksCell) -> None:
    data = bytearray(manifest_of(cell).read_bytes())
    data[len(data) // 2] ^= 4
    manifest_of(cell).write_bytes(data)


def garble(cell: RocksCell) -> None:
    manifest_of(cell).write_bytes(b"\xaa" * manifest_of(cell).stat().st_size)


def cut_off(cell: RocksCell) -> None:
    manifest_of(cell).write_bytes(manifest_of(cell).read_bytes()[:60])


def cut_off_behind_an_entry(cell: RocksCell) -> None:
    data = manifest_of(cell).read_bytes()
    position = end = 0
    while position < len(data):
        end, position = position, position + 7 + int.from_bytes(data[position + 4 : position + 6], "little")
    manifest_of(cell).write_bytes(data[:end])


def remove(cell: RocksCell) -> None:
    manifest_of(cell).unlink()


def empty(cell: RocksCell) -> None:
    manifest_of(cell).write_bytes(b"")


def lose_current(cell: RocksCell) -> None:
    (cell.index() / CURRENT).unlink()


def damage_current(cell: RocksCell) -> None:
    (cell.index() / CURRENT).write_bytes(b"MANIFEST-900000\n")


DAMAGES = [flip_bit, garble, cut_off, cut_off_behind_an_entry, remove, empty, lose_current, damage_current]


async def test_a_stopped_index_has_its_manifest_twice(tmp_path: Path) -> None:
    cell = await stopped(tmp_path / "cell")
    assert copy_of(cell).read_bytes() == manifest_of(cell).read_bytes()
    assert copy_of(cell).name == COPY + manifest_of(cell).name
    assert find_mended(cell.index()) is None


@pytest.mark.parametrize("damage", DAMAGES)
async def test_a_damaged_manifest_is_written_again_from_its_copy(
    tmp_path: Path, damage: Callable[[RocksCell], None], caplog: pytest.LogCaptureFixture
) -> None:
    cell = await stopped(tmp_path / "cell")
    damage(cell)
    await assert_whole(cell)
    assert "it is written again from its copy" in caplog.text
    await assert_whole(cell)
    if damage in (flip_bit, garble):
        assert list((cell.path / DAMAGED).iterdir())


@pytest.mark.parametrize("damage", DAMAGES)
async def test_a_look_at_a_damaged_manifest_uses_the_copy_and_changes_nothing(
    tmp_path: Path, damage: Callable[[RocksCell], None]
) -> None:
    cell = await stopped(tmp_path / "cell")
    damage(cell)
    before = resident(cell.path)
    with look_into(cell.path, pools(cell)) as found:
        assert found.manifest_damage is not None
        assert found.get([b"rK007"]) == [b"7"]
    assert resident(cell.path) == before


async def test_a_damaged_manifest_without_a_copy_is_refused(tmp_path: Path) -> None:
    cell = await stopped(tmp_path / "cell")
    copy_of(cell).unlink()
    garble(cell)
    with pytest.raises(EngineError, match="restore a copy"):
        await cell.open()


async def test_a_damaged_copy_helps_nobody_and_harms_nobody(tmp_path: Path) -> None:
    cell = await stopped(tmp_path / "cell")
    data = bytearray(copy_of(cell).read_bytes())
    data[20] ^= 1
    copy_of(cell).write_bytes(data)
    garbled = tmp_path / "garbled"
    shutil.copytree(cell.path, garbled)
    await assert_whole(cell)
    garble(RocksCell(garbled))
    assert find_mended(RocksCell(garbled).index()) is None
    with pytest.raises(EngineError):
        await RocksCell(garbled).open()


async def test_an_older_copy_mends_what_it_has_of_the_manifest(tmp_path: Path) -> None:
    cell = await stopped(tmp_path / "cell")
    whole = manifest_of(cell).read_bytes()
    copy_of(cell).write_bytes(whole[: len(whole) * 2 // 3])
    data = bytearray(whole)
    data[30] ^= 8
    manifest_of(cell).write_bytes(data)
    mend_manifest(cell.index())
    assert manifest_of(cell).read_bytes() == whole
    data = bytearray(whole)
    data[-3] ^= 8
    manifest_of(cell).write_bytes(data)
    assert find_mended(cell.index()) is None


async def test_a_killed_broker_leaves_a_copy_that_helps(tmp_path: Path) -> None:
    living = RocksCell(tmp_path / "living")
    shard = await living.open()
    for number in range(ROWS):
        large = random.Random(number).randbytes(200_000)
        await shard.commit(rows((b"K%03d" % number, b"%d" % number), (b"large", large)))
    await until(lambda: copy_of(living).read_bytes() == manifest_of(living).read_bytes())
    copy_alive(living.path, tmp_path / "cell")
    await shard.close()
    cell = RocksCell(tmp_path / "cell")
    garble(cell)
    await assert_whole(cell)


def test_the_copy_follows_a_flush_before_the_index_says_that_it_is_done(tmp_path: Path) -> None:
    index = RocksIndex(tmp_path)
    index.open(create=True)
    index.begin(0)
    changes = IndexChanges()
    changes.put(b"key", b"value")
    index.write(changes, 1)
    index.flush(wait=True)
    assert index.flushed() == 1
    (copy,) = tmp_path.glob(f"{COPY}*")
    assert copy.read_bytes() == (tmp_path / copy.name.removeprefix(COPY)).read_bytes()
    index.close()


def test_a_copy_follows_its_manifest_and_never_fails(tmp_path: Path) -> None:
    index = index_path(tmp_path, 1)
    index.mkdir()
    (index / "copy-of-MANIFEST-000001").write_bytes(b"older")
    (index / CURRENT).write_bytes(b"MANIFEST-000004\n")
    (index / "MANIFEST-000004").write_bytes(b"one")
    copy = ManifestCopy(index)
    copy.begin()
    (index / "MANIFEST-000004").write_bytes(b"one two")
    copy.follow()
    assert [path.name for path in index.glob(f"{COPY}*")] == ["copy-of-MANIFEST-000004"]
    assert (index / "copy-of-MANIFEST-000004").read_bytes() == b"one two"
    shutil.rmtree(index)
    copy.follow()
