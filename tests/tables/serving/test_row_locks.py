"""Locks of prepared rows: writes, readers, unmounts and clean-up beside a transaction that is not finished."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from pqbroker.pq.log.commit_timestamps import TIMESTAMP_MAX
from pqbroker.storage.engine import CommitRefused, ShardLost, StoreFailed
from pqbroker.storage.ids import TabletId
from pqbroker.storage.outcome import Outcome
from pqbroker.tables.refusals import TableError
from pqbroker.tables.serving.share import LOCK_WAIT_S
from pqbroker.tables.serving.stored_inputs import locate_inputs
from pqbroker.tables.serving.tablet import SortedTablet
from tests.tables.serving.commit_bench import FIRST_ID, CommitBench, CommitByHand, on_bench, play

TURNS = 0.05
"""Simulated seconds in which all that can happen has happened."""


async def prepared(bench: CommitBench, name: str = "one", key: int = 5) -> CommitByHand:
    """A commit whose home is tablet 0, and whose row of tablet 2 is prepared."""
    return await CommitByHand(bench, name, {0: {key: 10}, 2: {key: 50}}).until_prepared()


async def is_waiting(bench: CommitBench, waiting: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
    task = asyncio.ensure_future(waiting)
    await asyncio.sleep(TURNS)
    assert not task.done()
    return task


async def refused(waiting: Coroutine[Any, Any, Any] | Outcome[Any]) -> TableError:
    """The refusal of what waits as long as it may."""
    begun_s = asyncio.get_running_loop().time()
    with pytest.raises(TableError) as found:
        await waiting
    waited_s = asyncio.get_running_loop().time() - begun_s
    assert LOCK_WAIT_S - 2 * TURNS <= waited_s <= LOCK_WAIT_S + TURNS
    return found.value


# Writes


@on_bench
async def test_a_write_of_a_locked_key_waits_and_others_pass(bench: CommitBench) -> None:
    commit = await prepared(bench)
    waiting = bench.write(2, {5: 1, 6: 1})
    await bench.write(2, {7: 1})
    assert not waiting.done()
    assert bench.tablets[2].writes.waiting_count == 1
    timestamp = await commit.decide()
    await commit.finish()
    assert await waiting > timestamp
    assert await bench.read_all(2) == {5: 1, 6: 1, 7: 1}
    assert await bench.read(2, 5, timestamp) == 50


@on_bench
async def test_writes_of_a_key_continue_in_the_order_of_their_arrival(bench: CommitBench) -> None:
    commit = await prepared(bench)
    writes = [
        bench.write(2, {5: 1, 6: 1}), bench.write(2, {6: 2, 7: 2}), bench.write(2, {7: 3}), bench.write(2, {5: 4}),
    ]  # fmt: skip
    free = bench.write(2, {8: 5})
    await free
    assert not any(one.done() for one in writes)
    await bench.participant(2).finish(commit.transaction, None)
    commit.leave()
    first, second, third, fourth = [await one for one in writes]
    assert first < second < third
    assert first < fourth
    assert await bench.read_all(2) == {5: 4, 6: 2, 7: 3, 8: 5}
    assert not bench.tablets[2].writes.locks.is_contended


@on_bench
async def test_a_write_behind_one_that_continues_does_not_overtake_it(bench: CommitBench) -> None:
    commit = await prepared(bench)
    first = bench.write(2, {5: 1})
    await asyncio.sleep(TURNS)
    bench.engines[1].faults.hold()
    others = [bench.write(2, {9: n}) for n in range(2)]  # one on its way, one that waits
    await asyncio.sleep(TURNS)
    finishing = bench.participant(2).finish(commit.transaction, None)
    commit.leave()
    bench.engines[1].faults.release()
    finishing.add_done_callback(lambda _: others.append(bench.write(2, {5: 2})))
    await first
    for one in others:
        await one
    assert await bench.read(2, 5) == 2


@on_bench
async def test_a_write_that_waits_too_long_is_refused_with_key_and_transaction(bench: CommitBench) -> None:
    commit = await prepared(bench)
    first = bench.write(2, {5: 1, 6: 1})
    behind = bench.write(2, {6: 2})
    refusal = await refused(first)
    assert refusal.code == "ROW_LOCK_CONFLICT"
    assert "[5]" in refusal.message
    assert commit.transaction.hex() in refusal.message
    await behind  # it waited for the claim alone
    also = bench.write(2, {5: 1})
    await asyncio.sleep(TURNS)
    await bench.write(2, {6: 3})  # nothing claims it any more
    assert (await refused(also)).code == "ROW_LOCK_CONFLICT"
    await commit.decide()
    await commit.finish()
    await bench.write(2, {5: 4})
    assert await bench.read_all(2) == {5: 4, 6: 3}


@on_bench
async def test_a_lock_that_follows_another_does_not_make_a_write_wait_longer(bench: CommitBench) -> None:
    first = await prepared(bench)
    waiting = bench.write(2, {5: 1})
    await asyncio.sleep(3)
    bench.engines[1].faults.hold()
    in_flight = bench.write(2, {9: 9})
    second = CommitByHand(bench, "two", {1: {8: 1}, 2: {5: 2}})
    entering = await is_waiting(bench, second.enter())
    finishing = bench.participant(2).finish(first.transaction, None)  # before the part, which finds no lock then
    bench.engines[1].faults.release()
    await in_flight
    await finishing
    await entering
    assert second.refusals() == []
    await second.prepare()
    with pytest.raises(TableError) as found:
        await waiting
    assert asyncio.get_running_loop().time() < LOCK_WAIT_S + 1
    assert second.transaction.hex() in found.value.message
    first.leave()


@on_bench
async def test_a_write_to_two_tablets_waits_for_the_lock_in_one_and_neither_queue_does(bench: CommitBench) -> None:
    commit = await CommitByHand(bench, "one", {2: {5: 50}, 1: {5: 10}}).until_prepared()
    waiting = bench.write_both({5: 1}, {5: 1})
    behind = bench.write(0, {5: 2})  # of a key that the write to both claims here
    await bench.write(0, {6: 1})
    await bench.write(1, {6: 1})
    await asyncio.sleep(TURNS)
    assert not waiting.done()
    assert not behind.done()
    part = CommitByHand(bench, "two", {0: {7: 7}, 1: {7: 7}})
    await part.run()
    timestamp = await commit.decide()
    await commit.finish()
    assert await waiting > timestamp
    await behind
    assert await bench.read_all(0) == {5: 2, 6: 1, 7: 7}
    assert await bench.read_all(1) == {5: 1, 6: 1, 7: 7}


@on_bench
async def test_writes_that_continue_and_commits_of_several_tablets_do_not_wait_in_a_circle(bench: CommitBench) -> None:
    commit = await CommitByHand(bench, "one", {2: {5: 50}, 1: {5: 10}}).until_prepared()
    waiting = bench.write_both({5: 1}, {5: 1})
    await asyncio.sleep(TURNS)
    blocker = CommitByHand(bench, "two", {0: {1: 1}})
    await blocker.enter()
    both = CommitByHand(bench, "three", {1: {2: 2}, 0: {2: 2}})
    running = asyncio.ensure_future(both.enter())  # holds in tablet 1, waits in tablet 0
    await asyncio.sleep(TURNS)
    finishing = bench.participant(1).finish(commit.transaction, None)
    await asyncio.sleep(TURNS)
    assert not finishing.done()  # the part that holds keeps it out, and must not wait for it
    await blocker.decide()
    await running
    await both.decide()
    await finishing
    commit.leave()
    assert await waiting > both.timestamp  # type: ignore[operator]


@on_bench
async def test_writes_that_wait_for_a_lock_fail_when_their_tablet_is_lost(bench: CommitBench) -> None:
    commit = await CommitByHand(bench, "one", {2: {5: 50}, 1: {5: 10}}).until_prepared()
    both, behind = bench.write_both({5: 1}, {5: 1}), bench.write(0, {5: 2})
    await asyncio.sleep(TURNS)
    bench.tablets[1].lose()
    with pytest.raises(StoreFailed):
        await both
    await behind  # it waited for the claim alone
    commit.leave()
    bench.crash(0)
    await bench.reopen(0)
    in_doubt = bench.write(1, {5: 3})
    await asyncio.sleep(TURNS)
    assert not in_doubt.done()
    await bench.participant(1).finish(commit.transaction, None)
    await in_doubt


@on_bench
async def test_a_start_in_a_cell_that_is_lost_leaves_all_that_is_stored_to_the_next_one(bench: CommitBench) -> None:
    commit = await CommitByHand(bench, "one", {2: {5: 50}, 1: {5: 10}}).until_prepared()
    lost = bench.cells[0].storage(TabletId(FIRST_ID + 1))
    bench.crash(0)
    with pytest.raises(ShardLost):
        await bench.tablets[1].start(lost)
    assert not bench.tablets[1].is_serving
    await bench.reopen(0)
    assert bench.participant(1).is_known
    assert list(bench.participant(1).prepared) == [commit.transaction]
    await bench.participant(1).finish(commit.transaction, None)
    commit.leave()


# Readers


@on_bench
async def test_readers_do_not_wait_for_rows_that_are_not_decided(bench: CommitBench) -> None:
    commit = await prepared(bench)
    before = bench.last
    assert await bench.read(2, 5) is None
    assert await bench.read(2, 5, before) is None
    assert await bench.read_all(2, before) == {}
    await commit.decide()
    assert await bench.read(2, 5, before) is None
    await commit.finish()


@on_bench
async def test_readers_wait_from_the_turn_in_which_the_timestamp_is_given(bench: CommitBench) -> None:
    commit = await prepared(bench)
    bench.engines[0].faults.hold()
    deciding = asyncio.ensure_future(commit.decide())
    await asyncio.sleep(TURNS)
    assert commit.timestamp is not None
    now = await is_waiting(bench, bench.read(2, 5))
    at = await is_waiting(bench, bench.read_all(2, commit.timestamp))
    home = await is_waiting(bench, bench.read_all(0, commit.timestamp))
    assert await bench.read(2, 6) is None  # another key
    assert await bench.read(2, 5, commit.timestamp - 1) is None
    assert await bench.read(0, 5) is None  # beside the home nothing is acknowledged yet
    bench.engines[0].faults.release()
    await deciding
    await commit.finish()
    assert (await now, await at, await home) == (50, {5: 50}, {5: 10})


@on_bench
async def test_lookups_wait_for_rows_in_doubt_and_are_refused_in_the_end(bench: CommitBench) -> None:
    commit = await prepared(bench)
    least = bench.participant(2).prepared[commit.transaction].least_timestamp
    commit.leave()
    bench.crash(1)
    await bench.reopen(1)
    bench.participant(2).waits_for = "cell 7"
    assert await bench.read(2, 5, least) is None
    assert await bench.read(2, 6, least + 1) is None
    refusals = await asyncio.gather(
        refused(bench.read(2, 5)), refused(bench.read(2, 5, least + 1)), refused(bench.read_all(2, least + 1)),
        refused(locate_inputs(bench.tablets[2], least + 1, [(b"", None)])),
    )
    for refusal in refusals:
        assert refusal.code == "ROW_LOCKED"
        assert "Timed out waiting on blocked row [5]" in refusal.message
        assert commit.transaction.hex() in refusal.message
        assert "cell 7" in refusal.message
    waiting = await is_waiting(bench, bench.read(2, 5))
    await bench.participant(2).finish(commit.transaction, None)
    assert await waiting is None


@on_bench
async def test_a_reader_that_waits_is_refused_when_the_tablet_is_lost(bench: CommitBench) -> None:
    commit = await prepared(bench)
    await commit.decide()
    waiting = await is_waiting(bench, bench.read(2, 5))
    bench.crash(1)
    with pytest.raises(TableError) as found:
        await waiting
    assert found.value.code == "TABLET_NOT_OPEN"


@on_bench
async def test_other_keys_are_seen_as_acknowledged_beside_locked_ones(bench: CommitBench) -> None:
    commit = await prepared(bench)
    timestamp = await commit.decide()
    await bench.write(2, {6: 6})
    bench.engines[1].faults.hold()
    finishing = asyncio.ensure_future(commit.finish())
    await asyncio.sleep(TURNS)
    assert await bench.read(2, 6) == 6
    assert bench.tablets[2].visible > timestamp
    bench.engines[1].faults.release()
    await finishing


# Clean-up and facts


@on_bench
async def test_no_clean_up_passes_prepared_rows(bench: CommitBench) -> None:
    commit = await prepared(bench)
    tablet = bench.tablets[2]
    least = bench.participant(2).prepared[commit.transaction].least_timestamp
    await asyncio.sleep(1)
    await bench.write(2, {6: 6})
    assert tablet.barrier <= least
    assert tablet.stores_now().barrier <= least
    assert tablet.unfinished_timestamp <= least
    bench.crash(1)
    await bench.reopen(1)
    assert tablet.barrier <= least
    await bench.participant(2).finish(commit.transaction, None)
    assert tablet.barrier == bench.last + 1
    assert tablet.unfinished_timestamp == TIMESTAMP_MAX
    commit.leave()
    home = CommitByHand(bench, "two", {0: {1: 1}})
    await home.enter()
    assert bench.tablets[0].barrier == bench.last + 1
    bench.engines[0].faults.hold()
    deciding = asyncio.ensure_future(home.decide())
    await asyncio.sleep(TURNS)
    await bench.write(2, {7: 7})
    assert bench.tablets[0].barrier == home.timestamp
    bench.engines[0].faults.release()
    await deciding


def test_the_retained_timestamp_does_not_pass_prepared_rows() -> None:
    async def story(bench: CommitBench) -> None:
        tablet = bench.tablets[2]
        bench.background.start()
        await bench.write(2, {4: 1})
        commit = await prepared(bench)
        least = bench.participant(2).prepared[commit.transaction].least_timestamp
        for value in range(6):  # flushes that leave versions out
            await asyncio.sleep(1)
            await bench.write(2, {4: value})
            tablet.rotate()
            bench.background.look_soon()
        await asyncio.sleep(2)
        assert 0 < tablet.facts.retained_timestamp <= least
        assert tablet.cleaned_timestamp <= least
        await bench.participant(2).finish(commit.transaction, None)
        commit.leave()
        await bench.write(2, {4: 9})
        await bench.flush(2)
        assert tablet.facts.retained_timestamp > least

    play(story, {"min_data_ttl": 0, "merge_rows_on_flush": True})


@on_bench
async def test_a_store_has_the_least_timestamp_though_it_came_last(bench: CommitBench) -> None:
    commit = await prepared(bench)
    timestamp = await commit.decide()
    later = await bench.write(2, {6: 6, 7: 7})
    await commit.finish()
    tablet = bench.tablets[2]
    for _ in "12":
        assert (tablet.active.least_timestamp, tablet.active.greatest_timestamp) == (timestamp, later)
        assert (await bench.read(2, 5, timestamp), await bench.read(2, 6, timestamp)) == (50, None)
        bench.crash(1)
        await bench.reopen(1)
    await bench.flush(2)
    (chunk,) = tablet.structure.chunks.values()
    assert (chunk.record.least_timestamp, chunk.record.greatest_timestamp) == (timestamp, later)
    assert await bench.read_all(2, timestamp) == {5: 50}
    assert await bench.read_all(2, later) == {5: 50, 6: 6, 7: 7}


# Unmounts


@on_bench
async def test_a_flush_and_an_unmount_wait_for_prepared_rows(bench: CommitBench) -> None:
    commit = await prepared(bench)
    await commit.decide()
    tablet = bench.tablets[2]
    assert tablet.has_unflushed
    flushing = await is_waiting(bench, bench.flush(2))
    await commit.finish()
    await flushing
    assert len(tablet.structure.chunks) == 1
    again = await prepared(bench, "two")
    unmounting = await is_waiting(bench, tablet.unmount())
    await again.decide()
    await again.finish()
    await unmounting
    assert not tablet.is_mounted


@on_bench
async def test_a_flush_of_before_an_unmount_names_nothing_after_the_next_mount(bench: CommitBench) -> None:
    tablet = bench.tablets[2]
    await bench.write(2, {5: 5})
    store, kv = tablet.active, tablet.kv
    await tablet.unmount()
    tablet.mount()
    await tablet.mounted()
    await bench.write(2, {6: 6})
    with pytest.raises(CommitRefused, match="mounted again"):
        await tablet.name_flushed(kv, store, [], None)
    await bench.restart_tablet(2)
    await tablet.mounted()
    assert (await bench.read(2, 5), await bench.read(2, 6)) == (5, 6)


@on_bench
async def test_a_flush_that_begins_while_an_unmount_waits_has_ended_when_it_is_done(bench: CommitBench) -> None:
    commit = await prepared(bench)
    tablet = bench.tablets[2]
    unmounting = await is_waiting(bench, tablet.unmount())
    left: list[bool] = []

    async def leave(_: SortedTablet) -> None:
        left.append(tablet.takes_tasks)

    bench.share.leave = leave
    await commit.decide()
    await commit.finish()
    await unmounting
    assert left == [False]


@on_bench
async def test_an_unmount_that_waits_too_long_is_refused_and_the_tablet_serves(bench: CommitBench) -> None:
    commit = await prepared(bench)
    bench.participant(2).waits_for = "tablet 0 of t"
    for waiting in (bench.tablets[2].unmount(), bench.flush(2)):
        refusal = await refused(waiting)
        assert refusal.code == "TRANSACTION_UNDER_WAY"
        assert commit.transaction.hex() in refusal.message
        assert "waits for" in refusal.message or "wait for tablet 0 of t" in refusal.message
    assert bench.tablets[2].is_serving
    await bench.write(2, {6: 6})
    await commit.decide()
    await commit.finish()
    assert await bench.read(2, 5) == 50


@on_bench
async def test_an_unmount_beside_a_part_that_becomes_prepared_waits_for_it(bench: CommitBench) -> None:
    commit = CommitByHand(bench, "one", {0: {5: 10}, 2: {5: 50}})
    await commit.enter()
    tablet = bench.tablets[2]
    unmounting = await is_waiting(bench, tablet.unmount())
    await commit.prepare()  # it was asked for its refusal before
    await asyncio.sleep(TURNS)
    assert tablet.is_mounted
    await commit.decide()
    await commit.finish()
    await unmounting
    assert not tablet.is_mounted


@on_bench
async def test_what_ends_a_tablet_waits_for_decisions_that_others_wait_for(bench: CommitBench) -> None:
    commit = await prepared(bench)
    await commit.decide()
    home = bench.tablets[0]
    refusal = await refused(home.end_transactions(with_decisions=True))
    assert refusal.code == "TRANSACTION_UNDER_WAY"
    assert "1 other participants" in refusal.message
    assert not home.writes.is_held
    ending = await is_waiting(bench, home.end_transactions(with_decisions=True))
    await commit.finish()
    await ending
    assert home.writes.is_held
    waiting = bench.write(0, {1: 1})
    await asyncio.sleep(TURNS)
    assert not waiting.done()
    home.resume_writes()
    await waiting
    await home.unmount()
