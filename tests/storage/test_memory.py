"""What only the memory engine does: to die on cue, and to be full at so many bytes."""

import pytest

from pqbroker.storage.engine import DiskFull, StoreFailed
from pqbroker.storage.memory import MemoryEngine
from tests.storage.cells import blobs, content, dead, rows


async def test_a_crash_forgets_what_was_not_durable() -> None:
    engine = MemoryEngine(1000)
    shard = await engine.open()
    await shard.commit(rows((b"Ka", b"kept")))
    engine.faults.hold()
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
