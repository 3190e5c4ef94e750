"""A tablet that is copied into another cell while it changes: the copy has its rows, and no blob that nobody holds."""

import asyncio
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pqbroker.storage.blobs.blob_id import BlobId, tablet_bounds
from pqbroker.storage.engine import BlobKey, CommitRefused
from pqbroker.storage.ids import TabletId
from pqbroker.storage.kv.commands import (
    Command,
    Concat,
    CopyRange,
    DeleteRange,
    IncrementGeneration,
    KeyMissing,
    KeyRange,
    Write,
)
from pqbroker.storage.kv.rows import Entry
from pqbroker.storage.kv.tablet import KeyValueTablet
from pqbroker.storage.kv.tablet_copy import COPIED_BYTES, TabletCopy
from pqbroker.storage.memory import MemoryEngine
from pqbroker.storage.tablets.cell import Cell
from pqbroker.storage.tablets.tablet import TabletType
from tests.storage.kv.test_channels import tablet as tablet_of_channels
from tests.storage.kv.test_joint_request import contents_of
from tests.support.depth import examples

TABLET = TabletId(70_000)
names = st.sampled_from([b"a", b"b", b"c", b"d"])
values = st.sampled_from([b"", b"small", b"x" * 20, b"y" * 300])
commands = st.one_of(
    st.builds(lambda key, value: [Write(key, [value], len(value))], names, values),
    st.builds(lambda key: [DeleteRange(key, True, key, True)], names),
    st.builds(lambda key: [CopyRange(KeyRange(key, True, key, True), b"", b"copy-")], names),
    st.builds(lambda a, b: [Concat((a, b), b"joined", keep_inputs=True)], names, names),
    st.just([IncrementGeneration()]),
)  # fmt: skip


class Bench:
    """A tablet in one cell, and its copy in another."""

    def __init__(self) -> None:
        self.engines = MemoryEngine(1 << 30), MemoryEngine(1 << 30)
        self.now_ms = 1_000

    async def open(self) -> None:
        self.cells = [await Cell.open(engine) for engine in self.engines]
        for cell, generation in zip(self.cells, (1, 7), strict=True):
            await cell.create_tablets([(TABLET, TabletType.PERSQUEUE, "owner")], generation)
        self.original = await self.tablet(0)
        self.copy = TabletCopy(self.original, self.cells[1].storage(TABLET))

    async def tablet(self, cell: int) -> KeyValueTablet:
        tablet = KeyValueTablet(self.cells[cell].storage(TABLET), inline_bytes_max=8, clock=lambda: self.now_ms)
        await tablet.start()
        return tablet

    async def change(self, some: Sequence[Command]) -> None:
        self.now_ms += 1
        try:
            await self.original.execute(some)
        except KeyMissing:
            return

    async def check(self) -> None:
        assert await self.copy.follow()
        copied = await self.tablet(1)
        assert await contents_of(copied) == await contents_of(self.original)
        assert copied.user_generation == self.original.user_generation
        assert shape(copied) == shape(self.original)
        held = {blob for _, entry in copied.keys() for blob in entry.blobs()}
        assert blobs_of(self.engines[1]) == held


def shape(tablet: KeyValueTablet) -> dict[bytes, tuple[int, int, bool, tuple[int, ...]]]:
    return {key: (entry.created_ms, entry.channel, entry.is_shared, entry.pieces) for key, entry in tablet.keys()}


def blobs_of(engine: MemoryEngine) -> set[BlobKey]:
    return set(engine._store.blobs.irange(*tablet_bounds(TABLET)))


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.lists(commands, max_size=6), min_size=1, max_size=5))
def test_a_copy_that_follows_is_what_the_original_is(rounds: list[list[list[Command]]]) -> None:
    async def follow() -> None:
        bench = Bench()
        await bench.open()
        for some in rounds:
            for each in some:
                await bench.change(each)
            await bench.check()

    asyncio.run(follow())


@pytest.fixture
async def bench() -> Bench:
    opened = Bench()
    await opened.open()
    return opened


async def test_changes_while_it_is_copied_are_taken_by_the_next_call(bench: Bench) -> None:
    for number in range(40):
        await bench.change([Write(b"%04d" % number, [b"x" * 20], 20)])
    following = asyncio.create_task(bench.copy.follow())
    for number in range(0, 40, 2):
        await bench.change([DeleteRange(b"%04d" % number, True, b"%04d" % number, True)])
        await bench.change([Write(b"new%04d" % number, [b"y" * 30], 30)])
    await following
    await bench.check()


async def test_a_copy_is_made_in_commits_of_bounded_size(bench: Bench) -> None:
    size = COPIED_BYTES // 4
    for number in range(9):
        await bench.change([Write(b"%d" % number, [bytes(size)], size)])
    before = bench.cells[1].stats().commits
    await bench.check()
    assert bench.cells[1].stats().commits - before >= 3


async def test_rows_are_copied_some_at_a_time_and_none_is_passed_over(bench: Bench) -> None:
    """Each key is the beginning of the next one."""
    await bench.change([Write(b"k" * length, [b"small"], 5) for length in range(1, 1021)])
    await bench.check()


async def test_a_copy_that_is_refused_goes_no_further(bench: Bench) -> None:
    await bench.change([Write(b"a", [b"x" * 20], 20)])
    bench.engines[1].faults.refuse_next()
    with pytest.raises(CommitRefused):
        await bench.copy.follow()


async def test_a_blob_that_is_not_there_is_told(bench: Bench) -> None:
    await bench.change([Write(b"a", [b"x" * 20], 20)])
    await bench.change([Write(b"b", [b"small"], 5)])
    entry = bench.original.entry(b"a")
    assert isinstance(entry, Entry)
    del bench.engines[0]._store.blobs[next(entry.blobs())]
    assert not await bench.copy.follow()
    assert [key for key, _ in (await bench.tablet(1)).keys()] == [b"b"]


@pytest.mark.parametrize(("channels", "expected"), [(5, (2, 3, 4)), (4, (2, 3, 2)), (3, (2, 2, 2))])
async def test_a_blob_is_copied_into_its_channel_or_into_the_first_where_the_copy_lacks_it(
    channels: int, expected: tuple[int, ...]
) -> None:
    shards = [await MemoryEngine(1 << 20).open() for _ in "12"]
    original = tablet_of_channels(shards[0], *[0] * 5)
    for channel, key in enumerate((b"a", b"b", b"c")):
        await original.execute([Write(key, [b"x" * 20], 20, channel)])
    copy = tablet_of_channels(shards[1], *[0] * channels)
    assert await TabletCopy(original, copy.storage).follow()
    await copy.start()
    assert await contents_of(copy) == await contents_of(original)
    blobs = [BlobId.from_key(next(entry.blobs())) for _, entry in copy.keys()]
    assert tuple(blob.channel for blob in blobs) == expected
