"""Rows of sorted tablets in commits over several tablets: written, prepared, finished; conflicts; restarts."""

import asyncio

import pytest

from pqbroker.pq.transactions.participants import LookAgain
from pqbroker.pq.transactions.stored_forms import TransactionId
from pqbroker.storage.engine import CommitRefused, StoreFailed
from pqbroker.tables.refusals import TableError
from pqbroker.tables.serving.stored_keys import prepared_key
from pqbroker.tables.serving.tablet import SortedTablet
from pqbroker.tables.sorted.store import KEY_MEMORY
from tests.storage.kv.test_joint_request import contents_of
from tests.support.sorted_on_disk import explain_tablet
from tests.tables.serving.commit_bench import WIDER, CommitBench, CommitByHand, key_of, on_bench


@on_bench
async def test_rows_beside_the_home_are_one_commit_with_the_decision(bench: CommitBench) -> None:
    before = bench.cells[0].stats().commits
    commit = CommitByHand(bench, "one", {0: {1: 10}, 1: {2: 20}})
    await commit.until_prepared()
    timestamp = await commit.decide()
    assert bench.cells[0].stats().commits == before + 1
    assert (await bench.read(0, 1), await bench.read(1, 2)) == (10, 20)
    assert await bench.read(0, 1, timestamp - 1) is None
    bench.crash(0)
    await bench.reopen(0)
    assert (await bench.read(0, 1), await bench.read(1, 2)) == (10, 20)
    assert bench.participant(0).decisions == {commit.transaction: commit.decision}
    assert bench.participant(1).decisions == {}


@on_bench
async def test_prepared_rows_are_invisible_and_become_visible_at_the_timestamp(bench: CommitBench) -> None:
    await bench.write(2, {5: 1})
    commit = await CommitByHand(bench, "one", {0: {1: 10}, 2: {5: 50}}).until_prepared()
    assert bench.participant(2).prepared.keys() == {commit.transaction}
    assert await bench.read(2, 5) == 1
    timestamp = await commit.decide()
    await commit.finish()
    assert bench.participant(2).prepared == {}
    assert (await bench.read(2, 5), await bench.read(2, 5, timestamp - 1)) == (50, 1)
    assert bench.participant(2).kv.entry(prepared_key(commit.transaction)) is None
    assert bench.participant(0).decisions[commit.transaction].participants == ()


@on_bench
async def test_prepared_rows_can_be_dropped_and_their_keys_are_free(bench: CommitBench) -> None:
    commit = await CommitByHand(bench, "one", {0: {1: 10}, 2: {5: 50}}).until_prepared()
    commit.leave()
    await bench.participant(2).finish(commit.transaction, None)
    assert bench.participant(2).kv.entry(prepared_key(commit.transaction)) is None
    await bench.write(2, {5: 7})
    assert await bench.read_all(2) == {5: 7}


@on_bench
async def test_prepared_rows_count_as_memory_of_the_tablet_until_they_end(bench: CommitBench) -> None:
    tablet, rows = bench.tablets[2], {key: key for key in range(100)}
    commit = await CommitByHand(bench, "one", {0: {1: 10}, 2: rows}).until_prepared()
    taken = tablet.memory_bytes
    assert taken > len(rows) * KEY_MEMORY
    bench.crash(1)
    await bench.reopen(1)
    assert tablet.memory_bytes == taken
    timestamp = await commit.decide()
    await bench.participant(2).finish(commit.transaction, timestamp)
    assert tablet.memory_bytes == sum(store.memory_bytes for store in tablet.stores) > len(rows) * KEY_MEMORY
    dropped = await CommitByHand(bench, "two", {0: {1: 10}, 2: {200: 1}}).until_prepared()
    dropped.leave()
    await bench.participant(2).finish(dropped.transaction, None)
    assert tablet.memory_bytes == sum(store.memory_bytes for store in tablet.stores)


@on_bench
async def test_a_start_finds_prepared_rows_in_doubt_and_they_can_be_finished(bench: CommitBench) -> None:
    commit = await CommitByHand(bench, "one", {0: {1: 10}, 2: {5: 50, 6: 60}}).until_prepared()
    timestamp = await commit.decide()
    bench.crash(1)
    assert not bench.participant(2).is_known
    assert bench.participant(2).prepared == {}
    with pytest.raises(StoreFailed):
        await bench.participant(2).finish(commit.transaction, timestamp)
    await bench.reopen(1)
    assert bench.participant(2).is_known
    assert bench.participant(2).prepared[commit.transaction].home.tablet_id == 70_000
    await commit.finish()
    assert await bench.read_all(2, timestamp) == {5: 50, 6: 60}
    bench.crash(1)
    await bench.reopen(1)
    assert await bench.read_all(2, timestamp) == {5: 50, 6: 60}
    assert bench.participant(2).prepared == {}


@on_bench
async def test_a_start_finds_prepared_rows_and_decisions_of_any_transaction(bench: CommitBench) -> None:
    greatest = TransactionId(b"\xff" * 16)
    commit = CommitByHand(bench, "one", {0: {1: 10}, 2: {5: 50}})
    commit.transaction = greatest
    await commit.until_prepared()
    await commit.decide()
    for cell in (0, 1):
        bench.crash(cell)
        await bench.reopen(cell)
    assert bench.participant(0).decisions.keys() == {greatest}
    assert bench.participant(2).prepared.keys() == {greatest}
    await commit.finish()


@on_bench
async def test_finish_does_no_harm_when_it_is_repeated(bench: CommitBench) -> None:
    commit = await CommitByHand(bench, "one", {0: {1: 10}, 2: {5: 50}}).until_prepared()
    timestamp = await commit.decide()
    both = [bench.participant(2).finish(commit.transaction, timestamp) for _ in "12"]
    assert both[0] is both[1]
    await both[0]
    await bench.participant(2).finish(commit.transaction, timestamp)
    assert bench.tablets[2].active.row_count == 1


@on_bench
async def test_finish_that_is_refused_leaves_the_rows_prepared(bench: CommitBench) -> None:
    commit = await CommitByHand(bench, "one", {0: {1: 10}, 2: {5: 50}}).until_prepared()
    timestamp = await commit.decide()
    bench.engines[1].faults.refuse_next()
    with pytest.raises(CommitRefused):
        await bench.participant(2).finish(commit.transaction, timestamp)
    assert bench.participant(2).prepared.keys() == {commit.transaction}
    await bench.participant(2).finish(commit.transaction, timestamp)
    assert await bench.read(2, 5) == 50


@on_bench
async def test_prepared_rows_are_widened_when_the_schema_got_columns(bench: CommitBench) -> None:
    commit = await CommitByHand(bench, "one", {0: {1: 10}, 2: {5: 50}}).until_prepared()
    timestamp = await commit.decide()
    bench.crash(1)
    tablet = bench.tablets[2]
    tablet.config = tablet.config._replace(schema=WIDER)
    await bench.reopen(1)
    await commit.finish()
    for _ in "12":
        key = next(iter(tablet.active.key_slices()))[0]
        assert await tablet.lookup(timestamp).find(key) == [50, None]
        bench.crash(1)
        await bench.reopen(1)


@on_bench
async def test_finish_goes_before_writes_that_wait_and_passes_their_refusals(bench: CommitBench) -> None:
    commit = await CommitByHand(bench, "one", {0: {1: 10}, 2: {5: 50}}).until_prepared()
    timestamp = await commit.decide()
    tablet = bench.tablets[2]
    tablet.memory_refusal = TableError("OUT_OF_TABLET_MEMORY", "", "")
    with pytest.raises(TableError):
        tablet.check_writable()
    order: list[str] = []
    bench.engines[1].faults.hold()
    in_flight = bench.write(2, {7: 1})
    await asyncio.sleep(0.01)
    waiting = bench.write(2, {8: 1})
    finishing = bench.participant(2).finish(commit.transaction, timestamp)
    waiting.add_done_callback(lambda _: order.append("write"))
    finishing.add_done_callback(lambda _: order.append("finish"))
    bench.engines[1].faults.release()
    await asyncio.gather(in_flight.wait(), waiting.wait(), finishing.wait())
    assert order == ["finish", "write"]


@on_bench
async def test_finish_is_refused_while_the_tablet_is_unmounted(bench: CommitBench) -> None:
    commit = await CommitByHand(bench, "one", {0: {1: 10}, 2: {5: 50}}).until_prepared()
    timestamp = await commit.decide()
    bench.crash(1)
    await bench.tablets[2].unmount()  # nothing is known of it, so nothing keeps it
    await bench.reopen(1)
    with pytest.raises(CommitRefused, match="unmounted"):
        await bench.participant(2).finish(commit.transaction, timestamp)
    assert bench.participant(2).prepared.keys() == {commit.transaction}
    bench.tablets[2].mount()
    with pytest.raises(CommitRefused, match="starting"):
        await bench.participant(2).finish(commit.transaction, timestamp)
    await bench.tablets[2].mounted()
    await bench.participant(2).finish(commit.transaction, timestamp)
    assert await bench.read(2, 5) == 50


@on_bench
async def test_many_rows_are_encoded_in_a_thread_and_never_seen_in_part(bench: CommitBench) -> None:
    many: dict[int, int | None] = {key: key for key in range(12_000)}
    commit = await CommitByHand(bench, "one", {0: many, 2: many}).until_prepared()
    seen: set[tuple[int | None, int | None]] = set()
    has_ended = False
    keys = [key_of(0), key_of(11_999)]

    async def look() -> None:
        while not has_ended:
            for number in (0, 2):
                await bench.tablets[number].see_committed(keys)
                lookup = bench.tablets[number].lookup(bench.tablets[number].visible)
                first, last = [await lookup.find(key) for key in keys]
                seen.add((None if first is None else first[0], None if last is None else last[0]))
            await asyncio.sleep(0)

    looking = asyncio.ensure_future(look())
    await commit.decide()
    await commit.finish()
    has_ended = True
    await looking
    assert seen <= {(None, None), (0, 11_999)}
    assert bench.tablets[2].active.key_count == 12_000


@on_bench
async def test_a_part_is_refused_for_a_key_that_another_transaction_has_locked(bench: CommitBench) -> None:
    holder = await CommitByHand(bench, "holder", {0: {1: 10}, 2: {5: 50}}).until_prepared()
    other = CommitByHand(bench, "other", {2: {4: 1, 5: 2}})
    await other.enter()
    (refusal,) = other.refusals()
    assert isinstance(refusal, TableError)
    assert refusal.code == "ROW_LOCK_CONFLICT"
    assert holder.transaction.hex() in refusal.message
    assert "[5]" in refusal.message
    other.leave()
    free = CommitByHand(bench, "free", {2: {4: 1}})
    await free.run()
    assert await bench.read(2, 4) == 1
    await holder.decide()
    await holder.finish()


@on_bench
async def test_a_newer_version_in_a_store_is_a_conflict(bench: CommitBench) -> None:
    await bench.write(0, {1: 1})
    start = bench.give()
    newer = await bench.write(0, {2: 2})
    commit = CommitByHand(bench, "one", {0: {1: 5, 2: 6}}, start)
    await commit.enter()
    (refusal,) = commit.refusals()
    assert isinstance(refusal, TableError)
    assert (refusal.code, str(newer) in refusal.message) == ("ROW_LOCK_CONFLICT", True)
    commit.leave()
    assert await bench.write(0, {3: 3}) > newer  # the queue is free again
    with pytest.raises(TableError, match="Row lock conflict"):
        await commit.parts[0].look_ahead()
    older = CommitByHand(bench, "two", {0: {1: 5}}, start)
    await older.run()
    unchecked = CommitByHand(bench, "three", {0: {2: 5}})
    await unchecked.run()


@on_bench
async def test_a_newer_version_in_a_chunk_is_found_before_the_part_enters(bench: CommitBench) -> None:
    await bench.write(0, {1: 1, 3: 1})
    start = bench.give()
    newer = await bench.write(0, {2: 2})
    await bench.flush(0)
    commit = CommitByHand(bench, "one", {0: {2: 6}}, start)
    with pytest.raises(TableError, match=f"row \\[2\\] .* written at timestamp {newer}") as found:
        await commit.parts[0].look_ahead()
    assert found.value.code == "ROW_LOCK_CONFLICT"
    absent = CommitByHand(bench, "two", {0: {1: 6, 4: 5}}, start)
    await absent.parts[0].look_ahead()
    await absent.run()
    assert await bench.read_all(0) == {1: 6, 2: 2, 3: 1, 4: 5}


@on_bench
async def test_a_flush_beside_a_commit_has_chunks_looked_at_again(bench: CommitBench) -> None:
    start = bench.give()
    await bench.write(0, {1: 1, 3: 3})
    commit = CommitByHand(bench, "one", {0: {2: 6}}, start)
    await commit.parts[0].look_ahead()
    await bench.flush(0)
    await commit.enter()
    assert commit.refusals() == []  # all that the chunk has was in the stores that were looked at
    commit.leave()
    await bench.write(0, {1: 2, 4: 3})
    await bench.flush(0)
    await commit.enter()
    assert [type(refusal) for refusal in commit.refusals()] == [LookAgain]
    commit.leave()
    await commit.parts[0].look_ahead()
    await commit.enter()
    assert commit.refusals() == []
    commit.leave()
    await bench.write(0, {2: 2})
    await commit.enter()
    assert [type(refusal) for refusal in commit.refusals()] == [TableError]
    commit.leave()


@on_bench
async def test_a_flush_while_a_part_holds_does_not_send_it_back(bench: CommitBench) -> None:
    start = bench.give()
    await bench.write(0, {1: 1, 3: 3})
    bench.tablets[0].rotate()
    commit = CommitByHand(bench, "one", {0: {2: 6}}, start)
    await commit.enter()
    assert commit.refusals() == []
    flushing = asyncio.ensure_future(bench.flush(0))
    while not bench.tablets[0].structure.chunks:  # noqa: ASYNC110 (a state of the tablet)
        await asyncio.sleep(0.01)
    assert commit.refusals() == []  # its row was looked for when the others were in the store
    await commit.decide()
    await flushing
    assert await bench.read_all(0) == {1: 1, 2: 6, 3: 3}


@on_bench
async def test_a_part_that_began_before_the_retained_timestamp_is_refused(bench: CommitBench) -> None:
    start = bench.give()
    bench.tablets[0].cleaned_timestamp = start + 1
    commit = CommitByHand(bench, "one", {0: {2: 6}}, start)
    with pytest.raises(TableError, match="below") as found:
        await commit.parts[0].look_ahead()
    assert found.value.code == "TIMESTAMP_TOO_OLD"
    await commit.enter()
    (refusal,) = commit.refusals()
    assert isinstance(refusal, TableError)
    assert refusal.code == "TIMESTAMP_TOO_OLD"
    commit.leave()


@on_bench
async def test_a_part_that_holds_keeps_writes_of_its_tablet_out_and_no_others(bench: CommitBench) -> None:
    commit = CommitByHand(bench, "one", {0: {1: 10}})
    await commit.enter()
    waiting = bench.write(0, {9: 9})
    joint = bench.write_both({8: 8}, {8: 8})
    await bench.write(2, {9: 9})
    assert not waiting.done()
    timestamp = await commit.decide()
    assert await waiting > timestamp
    await joint
    assert await bench.read_all(0) == {1: 10, 8: 8, 9: 9}


@on_bench
async def test_a_part_that_leaves_before_its_turn_is_not_called(bench: CommitBench) -> None:
    first = CommitByHand(bench, "one", {0: {1: 10}})
    await first.enter()
    second = CommitByHand(bench, "two", {0: {1: 20}})
    entering = asyncio.ensure_future(second.enter())
    await asyncio.sleep(0.01)
    second.leave()
    second.leave()
    first.leave()
    await bench.write(0, {1: 1})
    assert not entering.done()
    entering.cancel()


@on_bench
async def test_a_lost_tablet_refuses_the_part_that_holds_and_fails_those_that_wait(bench: CommitBench) -> None:
    holding, waiting = (CommitByHand(bench, name, {2: {1: 10}, 0: {1: 1}}) for name in ("one", "two"))
    await holding.enter()
    entering = asyncio.ensure_future(waiting.enter([2]))
    await asyncio.sleep(0.01)
    bench.crash(1)
    with pytest.raises(StoreFailed):
        await entering
    (refusal,) = holding.refusals()
    assert isinstance(refusal, CommitRefused)
    await holding.parts[2].encode(bench.give())
    with pytest.raises(CommitRefused):
        holding.parts[2].commands(bench.last)
    holding.leave()
    with pytest.raises(TableError, match="not open"):
        await waiting.enter([2])
    await bench.reopen(1)
    await bench.write(2, {1: 5})
    assert await bench.read_all(2) == {1: 5}


@on_bench
async def test_prepared_rows_stay_when_the_tablet_is_restarted(bench: CommitBench) -> None:
    commit = await CommitByHand(bench, "one", {0: {1: 10}, 2: {5: 50}}).until_prepared()
    await bench.restart_tablet(2)
    assert bench.participant(2).prepared.keys() == {commit.transaction}
    assert await bench.read(2, 5) is None  # it was not decided: nobody need wait
    await commit.decide()
    await commit.finish()
    assert await bench.read(2, 5) == 50


@on_bench
async def test_a_finish_that_waits_for_a_restart_goes_to_the_next_generation(bench: CommitBench) -> None:
    commit = await CommitByHand(bench, "one", {0: {1: 10}, 2: {5: 50}}).until_prepared()
    await commit.decide()
    bench.engines[1].faults.hold()
    in_flight = bench.write(2, {7: 1})
    await asyncio.sleep(0.01)
    restarting = asyncio.ensure_future(bench.restart_tablet(2))
    await asyncio.sleep(0.01)
    finishing = asyncio.ensure_future(commit.finish())
    await asyncio.sleep(0.01)
    bench.engines[1].faults.release()
    await in_flight
    await restarting
    await finishing
    assert await bench.read(2, 5) == 50
    bench.crash(1)
    await bench.reopen(1)
    assert await bench.read_all(2) == {5: 50, 7: 1}


@on_bench
async def test_a_part_that_holds_is_refused_while_its_tablet_is_to_be_restarted(bench: CommitBench) -> None:
    commit = CommitByHand(bench, "one", {0: {1: 10}})
    await commit.enter()
    restarting = asyncio.ensure_future(bench.restart_tablet(0))
    await asyncio.sleep(0.01)
    (refusal,) = commit.refusals()
    assert isinstance(refusal, CommitRefused)
    assert not restarting.done()
    commit.leave()
    await restarting
    await commit.run()
    assert await bench.read(0, 1) == 10


@on_bench
async def test_a_commit_that_is_refused_leaves_no_trace(bench: CommitBench) -> None:
    commit = await CommitByHand(bench, "one", {0: {1: 10}, 2: {5: 50}}).until_prepared()
    bench.engines[0].faults.refuse_next()
    with pytest.raises(CommitRefused):
        await commit.decide()
    await bench.participant(2).finish(commit.transaction, None)
    assert (await bench.read_all(0), await bench.read_all(2)) == ({}, {})
    assert bench.participant(0).decisions == {}
    await bench.write(0, {1: 1})
    refused = CommitByHand(bench, "two", {0: {1: 10}, 2: {5: 50}})
    await refused.enter()
    bench.engines[1].faults.refuse_next()
    with pytest.raises(CommitRefused):
        await refused.prepare()
    assert bench.participant(2).prepared == {}
    refused.leave()
    await bench.write(2, {5: 5})


@on_bench
async def test_decisions_are_stored_replaced_and_dropped(bench: CommitBench) -> None:
    one, two = (CommitByHand(bench, name, {0: {1: 10}, 2: {5: 50}}) for name in ("one", "two"))
    await one.run()
    await two.run()
    for _ in "12":
        assert {each.transaction for each in bench.participant(0).decisions.values()} == {
            one.transaction, two.transaction
        }
        assert all(each.participants == () for each in bench.participant(0).decisions.values())
        bench.crash(0)
        await bench.reopen(0)
    await bench.participant(0).drop_decisions([one.transaction])
    await bench.participant(0).drop_decisions([one.transaction])
    assert bench.participant(0).decisions.keys() == {two.transaction}
    bench.crash(0)
    with pytest.raises(CommitRefused):
        await bench.participant(0).drop_decisions([two.transaction])
    await bench.reopen(0)
    assert bench.participant(0).decisions.keys() == {two.transaction}


@on_bench
async def test_the_tablet_has_one_partition(bench: CommitBench) -> None:
    assert bench.tablets[0].participant(1) is None
    assert bench.participant(2).participant_id == (70_002, 0)
    assert bench.participant(2).name == "tablet 2 of t"


@on_bench
async def test_a_second_reader_finds_prepared_rows_and_decisions_as_the_page_says(bench: CommitBench) -> None:
    commit = await CommitByHand(bench, "one", {0: {1: 10}, 2: {5: 50, 6: None}}).until_prepared()
    await commit.decide()
    assert explain_tablet(await contents_of(bench.participant(2).kv), ["int64"]) == {"prepared rows": 2}
    found = explain_tablet(await contents_of(bench.participant(0).kv), ["int64"])
    assert found == {"decisions": 1, "log values": 1, "logged rows": 1}
    await commit.finish()
    assert explain_tablet(await contents_of(bench.participant(2).kv), ["int64"]) == {"log values": 1, "logged rows": 2}


@on_bench
async def test_a_tablet_that_is_mounted_while_its_unmount_waits_serves_again(bench: CommitBench) -> None:
    await bench.write(0, {1: 10})
    tablet, leave = bench.tablets[0], bench.share.leave

    async def left(one: SortedTablet) -> None:
        await leave(one)
        one.mount()
        await one.mounted()

    bench.share.leave = left
    await tablet.unmount()
    await tablet.mounted()
    bench.share.leave = leave
    assert tablet.is_serving
    assert await bench.read(0, 1) == 10
