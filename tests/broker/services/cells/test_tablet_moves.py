"""Moves of tablets between cells, step by step: what waits, what is refused, what is lost, and what a move leaves."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from typing import Any

import pytest

from pqbroker.broker.services.cells.move_history import MOVES_KEPT, MoveRecord, MoveStep
from pqbroker.broker.services.cells.tablet_moves import TabletMoves
from pqbroker.pq.serving.topic_owner import TopicOwner
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.storage.blobs.blob_storage import Blocked
from pqbroker.storage.bundles.bundle import BundleRefused
from pqbroker.storage.engine import CommitRefused, ShardLost
from pqbroker.storage.ids import SYSTEM_CELL, CellId, TabletId
from pqbroker.storage.kv.commands import Write
from pqbroker.storage.kv.tablet_copy import TabletCopy
from tests.broker.conftest import until
from tests.broker.services.cells.memory_cells import CONFIG, ONE, TWO, MemoryCells, memory_cells
from tests.pq.rig import START_MS, batch, read_all, transactional
from tests.pq.serving.transacting import head, part, prepare, transaction

TIMEOUT_S = 10


@pytest.fixture
async def cells() -> AsyncIterator[MemoryCells]:
    """Topic t has a tablet in each of the cells 1 and 2, and a record in each."""
    async with memory_cells(MemoryCells()) as made:
        await made.opened.topics.create("t", 2, CONFIG)
        assert made.topic.record.cells == (ONE, TWO)
        for index in (0, 1):
            await made.partition(index).write(*batch(b"%d" % index))
        yield made


def moves(cells: MemoryCells) -> TabletMoves:
    return TabletMoves(cells.opened.cells, lambda: 7)


def first(cells: MemoryCells) -> TabletId:
    return cells.topic.record.tablets[0]


async def move(cells: MemoryCells) -> None:
    """The first tablet into cell 2."""
    await asyncio.wait_for(moves(cells).move(cells.owner, first(cells), TWO), TIMEOUT_S)


def begun(cells: MemoryCells) -> "asyncio.Task[None]":
    return asyncio.create_task(move(cells))


async def test_one_tablet_moves_and_the_others_stay(cells: MemoryCells) -> None:
    await cells.opened.topics.grow("t", 3)
    assert cells.topic.record.cells == (ONE, TWO, ONE)
    before = cells.partition().leader_epoch
    await move(cells)
    assert cells.topic.record.cells == (TWO, TWO, ONE)
    assert cells.partition().leader_epoch > before
    assert cells.host(ONE).tablet(first(cells)) is None
    assert not await cells.holds(ONE, first(cells))
    await cells.partition().write(*batch(b"later"))
    assert await cells.values() == [b"0", b"later"]


async def test_open_and_aborted_kafka_transactions_move_along(cells: MemoryCells) -> None:
    before = cells.partition()
    for number in range(2):
        await before.write(*transactional(b"%d" % number, producer=(7, 0, number)))
        if not number:
            await before.end_transaction(7, 0, 5, is_commit=False)
    await move(cells)
    moved = cells.partition()
    assert moved is not before
    assert (moved.state.stable_offset, moved.state.transactions.open) == (3, {7: 3})
    assert [span[:3] for span in moved.state.transactions.aborted_between(0, 9)] == [(2, 7, 1)]
    with pytest.raises(KafkaError, match="TRANSACTION_COORDINATOR_FENCED"):
        await moved.end_transaction(7, 0, 4, is_commit=True)
    assert await moved.end_transaction(7, 0, 5, is_commit=True) == 4
    with pytest.raises(KafkaError, match="NOT_LEADER"):
        await before.end_transaction(7, 0, 5, is_commit=True)


async def test_a_topic_whose_tablets_are_all_in_the_system_cell_again_names_no_cells(cells: MemoryCells) -> None:
    await cells.opened.topics.create("s", 2, {"pq.partitions.per.tablet": "1"})
    topic = cells.opened.topics.get("s")
    assert topic is not None
    system = SYSTEM_CELL
    steps = ((0, ONE, (ONE, system)), (1, ONE, (ONE, ONE)), (0, system, (system, ONE)), (1, system, ()))
    for number, cell, homes in steps:
        await moves(cells).move(cells.opened.topics.owner_of(topic), topic.record.tablets[number], cell)
        assert topic.record.cells == homes


async def test_a_write_that_waits_for_a_move_fails_when_the_scheme_is_lost(cells: MemoryCells) -> None:
    """Which of the two tablets counts is not known then."""
    before = cells.partition()
    cells.faults(SYSTEM_CELL).hold()
    moving = begun(cells)
    await until(cells.opened.topics.changes.locked)
    for _ in range(20):
        await asyncio.sleep(0)
    waiting = before.write(*batch(b"waits"))
    cells.engine.crash()
    with pytest.raises(ShardLost):
        await moving
    await asyncio.wait_for(waiting.wait(), TIMEOUT_S)
    with pytest.raises(KafkaError) as refusal:
        waiting.result()
    assert refusal.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert before.is_lost
    await cells.reopen()
    assert await cells.values() == [b"0"]


async def test_a_tablet_whose_old_cell_is_lost_amid_the_decision_is_served_by_its_new_one(
    cells: MemoryCells, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, system, is_asked, name_home = cells.host(ONE), cells.faults(SYSTEM_CELL), asyncio.Event(), TopicOwner.name_home

    def asking(owner: TopicOwner, tablet_id: TabletId, cell: CellId) -> Coroutine[Any, Any, None]:
        is_asked.set()
        return name_home(owner, tablet_id, cell)

    monkeypatch.setattr(TopicOwner, "name_home", asking)
    system.hold()
    moving = begun(cells)
    await asyncio.wait_for(is_asked.wait(), TIMEOUT_S)
    cells.engine_of(ONE).crash()
    await until(lambda: old.tablet(first(cells)) is None)
    system.release()
    await moving
    assert cells.topic.record.cells == (TWO, TWO)
    await cells.partition().write(*batch(b"later"))
    assert await cells.values() == [b"0", b"later"]


async def test_a_move_that_the_scheme_refuses_leaves_the_tablet_where_it_was(cells: MemoryCells) -> None:
    kv, generation = cells.topic.tablets[first(cells)].kv, cells.host(ONE).cell.tablets()[first(cells)].generation
    cells.faults(SYSTEM_CELL).refuse_next()
    moving = begun(cells)
    await until(cells.opened.topics.changes.locked)
    waiting = cells.partition().write(*batch(b"waits"))
    with pytest.raises(CommitRefused):
        await moving
    await waiting
    assert await cells.values() == [b"0", b"waits"]
    assert cells.topic.record.cells == (ONE, TWO)
    assert cells.host(ONE).cell.tablets()[first(cells)].generation == generation + 1
    with pytest.raises(Blocked):
        await kv.execute([Write(b"k", [b"late"], 4)])
    assert not await cells.holds(TWO, first(cells))


async def test_moves_are_kept_with_what_came_of_them(cells: MemoryCells) -> None:
    moving = moves(cells)
    cells.faults(SYSTEM_CELL).refuse_next()
    with pytest.raises(CommitRefused):
        await moving.move(cells.owner, first(cells), TWO)
    begun_move = asyncio.create_task(moving.move(cells.owner, first(cells), TWO))
    await until(lambda: len(moving.history.running) > 0)
    assert moving.history.running[0].ended_ms is None
    await begun_move
    assert [(one.step, one.ended_ms, bool(one.failure)) for one in moving.history.ended] == [
        (MoveStep.DONE, 7, False), (MoveStep.FAILED, 7, True),
    ]  # fmt: skip
    assert moving.history.running == []
    for _ in range(MOVES_KEPT):
        record = MoveRecord(1, "t", ONE, TWO, 0)
        moving.history.begin(record)
        moving.history.end(record, MoveStep.LEFT, 1)
    assert {one.step for one in moving.history.ended} == {MoveStep.LEFT}


@pytest.mark.parametrize("after", range(4))
async def test_a_move_that_the_other_cell_refuses_leaves_no_copy(cells: MemoryCells, after: int) -> None:
    cells.faults(TWO).refuse_next(after=after)
    try:
        await move(cells)
    except CommitRefused:
        assert not await cells.holds(TWO, first(cells))
        assert cells.topic.record.cells == (ONE, TWO)
    cells.faults(TWO).clear()
    await cells.partition().write(*batch(b"later"))
    assert await cells.values() == [b"0", b"later"]
    await move(cells)
    assert (cells.topic.record.cells, await cells.values()) == ((TWO, TWO), [b"0", b"later"])


async def test_a_blob_that_is_missing_at_the_end_leaves_the_tablet_where_it_was(
    cells: MemoryCells, monkeypatch: pytest.MonkeyPatch
) -> None:
    follow = TabletCopy.follow

    async def lacking(copy: TabletCopy) -> bool:
        return await follow(copy) and not cells.opened.topics.changes.locked()

    monkeypatch.setattr(TabletCopy, "follow", lacking)
    with pytest.raises(BundleRefused, match="cannot be copied: a blob is not there"):
        await move(cells)
    await cells.partition().write(*batch(b"later"))
    assert (cells.topic.record.cells, await cells.values()) == ((ONE, TWO), [b"0", b"later"])
    assert not await cells.holds(TWO, first(cells))


async def test_a_tablet_that_is_restarted_while_it_is_copied_is_copied_again(
    cells: MemoryCells, monkeypatch: pytest.MonkeyPatch
) -> None:
    follow, restarts = TabletCopy.follow, list[int]()

    async def interrupted(copy: TabletCopy) -> bool:
        is_whole = await follow(copy)
        if not restarts:
            restarts.append(await cells.host(ONE).restart(first(cells)))
            await cells.partition().write(*batch(b"later"))
        return is_whole

    monkeypatch.setattr(TabletCopy, "follow", interrupted)
    await move(cells)
    assert (cells.topic.record.cells, await cells.values()) == ((TWO, TWO), [b"0", b"later"])


async def test_a_tablet_that_is_removed_while_it_is_copied_leaves_no_copy(cells: MemoryCells) -> None:
    tablet_id = first(cells)
    cells.faults(TWO).hold()
    moving = begun(cells)
    for _ in range(20):
        await asyncio.sleep(0)
    await cells.opened.topics.delete("t")
    cells.faults(TWO).release()
    await moving
    assert not await cells.holds(TWO, tablet_id)


async def test_a_topic_that_is_gone_has_nothing_to_move(cells: MemoryCells) -> None:
    topic, tablet_id = cells.topic, first(cells)
    await cells.opened.topics.delete("t")
    await cells.opened.topics.create("t", 2, CONFIG)
    await moves(cells).move(cells.opened.topics.owner_of(topic), tablet_id, TWO)
    assert not await cells.holds(TWO, tablet_id)


@pytest.mark.parametrize("is_removed", [True, False])
async def test_what_an_earlier_move_left_is_removed_first(cells: MemoryCells, *, is_removed: bool) -> None:
    cells.faults(SYSTEM_CELL).refuse_next()
    with pytest.raises(CommitRefused):
        await move(cells)
    if not is_removed:
        cells.faults(TWO).refuse_next()
        await cells.host(TWO).reclaimed()
        assert first(cells) in cells.host(TWO).cell.tablets()
    await cells.partition().write(*batch(b"later"))
    await move(cells)
    assert (cells.topic.record.cells, await cells.values()) == ((TWO, TWO), [b"0", b"later"])


async def test_a_cell_that_is_lost_takes_no_tablet(cells: MemoryCells) -> None:
    cells.engine_of(TWO).crash()
    with pytest.raises(BundleRefused, match="cell 2 is not open"):
        await moves(cells).move(cells.owner, first(cells), TWO)
    await cells.partition().write(*batch(b"later"))
    assert await cells.values() == [b"0", b"later"]


@pytest.mark.parametrize("timestamp", [1 << 62, None])
async def test_prepared_rows_move_with_their_tablet_and_are_finished_there(
    cells: MemoryCells, timestamp: int | None
) -> None:
    await cells.opened.commits.stop()  # it would drop rows whose home is nowhere
    await prepare(part(cells.partition(), lambda: START_MS, b"a", bytes(5000), prepared=head()))
    waiting = cells.partition().write(*batch(b"later"))
    await move(cells)
    with pytest.raises(KafkaError, match="are prepared here") as refusal:
        await waiting
    assert refusal.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    await cells.partition().transactions.finish(transaction(1), timestamp)
    await cells.partition().write(*batch(b"later"))
    found = [value for _, value in await read_all(cells.partition())]
    assert found == [b"0", *([b"a", bytes(5000)] if timestamp else []), b"later"]
