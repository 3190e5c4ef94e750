"""One suite for every engine: what `storage.engine` promises."""

import asyncio
import os
from collections.abc import Awaitable
from functools import partial
from pathlib import Path

import pytest

from pqbroker.storage.engine import (
    BLOB_BYTES_MAX,
    Batch,
    BlobMissing,
    Buffer,
    CommitRefused,
    Fenced,
    FileRange,
    Shard,
    ShardLost,
)
from tests.storage.cells import CellUnderTest, MemoryCell, RocksCell, blob_key, blobs, content, dead, rows

END = b"\xff"
INLINE, PAGED = 300, 100_000


@pytest.fixture(params=["memory", "rocks", "rocks-interval", "rocks-none"])
def cell(request: pytest.FixtureRequest, tmp_path: Path) -> CellUnderTest:
    if request.param == "memory":
        return MemoryCell()
    return RocksCell(tmp_path / "cell", durability=request.param.partition("-")[2] or "fsync")


async def reopened(cell: CellUnderTest, shard: Shard) -> Shard:
    await shard.close()
    return await cell.open()


async def outcome(commit: Awaitable[None]) -> BaseException | None:
    (result,) = await asyncio.gather(commit, return_exceptions=True)
    return result


def sent(piece: Buffer | FileRange) -> bytes:
    """The bytes that are sent for what `verify` told."""
    if not isinstance(piece, FileRange):
        return bytes(piece)
    with open(piece.path, "rb") as file:
        return os.pread(file.fileno(), piece.size, piece.position)


async def read_one(shard: Shard, number: int, offset: int = 0, size: int = BLOB_BYTES_MAX) -> bytes:
    (found,) = await shard.read([(blob_key(number), offset, size)])
    return bytes(found)


async def test_rows_are_there_after_the_commit_and_after_opening_again(cell: CellUnderTest) -> None:
    shard = await cell.open()
    await shard.commit(rows((b"Ka", b"1"), (b"Kb", b"")))
    assert await shard.scan(b"", END, 10) == [(b"Ka", b"1"), (b"Kb", b"")]
    shard = await reopened(cell, shard)
    assert await shard.scan(b"", END, 10) == [(b"Ka", b"1"), (b"Kb", b"")]
    await shard.close()


async def test_commits_apply_and_resolve_in_the_order_of_the_calls(cell: CellUnderTest) -> None:
    shard = await cell.open()
    resolved: list[int] = []
    commits = []

    def note(number: int, _: object) -> None:
        resolved.append(number)

    for number in range(200):
        commit = shard.commit(rows((b"K", b"%d" % number)))
        commit.add_done_callback(partial(note, number))
        commits.append(commit)
    await asyncio.gather(*commits)
    await asyncio.sleep(0)
    assert resolved == list(range(200))
    assert await shard.get([b"K"]) == [b"199"]
    await shard.close()


async def test_the_later_row_of_a_batch_wins(cell: CellUnderTest) -> None:
    shard = await cell.open()
    await shard.commit(rows((b"Ka", b"1"), (b"Ka", b"2"), (b"Kb", b"1"), (b"Kb", None)))
    assert await shard.scan(b"", END, 10) == [(b"Ka", b"2")]
    await shard.close()


async def test_a_range_is_deleted_before_the_rows_of_its_batch(cell: CellUnderTest) -> None:
    shard = await cell.open()
    await shard.commit(rows((b"Ka", b"1"), (b"Kb", b"1"), (b"Kc", b"1")))
    await shard.commit(rows((b"Ka", b"2"), delete=(b"Ka", b"Kc")))
    assert await shard.scan(b"", END, 10) == [(b"Ka", b"2"), (b"Kc", b"1")]
    await shard.close()


async def test_a_range_does_not_touch_blobs(cell: CellUnderTest) -> None:
    shard = await cell.open()
    await shard.commit(blobs(shard, [(1, content(1, INLINE))]))
    await shard.commit(rows(delete=(b"\x00", b"\xff\xff")))
    assert await read_one(shard, 1) == content(1, INLINE)
    await shard.close()


async def test_scan_takes_the_first_rows_of_a_half_open_range(cell: CellUnderTest) -> None:
    shard = await cell.open()
    await shard.commit(rows(*((b"K%d" % number, b"v") for number in range(6))))
    assert [key for key, _ in await shard.scan(b"K1", b"K5", 3)] == [b"K1", b"K2", b"K3"]
    assert [key for key, _ in await shard.scan(b"K1", b"K3", 9)] == [b"K1", b"K2"]
    assert await shard.scan(b"K7", END, 9) == []
    await shard.close()


async def test_get_answers_in_the_order_asked_with_none_for_absent(cell: CellUnderTest) -> None:
    shard = await cell.open()
    await shard.commit(rows((b"Ka", b"1"), (b"Kc", b"3")))
    assert await shard.get([b"Kc", b"Kb", b"Ka", b"Kc"]) == [b"3", None, b"1", b"3"]
    assert await shard.get([]) == []
    await shard.close()


@pytest.mark.parametrize("size", [1, INLINE, 999, 1000, 32_768, 32_769, PAGED, 3_000_000])
async def test_a_blob_reads_back_whole_after_opening_again(cell: CellUnderTest, size: int) -> None:
    shard = await cell.open()
    await shard.commit(blobs(shard, [(1, content(1, size))]))
    assert await read_one(shard, 1) == content(1, size)
    shard = await reopened(cell, shard)
    assert await read_one(shard, 1) == content(1, size)
    await shard.close()


@pytest.mark.parametrize("size", [INLINE, PAGED, 600_000])
async def test_ranges_of_a_blob_are_short_only_at_its_end(cell: CellUnderTest, size: int) -> None:
    shard = await cell.open()
    whole = content(7, size)
    await shard.commit(blobs(shard, [(7, whole)]))
    asked = [(0, 1), (1, 10), (32_767, 2), (32_768, 40_000), (5, 0)]
    asked += [(size - 1, 1), (size - 1, 5), (size, 1), (size + 9, 4)]
    found = await shard.read([(blob_key(7), offset, length) for offset, length in asked])
    assert [bytes(part) for part in found] == [whole[offset : offset + length] for offset, length in asked]
    where = await shard.verify([(blob_key(7), offset, length) for offset, length in asked])
    assert list(map(sent, where)) == [whole[offset : offset + length] for offset, length in asked]
    await shard.close()


async def test_a_blob_is_its_buffers_end_to_end(cell: CellUnderTest) -> None:
    shard = await cell.open()
    whole = content(3, PAGED)
    buffers: list[Buffer] = [whole[:1], bytearray(whole[1:32_768]), memoryview(whole)[32_768:70_000], b""]
    buffers.append(whole[70_000:])
    batch = Batch()
    batch.put_blob(blob_key(3), buffers, PAGED, shard.pools[0])
    await shard.commit(batch)
    assert await read_one(shard, 3) == whole
    await shard.close()


async def test_a_blob_of_many_small_buffers_is_written_whole(cell: CellUnderTest) -> None:
    shard = await cell.open()
    whole = content(3, 50_000)
    batch = Batch()
    batch.put_blob(blob_key(3), [whole[at : at + 7] for at in range(0, 50_000, 7)], 50_000, shard.pools[0])
    await shard.commit(batch)
    assert await read_one(shard, 3) == whole
    await shard.close()


@pytest.mark.parametrize("size", [INLINE, PAGED])
async def test_writing_a_blob_again_with_the_same_content_is_fine(cell: CellUnderTest, size: int) -> None:
    shard = await cell.open()
    await shard.commit(blobs(shard, [(1, content(1, size))]))
    await shard.commit(blobs(shard, [(1, content(1, size))]))
    assert await shard.scan_blobs(b"", END, 10) == [(blob_key(1), size)]
    await shard.close()


@pytest.mark.parametrize("size", [INLINE, PAGED])
async def test_writing_a_blob_again_with_other_content_is_refused_whole(cell: CellUnderTest, size: int) -> None:
    shard = await cell.open()
    first = shard.commit(blobs(shard, [(1, content(1, size))]))
    batch = blobs(shard, [(2, content(2, size)), (1, content(9, size))])
    batch.put(b"K", b"v")
    second, third = shard.commit(batch), shard.commit(rows((b"Kz", b"later")))
    await first
    assert isinstance(await outcome(second), CommitRefused)
    await third
    assert isinstance(await outcome(shard.commit(blobs(shard, [(1, content(1, size + 1))]))), CommitRefused)
    assert await shard.scan_blobs(b"", END, 10) == [(blob_key(1), size)]
    assert await shard.scan(b"", END, 10) == [(b"Kz", b"later")]
    assert await read_one(shard, 1) == content(1, size)
    await shard.close()


@pytest.mark.parametrize("size", [INLINE, PAGED])
async def test_a_deleted_blob_is_missing(cell: CellUnderTest, size: int) -> None:
    shard = await cell.open()
    await shard.commit(blobs(shard, [(1, content(1, size)), (2, content(2, size))]))
    await shard.commit(dead(1, 99))
    with pytest.raises(BlobMissing):
        await shard.read([(blob_key(2), 0, 1), (blob_key(1), 0, 1)])
    with pytest.raises(BlobMissing):
        await shard.verify([(blob_key(2), 0, 1), (blob_key(1), 0, 1)])
    assert await read_one(shard, 2) == content(2, size)
    shard = await reopened(cell, shard)
    assert await shard.scan_blobs(b"", END, 10) == [(blob_key(2), size)]
    await shard.close()


async def test_a_blob_that_is_stored_and_deleted_while_commits_queue_is_missing(cell: CellUnderTest) -> None:
    shard = await cell.open()
    commits = [shard.commit(rows((b"K", b"first")))]
    commits += [shard.commit(blobs(shard, [(number, content(number, PAGED))])) for number in (1, 2)]
    commits.append(shard.commit(dead(1)))
    await asyncio.gather(*commits)
    assert await shard.scan_blobs(b"", END, 10) == [(blob_key(2), PAGED)]
    assert await read_one(shard, 2) == content(2, PAGED)
    await shard.close()


async def test_blobs_are_listed_in_order_and_from_the_end(cell: CellUnderTest) -> None:
    shard = await cell.open()
    await shard.commit(blobs(shard, [(number, content(number, 10 + number)) for number in (5, 1, 3, 2, 4)]))
    assert await shard.scan_blobs(blob_key(2), blob_key(5), 2) == [(blob_key(2), 12), (blob_key(3), 13)]
    assert await shard.scan_blobs(blob_key(2), blob_key(5), 2, reverse=True) == [(blob_key(4), 14), (blob_key(3), 13)]
    assert await shard.scan_blobs(blob_key(2), blob_key(9), 9, reverse=True) == [
        (blob_key(number), 10 + number) for number in (5, 4, 3, 2)
    ]
    assert await shard.scan_blobs(blob_key(6), END, 9) == []
    await shard.close()


async def test_rows_never_show_up_among_blobs_nor_blobs_among_rows(cell: CellUnderTest) -> None:
    shard = await cell.open()
    batch = blobs(shard, [(1, b"x"), (2, content(2, PAGED))])
    for first in range(256):
        batch.put(bytes([first]), b"v")
    await shard.commit(batch)
    assert len(await shard.scan(b"", b"\xff\xff", 1000)) == 256
    assert len(await shard.scan_blobs(b"", b"\xff" * 25, 1000)) == 2
    await shard.close()


@pytest.mark.parametrize("size", [0, BLOB_BYTES_MAX + 1])
async def test_a_blob_over_the_limits_is_refused_and_the_shard_lives(cell: CellUnderTest, size: int) -> None:
    shard = await cell.open()
    assert isinstance(await outcome(shard.commit(blobs(shard, [(1, bytes(size))]))), CommitRefused)
    await shard.commit(rows((b"K", b"v")))
    assert not shard.lost.done()
    await shard.close()


async def test_a_size_that_is_not_that_of_the_buffers_is_refused(cell: CellUnderTest) -> None:
    shard = await cell.open()
    batch = Batch()
    batch.put_blob(blob_key(1), [b"abc"], 4, shard.pools[0])
    assert isinstance(await outcome(shard.commit(batch)), CommitRefused)
    await shard.close()


async def test_a_batch_over_the_limit_is_refused(cell: CellUnderTest) -> None:
    shard = await cell.open()
    batch = rows((b"K", b"v"))
    batch.bytes = shard.caps.batch_bytes_max + 1
    assert isinstance(await outcome(shard.commit(batch)), CommitRefused)
    assert await shard.get([b"K"]) == [None]
    await shard.close()


async def test_an_unknown_pool_is_refused(cell: CellUnderTest) -> None:
    shard = await cell.open()
    batch = Batch()
    batch.put_blob(blob_key(1), [b"abc"], 3, "nowhere")
    assert isinstance(await outcome(shard.commit(batch)), CommitRefused)
    await shard.close()


async def test_the_generation_grows_with_every_start(cell: CellUnderTest) -> None:
    seen = []
    for _ in range(4):
        shard = await cell.open()
        seen.append(shard.generation)
        await shard.close()
    assert seen == sorted(set(seen))


async def test_an_owner_that_was_taken_over_acknowledges_nothing_more(cell: CellUnderTest) -> None:
    old = await cell.open()
    await old.commit(rows((b"Ka", b"old")))
    new = await cell.take_over()
    late = old.commit(rows((b"Kb", b"too late")))
    assert isinstance(await outcome(late), Fenced)
    assert isinstance(await old.lost, Fenced)
    assert new.generation > old.generation
    assert await new.scan(b"", END, 10) == [(b"Ka", b"old")]
    with pytest.raises(ShardLost):
        await old.scan(b"", END, 10)
    await old.close()
    await new.commit(rows((b"Kc", b"new")))
    await new.close()


async def test_confirm_tells_whether_this_owner_still_has_the_cell(cell: CellUnderTest) -> None:
    old = await cell.open()
    await old.confirm()
    new = await cell.take_over()
    with pytest.raises(Fenced):
        await old.confirm()
    await new.confirm()
    await old.close()
    await new.close()


async def test_closing_makes_everything_committed_durable(cell: CellUnderTest) -> None:
    shard = await cell.open()
    commits = [shard.commit(blobs(shard, [(number, content(number, 5_000))])) for number in range(50)]
    await shard.close()
    assert all(commit.done() for commit in commits)
    await asyncio.gather(*commits)
    shard = await cell.open()
    assert len(await shard.scan_blobs(b"", END, 100)) == 50
    await shard.close()


async def test_a_closed_shard_takes_nothing_and_was_not_lost(cell: CellUnderTest) -> None:
    shard = await cell.open()
    await shard.close()
    await shard.close()
    assert isinstance(await outcome(shard.commit(rows((b"K", b"v")))), ShardLost)
    with pytest.raises(ShardLost):
        await shard.get([b"K"])
    assert not shard.lost.done()


async def test_a_commit_that_nobody_waits_for_is_kept(cell: CellUnderTest) -> None:
    shard = await cell.open()
    shard.commit(rows((b"K", b"v")))
    await shard.commit(rows((b"Kz", b"v")))
    assert await shard.get([b"K"]) == [b"v"]
    await shard.close()


async def test_stats_count_commits_and_live_bytes(cell: CellUnderTest) -> None:
    shard = await cell.open()
    await shard.commit(blobs(shard, [(1, content(1, PAGED)), (2, content(2, PAGED))]))
    full = shard.stats()
    await shard.commit(dead(1))
    less = shard.stats()
    assert (full.commits, less.commits) == (1, 2)
    assert full.bytes_written == 2 * PAGED
    assert full.pools[0].live_bytes >= 2 * PAGED
    assert 2 * PAGED > less.pools[0].live_bytes >= PAGED
    assert full.pools[0].free_bytes > 0
    await shard.close()
