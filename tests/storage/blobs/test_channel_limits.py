"""The storage profile: where channels of new tablets go, and limits over which Puts wait or the status turns yellow."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from time import monotonic
from typing import Protocol

import pytest

from pqbroker.conf.storage import ChannelProfile
from pqbroker.storage.blobs.blob_id import tablet_bounds
from pqbroker.storage.blobs.blob_storage import Blocked
from pqbroker.storage.blobs.channel_limits import BURST_SECONDS
from pqbroker.storage.disk.rocks import RocksEngine
from pqbroker.storage.engine import Batch, BlobKey, Engine, ShardLost
from pqbroker.storage.ids import TabletId
from pqbroker.storage.kv.commands import INLINE, DeleteRange, Write
from pqbroker.storage.kv.joint_request import execute_together
from pqbroker.storage.kv.tablet import KeyValueTablet
from pqbroker.storage.memory import MemoryEngine
from pqbroker.storage.outcome import Outcome
from pqbroker.storage.pool_status import Colour
from pqbroker.storage.tablets.cell import Cell
from pqbroker.storage.tablets.tablet import LOG_CHANNEL, USER_CHANNEL, TabletStorage, TabletType

TABLET = TabletId(70_000)
BODY = b"body" * 500
PERSQUEUE = ("persqueue", USER_CHANNEL)


class Open(Protocol):
    async def __call__(self, engine: Engine, **limits: int) -> Cell: ...


@pytest.fixture
async def open_cell() -> AsyncIterator[Open]:
    """Opens a cell with limits for the data of topics, and a tablet."""
    async with AsyncExitStack() as stack:

        async def open_one(engine: Engine, **limits: int) -> Cell:
            cell = await Cell.open(engine, profile={PERSQUEUE: ChannelProfile("main", **limits)})
            stack.push_async_callback(cell.close)
            await cell.create_tablets([(TABLET, TabletType.PERSQUEUE, "t")])
            return cell

        yield open_one


@pytest.fixture(params=["memory", "rocks"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Engine:
    return MemoryEngine(1 << 26) if request.param == "memory" else RocksEngine(tmp_path / "cell", ballast_bytes=0)


def put(storage: TabletStorage, size: int = 2000, channel: int = USER_CHANNEL) -> Outcome[None]:
    batch = Batch()
    storage.put_blob(batch, channel, [bytes(size)], size)
    return storage.commit(batch)


async def seconds_of(storage: TabletStorage, puts: int, size: int = 2000) -> float:
    """How long it takes, and that the commits are done in order."""
    loop = asyncio.get_running_loop()
    began, done = loop.time(), []
    commits = [put(storage, size) for _ in range(puts)]
    for number, commit in enumerate(commits):
        commit.add_done_callback(lambda _, number=number: done.append(number))  # type: ignore[misc]
    for commit in commits:
        await commit
    assert done == list(range(puts))
    return loop.time() - began


@pytest.mark.spec("K.2")
@pytest.mark.parametrize("limits", [{"operations": 200}, {"bytes": 400_000}, {"operations": 200, "bytes": 10**9}])
async def test_puts_over_a_rate_wait_and_stay_in_order(
    engine: Engine, open_cell: Open, limits: Mapping[str, int]
) -> None:
    cell = await open_cell(engine, **limits)
    storage = cell.storage(TABLET)
    began = monotonic()
    for puts in (150, 110):
        await seconds_of(storage, puts)
    assert monotonic() - began >= 260 / 200 - BURST_SECONDS - 0.01


async def test_another_channel_and_another_tablet_do_not_wait(open_cell: Open) -> None:
    cell = await open_cell(MemoryEngine(1 << 26), bytes=1)
    await cell.create_tablets(
        [(TabletId(TABLET + 1), TabletType.PERSQUEUE, "u"), (TabletId(TABLET + 2), TabletType.COORDINATOR, "c")]
    )
    await put(cell.storage(TABLET))
    waits = put(cell.storage(TABLET))
    await put(cell.storage(TabletId(TABLET + 1)))
    for _ in range(3):
        await put(cell.storage(TabletId(TABLET + 2)))
        await put(cell.storage(TabletId(TABLET + 2)), channel=LOG_CHANNEL)
    assert not waits.done()


async def test_what_comes_behind_a_put_that_waits_waits_too(open_cell: Open) -> None:
    cell = await open_cell(MemoryEngine(1 << 26), operations=1)
    storage = cell.storage(TABLET)
    await put(storage)
    await put(storage)
    waits = put(storage)
    behind = storage.commit(Batch())
    await storage.get([b"k"])
    assert not behind.done()
    assert not waits.done()


async def test_what_waits_fails_when_the_cell_is_lost_or_the_tablet_started_anew(open_cell: Open) -> None:
    engine = MemoryEngine(1 << 26)
    cell = await open_cell(engine, operations=2)
    storage = cell.storage(TABLET)
    waiting = [put(storage) for _ in range(4)]
    await cell.restart_tablet(TABLET)
    with pytest.raises(Blocked):
        await waiting[3]
    waiting = [put(cell.storage(TABLET)) for _ in range(9)]
    engine.crash()
    for wait in waiting[3:]:
        with pytest.raises(ShardLost):
            await wait


async def waiting_together(cell: Cell) -> tuple[list[KeyValueTablet], Outcome[None]]:
    """Two KV tablets, and a request to both that waits behind a Put of the first one."""
    await cell.create_tablets([(TabletId(TABLET + 1), TabletType.PERSQUEUE, "u")])
    storages = [cell.storage(TabletId(TABLET + number)) for number in range(2)]
    tablets = [KeyValueTablet(storage, inline_bytes_max=8, clock=lambda: 1_000) for storage in storages]
    for _ in range(3):
        put(cell.storage(TABLET))
    write = Write(b"k", [b"old"], 3)
    return tablets, execute_together([(tablet, [write]) for tablet in tablets])


async def test_a_joint_request_that_waits_is_not_stored_once_a_tablet_of_it_was_started_anew(open_cell: Open) -> None:
    cell = await open_cell(MemoryEngine(1 << 26), operations=1)
    (first, _), joint = await waiting_together(cell)
    later = await cell.restart_tablet(TabletId(TABLET + 1))
    with pytest.raises(Blocked):
        await joint
    assert await later.get([b"k"]) == [None]
    assert first.lost is None
    await first.execute([Write(b"k", [b"new"], 3)])


async def test_a_tablet_lives_on_when_another_one_of_a_joint_request_is_started_anew(open_cell: Open) -> None:
    cell = await open_cell(MemoryEngine(1 << 26), operations=1)
    (first, second), joint = await waiting_together(cell)
    await cell.restart_tablet(TABLET)
    with pytest.raises(Blocked):
        await joint
    assert isinstance(first.lost, Blocked)
    assert second.entry(b"k") is None
    await second.execute([Write(b"k", [b"new"], 3)])


@pytest.mark.spec("K.2")
async def test_a_channel_at_its_space_is_yellow_until_something_of_it_is_deleted(
    engine: Engine, open_cell: Open
) -> None:
    cell = await open_cell(engine, space=5000)
    storage = cell.storage(TABLET)
    batch = Batch()
    keys = [storage.put_blob(batch, USER_CHANNEL, [BODY], len(BODY)) for _ in range(2)]
    await storage.commit(batch)
    assert storage.status(USER_CHANNEL) is Colour.GREEN
    await put(storage, 1000)
    assert storage.status(USER_CHANNEL) is Colour.YELLOW_STOP
    assert storage.status(LOG_CHANNEL) is Colour.GREEN
    batch = Batch()
    batch.delete_blob(keys[0])
    await storage.commit(batch)
    assert storage.status(USER_CHANNEL) is Colour.GREEN
    await put(storage, 2000)
    await storage.collect_garbage(USER_CHANNEL, 1, 9)
    assert storage.status(USER_CHANNEL) is Colour.GREEN


async def test_what_a_channel_holds_is_known_after_the_cell_was_opened_again(open_cell: Open) -> None:
    engine = MemoryEngine(1 << 26)
    cell = await open_cell(engine, space=5000)
    await put(cell.storage(TABLET), 6000)
    engine.crash()
    cell = await open_cell(engine, space=5000)
    assert cell.storage(TABLET).status(USER_CHANNEL) is Colour.YELLOW_STOP
    await cell.drop_tablet(TABLET)
    await cell.create_tablets([(TABLET, TabletType.PERSQUEUE, "t")])
    assert cell.storage(TABLET).status(USER_CHANNEL) is Colour.GREEN


async def test_a_refused_put_takes_no_space(open_cell: Open) -> None:
    engine = MemoryEngine(1 << 26)
    storage = (await open_cell(engine, space=5000)).storage(TABLET)
    engine.faults.refuse_next()
    await put(storage, 6000).wait()
    assert storage.status(USER_CHANNEL) is Colour.GREEN


@pytest.mark.spec("K.2")
async def test_channels_of_new_tablets_go_where_the_profile_says(tmp_path: Path) -> None:
    pools = {"main": tmp_path / "main", "big": tmp_path / "big"}
    engine = RocksEngine(tmp_path / "cell", ballast_bytes=0, pools=pools)
    cell = await Cell.open(engine)
    await cell.create_tablets([(TABLET, TabletType.PERSQUEUE, "t")])
    await cell.close()
    cell = await Cell.open(engine, profile={PERSQUEUE: ChannelProfile("big")})
    await cell.create_tablets(
        [(TabletId(TABLET + 1), TabletType.PERSQUEUE, "u"), (TabletId(TABLET + 2), TabletType.COORDINATOR, "c")]
    )
    groups = [
        [channel.ranges for channel in cell.tablets()[TabletId(TABLET + number)].channels] for number in range(3)
    ]
    here, there = ((1, 0),), ((1, 1),)
    assert groups == [[here, here, here], [here, here, there], [here, here, here]]
    for number, channel in ((0, 2), (1, 2), (1, 0), (2, 2)):
        await put(cell.storage(TabletId(TABLET + number)), 5000, channel)
    assert {pool.name: pool.live_bytes // 5000 for pool in cell.stats().pools} == {"main": 3, "big": 1}
    await put(cell.storage(TabletId(TABLET + 1)), 999)
    blobs = await cell.inspection.stored_blobs(*tablet_bounds(TabletId(TABLET + 1)), 9)
    assert await cell.inspection.places([*blobs, BlobKey(bytes(24))]) == ["main", "big", "index", None]
    await cell.close()


def small(tablet: KeyValueTablet, number: int, size: int = 100) -> Outcome[None]:
    return tablet.execute([Write(b"%d" % number, [bytes(size)], size)])


async def open_values(cell: Cell) -> KeyValueTablet:
    """A KV tablet whose small values are rows."""
    tablet = KeyValueTablet(cell.storage(TABLET), inline_bytes_max=1000, clock=lambda: 1_000)
    await tablet.start()
    return tablet


@pytest.mark.parametrize("limits", [{"operations": 200}, {"bytes": 20_000}])
async def test_values_that_are_rows_wait_over_a_rate_as_blobs_do(open_cell: Open, limits: Mapping[str, int]) -> None:
    tablet = await open_values(await open_cell(MemoryEngine(1 << 26), **limits))
    loop = asyncio.get_running_loop()
    began = loop.time()
    for written in [small(tablet, number) for number in range(260)]:
        await written
    assert loop.time() - began >= 260 / 200 - BURST_SECONDS - 0.01


async def test_what_a_write_says_goes_into_the_index_is_no_operation_of_a_channel(open_cell: Open) -> None:
    tablet = await open_values(await open_cell(MemoryEngine(1 << 26), operations=1))
    for number in range(5):
        await tablet.execute([Write(b"%d" % number, [b"meta"], 4, INLINE)])


async def test_values_that_are_rows_take_space_until_they_are_deleted_and_after_a_start_too(open_cell: Open) -> None:
    engine = MemoryEngine(1 << 26)
    cell = await open_cell(engine, space=5000)
    tablet = await open_values(cell)
    for number in range(10):
        await small(tablet, number, 499)
        await small(tablet, number, 500)
        assert tablet.status() is (Colour.GREEN if number < 9 else Colour.YELLOW_STOP)
    engine.crash()
    tablet = await open_values(await open_cell(engine, space=5000))
    assert tablet.status() is Colour.YELLOW_STOP
    await tablet.execute([DeleteRange(b"3", True, b"3", True)])
    assert tablet.status() is Colour.GREEN
