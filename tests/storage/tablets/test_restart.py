"""A tablet is moved and started anew in a living cell: old blobs stay readable, the instance before changes nothing."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from pqbroker.storage.blobs.blob_id import BlobId, channel_bounds, tablet_bounds
from pqbroker.storage.blobs.blob_storage import Blocked
from pqbroker.storage.blobs.channel_history import RANGES_MAX
from pqbroker.storage.disk.rocks import RocksEngine
from pqbroker.storage.engine import Batch, BlobKey, CommitRefused, Engine
from pqbroker.storage.ids import TabletId
from pqbroker.storage.kv.commands import Write
from pqbroker.storage.kv.tablet import KeyValueTablet
from pqbroker.storage.memory import MemoryEngine
from pqbroker.storage.tablets.base_tablet import BaseTablet
from pqbroker.storage.tablets.cell import Cell, MoveRefused, TabletUnknown
from pqbroker.storage.tablets.tablet import LOG_CHANNEL, USER_CHANNEL, TabletStorage, TabletType

TABLET = TabletId(70_000)
BODY = b"body" * 500


@pytest.fixture(params=["memory", "rocks"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Engine:
    if request.param == "memory":
        return MemoryEngine(1 << 26, pools=("main", "big"))
    pools = {"main": tmp_path / "main", "big": tmp_path / "big"}
    return RocksEngine(tmp_path / "cell", ballast_bytes=0, pools=pools)


@pytest.fixture
async def cell(engine: Engine) -> AsyncIterator[Cell]:
    opened = await Cell.open(engine)
    await opened.create_tablets([(TABLET, TabletType.PERSQUEUE, "t")])
    yield opened
    await opened.close()


async def put(storage: TabletStorage, body: bytes = BODY) -> BlobKey:
    batch = Batch()
    key = storage.put_blob(batch, USER_CHANNEL, [body], len(body))
    await storage.commit(batch)
    return key


def stored_bytes(cell: Cell) -> dict[str, int]:
    return {pool.name: pool.live_bytes for pool in cell.stats().pools}


def history(cell: Cell, channel: int = USER_CHANNEL) -> tuple[tuple[int, int], ...]:
    return cell.tablets()[TABLET].channels[channel].ranges


@pytest.mark.spec("B.5", "J.2", "G.2")
async def test_after_a_move_and_a_restart_blobs_go_to_the_new_group_and_old_ones_are_read_where_they_are(
    cell: Cell,
) -> None:
    before = await put(cell.storage(TABLET))
    await cell.move_channel(TABLET, USER_CHANNEL, 1)
    between = await put(cell.storage(TABLET))
    assert stored_bytes(cell)["big"] == 0
    storage = await cell.restart_tablet(TABLET)
    after = await put(storage, BODY + b"2")
    big = stored_bytes(cell)["big"]
    assert big >= len(BODY)
    assert history(cell) == ((1, 0), (2, 1))
    assert history(cell, LOG_CHANNEL) == ((1, 0),)
    found = await storage.read([(key, 0, len(BODY)) for key in (before, between, after)])
    assert [bytes(part) for part in found] == [BODY] * 3
    assert [BlobId.from_key(key).generation for key in (before, between, after)] == [1, 1, 2]


async def test_a_move_and_what_moved_are_there_after_the_cell_was_opened_again(engine: Engine) -> None:
    cell = await Cell.open(engine)
    await cell.create_tablets([(TABLET, TabletType.PERSQUEUE, "t")])
    keys = [await put(cell.storage(TABLET))]
    await cell.move_channel(TABLET, USER_CHANNEL, 1)
    await cell.close()
    cell = await Cell.open(engine)
    assert history(cell) == ((1, 0), (2, 1))
    keys.append(await put(cell.storage(TABLET)))
    assert stored_bytes(cell)["big"] >= len(BODY)
    await cell.move_channel(TABLET, USER_CHANNEL, 0)
    await cell.close()
    cell = await Cell.open(engine)
    assert history(cell) == ((1, 0), (2, 1), (3, 0))
    found = await cell.storage(TABLET).read([(key, 0, len(BODY)) for key in keys])
    assert [bytes(part) for part in found] == [BODY] * 2
    await cell.drop_tablet(TABLET)
    assert set(stored_bytes(cell).values()) == {0}
    await cell.close()


async def test_moved_back_before_it_held_a_move_leaves_no_trace(cell: Cell) -> None:
    await cell.move_channel(TABLET, USER_CHANNEL, 1)
    await cell.move_channel(TABLET, USER_CHANNEL, 0)
    assert history(cell) == ((1, 0),)


async def test_a_move_to_what_is_not_there_is_refused_and_says_what_is(cell: Cell) -> None:
    with pytest.raises(MoveRefused, match=r"it has 0 \(main\), 1 \(big\)"):
        await cell.move_channel(TABLET, USER_CHANNEL, 2)
    with pytest.raises(MoveRefused, match="channels 0 to 2"):
        await cell.move_channel(TABLET, 3, 0)
    for change in (cell.move_channel(TabletId(7), USER_CHANNEL, 0), cell.restart_tablet(TabletId(7))):
        with pytest.raises(TabletUnknown):
            await change
    assert history(cell) == ((1, 0),)


async def test_a_channel_moves_as_often_as_its_record_holds() -> None:
    cell = await Cell.open(MemoryEngine(1 << 26, pools=("main", "big")))
    await cell.create_tablets([(TABLET, TabletType.PERSQUEUE, "t")])
    for number in range(RANGES_MAX - 1):
        await cell.move_channel(TABLET, USER_CHANNEL, 1 - number % 2)
        await cell.restart_tablet(TABLET)
    with pytest.raises(MoveRefused, match="254 times"):
        await cell.move_channel(TABLET, USER_CHANNEL, 1)
    await cell.close()


@pytest.mark.spec("B.4", "J.2")
async def test_the_superseded_of_two_instances_completes_nothing(cell: Cell) -> None:
    earlier = cell.storage(TABLET)
    kv = KeyValueTablet(earlier, inline_bytes_max=4, clock=lambda: 0)
    await kv.start()
    in_flight = kv.execute([Write(b"in flight", [BODY], len(BODY))])
    restart = asyncio.ensure_future(cell.restart_tablet(TABLET))
    await asyncio.sleep(0)
    behind = kv.execute([Write(b"behind", [BODY], len(BODY))])
    later = KeyValueTablet(await restart, inline_bytes_max=4, clock=lambda: 0)
    await in_flight
    with pytest.raises(Blocked):
        await behind
    for change in (kv.execute([Write(b"late", [BODY], len(BODY))]), earlier.collect_garbage(USER_CHANNEL, 1, 9)):
        with pytest.raises(Blocked):
            await change
    with pytest.raises(Blocked):
        earlier.put_blob(Batch(), USER_CHANNEL, [BODY], len(BODY))
    await later.start()
    assert [key for key, _ in later.keys()] == [b"in flight"]
    blobs = [key async for key, _ in earlier.stored_blobs(*tablet_bounds(TABLET))]
    assert len(blobs) == 1


@pytest.mark.spec("B.4", "J.2")
@pytest.mark.parametrize("turns", range(4))
async def test_whatever_is_committed_while_a_tablet_restarts_the_next_instance_knows_it_or_it_failed(
    cell: Cell, turns: int
) -> None:
    kv = KeyValueTablet(cell.storage(TABLET), inline_bytes_max=4, clock=lambda: 0)
    await kv.start()
    restart = asyncio.ensure_future(cell.restart_tablet(TABLET))
    for _ in range(turns):
        await asyncio.sleep(0)
    writes = [kv.execute([Write(b"%d" % number, [BODY], len(BODY))]) for number in range(5)]
    later = KeyValueTablet(await restart, inline_bytes_max=4, clock=lambda: 0)
    await later.start()
    known = [key for key, _ in later.keys()]
    for write in writes:
        await write.wait()
    assert known == [b"%d" % number for number, write in enumerate(writes) if write.exception() is None]


async def test_a_refused_restart_leaves_the_generation_to_the_next_instance_and_no_blob_id_twice() -> None:
    engine = MemoryEngine(1 << 26)
    cell = await Cell.open(engine)
    await cell.create_tablets([(TABLET, TabletType.COORDINATOR, "t")])
    earlier = cell.storage(TABLET)
    keys = [await put(earlier)]
    engine.faults.refuse_next()
    with pytest.raises(CommitRefused):
        await cell.restart_tablet(TABLET)
    with pytest.raises(Blocked):
        await put(earlier)
    storage = cell.storage(TABLET)
    assert storage.generation == 1
    keys.append(await put(storage))
    assert len(set(keys)) == 2
    assert (await cell.restart_tablet(TABLET)).generation == 2
    await cell.close()


@pytest.mark.spec("B.5", "J.2", "G.2")
async def test_a_base_tablet_reads_its_log_from_both_groups(cell: Cell) -> None:
    tablet = BaseTablet(cell.storage(TABLET))
    await tablet.start()
    await tablet.change(lambda change: change.create_row_set("t", [("key", "int")], ["value"]))
    row = {"value": "v" * 20_000}  # so that its log blob lies in a pool, not in the index
    await tablet.change(lambda change: change.put("t", (9,), row))
    await cell.move_channel(TABLET, LOG_CHANNEL, 1)
    for number in range(3):
        storage = await cell.restart_tablet(TABLET)
        tablet = BaseTablet(storage)
        await tablet.start()
        await tablet.change(lambda change, number=number: change.put("t", (number,), row))  # type: ignore[misc]
    history = cell.tablets()[TABLET].channels[LOG_CHANNEL]
    stored = await cell.inspection.stored_blobs(*channel_bounds(TABLET, LOG_CHANNEL), 100)
    log = [BlobId.from_key(blob) for blob in stored]
    assert {history.pool_at(blob.generation) for blob in log} == {0, 1}
    assert all(size > 20_000 for size in stored_bytes(cell).values())
    found = BaseTablet(cell.storage(TABLET))
    await found.start()
    assert [key for key, _ in found.row_sets["t"]] == [(0,), (1,), (2,), (9,)]
