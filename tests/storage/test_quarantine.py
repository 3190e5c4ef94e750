"""While anything of a cell cannot be read nothing of it is removed, moved or compacted; and it is served."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from pqbroker.storage.disk.rocks import RocksEngine
from pqbroker.storage.disk.segments import encode_record, segment_name
from pqbroker.storage.engine import CommitRefused, IndexDamaged
from tests.storage.cells import MIB, RocksCell, blob_key, blobs, content, dead, rows
from tests.storage.committing import EAGER
from tests.storage.disk.test_rocks_damage import damage_a_table, incompressible

pytestmark = pytest.mark.spec("J.2")

SIZE = 300_000


@pytest.fixture
def cell(tmp_path: Path) -> RocksCell:
    return RocksCell(tmp_path / "cell")


async def test_an_emptied_segment_stays_and_goes_at_the_first_start_that_finds_nothing(cell: RocksCell) -> None:
    shard = await cell.open()
    for number in range(5):
        await shard.commit(blobs(shard, [(number, content(number, SIZE))]))
    first, *_ = cell.segments()
    shard.quarantine.found("a place", "a cause")
    await shard.commit(dead(*range(3)))
    await shard.commit(rows((b"K", b"v")))
    assert first.exists()
    await shard.close()
    shard = await cell.open()
    assert not first.exists()
    (kept,) = await shard.read([(blob_key(4), 0, SIZE)])
    assert bytes(kept) == content(4, SIZE)
    await shard.close()


async def test_what_was_emptied_and_not_yet_synced_is_not_unlinked_either(tmp_path: Path) -> None:
    engine = RocksEngine(
        tmp_path, durability="interval", sync_interval_ms=600_000, segment_bytes=MIB, ballast_bytes=0
    )
    shard = await engine.open()
    await shard.release()
    for number in range(5):
        await shard.commit(blobs(shard, [(number, content(number, SIZE))]))
    first = min((tmp_path / "blobs").glob("*.segment"))
    await shard.commit(dead(*range(3)))
    shard.quarantine.found("a place", "a cause")
    await shard.close()
    assert first.exists()
    shard = await engine.open()
    await shard.release()
    assert not first.exists()
    await shard.close()


async def test_what_a_crash_left_behind_stays_until_all_was_read(cell: RocksCell) -> None:
    await (await cell.open()).close()
    orphan = cell.path / "blobs" / segment_name(1, 9)
    left = b"".join(encode_record(blob_key(2), [content(2, 5_000)], 5_000, 1, 0))
    orphan.write_bytes(left)
    shard = await cell.engine().open()
    assert orphan.exists()
    shard.quarantine.found("a place", "a cause")
    await shard.release()
    await shard.commit(rows((b"K", b"v")))
    await shard.close()
    assert orphan.read_bytes() == left
    await (await cell.open()).close()
    assert not orphan.exists()


async def test_mostly_dead_segments_are_not_emptied(tmp_path: Path) -> None:
    pace = replace(EAGER, look_seconds=0.001)
    cell = RocksCell(tmp_path / "cell", emptying=pace)
    shard = await cell.open()
    for number in range(6):
        await shard.commit(blobs(shard, [(number, content(number, SIZE))]))
    shard.quarantine.found("a place", "a cause")
    await shard.commit(dead(0, 1))
    for _ in range(20):
        await asyncio.sleep(0)
        await shard.commit(rows((b"K", b"v")))
    assert shard.stats().moved_bytes == 0
    await shard.close()


async def test_rocksdb_compacts_nothing_before_the_release_and_nothing_once_something_is_found(cell: RocksCell) -> None:
    shard = await cell.engine().open()
    assert "disable_auto_compactions=true" in last_options(cell)
    await shard.release()
    assert "disable_auto_compactions=false" in last_options(cell)
    shard.quarantine.found("a place", "a cause")
    await shard.close()
    assert "disable_auto_compactions=true" in last_options(cell)


def last_options(cell: RocksCell) -> str:
    return max(cell.index().glob("OPTIONS-*[0-9]")).read_text(encoding="utf-8")


async def test_a_commit_that_needs_a_row_which_cannot_be_read_is_refused_alone(cell: RocksCell) -> None:
    await damage_a_table(cell, incompressible(1150))
    shard = await cell.open()
    cell.faults.hold()
    before, refused, behind = shard.commit(rows((b"L", b"v"))), shard.commit(dead(150)), shard.commit(dead(20))
    cell.faults.release()
    await before
    with pytest.raises(CommitRefused, match=r"cannot be read: the index is damaged: .*\.sst"):
        await refused
    await behind
    assert not shard.lost.done()
    assert shard.quarantine.is_damaged
    assert await shard.get([b"L"]) == [b"v"]
    await shard.close()


async def test_damage_of_the_index_is_known_to_the_next_opening_in_the_same_process(cell: RocksCell) -> None:
    await damage_a_table(cell, incompressible(20))
    engine = cell.engine()
    shard = await engine.open()
    await shard.release()
    with pytest.raises(IndexDamaged):
        await shard.get([b"K020"])
    await shard.close()
    shard = await engine.open()
    await shard.release()
    assert not shard.quarantine.is_sound
    assert [".sst of the index" in place for place in shard.quarantine.damages] == [True]
    await shard.close()
