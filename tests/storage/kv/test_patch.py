"""Patch: a value made of another's bytes with diffs written over it; the original meanwhile and afterwards."""

import asyncio
from typing import Any
from unittest.mock import patch

import pytest

from pqbroker.storage.engine import Buffer, CommitRefused, ShardLost
from pqbroker.storage.kv.changing_values import PATCH_ATTEMPTS_MAX, execute_patching
from pqbroker.storage.kv.commands import (
    DIFFS_MAX,
    INLINE,
    INLINE_BYTES_MAX,
    PIECE_BYTES_MAX,
    REWRITTEN_BYTES_MAX,
    CheckGeneration,
    Command,
    Concat,
    CopyRange,
    DeleteRange,
    Diff,
    GenerationMismatch,
    KeyMissing,
    KeyValueError,
    Patch,
    Piece,
    Rename,
    ValueChanged,
    Write,
)
from pqbroker.storage.memory import MemoryShard
from tests.storage.kv_bench import BLOB, Bench, late_reads, write

CHAINED = b"aaaaaaaaaabbbbbbbbbbcccccccccc"
"""Ten bytes in each of three blobs."""


def patched(*diffs: tuple[int, bytes], key: bytes = b"n", channel: int = 0) -> Patch:
    """A patch of the key o."""
    return Patch(b"o", key, [Diff(*diff) for diff in diffs], channel)


async def chain(bench: Bench) -> None:
    """The value CHAINED under the key o."""
    await bench.run(Concat(tuple(Piece([CHAINED[at : at + 10]], 10) for at in (0, 10, 20)), b"o"))


def pieces(bench: Bench, key: bytes) -> tuple[int, ...]:
    entry = bench.kv.entry(key)
    assert entry is not None
    return entry.pieces


@pytest.mark.spec("B.1")
@pytest.mark.parametrize(
    ("diffs", "value"),
    [
        ([(0, b"X")], b"Xaaaaaaaaabbbbbbbbbbcccccccccc"),
        ([(29, b"X")], b"aaaaaaaaaabbbbbbbbbbcccccccccX"),
        ([(10, b"X")], b"aaaaaaaaaaXbbbbbbbbbcccccccccc"),
        ([(9, b"X")], b"aaaaaaaaaXbbbbbbbbbbcccccccccc"),
        ([(9, b"XY")], b"aaaaaaaaaXYbbbbbbbbbcccccccccc"),
        ([(5, b"X" * 20)], b"aaaaa" + b"X" * 20 + b"ccccc"),
        ([(0, b"X" * 30)], b"X" * 30),
        ([(10, b"X" * 10)], b"aaaaaaaaaaXXXXXXXXXXcccccccccc"),
        ([(25, b"X"), (5, b"Y")], b"aaaaaYaaaabbbbbbbbbbcccccXcccc"),
        ([(0, b""), (15, b""), (30, b"")], CHAINED),
        ([], CHAINED),
    ],
)
async def test_diffs_are_written_over_the_value(bench: Bench, diffs: list[tuple[int, bytes]], value: bytes) -> None:
    await chain(bench)
    await execute_patching(bench.kv, [patched(*diffs)])
    assert await bench.contents() == {b"o": CHAINED, b"n": value}
    await bench.open()
    assert await bench.contents() == {b"o": CHAINED, b"n": value}


@pytest.mark.spec("B.1")
@pytest.mark.parametrize(
    ("diffs", "value"),
    [
        ([(2, b"XXXX"), (4, b"YYYY")], b"oxXXYYYYxx"),
        ([(4, b"YYYY"), (2, b"XXXX")], b"oxXXXXYYxx"),
        ([(2, b"XXXX"), (3, b"YY")], b"oxXYYXxxxx"),
        ([(3, b"YY"), (2, b"XXXX")], b"oxXXXXxxxx"),
        ([(2, b"XX"), (2, b"YY")], b"oxYYxxxxxx"),
        ([(0, b"X" * 10), (9, b"Y"), (0, b"Z")], b"ZXXXXXXXXY"),
    ],
)
async def test_of_diffs_that_overlap_the_later_one_wins(
    bench: Bench, diffs: list[tuple[int, bytes]], value: bytes
) -> None:
    await bench.run(write(b"o", b"oxxxxxxxxx"))
    await execute_patching(bench.kv, [patched(*diffs)])
    assert (await bench.contents())[b"n"] == value


@pytest.mark.spec("B.1")
@pytest.mark.parametrize("diff", [(-1, b"X"), (20, b"X"), (19, b"XY"), (21, b""), (0, b"X" * 21)])
async def test_a_diff_beyond_the_value_fails_the_whole_request(bench: Bench, diff: tuple[int, bytes]) -> None:
    await bench.run(write(b"o"))
    with pytest.raises(KeyValueError, match="not within the 20 of"):
        await execute_patching(bench.kv, [write(b"other"), patched((0, b"X"), diff)])
    assert await bench.contents() == {b"o": BLOB}


@pytest.mark.spec("B.1")
async def test_without_its_original_the_whole_request_fails(bench: Bench) -> None:
    with pytest.raises(KeyMissing) as caught:
        await execute_patching(bench.kv, [write(b"other"), patched((0, b"X"))])
    assert caught.value.key == b"o"
    assert len(bench.kv) == 0


@pytest.mark.spec("B.1")
async def test_blobs_that_no_diff_touches_are_shared_not_read_and_not_written(bench: Bench) -> None:
    await chain(bench)
    before = set(await bench.blobs())
    read = MemoryShard.read
    asked: list[Any] = []

    async def noted(shard: MemoryShard, ranges: Any) -> list[Buffer]:
        asked.extend(ranges)
        return await read(shard, ranges)

    with patch.object(MemoryShard, "read", noted):
        await execute_patching(bench.kv, [patched((12, b"X"), (14, b"Y"))])
    assert [(offset, size) for _, offset, size in asked] == [(0, 10)]
    fresh = set(await bench.blobs()) - before
    assert [blob.size for blob in fresh] == [10]
    await bench.run(DeleteRange(b"o", True, b"o", True))
    assert await bench.contents() == {b"n": b"aaaaaaaaaabbXbYbbbbbcccccccccc"}
    await bench.open()
    await bench.run(DeleteRange(b"n", True, b"n", True))
    assert await bench.blobs() == []


async def test_a_value_patched_in_place_keeps_the_blobs_that_no_diff_touches(bench: Bench) -> None:
    await chain(bench)
    before = set(await bench.blobs())
    await execute_patching(bench.kv, [patched((20, b"X"), key=b"o")])
    assert await bench.contents() == {b"o": b"aaaaaaaaaabbbbbbbbbbXccccccccc"}
    after = set(await bench.blobs())
    assert (len(after), len(after & before)) == (3, 2)
    entry = bench.kv.entry(b"o")
    assert entry is not None
    assert not entry.is_shared


async def test_neighbours_that_a_diff_touches_become_one_blob(bench: Bench) -> None:
    await chain(bench)
    await execute_patching(bench.kv, [patched((9, b"XX"))])
    assert pieces(bench, b"n") == (20, 10)


async def test_a_patch_replaces_what_its_key_held(bench: Bench) -> None:
    await bench.run(write(b"o"), write(b"n", b"held before"))
    await execute_patching(bench.kv, [patched((0, b"X"))])
    assert await bench.contents() == {b"o": BLOB, b"n": b"X" + BLOB[1:]}
    assert len(await bench.blobs()) == 2


async def test_the_patched_value_is_made_now_and_goes_where_it_is_told(bench: Bench) -> None:
    await bench.run(write(b"o"), write(b"small", b"1234567"), write(b"none", b""))
    bench.now_ms = 2_000
    await execute_patching(bench.kv, [
            patched((0, b"X"), key=b"row", channel=INLINE),
            Patch(b"small", b"small", [Diff(1, b"X")]),
            Patch(b"none", b"none too", []),
        ],
    )
    assert await bench.contents() == {
        b"o": BLOB, b"row": b"X" + BLOB[1:], b"small": b"1X34567", b"none": b"", b"none too": b"",
    }  # fmt: skip
    assert len(await bench.blobs()) == 1
    times = {key: entry.created_ms for key, entry in bench.kv.keys()}
    assert times == {b"o": 1_000, b"row": 2_000, b"small": 2_000, b"none": 1_000, b"none too": 2_000}


@pytest.mark.spec("B.1")
async def test_what_patches_may_touch_is_bounded(bench: Bench) -> None:
    size = REWRITTEN_BYTES_MAX + PIECE_BYTES_MAX
    await bench.run(Write(b"o", [bytes(size)], size))
    each = [(at, b"X") for at in range(0, size, PIECE_BYTES_MAX)]
    with pytest.raises(KeyValueError, match="fewer of them"):
        await execute_patching(bench.kv, [patched(*each)])
    await bench.run(Write(b"p", [bytes(INLINE_BYTES_MAX + 1)], INLINE_BYTES_MAX + 1))
    with pytest.raises(KeyValueError, match="inline there may be"):
        await execute_patching(bench.kv, [Patch(b"p", b"p", [], INLINE)])
    await execute_patching(bench.kv, [patched(*each[1:])])
    ends = await bench.kv.read([(b"n", at, 1) for at, _ in each])
    assert [b"".join(byte) for byte in ends] == [b"\0"] + [b"X"] * 4
    with pytest.raises(KeyValueError, match="there may be 1000"):
        await execute_patching(bench.kv, [patched(*[(0, b"X")] * (DIFFS_MAX + 1))])


@pytest.mark.spec("B.1")
@pytest.mark.parametrize(
    ("between", "value"),
    [
        (write(b"o", b"another value"), b"anXther value"),
        (write(b"o", b"tiny!"), b"tiXy!"),
        (Rename(b"p", b"o"), b"prXvious"),
        (CopyRange(None, b"", b"copy/"), b"xxX" + BLOB[3:]),
    ],
)
async def test_what_changed_while_it_was_read_is_patched_as_it_is_now(
    bench: Bench, between: Command, value: bytes
) -> None:
    await bench.run(write(b"o"), write(b"p", b"previous"))
    with late_reads():
        patching = asyncio.ensure_future(execute_patching(bench.kv, [patched((2, b"X"))]))
        await asyncio.sleep(0)
        await bench.kv.execute([between])
        await patching
    assert (await bench.contents())[b"n"] == value


async def test_a_change_that_is_in_flight_when_the_patch_comes_is_before_it(bench: Bench) -> None:
    await bench.run(write(b"o"))
    bench.engine.faults.hold()
    change = bench.kv.execute([write(b"o", b"another value")])
    patching = asyncio.ensure_future(execute_patching(bench.kv, [patched((2, b"X"))]))
    await asyncio.sleep(0)
    bench.engine.faults.release()
    await asyncio.gather(change, patching)
    assert (await bench.contents())[b"n"] == b"anXther value"


@pytest.mark.parametrize("gone", [DeleteRange(b"o", True, b"o", True), write(b"o", b"short")])
async def test_what_does_not_fit_any_more_is_refused(bench: Bench, gone: Command) -> None:
    await bench.run(write(b"o"))
    with late_reads():
        patching = asyncio.ensure_future(execute_patching(bench.kv, [write(b"other"), patched((10, b"X"))]))
        await asyncio.sleep(0)
        await bench.kv.execute([gone])
        with pytest.raises(KeyValueError):
            await patching
    assert b"other" not in await bench.contents()


async def test_an_original_that_never_rests_is_given_up(bench: Bench) -> None:
    await bench.run(write(b"o"), write(b"keeps the blob"))
    read = MemoryShard.read
    reads = 0

    async def overtaken(shard: MemoryShard, ranges: Any) -> list[Buffer]:
        nonlocal reads
        reads += 1
        found = await read(shard, ranges)
        await bench.kv.execute([write(b"o", b"value number %d" % reads)])
        return found

    with patch.object(MemoryShard, "read", overtaken), pytest.raises(ValueChanged, match="try again"):
        await execute_patching(bench.kv, [patched((0, b"X"))])
    assert reads == PATCH_ATTEMPTS_MAX
    assert b"n" not in await bench.contents()


@pytest.mark.spec("B.1")
@pytest.mark.parametrize("key", [b"o", b"n"])
async def test_a_refusal_leaves_the_original(bench: Bench, key: bytes) -> None:
    await chain(bench)
    bench.engine.faults.refuse_next()
    with pytest.raises(CommitRefused):
        await execute_patching(bench.kv, [patched((5, b"X"), key=key)])
    assert await bench.contents() == {b"o": CHAINED}
    assert len(await bench.blobs()) == 3
    await bench.open()
    assert await bench.contents() == {b"o": CHAINED}


@pytest.mark.spec("B.1")
@pytest.mark.parametrize("key", [b"o", b"n"])
async def test_a_crash_leaves_the_original(bench: Bench, key: bytes) -> None:
    await chain(bench)
    bench.engine.faults.hold()
    patching = asyncio.ensure_future(execute_patching(bench.kv, [patched((5, b"X"), key=key)]))
    await asyncio.sleep(0)
    bench.engine.crash()
    with pytest.raises(ShardLost):
        await patching
    await bench.open()
    assert await bench.contents() == {b"o": CHAINED}
    assert len(await bench.blobs()) == 3


@pytest.mark.spec("B.1", "H12")
async def test_a_patch_stands_among_other_commands_between_concat_and_write(bench: Bench) -> None:
    await chain(bench)
    copy = CopyRange(None, b"", b"copy/")
    commands: list[Command | Patch] = [write(b"o", b"written after"), patched((0, b"X")), copy, write(b"p")]
    await execute_patching(bench.kv, commands)
    assert await bench.contents() == {
        b"o": b"written after", b"n": b"X" + CHAINED[1:], b"copy/o": CHAINED, b"p": BLOB,
    }  # fmt: skip
    with pytest.raises(GenerationMismatch):
        await execute_patching(bench.kv, [CheckGeneration(1), patched((0, b"Y"))])


@pytest.mark.parametrize("earlier", [Rename(b"p", b"o"), Concat((b"o", b"p"), b"o"), patched((0, b"Y"), key=b"o")])
async def test_an_original_that_the_same_request_changes_is_refused(bench: Bench, earlier: Command | Patch) -> None:
    await bench.run(write(b"o"), write(b"p"))
    with pytest.raises(KeyValueError, match="one after the other"):
        await execute_patching(bench.kv, [earlier, patched((0, b"X"))])
    assert await bench.contents() == {b"o": BLOB, b"p": BLOB}
