"""Faults on cue, the same on every engine; and what only the memory engine can, to forget."""

import asyncio
from pathlib import Path

import pytest

from pqbroker.storage.engine import CommitRefused, DiskFull, StoreFailed
from pqbroker.storage.memory import MemoryEngine
from tests.storage.cells import CellUnderTest, MemoryCell, RocksCell, blobs, content, rows

END = b"\xff"


@pytest.fixture(params=["memory", "rocks"])
def cell(request: pytest.FixtureRequest, tmp_path: Path) -> CellUnderTest:
    return MemoryCell() if request.param == "memory" else RocksCell(tmp_path / "cell")


async def test_the_commit_that_is_told_to_is_refused_and_no_other(cell: CellUnderTest) -> None:
    shard = await cell.open()
    cell.faults.refuse_next(after=1)
    for name in (b"Ka", b"Kb", b"Kc"):
        if name == b"Kb":
            with pytest.raises(CommitRefused):
                await shard.commit(rows((name, b"v")))
        else:
            await shard.commit(rows((name, b"v")))
    assert await shard.scan(b"", END, 10) == [(b"Ka", b"v"), (b"Kc", b"v")]
    await shard.close()


@pytest.mark.parametrize("stored", [False, True])
async def test_a_commit_that_is_lost_on_cue_is_stored_or_not_and_nothing_comes_after_it(
    cell: CellUnderTest, stored: bool
) -> None:
    shard = await cell.open()
    await shard.commit(rows((b"Ka", b"kept")))
    cell.faults.lose_next(stored=stored)
    with pytest.raises(StoreFailed):
        await shard.commit(rows((b"Kb", b"lost")))
    with pytest.raises(StoreFailed):
        await shard.commit(rows((b"Kc", b"late")))
    assert isinstance(await shard.lost, StoreFailed)
    await shard.close()
    shard = await cell.open()
    found = [key for key, _ in await shard.scan(b"", END, 10)]
    assert found == ([b"Ka", b"Kb"] if stored else [b"Ka"])
    await shard.close()


async def test_held_commits_wait_for_the_release(cell: CellUnderTest) -> None:
    shard = await cell.open()
    cell.faults.hold()
    commits = [shard.commit(rows((b"K%d" % number, b"v"))) for number in range(3)]
    _, waiting = await asyncio.wait([asyncio.ensure_future(commit.wait()) for commit in commits], timeout=0.02)
    assert len(waiting) == 3
    cell.faults.release()
    await asyncio.gather(*commits)
    assert len(await shard.scan(b"", END, 10)) == 3
    await shard.close()


async def test_closing_makes_durable_what_was_held(cell: CellUnderTest) -> None:
    shard = await cell.open()
    cell.faults.hold()
    commit = shard.commit(rows((b"K", b"v")))
    await shard.close()
    await commit
    shard = await cell.open()
    assert await shard.get([b"K"]) == [b"v"]
    await shard.close()


async def test_a_full_disk_takes_rows_and_no_blobs_until_there_is_room(cell: CellUnderTest) -> None:
    shard = await cell.open()
    cell.faults.fill()
    with pytest.raises(DiskFull):
        await shard.commit(blobs(shard, [(1, content(1, 5_000))]))
    await shard.commit(rows((b"K", b"v")))
    cell.faults.make_room()
    await shard.commit(blobs(shard, [(1, content(1, 5_000))]))
    await shard.close()


async def test_a_crash_keeps_of_what_waited_as_much_as_it_is_told_to() -> None:
    engine = MemoryEngine(1 << 20)
    shard = await engine.open()
    engine.faults.hold()
    commits = [shard.commit(rows((b"K%d" % number, b"v"))) for number in range(3)]
    engine.crash(durable=2)
    results = await asyncio.gather(*commits, return_exceptions=True)
    assert [type(result) for result in results] == [StoreFailed] * 3
    assert [key for key, _ in await (await engine.open()).scan(b"", END, 10)] == [b"K0", b"K1"]


async def test_a_lost_shard_forgets_acknowledged_commits_where_nothing_is_synced() -> None:
    engine = MemoryEngine(1 << 20, forgettable=3)
    shard = await engine.open()
    await shard.commit(blobs(shard, [(1, content(1, 50))]))
    await shard.commit(rows((b"Ka", b"1"), (b"Kb", b"1")))
    await shard.commit(rows((b"Ka", b"2"), (b"Kc", b"1"), delete=(b"Kb", b"Kc")))
    batch = rows((b"Kd", b"1"))
    batch.delete_blob(blobs(shard, [(1, b"-")]).blobs[0][0])
    await shard.commit(batch)
    engine.crash()
    engine.forget(3)
    shard = await engine.open()
    assert await shard.scan(b"", END, 10) == []
    assert shard.stats().pools[0].live_bytes == 50
    assert [size for _, size in await shard.scan_blobs(b"", END * 24, 10)] == [50]
