"""Read and ReadRange: ranges with their four ends, limits, continuation, and values that are deleted meanwhile."""

import asyncio
from dataclasses import replace

import pytest

from pqbroker.storage.engine import Batch, BlobMissing
from pqbroker.storage.kv.commands import INLINE, MAIN, DeleteRange, KeyRange, KeyValueError, Write
from pqbroker.storage.kv.reads import (
    KV_READ_BYTES_MAX,
    PAIR_BYTES,
    Page,
    Pair,
    Status,
    Value,
    read_pairs,
    read_range,
    read_value,
)
from tests.storage.kv_bench import BLOB, Bench, late_reads, write


def joined(value: Value | Pair) -> bytes:
    return b"".join(value.buffers)


def keys(page: Page) -> bytes:
    return b"".join(pair.key for pair in page.pairs)


@pytest.mark.spec("B.1")
async def test_a_read_gives_a_part_of_a_value(bench: Bench) -> None:
    await bench.run(write(b"blob", b"0123456789"), write(b"row", b"abc"))
    parts = [(b"blob", 0, 0), (b"blob", 2, 3), (b"blob", 8, 9), (b"blob", 10, 1), (b"row", 1, 0), (b"row", 9, 0)]
    found = [await read_value(bench.kv, *part) for part in parts]
    assert [joined(value) for value in found] == [b"0123456789", b"234", b"89", b"", b"bc", b""]
    assert {value.status for value in found} == {Status.OK}


@pytest.mark.spec("B.1")
async def test_a_read_of_no_key_finds_no_data(bench: Bench) -> None:
    assert (await read_value(bench.kv, b"missing")).status is Status.NODATA


@pytest.mark.spec("B.1")
async def test_a_read_over_the_limit_is_cut_and_goes_on_from_there(bench: Bench) -> None:
    await bench.run(write(b"k", b"0123456789"))
    first = await read_value(bench.kv, b"k", 1, bytes_max=4)
    assert (first.status, joined(first)) == (Status.OVERRUN, b"1234")
    last = await read_value(bench.kv, b"k", 5, bytes_max=5)
    assert (last.status, joined(last)) == (Status.OK, b"56789")
    assert await read_value(bench.kv, b"k", bytes_max=0) == Value(Status.OVERRUN, ())


@pytest.mark.spec("B.1", "J.2")
async def test_a_limit_can_only_be_lowered(bench: Bench) -> None:
    size = KV_READ_BYTES_MAX + 1
    await bench.run(Write(b"k", [bytes(size)], size))
    found = await read_value(bench.kv, b"k", bytes_max=2 * size)
    assert (found.status, len(joined(found))) == (Status.OVERRUN, KV_READ_BYTES_MAX)
    page = await read_range(bench.kv, None, with_values=True, bytes_max=2 * size)
    assert [(pair.status, pair.size, pair.buffers) for pair in page.pairs] == [(Status.OVERRUN, size, ())]


@pytest.mark.spec("B.1", "J.2")
@pytest.mark.parametrize(
    ("within", "found"),
    [
        (None, b"abcd"),
        (KeyRange(b"b", False, b"d", False), b"c"),
        (KeyRange(b"b", True, b"d", False), b"bc"),
        (KeyRange(b"b", False, b"d", True), b"cd"),
        (KeyRange(b"b", True, b"d", True), b"bcd"),
        (KeyRange(b"b", True, None, False), b"bcd"),
        (KeyRange(b"", False, b"b", True), b"ab"),
        (KeyRange(b"b", True, b"b", True), b"b"),
        (KeyRange(b"b", True, b"b", False), b""),
        (KeyRange(b"x", True, b"z", True), b""),
    ],
)
async def test_a_range_is_read_with_its_ends_as_told(bench: Bench, within: KeyRange | None, found: bytes) -> None:
    await bench.run(*(write(bytes((letter,))) for letter in b"abcd"))
    page = await read_range(bench.kv, within)
    assert keys(page) == found
    assert page.status is (Status.OK if found else Status.NODATA)


async def test_a_range_the_wrong_way_round_is_refused(bench: Bench) -> None:
    with pytest.raises(KeyValueError, match="inverted"):
        await read_range(bench.kv, KeyRange(b"b", True, b"a", True))


@pytest.mark.spec("B.1", "J.2")
async def test_a_pair_says_what_is_known_of_its_value(bench: Bench) -> None:
    await bench.run(write(b"blob"), Write(b"inline", [b"abc"], 3, INLINE, created_ms=7), write(b"none", b""))
    page = await read_range(bench.kv, None)
    assert page.pairs == [
        Pair(b"blob", 20, 1_000, MAIN, Status.OK, ()),
        Pair(b"inline", 3, 7, INLINE, Status.OK, ()),
        Pair(b"none", 0, 1_000, INLINE, Status.OK, ()),
    ]
    with_values = await read_range(bench.kv, None, with_values=True)
    assert [joined(pair) for pair in with_values.pairs] == [BLOB, b"abc", b""]
    assert [replace(pair, buffers=()) for pair in with_values.pairs] == page.pairs


@pytest.mark.spec("B.1", "J.2")
@pytest.mark.parametrize("with_values", [False, True])
@pytest.mark.parametrize("pairs_max", [1, 2, 3, 7])
async def test_an_overrun_is_gone_on_from_behind_the_last_key(bench: Bench, with_values: bool, pairs_max: int) -> None:
    await bench.run(*(write(b"%d" % number) for number in range(7)))
    bytes_max = pairs_max * (PAIR_BYTES + 1 + (len(BLOB) if with_values else 0))
    found = []
    after = b""
    while True:
        page = await read_range(
            bench.kv, KeyRange(after, False, None, False), with_values=with_values, bytes_max=bytes_max
        )
        found.append(keys(page))
        if page.status is not Status.OVERRUN:
            break
        after = page.pairs[-1].key
    digits = b"0123456"
    assert found == [digits[start : start + pairs_max] for start in range(0, 7, pairs_max)]


async def test_all_pairs_of_a_range_come_page_after_page(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pqbroker.storage.kv.reads.KV_READ_BYTES_MAX", 2 * (PAIR_BYTES + 1 + len(BLOB)))
    await bench.run(*(write(b"%d" % number) for number in range(8)))
    found = [pair async for pair in read_pairs(bench.kv, KeyRange(b"1", True, b"6", True))]
    assert [pair.key for pair in found] == [b"1", b"2", b"3", b"4", b"5", b"6"]
    assert {joined(pair) for pair in found} == {BLOB}


async def test_a_value_over_the_limit_comes_without_its_bytes_and_the_range_goes_on(bench: Bench) -> None:
    await bench.run(write(b"a", bytes(1000)), write(b"b", b"small"))
    limit = 100
    first = await read_range(bench.kv, None, with_values=True, bytes_max=limit)
    assert first == Page(Status.OVERRUN, [Pair(b"a", 1000, 1_000, MAIN, Status.OVERRUN, ())])
    rest = await read_range(bench.kv, KeyRange(b"a", False, None, False), with_values=True, bytes_max=limit)
    assert (rest.status, joined(rest.pairs[0])) == (Status.OK, b"small")


async def test_what_is_deleted_under_a_read_is_read_as_it_is_afterwards(bench: Bench) -> None:
    await bench.run(write(b"a"), write(b"b"), write(b"c"))
    with late_reads():
        reading = asyncio.gather(read_value(bench.kv, b"a"), read_range(bench.kv, None, with_values=True))
        await bench.kv.execute([DeleteRange(b"a", True, b"a", True), write(b"b", b"another value")])
        value, page = await reading
    assert value == Value(Status.NODATA, ())
    assert [(pair.key, joined(pair)) for pair in page.pairs] == [(b"b", b"another value"), (b"c", BLOB)]


async def test_a_blob_that_is_truly_missing_is_said_to_be(bench: Bench) -> None:
    await bench.run(write(b"a"))
    entry = bench.kv.entry(b"a")
    assert entry is not None
    damage = Batch()
    for blob in entry.blobs():
        damage.delete_blob(blob)
    await bench.kv.storage.commit(damage)
    for read in (read_value(bench.kv, b"a"), read_range(bench.kv, None, with_values=True)):
        with pytest.raises(BlobMissing):
            await read
