"""The base tablet: row sets against dicts, through snapshots, refusals and a crash at any commit."""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pqbroker.storage.blobs.blob_id import BlobId, tablet_bounds
from pqbroker.storage.engine import CommitRefused, ShardLost
from pqbroker.storage.ids import TabletId
from pqbroker.storage.memory import MemoryEngine
from pqbroker.storage.tablets.base_tablet import (
    CHAINS_MAX,
    PART_BYTES_MAX,
    TURN_BYTES,
    TURN_OPERATIONS,
    BaseTablet,
)
from pqbroker.storage.tablets.cell import Cell
from pqbroker.storage.tablets.row_sets import Key, Row, RowChanges, RowSetError
from pqbroker.storage.tablets.tablet import TabletType
from tests.support.depth import examples

TABLET = TabletId(7)
Model = dict[str, dict[Key, dict[str, Any]]]
Change = tuple[str, str, Any, Any]

keys = st.tuples(st.sampled_from(("k", "l", "m")), st.integers(0, 2))
rows = st.dictionaries(st.sampled_from(("x", "y")), st.binary(max_size=4) | st.integers() | st.lists(st.text()))
changes = st.one_of(
    st.tuples(st.just("put"), st.sampled_from("ab"), keys, rows),
    st.tuples(st.just("put"), st.sampled_from("ab"), keys, rows),
    st.tuples(st.just("delete"), st.sampled_from("ab"), keys, st.none()),
    st.tuples(st.just("create"), st.just("b"), st.none(), st.none()),
    st.tuples(st.just("drop"), st.just("b"), st.none(), st.none()),
    st.tuples(st.just("narrow"), st.just("a"), st.none(), st.none()),
    st.tuples(st.just("widen"), st.just("a"), st.none(), st.none()),
)
steps = st.lists(
    st.tuples(
        st.lists(st.lists(changes, min_size=1, max_size=4), min_size=1, max_size=3),
        st.sampled_from(("durable", "durable", "refuse", "crash", "restart")),
    ),
    min_size=1,
    max_size=12,
)


class Tables:
    """A base tablet that snapshots every third commit, and what its `changed` was told."""

    def __init__(self, engine: MemoryEngine) -> None:
        self.engine = engine

    async def open(self) -> None:
        self.engine.faults.clear()
        self.told: dict[tuple[str, Key], Row] = {}
        self.cell = await Cell.open(self.engine)
        await self.cell.create_tablets([(TABLET, TabletType.SCHEME, "test")])
        self.tablet = BaseTablet(self.cell.storage(TABLET), changed=self._changed, log_blobs_max=3)
        await self.tablet.start()

    def _changed(self, table: str, key: Key, row: Row | None) -> None:
        if row is None:
            del self.told[table, key]
        else:
            self.told[table, key] = row

    def contents(self) -> Model:
        return {name: {key: dict(row) for key, row in table} for name, table in self.tablet.row_sets.items()}

    def check(self, model: Model) -> None:
        assert self.contents() == model
        assert self.told == {(name, key): row for name, table in model.items() for key, row in table.items()}

    async def blobs(self) -> list[BlobId]:
        await self.tablet.stop()
        return await self.stored()

    async def stored(self) -> list[BlobId]:
        stored = self.cell.storage(TABLET).stored_blobs(*tablet_bounds(TABLET))
        return [BlobId.from_key(key) async for key, _ in stored]


def _plan(todo: list[Change]) -> Callable[[RowChanges], None]:
    def plan(changes: RowChanges) -> None:
        for kind, table, key, row in todo:
            if kind == "put":
                changes.put(table, key, row)
            elif kind == "delete":
                changes.delete(table, key)
            elif kind == "create":
                changes.create_row_set(table, [("name", "str"), ("number", "int")], ["x", "y"])
            elif kind == "drop":
                changes.drop_row_set(table)
            else:
                changes.alter_row_set(table, ["x"] if kind == "narrow" else ["x", "y"])

    return plan


def _apply(model: Model, narrow: bool, todo: list[Change]) -> tuple[Model, bool]:
    """What the changes make of the model, and whether table `a` has lost column `y`. KeyError when they cannot be."""
    after = {name: dict(table) for name, table in model.items()}
    for kind, table, key, row in todo:
        if kind == "put":
            if table == "a" and narrow and "y" in row:
                raise KeyError
            after[table][key] = row
        elif kind == "delete":
            after[table].pop(key, None)
        elif kind == "create":
            if table in after:
                raise KeyError
            after[table] = {}
        elif kind == "drop":
            del after[table]
        else:
            narrow = kind == "narrow"
            after[table] = {
                key: {column: value for column, value in row.items() if column == "x" or not narrow}
                for key, row in after[table].items()
            }
    return after, narrow


async def _run(plan: list[tuple[list[list[Change]], str]]) -> None:
    row_sets = Tables(MemoryEngine(1 << 26))
    await row_sets.open()
    model: Model = {"a": {}}
    narrow = False
    await row_sets.tablet.change(_plan([("create", "a", None, None)]))
    for todos, ending in plan:
        await row_sets.tablet.stop()
        if ending == "refuse":
            row_sets.engine.faults.refuse_next()
        refusals = int(ending == "refuse")
        if ending == "crash":
            row_sets.engine.faults.lose_next(after=2)
        outcomes = await asyncio.gather(
            *(row_sets.tablet.change(_plan(todo)) for todo in todos), return_exceptions=True
        )
        for todo, outcome in zip(todos, outcomes, strict=True):
            if ending == "crash" and isinstance(outcome, ShardLost):
                break
            try:
                after, narrowed = _apply(model, narrow, todo)
            except KeyError:
                assert isinstance(outcome, RowSetError)
                continue
            if refusals:
                refusals -= 1
                if outcome is not None:  # else a snapshot was refused, and comes later
                    assert isinstance(outcome, CommitRefused)
                    continue
            assert outcome is None
            model, narrow = after, narrowed
        row_sets.check(model)
        if ending in ("crash", "restart") or refusals:
            await row_sets.tablet.stop()
            await row_sets.open()
            row_sets.check(model)
    await row_sets.tablet.stop()


@pytest.mark.spec("B.4", "K.2")
@settings(max_examples=examples(100), deadline=None)
@given(steps)
def test_tables_are_what_was_committed_whatever_happens(plan: list[tuple[list[list[Change]], str]]) -> None:
    asyncio.run(_run(plan))


@pytest.fixture
async def row_sets() -> Tables:
    opened = Tables(MemoryEngine(1 << 26))
    await opened.open()
    await opened.tablet.change(_plan([("create", "a", None, None)]))
    return opened


def _put(number: int, value: Any = 0) -> Callable[[RowChanges], None]:
    return lambda changes: changes.put("a", ("k", number), {"x": value})


@pytest.mark.spec("B.4", "K.2")
async def test_the_log_is_channel_0_and_a_snapshot_channel_1_replaces_what_is_before_it(row_sets: Tables) -> None:
    for number in range(2):
        await row_sets.tablet.change(_put(number))
    assert [blob.channel for blob in await row_sets.blobs()] == [0, 0, 0]
    await row_sets.tablet.change(_put(2))
    log, part = await row_sets.blobs()
    assert (log.channel, part.channel, log.step) == (0, 1, part.step + 1)
    for number in range(3, 9):
        await row_sets.tablet.change(_put(number))
    assert [blob.channel for blob in await row_sets.blobs()] == [0, 1]
    await row_sets.open()
    assert list(row_sets.contents()["a"]) == [("k", number) for number in range(9)]


@pytest.mark.spec("K.2")
async def test_tables_and_columns_come_and_go_while_the_tablet_runs(row_sets: Tables) -> None:
    row = {"x": 1, "y": 2}
    await row_sets.tablet.change(_plan([("create", "b", None, None), ("put", "b", ("k", 1), row)]))
    await row_sets.tablet.change(lambda changes: changes.alter_row_set("b", ["y", "z"]))
    assert row_sets.contents()["b"] == {("k", 1): {"y": 2}}
    with pytest.raises(RowSetError, match="no column x"):
        await row_sets.tablet.change(_plan([("put", "b", ("k", 2), row)]))
    await row_sets.tablet.change(lambda changes: changes.put("b", ("k", 2), {"z": ["any", 1]}))
    await row_sets.open()
    assert row_sets.contents() == {"a": {}, "b": {("k", 1): {"y": 2}, ("k", 2): {"z": ["any", 1]}}}
    await row_sets.tablet.change(_plan([("drop", "b", None, None)]))
    await row_sets.open()
    assert row_sets.contents() == {"a": {}}


@pytest.mark.spec("B.4", "K.2")
@pytest.mark.parametrize("commits", range(20))
async def test_a_crash_at_any_commit_loses_nothing_that_was_acknowledged(row_sets: Tables, commits: int) -> None:
    row_sets.engine.faults.lose_next(after=commits)
    acknowledged: Model = row_sets.contents()
    for number in range(12):
        try:
            await row_sets.tablet.change(_put(number))
        except ShardLost:
            break
        acknowledged = row_sets.contents()
    await row_sets.tablet.stop()
    await row_sets.open()
    assert row_sets.contents() == acknowledged
    for number in range(3):
        await row_sets.tablet.change(_put(99 + number))
    assert ("k", 101) in row_sets.contents()["a"]
    channels = [blob.channel for blob in await row_sets.blobs()]
    assert channels in ([0, 1], [0, 0, 1], [0, 0, 0, 1]), "one snapshot, and the log since"


@pytest.mark.spec("B.4", "K.2")
async def test_a_start_collects_what_a_crash_left_behind_the_barrier(row_sets: Tables) -> None:
    for number in range(2):
        await row_sets.tablet.change(_put(number))
    row_sets.engine.faults.lose_next(after=2)
    await row_sets.tablet.change(_put(2))
    await row_sets.tablet.stop()
    await row_sets.open()
    assert [blob.channel for blob in await row_sets.blobs()] == [0, 1]


async def test_a_snapshot_of_no_tables_replaces_the_log_too(row_sets: Tables) -> None:
    await row_sets.tablet.change(lambda changes: changes.drop_row_set("a"))
    for _ in range(3):
        await row_sets.tablet.change(_plan([("create", "b", None, None), ("drop", "b", None, None)]))
    assert [blob.channel for blob in await row_sets.blobs()] == [0, 0]
    await row_sets.open()
    assert row_sets.contents() == {}


async def test_a_snapshot_outlives_the_refusal_of_the_log_blob_behind_it(row_sets: Tables) -> None:
    for number in range(2):
        await row_sets.tablet.change(_put(number))
    row_sets.engine.faults.hold()
    refused = asyncio.ensure_future(row_sets.tablet.change(_put(2)))
    await asyncio.sleep(0)
    row_sets.engine.faults.release()
    while not (parts := [blob for blob in await row_sets.stored() if blob.channel == 1]):  # noqa: ASYNC110
        await asyncio.sleep(0)
    row_sets.engine.faults.refuse_next()
    with pytest.raises(CommitRefused):
        await refused
    await row_sets.tablet.change(_put(3))
    assert (await row_sets.blobs())[1:] == parts
    await row_sets.open()
    assert list(row_sets.contents()["a"]) == [("k", 0), ("k", 1), ("k", 3)]


async def _turns(work: Coroutine[Any, Any, None]) -> int:
    """How often the loop turns until the work is done."""
    turns = 0
    task = asyncio.ensure_future(work)
    while not task.done():
        await asyncio.sleep(0)
        turns += 1
    await task
    return turns


async def test_the_loop_turns_while_a_snapshot_is_made_and_while_it_is_read(row_sets: Tables) -> None:
    await row_sets.tablet.change(_plan([("put", "a", ("k", number), {"x": bytes(100)}) for number in range(2000)]))
    await row_sets.tablet.change(_put(2))
    assert await _turns(row_sets.tablet.change(_put(3))) > 2000 * 100 // TURN_BYTES
    await row_sets.tablet.stop()
    again = BaseTablet(row_sets.cell.storage(TABLET))
    assert await _turns(again.start()) > 2000 * 100 // TURN_BYTES
    assert again.row_sets["a"].get(("k", 3)) == {"x": 0}
    assert len(again.row_sets["a"]) == 2000


async def test_the_loop_turns_while_a_long_log_blob_is_read(row_sets: Tables) -> None:
    todo: list[Change] = [("put", "a", ("k", number), {"x": bytes(100)}) for number in range(2 * TURN_OPERATIONS)]
    await row_sets.tablet.change(_plan(todo))
    await row_sets.tablet.stop()
    again = BaseTablet(row_sets.cell.storage(TABLET))
    assert await _turns(again.start()) > 2 * len(todo) * 100 // TURN_BYTES  # the last blob is read twice
    assert len(again.row_sets["a"]) == len(todo)


async def test_the_loop_turns_while_a_change_of_one_wide_row_is_encoded(row_sets: Tables) -> None:
    before = await _turns(row_sets.tablet.change(_put(2)))
    values = list(range(8 * TURN_BYTES))
    assert await _turns(row_sets.tablet.change(_put(3, values))) >= before + 8
    assert row_sets.contents()["a"][("k", 3)] == {"x": values}


@pytest.mark.parametrize("is_followed", [False, True])
async def test_a_large_change_is_applied_over_several_turns_unless_somebody_follows_it(is_followed: bool) -> None:
    cell, sizes = await Cell.open(MemoryEngine(1 << 26)), list[int]()
    await cell.create_tablets([(TABLET, TabletType.SCHEME, "test")])
    tablet = BaseTablet(cell.storage(TABLET), changed=(lambda *_row: None) if is_followed else None)
    await tablet.start()
    await tablet.change(lambda changes: changes.create_row_set("a", [("k", "int")], ["x"]))

    async def look() -> None:
        while True:
            sizes.append(len(tablet.row_sets["a"]))
            await asyncio.sleep(0)

    def put_all(changes: RowChanges) -> None:
        for number in range(3 * TURN_OPERATIONS):
            changes.put("a", (number,), {"x": None})

    looking = asyncio.create_task(look())
    await tablet.change(put_all)
    looking.cancel()
    assert len(tablet.row_sets["a"]) == 3 * TURN_OPERATIONS
    between = set(sizes) - {0, 3 * TURN_OPERATIONS}
    assert between == (set() if is_followed else {TURN_OPERATIONS, 2 * TURN_OPERATIONS})


@pytest.mark.spec("B.4", "K.2")
@pytest.mark.parametrize("commits", range(14))
async def test_a_crash_between_the_parts_of_a_snapshot_loses_nothing(
    row_sets: Tables, monkeypatch: pytest.MonkeyPatch, commits: int
) -> None:
    monkeypatch.setattr("pqbroker.storage.tablets.base_tablet.PART_BYTES_MAX", 1000)
    for number in range(2):
        await row_sets.tablet.change(_put(number, bytes(900)))
    row_sets.engine.faults.lose_next(after=commits)
    acknowledged = row_sets.contents()
    with contextlib.suppress(ShardLost):
        for number in range(2, 6):
            await row_sets.tablet.change(_put(number, bytes(900)))
            acknowledged = row_sets.contents()
    await row_sets.tablet.stop()
    await row_sets.open()
    assert row_sets.contents() == acknowledged
    for number in range(3):
        await row_sets.tablet.change(_put(10 + number))
    parts = [blob for blob in await row_sets.blobs() if blob.channel == 1]
    assert len(parts) == -(-sum(blob.size for blob in parts) // 1000), "of one snapshot only"


async def test_a_large_snapshot_is_cut_into_parts(row_sets: Tables) -> None:
    value = bytes(PART_BYTES_MAX // 2)
    for number in range(4):
        await row_sets.tablet.change(_put(number, value))
    parts = [blob.size for blob in await row_sets.blobs() if blob.channel == 1]
    assert PART_BYTES_MAX in parts
    assert max(parts) == PART_BYTES_MAX
    before = row_sets.contents()
    await row_sets.open()
    assert row_sets.contents() == before


async def test_snapshots_write_no_more_than_the_changes(
    row_sets: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many rows exist: a snapshot comes when the log has as many bytes as the one before, not sooner."""
    monkeypatch.setattr("pqbroker.storage.tablets.base_tablet.SMALL_SNAPSHOT_BYTES", 1000)
    logged, snapshots = 0, dict[BlobId, int]()
    for number in range(400):
        await row_sets.tablet.change(_put(number, bytes(100)))
        blobs = await row_sets.blobs()
        logged += max(blob for blob in blobs if blob.channel == 0).size
        snapshots |= {blob: blob.size for blob in blobs if blob.channel == 1}
        if number % 150 == 149:
            await row_sets.open()
    assert len(snapshots) > 5
    assert sum(snapshots.values()) <= 1.5 * logged
    before = row_sets.contents()
    await row_sets.open()
    assert row_sets.contents() == before


async def test_a_transaction_above_the_largest_blob_is_refused(row_sets: Tables) -> None:
    with pytest.raises(RowSetError, match="bytes"):
        await row_sets.tablet.change(_put(1, bytes(PART_BYTES_MAX)))
    await row_sets.tablet.change(_put(2))
    assert list(row_sets.contents()["a"]) == [("k", 2)]


async def test_what_a_plan_raises_passes_through_and_the_next_one_runs(row_sets: Tables) -> None:
    def plan(changes: RowChanges) -> None:
        changes.put("a", ("k", 1), {})
        raise LookupError("of the plan's own")

    with pytest.raises(LookupError):
        await row_sets.tablet.change(plan)
    await row_sets.tablet.change(_put(2))
    assert list(row_sets.contents()["a"]) == [("k", 2)]


async def test_nothing_is_decided_by_rows_whose_last_change_may_have_been_stored(row_sets: Tables) -> None:
    """A plan that changes nothing tells its caller what there is."""
    await row_sets.tablet.change(_put(1))
    row_sets.engine.faults.lose_next(stored=True)
    with pytest.raises(ShardLost):
        await row_sets.tablet.change(lambda changes: changes.delete("a", ("k", 1)))
    for _ in range(2):
        with pytest.raises(ShardLost):
            await row_sets.tablet.change(lambda changes: changes.row_sets["a"].get(("k", 1)))


async def test_a_plan_sees_what_was_planned_before_it(row_sets: Tables) -> None:
    def count(changes: RowChanges) -> int:
        number = len(changes.row_sets["a"])
        changes.put("a", ("k", number), {})
        return number

    assert await asyncio.gather(*(row_sets.tablet.change(count) for _ in range(5))) == [0, 1, 2, 3, 4]


async def test_a_cancelled_caller_neither_undoes_its_commit_nor_lets_the_next_plan_miss_it(row_sets: Tables) -> None:
    row_sets.engine.faults.hold()
    first = asyncio.ensure_future(row_sets.tablet.change(_put(1)))
    await asyncio.sleep(0)
    first.cancel()
    second = asyncio.ensure_future(
        row_sets.tablet.change(lambda changes: len(changes.row_sets["a"]))
    )
    await asyncio.wait([first])
    row_sets.engine.faults.release()
    assert await second == 1


async def test_rows_cannot_be_changed_from_outside_after_the_commit(row_sets: Tables) -> None:
    value = [1]
    await row_sets.tablet.change(_put(1, value))
    value.append(2)
    assert row_sets.contents()["a"]["k", 1] == {"x": [1]}


@pytest.mark.parametrize(
    "plan",
    [
        lambda changes: changes.put("missing", ("k", 1), {}),
        lambda changes: changes.delete("missing", ("k", 1)),
        lambda changes: changes.drop_row_set("missing"),
        lambda changes: changes.alter_row_set("missing", []),
        lambda changes: changes.put("a", ("k", "1"), {}),
        lambda changes: changes.put("a", ("k", True), {}),
        lambda changes: changes.put("a", ("k",), {}),
        lambda changes: changes.put("a", ("k", 1), {"z": 1}),
        lambda changes: changes.create_row_set("a", [("k", "int")], []),
        lambda changes: changes.create_row_set("n", [], ["x"]),
        lambda changes: changes.create_row_set("n", [("k", "float")], ["x"]),
        lambda changes: changes.create_row_set("n", [("k", "int")], ["k"]),
    ],
)
async def test_a_change_that_does_not_fit_the_tables_is_refused(
    row_sets: Tables, plan: Callable[[RowChanges], None]
) -> None:
    before = row_sets.contents()
    with pytest.raises(RowSetError):
        await row_sets.tablet.change(plan)
    assert row_sets.contents() == before


async def test_a_held_tablet_is_changed_with_others_and_keeps_later_changes_waiting(row_sets: Tables) -> None:
    held = await row_sets.tablet.hold()
    later = asyncio.ensure_future(row_sets.tablet.change(lambda changes: len(changes.row_sets["a"])))
    batch = held.plan(_put(1))
    await row_sets.cell.storage(TABLET).commit(batch)
    assert not later.done()
    assert row_sets.contents() == {"a": {}}
    held.settle(None)
    assert await later == 1
    expected: Model = {"a": {("k", 1): {"x": 0}}}
    row_sets.check(expected)
    await row_sets.tablet.change(_put(2))
    await row_sets.open()
    assert list(row_sets.contents()["a"]) == [("k", 1), ("k", 2)]


@pytest.mark.parametrize("is_planned", [False, True])
async def test_a_held_tablet_whose_commit_comes_to_nothing_is_as_it_was(row_sets: Tables, is_planned: bool) -> None:
    held = await row_sets.tablet.hold()
    if is_planned:
        held.plan(_put(1))
    held.settle(CommitRefused("nothing was stored"))
    await row_sets.tablet.change(_put(2))
    await row_sets.open()
    assert list(row_sets.contents()["a"]) == [("k", 2)]


async def test_a_held_tablet_stores_a_snapshot_that_is_due(row_sets: Tables) -> None:
    for number in range(8):
        held = await row_sets.tablet.hold()
        batch = held.plan(_put(number))
        if number % 3 == 1:
            row_sets.engine.faults.refuse_next()
            with pytest.raises(CommitRefused):
                await row_sets.cell.storage(TABLET).commit(batch)
            held.settle(CommitRefused("a fault on cue"))
        else:
            await row_sets.cell.storage(TABLET).commit(batch)
            held.settle(None)
    expected = [("k", number) for number in range(8) if number % 3 != 1]
    assert list(row_sets.contents()["a"]) == expected
    await row_sets.open()
    assert list(row_sets.contents()["a"]) == expected


async def test_a_tablet_is_not_held_while_its_snapshot_is_due_and_nobody_may_wait(row_sets: Tables) -> None:
    held = 0
    for number in range(6):
        try:
            (await row_sets.tablet.hold(may_store_snapshot=False)).settle(CommitRefused("nothing to change"))
        except CommitRefused:
            pass
        else:
            held += 1
        await row_sets.tablet.change(_put(number))
    assert held == 4


async def put_while_snapshots_are_refused(row_sets: Tables, count: int) -> list[Key]:
    """Return the keys of the changes that were taken, of `count`: their chain is due for a snapshot already."""
    taken: list[Key] = []
    for number in range(count):
        row_sets.engine.faults.refuse_next()
        try:
            await row_sets.tablet.change(_put(number))
        except CommitRefused:
            pass
        else:
            taken.append(("k", number))
        row_sets.engine.faults.clear()
    return taken


async def test_a_chain_grows_while_no_snapshot_can_be_stored_and_ends_later(row_sets: Tables) -> None:
    for number in range(100, 102):
        await row_sets.tablet.change(_put(number))
    taken = await put_while_snapshots_are_refused(row_sets, 20)
    assert len(taken) > 5
    await row_sets.open()
    assert set(row_sets.contents()["a"]) == {*taken, ("k", 100), ("k", 101)}
    blobs = len(await row_sets.stored())
    for number in range(200, 202):
        await row_sets.tablet.change(_put(number))
    assert len(await row_sets.blobs()) < blobs
    await row_sets.open()
    assert len(row_sets.contents()["a"]) == len(taken) + 4


async def test_a_chain_does_not_grow_for_ever(row_sets: Tables) -> None:
    for number in range(1000, 1002):
        await row_sets.tablet.change(_put(number))
    taken = await put_while_snapshots_are_refused(row_sets, 400)
    assert taken[-1] < ("k", 200)
    assert len(await row_sets.stored()) <= CHAINS_MAX * 3 + 1
    await row_sets.tablet.change(_put(2000))
    await row_sets.open()
    assert len(row_sets.contents()["a"]) == len(taken) + 3
