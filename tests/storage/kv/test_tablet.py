"""The KV tablet: commands, ranges, order, reference counts, reads."""

import asyncio
from time import thread_time

import pytest

from pqbroker.storage.engine import CommitRefused, ShardLost
from pqbroker.storage.kv.commands import (
    DELETED_KEYS_MAX,
    EXTRA_MAX,
    KEY_BYTES_MAX,
    PIECE_BYTES_MAX,
    Command,
    Concat,
    CopyRange,
    DeleteRange,
    KeyMissing,
    KeyRange,
    KeyValueError,
    Piece,
    Rename,
    Write,
)
from tests.storage.kv_bench import BLOB, Bench, write
from tests.support.cpu_time import no_collector, slowness


async def test_a_small_value_is_in_the_row_and_a_large_one_is_a_blob(bench: Bench) -> None:
    await bench.run(write(b"small", b"1234567"), write(b"large", b"12345678"))
    assert [blob.size for blob in await bench.blobs()] == [8]
    assert await bench.contents() == {b"small": b"1234567", b"large": b"12345678"}


async def test_an_empty_value_is_a_value(bench: Bench) -> None:
    await bench.run(write(b"k", b""))
    assert await bench.contents() == {b"k": b""}


@pytest.mark.spec("B.1")
async def test_a_value_above_8_mib_is_cut_into_blobs_without_copies(bench: Bench) -> None:
    first, second = bytes(PIECE_BYTES_MAX - 5), b"y" * (PIECE_BYTES_MAX + 6)
    await bench.run(Write(b"k", [first, second], len(first) + len(second)))
    entry = bench.kv.entry(b"k")
    assert entry is not None
    assert entry.pieces == (PIECE_BYTES_MAX, PIECE_BYTES_MAX, 1)
    (head, across, tail) = await bench.kv.read([
        (b"k", 0, 1),
        (b"k", PIECE_BYTES_MAX - 6, 8),
        (b"k", 2 * PIECE_BYTES_MAX - 1, 100),
    ])
    assert [b"".join(head), b"".join(across), b"".join(tail)] == [b"\0", b"\0yyyyyyy", b"yy"]
    assert len(across) == 2


async def test_an_entry_knows_its_size_pieces_and_time_of_creation(bench: Bench) -> None:
    await bench.run(write(b"a"), write(b"b", b"tiny"))
    bench.now_ms = 2_000
    await bench.run(Rename(b"a", b"c"))
    await bench.open()
    moved, inline = bench.kv.entry(b"c"), bench.kv.entry(b"b")
    assert moved is not None
    assert inline is not None
    assert (moved.size, moved.pieces, moved.created_ms) == (20, (20,), 1_000)
    assert (inline.size, inline.pieces, inline.created_ms) == (4, (4,), 1_000)
    assert bench.kv.entry(b"a") is None


@pytest.mark.spec("B.1", "J.2")
@pytest.mark.parametrize(
    ("include_lo", "include_hi", "left"),
    [(False, False, b"abde"), (True, False, b"ade"), (False, True, b"abe"), (True, True, b"ae")],
)
async def test_a_range_includes_its_ends_when_told_to(
    bench: Bench, include_lo: bool, include_hi: bool, left: bytes
) -> None:
    await bench.run(*(write(bytes((letter,))) for letter in b"abcde"))
    await bench.run(DeleteRange(b"b", include_lo, b"d", include_hi))
    assert b"".join(key for key, _ in bench.kv.keys(b"")) == left
    assert len(await bench.blobs()) == len(left)


@pytest.mark.parametrize(("include_lo", "include_hi"), [(False, False), (True, False), (False, True)])
async def test_a_range_of_one_key_needs_both_ends(bench: Bench, include_lo: bool, include_hi: bool) -> None:
    await bench.run(write(b"a"))
    await bench.run(DeleteRange(b"a", include_lo, b"a", include_hi))
    assert len(bench.kv) == 1
    await bench.run(DeleteRange(b"a", True, b"a", True))
    assert len(bench.kv) == 0


@pytest.mark.spec("B.1", "H12")
@pytest.mark.parametrize(
    "refused",
    [
        DeleteRange(b"b", True, b"a", True),
        CopyRange(KeyRange(b"b", True, b"a", True)),
        Rename(b"missing", b"n"),
        Concat((b"missing",), b"n"),
        Concat((b"a", b"missing"), b"n", keep_inputs=True),
        Concat((), b"n"),
        Concat((Piece([b""], 0),), b"n"),
        Write(b"n", [], 0),
        Write(b"n", [BLOB], len(BLOB) + 1),
        Write(b"n", [BLOB], len(BLOB), channel=-1),
        Write(b"n", [BLOB], len(BLOB), channel=EXTRA_MAX + 1),
        Write(b"", [b"v"], 1),
        Write(bytes(KEY_BYTES_MAX + 1), [b"v"], 1),
    ],
)
async def test_what_cannot_be_fails_the_whole_request(bench: Bench, refused: Command) -> None:
    await bench.run(write(b"a"))
    with pytest.raises(KeyValueError):
        await bench.run(write(b"other"), refused, DeleteRange(b"a", True, b"a", True))
    assert await bench.contents() == {b"a": BLOB}
    await bench.open()
    assert await bench.contents() == {b"a": BLOB}


@pytest.mark.spec("B.1", "J.2")
async def test_a_range_without_an_end_goes_to_the_last_key(bench: Bench) -> None:
    await bench.run(*(write(bytes((letter,))) for letter in b"abc\xff"))
    await bench.run(CopyRange(KeyRange(b"c", True, None, False), b"", b"_"))
    assert sorted(await bench.contents()) == [b"_c", b"_\xff", b"a", b"b", b"c", b"\xff"]
    await bench.run(DeleteRange(b"b", False, None, True))
    assert sorted(await bench.contents()) == [b"_c", b"_\xff", b"a", b"b"]
    await bench.run(DeleteRange(b"", True, None, False))
    assert len(bench.kv) == 0
    assert await bench.blobs() == []


@pytest.mark.spec("B.1")
async def test_a_write_may_say_when_its_value_was_made(bench: Bench) -> None:
    await bench.run(
        Write(b"a", [BLOB], len(BLOB), created_ms=5), Write(b"b", [b"tiny"], 4, created_ms=0), write(b"c")
    )
    await bench.open()
    assert [entry.created_ms for _, entry in bench.kv.keys()] == [5, 0, 1_000]


async def test_the_refusal_names_the_missing_key(bench: Bench) -> None:
    with pytest.raises(KeyMissing) as caught:
        await bench.run(Rename(b"missing", b"n"))
    assert caught.value.key == b"missing"


@pytest.mark.spec("B.1", "J.2")
async def test_a_request_deletes_at_most_100_000_keys(bench: Bench) -> None:
    keys = [b"%06d" % number for number in range(DELETED_KEYS_MAX + 1)]
    await bench.run(*(write(key, b"") for key in keys))
    with pytest.raises(KeyValueError, match="at most 100000"):
        await bench.run(
            DeleteRange(keys[0], True, keys[50], True), DeleteRange(keys[50], False, keys[-1], True), write(b"n")
        )
    assert len(bench.kv) == DELETED_KEYS_MAX + 1
    await bench.run(DeleteRange(keys[0], True, keys[50], True), DeleteRange(keys[0], True, keys[-1], False))
    assert [key for key, _ in bench.kv.keys(b"")] == keys[-1:]


@pytest.mark.spec("A.11", "B.1")
async def test_planning_to_delete_5000_keys_takes_a_few_milliseconds(bench: Bench) -> None:
    keys = [b"%06d" % number for number in range(5_000)]
    await bench.run(*(write(key) for key in keys))
    bench.engine.faults.hold()
    with no_collector():
        begun = thread_time()
        deleting = bench.kv.execute([DeleteRange(keys[0], True, None, True)])
        spent = thread_time() - begun
    assert spent / slowness() < 0.03  # alone on a core it is 0.006
    bench.engine.faults.release()
    await deleting
    assert len(bench.kv) == 0


@pytest.mark.spec("B.1", "H12")
async def test_commands_run_as_deletes_renames_copies_concats_writes(bench: Bench) -> None:
    await bench.run(write(b"a", b"old-a-value"), write(b"b", b"old-b-value"))
    await bench.run(
        write(b"a", b"written"),
        Concat((b"c/b2",), b"joined"),
        CopyRange(KeyRange(b"b", True, b"b3", True), b"", b"c/"),
        Rename(b"b", b"b2"),
        DeleteRange(b"a", True, b"a", True),
    )
    assert await bench.contents() == {b"a": b"written", b"b2": b"old-b-value", b"joined": b"old-b-value"}
    with pytest.raises(KeyMissing):
        await bench.run(Rename(b"a", b"z"), DeleteRange(b"a", True, b"a", True))
    with pytest.raises(KeyMissing):
        await bench.run(write(b"new"), Concat((b"new",), b"z"))


@pytest.mark.spec("B.1", "J.2")
async def test_a_rename_replaces_what_the_new_key_held(bench: Bench) -> None:
    await bench.run(write(b"a", b"value of a"), write(b"b", b"value of b"))
    await bench.run(Rename(b"a", b"b"))
    assert await bench.contents() == {b"b": b"value of a"}
    assert len(await bench.blobs()) == 1
    await bench.run(Rename(b"b", b"b"))
    assert await bench.contents() == {b"b": b"value of a"}


async def test_a_renamed_value_that_is_consumed_at_once_leaves_no_blob_of_the_key_it_replaced(bench: Bench) -> None:
    await bench.run(write(b"a"), write(b"b", b"replaced value"))
    await bench.run(Rename(b"a", b"b"), Concat((b"b",), b"c"))
    assert await bench.contents() == {b"c": BLOB}
    assert len(await bench.blobs()) == 1


@pytest.mark.spec("B.1", "J.2")
async def test_concat_chains_blobs_without_copying_them(bench: Bench) -> None:
    await bench.run(write(b"a", b"aaaaaaaaaa"), write(b"b", b"bb"), write(b"c", b"cccccccccc"))
    before = await bench.blobs()
    await bench.run(Concat((b"a", Piece([b"--", b"--"], 4), b"b", b"c"), b"out"))
    assert await bench.contents() == {b"out": b"aaaaaaaaaa----bbcccccccccc"}
    assert set(before) < set(await bench.blobs())
    entry = bench.kv.entry(b"out")
    assert entry is not None
    assert entry.pieces == (10, 4, 2, 10)
    assert not entry.is_shared


async def test_concat_into_one_of_its_inputs(bench: Bench) -> None:
    await bench.run(write(b"a", b"aaaaaaaaaa"), write(b"b", b"bbbbbbbbbb"))
    await bench.run(Concat((b"a", b"b"), b"a"))
    assert await bench.contents() == {b"a": b"aaaaaaaaaabbbbbbbbbb"}
    assert len(await bench.blobs()) == 2


@pytest.mark.spec("B.1", "J.2")
async def test_kept_inputs_share_their_blobs_until_the_last_holder_goes(bench: Bench) -> None:
    await bench.run(write(b"a"))
    await bench.run(Concat((b"a",), b"b", keep_inputs=True))
    await bench.run(Concat((b"b",), b"c"))
    await bench.open()
    await bench.run(DeleteRange(b"a", True, b"a", True))
    assert await bench.contents() == {b"c": BLOB}
    await bench.run(DeleteRange(b"c", True, b"c", True))
    assert await bench.blobs() == []


async def test_an_input_named_twice_is_there_twice(bench: Bench) -> None:
    await bench.run(write(b"a"))
    await bench.run(Concat((b"a", b"a"), b"b"))
    await bench.open()
    await bench.run(CopyRange(None, b"b", b"c"))
    await bench.run(DeleteRange(b"b", True, b"b", True))
    assert await bench.contents() == {b"c": BLOB + BLOB}
    await bench.run(DeleteRange(b"c", True, b"c", True))
    assert await bench.blobs() == []


@pytest.mark.spec("B.1", "H12")
async def test_copies_change_the_prefix_and_take_only_keys_that_have_it(bench: Bench) -> None:
    await bench.run(write(b"old/1"), write(b"old/2", b"inline"), write(b"other"))
    await bench.run(CopyRange(None, b"old/", b"new/"))
    assert sorted(await bench.contents()) == [b"new/1", b"new/2", b"old/1", b"old/2", b"other"]
    assert len(await bench.blobs()) == 2
    await bench.run(DeleteRange(b"old/", True, b"old0", False))
    assert (await bench.contents())[b"new/1"] == BLOB


@pytest.mark.spec("B.1", "H12")
@pytest.mark.parametrize("include_lo", [False, True])
@pytest.mark.parametrize("include_hi", [False, True])
async def test_a_copy_takes_what_the_same_request_has_moved_into_its_range(
    bench: Bench, include_lo: bool, include_hi: bool
) -> None:
    await bench.run(write(b"1"), write(b"2"), write(b"3"))
    moves = [Rename(b"1", b"b"), Rename(b"2", b"c"), Rename(b"3", b"d")]
    await bench.run(CopyRange(KeyRange(b"b", include_lo, b"d", include_hi), b"", b"n"), *moves)
    copied = [key for key in await bench.contents() if key.startswith(b"n")]
    assert copied == [b"nb"] * include_lo + [b"nc"] + [b"nd"] * include_hi


@pytest.mark.spec("B.1", "J.2")
async def test_two_holders_of_a_blob_that_go_at_the_same_time_take_it_along(bench: Bench) -> None:
    await bench.run(write(b"a"))
    await bench.run(CopyRange(None, b"", b"copy/"))
    bench.engine.faults.hold()
    first = bench.kv.execute([DeleteRange(b"a", True, b"a", True)])
    second = bench.kv.execute([DeleteRange(b"copy/a", True, b"copy/a", True)])
    bench.engine.faults.release()
    await asyncio.gather(first, second)
    assert await bench.blobs() == []


async def test_a_holder_that_is_not_deleted_after_all_keeps_its_blob(bench: Bench) -> None:
    await bench.run(write(b"a"))
    await bench.run(CopyRange(None, b"", b"copy/"))
    bench.engine.faults.hold()
    refused = bench.kv.execute([DeleteRange(b"a", True, b"a", True)])
    second = bench.kv.execute([DeleteRange(b"copy/a", True, b"copy/a", True)])
    bench.engine.faults.refuse_next()
    bench.engine.faults.release()
    await asyncio.gather(refused, second, return_exceptions=True)
    assert await bench.contents() == {b"a": BLOB}


async def test_a_count_waits_for_what_is_in_flight_and_nothing_overtakes_it(bench: Bench) -> None:
    await bench.run(write(b"a"))
    bench.engine.faults.hold()
    first = bench.kv.execute([write(b"b")])
    copy = bench.kv.execute([CopyRange(None, b"", b"copy/")])
    last = bench.kv.execute([DeleteRange(b"a", True, b"b", True)])
    bench.engine.faults.release()
    await asyncio.gather(first, copy, last)
    assert sorted(await bench.contents()) == [b"copy/a", b"copy/b"]


@pytest.mark.spec("B.1")
async def test_requests_on_other_keys_are_in_flight_together(bench: Bench) -> None:
    before = bench.cell.stats().rounds
    await asyncio.gather(*(bench.kv.execute([write(b"%d" % number)]) for number in range(10)))
    assert bench.cell.stats().rounds == before + 1


async def test_a_key_is_free_again_when_its_request_is_done(bench: Bench) -> None:
    await bench.run(write(b"k"))
    before = bench.cell.stats().rounds
    await asyncio.gather(bench.kv.execute([write(b"other")]), bench.kv.execute([write(b"k")]))
    assert bench.cell.stats().rounds == before + 1


@pytest.mark.parametrize(
    "second",
    [
        write(b"k", b"second value"),
        DeleteRange(b"a", True, b"z", True),
        Rename(b"k", b"n"),
        Concat((b"k",), b"n"),
        Concat((Piece([b"piece"], 5),), b"k"),
        CopyRange(None, b"", b"n"),
    ],
)
async def test_a_request_on_a_key_in_flight_waits_its_turn(bench: Bench, second: Command) -> None:
    before = bench.cell.stats().rounds
    await asyncio.gather(bench.kv.execute([write(b"k")]), bench.kv.execute([second]))
    assert bench.cell.stats().rounds == before + 2


async def test_a_change_is_seen_when_it_is_durable_and_before_callbacks_run(bench: Bench) -> None:
    bench.engine.faults.hold()
    future = bench.kv.execute([write(b"k")])
    seen: list[int] = []
    future.add_done_callback(lambda _: seen.append(len(bench.kv)))
    await asyncio.sleep(0)
    assert bench.kv.entry(b"k") is None
    bench.engine.faults.release()
    await future
    assert seen == [1]


async def test_a_refused_commit_leaves_no_trace_and_the_next_request_goes_on(bench: Bench) -> None:
    await bench.run(write(b"a"))
    bench.engine.faults.refuse_next()
    refused = bench.kv.execute([write(b"a", b"lost value"), write(b"b"), DeleteRange(b"a", True, b"a", True)])
    waiting = bench.kv.execute([Concat((b"a",), b"c")])
    with pytest.raises(CommitRefused):
        await refused
    await waiting
    assert await bench.contents() == {b"c": BLOB}


async def test_a_caller_that_stopped_waiting_changes_nothing(bench: Bench) -> None:
    caller = asyncio.ensure_future(bench.run(write(b"a")))
    await asyncio.sleep(0)
    caller.cancel()
    await bench.run(write(b"a", b"the later value"))
    assert await bench.contents() == {b"a": b"the later value"}


async def test_the_shards_loss_fails_what_is_in_flight_and_what_waits_and_what_comes(bench: Bench) -> None:
    bench.engine.faults.hold()
    in_flight = bench.kv.execute([write(b"a")])
    waiting = bench.kv.execute([write(b"a")])
    bench.engine.crash()
    for future in (in_flight, waiting):
        with pytest.raises(ShardLost):
            await future
    with pytest.raises(ShardLost):
        await bench.run(write(b"a"))
    with pytest.raises(ShardLost):
        await bench.run(write(b"b"))


async def test_reads_are_ranged_and_short_at_the_end(bench: Bench) -> None:
    await bench.run(write(b"blob", b"0123456789"), write(b"row", b"abc"))
    found = await bench.kv.read([(b"blob", 2, 3), (b"row", 1, 1), (b"blob", 8, 9), (b"blob", 10, 0), (b"row", 3, 2)])
    assert [b"".join(buffers) for buffers in found] == [b"234", b"b", b"89", b"", b""]
    with pytest.raises(KeyMissing):
        await bench.kv.read([(b"blob", 0, 0), (b"missing", 0, 0)])


async def test_keys_come_in_order_and_within_bounds(bench: Bench) -> None:
    await bench.run(*(write(bytes((letter,)), b"") for letter in b"dbca"))
    assert [key for key, _ in bench.kv.keys(b"b", b"d")] == [b"b", b"c"]
    assert [key for key, _ in bench.kv.keys(b"c")] == [b"c", b"d"]


async def test_more_rows_than_a_page_are_all_read_at_start(bench: Bench) -> None:
    await bench.run(*(write(b"%05d" % number, b"") for number in range(10_000)))
    await bench.open()
    assert len(bench.kv) == 10_000
