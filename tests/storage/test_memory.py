"""What only the memory engine can: faults on cue."""

import asyncio

import pytest

from pqbroker.storage.engine import CommitRefused, DiskFull, StoreFailed
from pqbroker.storage.memory import MemoryEngine
from tests.storage.cells import blobs, content, dead, rows


async def test_the_next_commit_is_refused_on_cue_and_the_one_after_is_not() -> None:
    engine = MemoryEngine(1000)
    shard = await engine.open()
    engine.refuse_next()
    with pytest.raises(CommitRefused):
        await shard.commit(rows((b"Ka", b"1")))
    await shard.commit(rows((b"Kb", b"2")))
    assert await shard.scan(b"", b"\xff", 10) == [(b"Kb", b"2")]


async def test_the_next_commit_loses_the_shard_on_cue() -> None:
    engine = MemoryEngine(1000)
    shard = await engine.open()
    engine.lose_next()
    results = await asyncio.gather(*(shard.commit(rows((b"K", b"v"))) for _ in range(3)), return_exceptions=True)
    assert [type(result) for result in results] == [StoreFailed] * 3
    assert isinstance(await shard.lost, StoreFailed)
    assert await (await engine.open()).get([b"K"]) == [None]


async def test_held_commits_wait_for_the_release() -> None:
    engine = MemoryEngine(1000)
    shard = await engine.open()
    engine.hold()
    commit = shard.commit(rows((b"K", b"v")))
    await asyncio.sleep(0)
    assert not commit.done()
    assert await shard.get([b"K"]) == [None]
    engine.release()
    await commit
    assert await shard.get([b"K"]) == [b"v"]


async def test_a_crash_forgets_what_was_not_durable() -> None:
    engine = MemoryEngine(1000)
    shard = await engine.open()
    await shard.commit(rows((b"Ka", b"kept")))
    engine.hold()
    commit = shard.commit(rows((b"Kb", b"forgotten")))
    engine.crash()
    with pytest.raises(StoreFailed):
        await commit
    shard = await engine.open()
    assert await shard.scan(b"", b"\xff", 10) == [(b"Ka", b"kept")]


async def test_blobs_over_the_limit_are_refused_until_some_are_deleted() -> None:
    engine = MemoryEngine(1000)
    shard = await engine.open()
    await shard.commit(blobs(shard, [(1, content(1, 900))]))
    with pytest.raises(DiskFull):
        await shard.commit(blobs(shard, [(2, content(2, 900))]))
    await shard.commit(dead(1))
    await shard.commit(blobs(shard, [(2, content(2, 900))]))
    assert shard.stats().pools[0].free_bytes == 100
