"""Put, Get, Range, Discover, Block and CollectGarbage, on both engines (spec B.3)."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from pqbroker.storage.blobs.blob_id import BlobId, channel_bounds, tablet_bounds
from pqbroker.storage.blobs.blob_storage import BARRIERS, BlobRefused, BlobStorage, Blocked, flag_key, garbage_prefix
from pqbroker.storage.blobs.garbage import Collection, GarbageRefused, Position
from pqbroker.storage.disk.rocks import RocksEngine
from pqbroker.storage.engine import BLOB_BYTES_MAX, Batch, BlobKey, BlobMissing, CommitRefused, Engine, Shard
from pqbroker.storage.ids import TabletId
from pqbroker.storage.memory import MemoryEngine
from pqbroker.storage.quarantine import Quarantined

TABLET = TabletId(5)


class Bench:
    """BlobStorage over a shard of two pools."""

    async def open(self, engine: Engine) -> None:
        self.engine = engine
        self.shard: Shard = await self.engine.open()
        await self.shard.release()
        self.storage = BlobStorage(self.shard, self.shard.pools)

    async def put(self, generation: int, step: int, *, channel: int = 0, body: bytes = b"body") -> BlobKey:
        return await self.put_as(BlobId(TABLET, channel, generation, step, 0, len(body)), body)

    async def put_as(self, blob: BlobId, body: bytes) -> BlobKey:
        batch = Batch()
        key = self.storage.put(batch, blob, [body], 0)
        await self.shard.commit(batch)
        return key

    async def block(self, generation: int) -> None:
        await self.storage.block(Batch(), {TABLET: generation})

    async def collect(
        self,
        counter: int,
        barrier: Position | None = None,
        *,
        generation: int = 9,
        keep: tuple[BlobKey, ...] = (),
        do_not_keep: tuple[BlobKey, ...] = (),
        hard: bool = False,
    ) -> None:
        await self.storage.collect_garbage(
            Collection(TABLET, 0, generation, counter, barrier, keep, do_not_keep, hard)
        )

    async def blobs(self) -> list[BlobKey]:
        return [blob async for blob, _ in self.storage.range(*tablet_bounds(TABLET))]


@pytest.fixture(params=["memory", "rocks"])
async def bench(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Bench]:
    opened = Bench()
    pools = {"main": tmp_path / "main", "spare": tmp_path / "spare"}
    memory = request.param == "memory"
    await opened.open(
        MemoryEngine(1 << 26, pools=tuple(pools))
        if memory
        else RocksEngine(tmp_path / "cell", ballast_bytes=0, pools=pools)
    )
    yield opened
    await opened.shard.close()


@pytest.mark.spec("B.2")
@pytest.mark.parametrize("size", [0, BLOB_BYTES_MAX + 1])
async def test_a_blob_has_one_byte_to_ten_mib(bench: Bench, size: int) -> None:
    with pytest.raises(BlobRefused):
        bench.storage.put(Batch(), BlobId(TABLET, 0, 1, 1, 0, size), [bytes(size)], 0)


async def test_the_largest_and_the_smallest_blob_are_taken(bench: Bench) -> None:
    await bench.put(1, 1, body=b"x")
    await bench.put(1, 2, body=bytes(BLOB_BYTES_MAX))
    assert len(await bench.blobs()) == 2


async def test_a_group_is_a_pool(bench: Bench) -> None:
    batch = Batch()
    bench.storage.put(batch, BlobId(TABLET, 0, 1, 1, 0, 1), [b"x"], 1)
    assert [pool for _, _, _, pool in batch.blobs] == ["spare"]


@pytest.mark.spec("B.3")
async def test_get_reads_a_slice(bench: Bench) -> None:
    key = await bench.put(1, 1, body=b"0123456789")
    found = [await bench.storage.get(key, *slice_) for slice_ in ((0, 0), (3, 0), (3, 4), (8, 9), (10, 1))]
    assert [bytes(part) for part in found] == [b"0123456789", b"3456789", b"3456", b"89", b""]


async def test_get_of_no_blob_says_so(bench: Bench) -> None:
    with pytest.raises(BlobMissing):
        await bench.storage.get(BlobId(TABLET, 0, 1, 1, 0, 4).key())


@pytest.mark.spec("B.3")
async def test_range_goes_on_over_pages(bench: Bench) -> None:
    batch = Batch()
    for step in range(2500):
        bench.storage.put(batch, BlobId(TABLET, step % 2, 1, step, 0, 1), [b"x"], 0)
    await bench.shard.commit(batch)
    found = [blob async for blob, _ in bench.storage.range(*channel_bounds(TABLET, 1))]
    assert [BlobId.from_key(blob).step for blob in found] == list(range(1, 2500, 2))


@pytest.mark.spec("B.3")
async def test_discover_finds_the_latest_blob_of_channel_0(bench: Bench) -> None:
    assert await bench.storage.discover(TABLET) is None
    await bench.put(1, 9)
    await bench.put(2, 1, body=b"latest")
    await bench.put(3, 1, channel=1)
    await bench.block(1)
    found = await bench.storage.discover(TABLET, read_body=True)
    assert found is not None
    assert (found.blob.generation, found.blob.step, found.blocked_generation) == (2, 1, 1)
    assert found.body is not None
    assert bytes(found.body) == b"latest"


@pytest.mark.spec("B.3", "J.2")
async def test_a_blocked_generation_changes_nothing_any_more(bench: Bench) -> None:
    await bench.block(3)
    with pytest.raises(Blocked):
        await bench.put(3, 1)
    with pytest.raises(Blocked):
        await bench.collect(1, (1, 1), generation=3)
    with pytest.raises(Blocked):
        await bench.block(3)
    await bench.put(4, 1)
    await bench.block(4)


@pytest.mark.spec("B.3", "J.2")
async def test_blocks_are_known_after_a_restart(bench: Bench) -> None:
    await bench.block(3)
    again = BlobStorage(bench.shard, bench.shard.pools)
    await again.start([TABLET, TabletId(TABLET + 1)])
    assert (again.blocked_generation(TABLET), again.blocked_generation(TabletId(TABLET + 1))) == (3, 0)


@pytest.mark.spec("B.3", "J.2")
async def test_a_soft_barrier_spares_what_is_kept(bench: Bench) -> None:
    first, second, third = [await bench.put(1, step) for step in (1, 2, 3)]
    other = await bench.put(1, 1, channel=1)
    await bench.collect(1, (1, 2), keep=(first,))
    assert await bench.blobs() == [first, third, other]
    await bench.collect(2, do_not_keep=(first,))
    assert await bench.blobs() == [third, other]
    assert second != first


@pytest.mark.spec("B.3", "J.2")
async def test_what_was_given_up_cannot_be_kept_again(bench: Bench) -> None:
    blob = await bench.put(1, 1)
    await bench.collect(1, keep=(blob,), do_not_keep=(blob,))
    await bench.collect(2, keep=(blob,))
    assert await bench.blobs() == [blob]
    await bench.collect(3, (1, 1))
    assert await bench.blobs() == []


@pytest.mark.spec("B.3", "J.2")
async def test_a_hard_barrier_heeds_no_flag_and_is_apart_from_the_soft_one(bench: Bench) -> None:
    first, second = [await bench.put(1, step) for step in (1, 2)]
    await bench.collect(1, (1, 2), keep=(first, second))
    await bench.collect(2, (1, 1), hard=True)
    assert await bench.blobs() == [second]


@pytest.mark.spec("B.3", "J.2")
async def test_barriers_only_move_forward(bench: Bench) -> None:
    await bench.collect(1, (2, 5))
    with pytest.raises(GarbageRefused, match="back"):
        await bench.collect(2, (2, 4))
    await bench.collect(3, (2, 5))
    await bench.collect(4, (3, 0))
    with pytest.raises(GarbageRefused, match="back"):
        await bench.collect(5, (2, 9))


@pytest.mark.spec("B.3", "J.2")
async def test_the_counter_grows_and_only_an_exact_repetition_passes(bench: Bench) -> None:
    await bench.collect(2, (1, 1))
    await bench.collect(2, (1, 1))
    for counter, barrier in ((2, (1, 2)), (1, (1, 1))):
        with pytest.raises(GarbageRefused, match="comes after"):
            await bench.collect(counter, barrier)
    with pytest.raises(GarbageRefused, match="comes after"):
        await bench.collect(7, (1, 3), generation=8)
    await bench.collect(1, (1, 3), generation=10)


async def test_a_flag_for_another_channels_blob_is_refused(bench: Bench) -> None:
    with pytest.raises(GarbageRefused, match="is not of"):
        await bench.collect(1, keep=(await bench.put(1, 1, channel=1),))


async def test_a_refused_collection_leaves_everything_as_it_was() -> None:
    bench, engine = Bench(), MemoryEngine(1 << 26)
    await bench.open(engine)
    blob = await bench.put(1, 1)
    engine.faults.refuse_next()
    with pytest.raises(CommitRefused):
        await bench.collect(1, (1, 1))
    assert await bench.blobs() == [blob]
    await bench.collect(1, (1, 1))
    assert await bench.blobs() == []


async def test_a_refused_block_blocks_nothing() -> None:
    bench, engine = Bench(), MemoryEngine(1 << 26)
    await bench.open(engine)
    engine.faults.refuse_next()
    with pytest.raises(CommitRefused):
        await bench.block(3)
    await bench.put(3, 1)
    await bench.block(3)


@pytest.mark.spec("B.3", "J.2")
async def test_a_put_is_blocked_from_the_call_on_that_blocks(bench: Bench) -> None:
    block = asyncio.ensure_future(bench.block(3))
    await asyncio.sleep(0)
    with pytest.raises(Blocked):
        await bench.put(3, 1)
    await block


@pytest.mark.spec("B.3", "J.2")
@pytest.mark.parametrize("size", [4, 40_000])
async def test_a_blob_put_again_is_the_same_blob_and_never_another(bench: Bench, size: int) -> None:
    body = (bytes(range(1, 255)) * 200)[:size]
    blob = BlobId(TABLET, 2, 1, 1, 0, size)
    key = await bench.put_as(blob, body)
    live = sum(pool.live_bytes for pool in bench.shard.stats().pools)
    assert await bench.put_as(blob, body) == key
    assert sum(pool.live_bytes for pool in bench.shard.stats().pools) == live
    with pytest.raises(CommitRefused, match="stored with other content"):
        await bench.put_as(blob, bytes(size))
    assert bytes(await bench.storage.get(key)) == body


@pytest.mark.spec("B.3")
async def test_range_gives_bodies_too_in_order_and_portions(bench: Bench) -> None:
    sizes = (1, 6_000_000, 2000, 6_000_000, 5)
    keys = [await bench.put(1, step, channel=1, body=bytes([step]) * size) for step, size in enumerate(sizes, 1)]
    await bench.put(1, 1, channel=2)
    found = [(key, bytes(body)) async for key, body in bench.storage.bodies(*channel_bounds(TABLET, 1))]
    assert [key for key, _ in found] == keys
    assert all(body == bytes([step]) * sizes[step - 1] for step, (_, body) in enumerate(found, 1))
    assert [key async for key, _ in bench.storage.bodies(*channel_bounds(TabletId(TABLET + 1), 1))] == []


async def test_a_collection_deletes_in_portions_and_its_counter_begins_anew_in_a_generation(bench: Bench) -> None:
    batch = Batch()
    for step in range(1, 1501):
        bench.storage.put(batch, BlobId(TABLET, 0, 1, step, 0, 1), [b"x"], 0)
    await bench.shard.commit(batch)
    await bench.collect(7, (1, 1499), generation=1)
    assert [BlobId.from_key(key).step for key in await bench.blobs()] == [1500]
    await bench.collect(1, (1, 1500), generation=2)
    assert await bench.blobs() == []


@pytest.mark.parametrize("row", [b"\x64", b"\x01", b"\x00" * 40])
async def test_barriers_of_another_form_move_no_more_and_delete_nothing(bench: Bench, row: bytes) -> None:
    await bench.put(1, 1)
    await store(bench, garbage_prefix(TABLET) + BARRIERS + b"\0", row)
    with pytest.raises(Quarantined, match="garbage barriers of tablet 5, channel 0"):
        await bench.collect(1, (1, 1))
    assert len(await bench.blobs()) == 1
    assert bench.shard.quarantine.is_damaged


async def test_a_flag_of_another_form_deletes_nothing(bench: Bench) -> None:
    blob = await bench.put(1, 1)
    await store(bench, flag_key(blob), b"\x64")
    with pytest.raises(Quarantined, match="keep flag of tablet 5"):
        await bench.collect(1, (1, 1))
    assert await bench.blobs() == [blob]


async def test_no_barrier_moves_while_a_part_of_the_cell_is_unreadable(bench: Bench) -> None:
    await bench.put(1, 1)
    bench.shard.quarantine.found("a place", "a cause")
    with pytest.raises(Quarantined, match="a place"):
        await bench.collect(1, (1, 1))
    assert len(await bench.blobs()) == 1


async def store(bench: Bench, key: bytes, row: bytes) -> None:
    batch = Batch()
    batch.put(key, row)
    await bench.shard.commit(batch)
