"""Status: colours by what is free, on both engines; they are told, change without a commit, and clear by themselves."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from pqbroker.storage.disk import free_space
from pqbroker.storage.disk.free_space import INDEX_RESERVE_BYTES, POOL_RESERVE_BYTES, Ballast, CellSpace, FreeSpace
from pqbroker.storage.disk.rocks import RocksEngine
from pqbroker.storage.ids import TabletId
from pqbroker.storage.memory import MemoryEngine
from pqbroker.storage.pool_status import Colour, Thresholds
from pqbroker.storage.tablets.cell import Cell
from pqbroker.storage.tablets.tablet import USER_CHANNEL, TabletType
from tests.storage.cells import MIB, Disk, RocksCell, blobs, content, dead

GREEN, LIGHT, YELLOW, ORANGE = Colour
TABLET = TabletId(70_000)


@pytest.fixture(autouse=True)
def _each_commit_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(free_space, "LOOK_SECONDS", 0)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - nothing tells
            await asyncio.sleep(0.01)


def set_free(cell: RocksCell, spare: int) -> None:
    cell.disk.f_bavail = (INDEX_RESERVE_BYTES + spare) // cell.disk.f_frsize


@pytest.mark.spec("B.3", "A.12")
@pytest.mark.parametrize(
    ("spare", "colour"), [(0, ORANGE), (1, YELLOW), (99, YELLOW), (100, LIGHT), (299, LIGHT), (300, GREEN)]
)
def test_a_colour_begins_where_its_threshold_says(spare: int, colour: Colour) -> None:
    assert Thresholds(300, 100).colour(spare, 100_000) is colour


@pytest.mark.parametrize(("spare", "colour"), [(9, YELLOW), (10, LIGHT), (19, LIGHT), (20, GREEN)])
def test_on_a_small_disk_a_part_of_it_is_the_threshold(spare: int, colour: Colour) -> None:
    assert Thresholds(300, 100).colour(spare, 100) is colour


async def test_memory_has_the_colour_of_what_is_left_of_it() -> None:
    engine = MemoryEngine(10 * MIB, thresholds=Thresholds(2 * MIB, MIB))
    shard = await engine.open()
    seen = [shard.colour("main")]
    for number, size in enumerate((8 * MIB + 1, MIB, MIB - 1)):
        await shard.commit(blobs(shard, [(number, bytes(size))]))
        seen.append(shard.colour("main"))
    assert seen == [GREEN, LIGHT, YELLOW, ORANGE]
    await shard.commit(dead(0, 1))
    assert shard.colour("main") is GREEN
    await shard.close()


@pytest.mark.spec("B.3", "A.12")
async def test_a_colour_follows_the_disk_without_a_commit_and_clears_by_itself(tmp_path: Path) -> None:
    cell = RocksCell(tmp_path / "cell")
    shard = await cell.open()
    for spare, colour in ((10 * MIB, YELLOW), (-1, ORANGE), (100 * MIB, LIGHT), (300 * MIB, GREEN)):
        set_free(cell, spare)
        await until(lambda colour=colour: shard.colour("main") is colour)  # type: ignore[misc]
    assert shard.stats().commits == 0
    await shard.close()


async def test_a_commit_sees_the_colour_of_now(tmp_path: Path) -> None:
    cell = RocksCell(tmp_path / "cell")
    shard = await cell.open()
    set_free(cell, 20 * MIB)
    await shard.commit(blobs(shard, [(1, content(1, 5_000))]))
    assert shard.colour("main") is YELLOW
    assert shard.stats().pools[0].colour is YELLOW
    await shard.close()


async def test_ballast_that_was_given_up_is_taken_again_when_there_is_room(tmp_path: Path) -> None:
    cell = RocksCell(tmp_path / "cell")
    shard = await cell.open()
    set_free(cell, -MIB)
    await shard.commit(dead(1))
    ballast = cell.path / "ballast"
    assert not ballast.exists()
    set_free(cell, 300 * MIB)
    await until(ballast.exists)
    await shard.close()


@pytest.mark.parametrize("engine_type", ["memory", "rocks"])
async def test_an_engine_is_told_a_colour_and_a_tablet_asks_for_its_channels(
    engine_type: str, tmp_path: Path
) -> None:
    engine = MemoryEngine(64 * MIB) if engine_type == "memory" else RocksEngine(tmp_path / "cell", ballast_bytes=0)
    cell = await Cell.open(engine)
    await cell.create_tablets([(TABLET, TabletType.PERSQUEUE, "t")])
    storage = cell.storage(TABLET)
    assert storage.status(USER_CHANNEL) is GREEN
    engine.tell_colour(YELLOW)
    assert [storage.status(channel) for channel in range(storage.channel_count)] == [YELLOW] * 3
    engine.tell_colour(None)
    assert storage.status(USER_CHANNEL) is GREEN
    await cell.close()


def test_a_full_index_stops_every_pool_and_a_full_pool_only_itself(tmp_path: Path) -> None:
    disks = {tmp_path / "index": Disk(), tmp_path / "pool": Disk()}
    thresholds = Thresholds(0, MIB)
    index = FreeSpace(tmp_path / "index", INDEX_RESERVE_BYTES, disks.__getitem__, thresholds)
    elsewhere = FreeSpace(tmp_path / "pool", POOL_RESERVE_BYTES, disks.__getitem__, thresholds)
    space = CellSpace(index, {"big": elsewhere}, Ballast(tmp_path / "ballast", 0), index_blob_bytes_max=1000)

    def colours() -> list[Colour]:
        space.look()
        return [space.colour("main"), space.colour("big")]

    assert colours() == [GREEN, GREEN]
    assert space.is_green
    disks[tmp_path / "pool"].f_bavail = 0
    assert colours() == [GREEN, ORANGE]
    assert not space.is_green
    disks[tmp_path / "pool"].f_bavail = 100_000
    disks[tmp_path / "index"].f_bavail = 0
    assert colours() == [ORANGE, ORANGE]
