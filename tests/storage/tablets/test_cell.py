"""A cell: one commit starts its tablets; creating and dropping survive crashes at every step."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from pqbroker.storage.blobs.blob_id import BlobId, tablet_bounds
from pqbroker.storage.blobs.blob_storage import BlobStorage, Blocked
from pqbroker.storage.blobs.channel_history import ChannelHistory
from pqbroker.storage.engine import Batch, CommitRefused, EngineError, ShardLost
from pqbroker.storage.ids import TabletId
from pqbroker.storage.kv.commands import Write
from pqbroker.storage.kv.tablet import KeyValueTablet
from pqbroker.storage.memory import MemoryEngine
from pqbroker.storage.tablets.cell import Cell, TabletTaken
from pqbroker.storage.tablets.tablet import TabletRecord, TabletType

A, B = TabletId(70_000), TabletId(70_001)


@pytest.fixture
def engine() -> MemoryEngine:
    return MemoryEngine(1 << 26)


async def _create(cell: Cell, *tablets: TabletId) -> None:
    await cell.create_tablets([(tablet, TabletType.PERSQUEUE, f"topic {tablet}") for tablet in tablets])


async def _fill(cell: Cell, tablet: TabletId, keys: int) -> KeyValueTablet:
    kv = KeyValueTablet(cell.storage(tablet), inline_bytes_max=4, clock=lambda: 0)
    await kv.start()
    await kv.execute([Write(b"%06d" % number, [b"value"], 5) for number in range(keys)])
    return kv


@pytest.fixture
async def cell(engine: MemoryEngine) -> AsyncIterator[Cell]:
    opened = await Cell.open(engine)
    yield opened
    await opened.close()


def test_a_record_comes_back_from_its_row() -> None:
    history = ChannelHistory(((1, 0),))
    record = TabletRecord(TabletId(9), TabletType.PERSQUEUE, 4, (history, history.moved(4, 3)), "ü", dropping=True)
    assert TabletRecord.decode(TabletId(9), record.encode()) == record


@pytest.mark.spec("B.4")
async def test_every_start_raises_each_tablets_generation_in_one_commit(engine: MemoryEngine) -> None:
    cell = await Cell.open(engine)
    await _create(cell, A)
    first = cell.storage(A)
    cell = await Cell.open(engine)
    await _create(cell, B)
    assert cell.stats().commits == 2
    assert (first.generation, cell.storage(A).generation, cell.storage(B).generation) == (1, 2, 1)
    assert cell.generation == 2


async def test_an_earlier_instance_of_a_tablet_commits_nothing(engine: MemoryEngine) -> None:
    cell = await Cell.open(engine)
    await _create(cell, A)
    kv = await _fill(cell, A, 1)
    later = await Cell.open(engine)
    with pytest.raises(ShardLost):
        await kv.execute([Write(b"late", [b"value"], 5)])
    again = KeyValueTablet(later.storage(A), inline_bytes_max=4, clock=lambda: 0)
    await again.start()
    assert [key for key, _ in again.keys(b"")] == [b"000000"]


async def test_a_start_leaves_every_tablets_earlier_generations_blocked_on_disk(engine: MemoryEngine) -> None:
    cell = await Cell.open(engine)
    await _create(cell, A, B)
    for _ in range(2):
        await Cell.open(engine)
    shard = await engine.open()
    blobs = BlobStorage(shard, shard.pools)
    await blobs.start([A, B])
    assert [blobs.blocked_generation(tablet) for tablet in (A, B)] == [2, 2]


async def test_creating_what_is_there_changes_nothing(cell: Cell) -> None:
    await _create(cell, A)
    storage = cell.storage(A)
    commits = cell.stats().commits
    await _create(cell, A)
    assert cell.stats().commits == commits
    assert cell.storage(A) is storage
    with pytest.raises(TabletTaken):
        await cell.create_tablets([(B, TabletType.PERSQUEUE, "x"), (A, TabletType.PERSQUEUE, "another topic")])
    assert B not in cell.tablets()


async def test_a_refused_creation_leaves_no_tablet(engine: MemoryEngine, cell: Cell) -> None:
    engine.faults.refuse_next()
    with pytest.raises(CommitRefused):
        await _create(cell, A)
    assert A not in cell.tablets()
    await _create(cell, A)
    assert A in cell.tablets()


@pytest.mark.spec("B.2")
async def test_no_two_blobs_share_the_first_five_fields_whatever_is_interleaved(cell: Cell) -> None:
    await _create(cell, A)
    storage = cell.storage(A)
    one, other = Batch(), Batch()
    keys = [storage.put_blob(batch, 2, [b"x" * size], size) for size, batch in ((3, one), (2, other), (1, one))]
    await storage.commit(one)
    keys.append(storage.put_blob(other, 2, [b"xxxx"], 4))
    await storage.commit(other)
    keys.append(storage.put_blob(Batch(), 2, [b"xxxxx"], 5))
    ids = [BlobId.from_key(key) for key in keys]
    assert len({(one.tablet, one.channel, one.generation, one.step, one.cookie) for one in ids}) == len(keys)
    assert keys == sorted(keys)
    assert {one.generation for one in ids} == {1}


async def test_a_dropped_tablet_leaves_nothing_and_another_is_untouched(engine: MemoryEngine) -> None:
    cell = await Cell.open(engine)
    await _create(cell, A, B)
    await _fill(cell, A, 3000)
    await _fill(cell, B, 3)
    cell = await Cell.open(engine)
    shard_rows = [key async for key, _ in cell.storage(A).stored_blobs(*tablet_bounds(A))]
    assert len(shard_rows) == 3000
    stored = cell.stats().pools[0].live_bytes
    await cell.drop_tablet(A)
    assert list(cell.tablets()) == [B]
    assert cell.stats().pools[0].live_bytes == stored - 3000 * 5
    again = KeyValueTablet(cell.storage(B), inline_bytes_max=4, clock=lambda: 0)
    await again.start()
    assert len(again) == 3
    await _create(cell, A)
    reborn = KeyValueTablet(cell.storage(A), inline_bytes_max=4, clock=lambda: 0)
    await reborn.start()
    assert len(reborn) == 0
    await cell.drop_tablet(TabletId(A + 5))


async def test_a_tablet_being_dropped_changes_nothing_any_more(cell: Cell) -> None:
    await _create(cell, A)
    kv = await _fill(cell, A, 3)
    await cell.drop_tablet(A)
    with pytest.raises(Blocked):
        await kv.execute([Write(b"late", [b"value"], 5)])
    with pytest.raises(Blocked):
        await kv.execute([Write(b"late", [b"v"], 1)])
    with pytest.raises(KeyError):
        cell.storage(A)


@pytest.mark.parametrize("turns", range(6))
async def test_what_is_written_while_the_drop_begins_goes_too(cell: Cell, turns: int) -> None:
    await _create(cell, A)
    kv = await _fill(cell, A, 0)
    drop = asyncio.ensure_future(cell.drop_tablet(A))
    for _ in range(turns):
        await asyncio.sleep(0)
    await kv.execute([Write(b"late", [b"value"], 5)]).wait()
    await drop
    assert cell.stats().pools[0].live_bytes == 0


@pytest.mark.parametrize("commits", range(6))
async def test_a_drop_that_a_crash_interrupts_is_completed_later(engine: MemoryEngine, commits: int) -> None:
    cell = await Cell.open(engine)
    await _create(cell, A)
    await _fill(cell, A, 1500)
    before = cell.stats().commits
    engine.faults.lose_next(after=commits)
    with pytest.raises(ShardLost):
        await cell.drop_tablet(A)
    assert cell.stats().commits == before + commits
    cell = await Cell.open(engine)
    assert cell.tablets()[A].dropping == (commits > 0)
    if commits:
        with pytest.raises(TabletTaken):
            await _create(cell, A)
    await cell.drop_tablet(A)
    assert cell.stats().pools[0].live_bytes == 0
    cell = await Cell.open(engine)
    assert not cell.tablets()


@pytest.mark.parametrize("commits", range(4))
async def test_tablets_of_objects_are_counted_through_drops_and_starts(engine: MemoryEngine, commits: int) -> None:
    cell = await Cell.open(engine)
    await cell.create_tablets([(TabletId(1), TabletType.SCHEME, "scheme")])
    await _create(cell, A, B)
    assert cell.object_tablets == 2
    engine.faults.lose_next(after=commits)
    with contextlib.suppress(ShardLost):
        await cell.drop_tablet(A)
    engine.faults.clear()
    cell = await Cell.open(engine)
    assert cell.object_tablets == len(cell.tablets()) - 1
    await cell.drop_tablet(A)
    assert cell.object_tablets == 1


async def test_a_cell_of_a_newer_format_or_another_name_is_not_opened(engine: MemoryEngine) -> None:
    cell = await Cell.open(engine, name="7")
    await cell.close()
    with pytest.raises(EngineError, match="holds cell 7"):
        await Cell.open(engine, name="0")
    shard = await engine.open()
    batch = Batch()
    batch.put(b"Cformat", b"\xff")
    await shard.commit(batch)
    with pytest.raises(EngineError, match="newer version"):
        await Cell.open(engine, name="7")


async def test_a_start_whose_commit_is_refused_can_be_tried_again(engine: MemoryEngine) -> None:
    cell = await Cell.open(engine)
    await _create(cell, A)
    await cell.close()
    engine.faults.refuse_next()
    with pytest.raises(CommitRefused):
        await Cell.open(engine)
    cell = await Cell.open(engine)
    assert cell.storage(A).generation == 2


async def test_two_thousand_tablets_start_in_one_commit(engine: MemoryEngine) -> None:
    cell = await Cell.open(engine)
    await _create(cell, *range(A, TabletId(A + 2000)))
    cell = await Cell.open(engine)
    assert cell.stats().commits == 1
    assert {record.generation for record in cell.tablets().values()} == {2}
    assert len(cell.tablets()) == 2000
