"""The base tablet: tables against dicts, through snapshots, refusals and a crash at any commit."""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pqbroker.storage.basetablet import PART_BYTES_MAX, TURN_BYTES, BaseTablet
from pqbroker.storage.blobid import BlobId, tablet_bounds
from pqbroker.storage.cells.cell import Cell
from pqbroker.storage.engine import CommitRefused, ShardLost
from pqbroker.storage.memory import MemoryEngine
from pqbroker.storage.tables import Key, Row, TableError, Transaction
from pqbroker.storage.tablet import TabletType

TABLET = 7
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
        return {name: {key: dict(row) for key, row in table} for name, table in self.tablet.tables.items()}

    def check(self, model: Model) -> None:
        assert self.contents() == model
        assert self.told == {(name, key): row for name, table in model.items() for key, row in table.items()}

    async def blobs(self) -> list[BlobId]:
        await self.tablet.stop()
        return await self.stored()

    async def stored(self) -> list[BlobId]:
        stored = self.cell.storage(TABLET).stored_blobs(*tablet_bounds(TABLET))
        return [BlobId.from_key(key) async for key, _ in stored]


def _plan(todo: list[Change]) -> Callable[[Transaction], None]:
    def plan(transaction: Transaction) -> None:
        for kind, table, key, row in todo:
            if kind == "put":
                transaction.put(table, key, row)
            elif kind == "delete":
                transaction.delete(table, key)
            elif kind == "create":
                transaction.create_table(table, [("name", "str"), ("number", "int")], ["x", "y"])
            elif kind == "drop":
                transaction.drop_table(table)
            else:
                transaction.alter_table(table, ["x"] if kind == "narrow" else ["x", "y"])

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
    tables = Tables(MemoryEngine(1 << 26))
    await tables.open()
    model: Model = {"a": {}}
    narrow = False
    await tables.tablet.transact(_plan([("create", "a", None, None)]))
    for todos, ending in plan:
        await tables.tablet.stop()
        if ending == "refuse":
            tables.engine.faults.refuse_next()
        refusals = int(ending == "refuse")
        if ending == "crash":
            tables.engine.faults.lose_next(after=2)
        outcomes = await asyncio.gather(
            *(tables.tablet.transact(_plan(todo)) for todo in todos), return_exceptions=True
        )
        for todo, outcome in zip(todos, outcomes, strict=True):
            try:
                after, narrowed = _apply(model, narrow, todo)
            except KeyError:
                assert isinstance(outcome, TableError)
                continue
            if refusals:
                assert isinstance(outcome, CommitRefused)
                refusals -= 1
                continue
            if ending == "crash" and isinstance(outcome, ShardLost):
                break
            assert outcome is None
            model, narrow = after, narrowed
        tables.check(model)
        if ending in ("crash", "restart") or refusals:
            await tables.tablet.stop()
            await tables.open()
            tables.check(model)
    await tables.tablet.stop()


@settings(max_examples=100, deadline=None)
@given(steps)
def test_tables_are_what_was_committed_whatever_happens(plan: list[tuple[list[list[Change]], str]]) -> None:
    asyncio.run(_run(plan))


@pytest.fixture
async def tables() -> Tables:
    opened = Tables(MemoryEngine(1 << 26))
    await opened.open()
    await opened.tablet.transact(_plan([("create", "a", None, None)]))
    return opened


def _put(number: int, value: Any = 0) -> Callable[[Transaction], None]:
    return lambda transaction: transaction.put("a", ("k", number), {"x": value})


async def test_the_log_is_channel_0_and_a_snapshot_channel_1_replaces_what_is_before_it(tables: Tables) -> None:
    for number in range(2):
        await tables.tablet.transact(_put(number))
    assert [blob.channel for blob in await tables.blobs()] == [0, 0, 0]
    await tables.tablet.transact(_put(2))
    log, part = await tables.blobs()
    assert (log.channel, part.channel, log.step) == (0, 1, part.step + 1)
    for number in range(3, 9):
        await tables.tablet.transact(_put(number))
    assert [blob.channel for blob in await tables.blobs()] == [0, 1]
    await tables.open()
    assert list(tables.contents()["a"]) == [("k", number) for number in range(9)]


async def test_tables_and_columns_come_and_go_while_the_tablet_runs(tables: Tables) -> None:
    row = {"x": 1, "y": 2}
    await tables.tablet.transact(_plan([("create", "b", None, None), ("put", "b", ("k", 1), row)]))
    await tables.tablet.transact(lambda transaction: transaction.alter_table("b", ["y", "z"]))
    assert tables.contents()["b"] == {("k", 1): {"y": 2}}
    with pytest.raises(TableError, match="no column x"):
        await tables.tablet.transact(_plan([("put", "b", ("k", 2), row)]))
    await tables.tablet.transact(lambda transaction: transaction.put("b", ("k", 2), {"z": ["any", 1]}))
    await tables.open()
    assert tables.contents() == {"a": {}, "b": {("k", 1): {"y": 2}, ("k", 2): {"z": ["any", 1]}}}
    await tables.tablet.transact(_plan([("drop", "b", None, None)]))
    await tables.open()
    assert tables.contents() == {"a": {}}


@pytest.mark.parametrize("commits", range(20))
async def test_a_crash_at_any_commit_loses_nothing_that_was_acknowledged(tables: Tables, commits: int) -> None:
    tables.engine.faults.lose_next(after=commits)
    acknowledged: Model = tables.contents()
    for number in range(12):
        try:
            await tables.tablet.transact(_put(number))
        except ShardLost:
            break
        acknowledged = tables.contents()
    await tables.tablet.stop()
    await tables.open()
    assert tables.contents() == acknowledged
    for number in range(3):
        await tables.tablet.transact(_put(99 + number))
    assert ("k", 101) in tables.contents()["a"]
    channels = [blob.channel for blob in await tables.blobs()]
    assert channels in ([0, 1], [0, 0, 1], [0, 0, 0, 1]), "one snapshot, and the log since"


async def test_a_start_collects_what_a_crash_left_behind_the_barrier(tables: Tables) -> None:
    for number in range(2):
        await tables.tablet.transact(_put(number))
    tables.engine.faults.lose_next(after=2)
    await tables.tablet.transact(_put(2))
    await tables.tablet.stop()
    await tables.open()
    assert [blob.channel for blob in await tables.blobs()] == [0, 1]


async def test_a_snapshot_of_no_tables_replaces_the_log_too(tables: Tables) -> None:
    await tables.tablet.transact(lambda transaction: transaction.drop_table("a"))
    for _ in range(3):
        await tables.tablet.transact(_plan([("create", "b", None, None), ("drop", "b", None, None)]))
    assert [blob.channel for blob in await tables.blobs()] == [0, 0]
    await tables.open()
    assert tables.contents() == {}


async def test_a_snapshot_outlives_the_refusal_of_the_log_blob_behind_it(tables: Tables) -> None:
    for number in range(2):
        await tables.tablet.transact(_put(number))
    tables.engine.faults.hold()
    refused = asyncio.ensure_future(tables.tablet.transact(_put(2)))
    await asyncio.sleep(0)
    tables.engine.faults.release()
    while not (parts := [blob for blob in await tables.stored() if blob.channel == 1]):  # noqa: ASYNC110
        await asyncio.sleep(0)
    tables.engine.faults.refuse_next()
    with pytest.raises(CommitRefused):
        await refused
    await tables.tablet.transact(_put(3))
    assert (await tables.blobs())[1:] == parts
    await tables.open()
    assert list(tables.contents()["a"]) == [("k", 0), ("k", 1), ("k", 3)]


async def _turns(work: Coroutine[Any, Any, None]) -> int:
    """How often the loop turns until the work is done."""
    turns = 0
    task = asyncio.ensure_future(work)
    while not task.done():
        await asyncio.sleep(0)
        turns += 1
    await task
    return turns


async def test_the_loop_turns_while_a_snapshot_is_made_and_while_it_is_read(tables: Tables) -> None:
    await tables.tablet.transact(_plan([("put", "a", ("k", number), {"x": bytes(100)}) for number in range(2000)]))
    await tables.tablet.transact(_put(2))
    assert await _turns(tables.tablet.transact(_put(3))) > 2000 * 100 // TURN_BYTES
    await tables.tablet.stop()
    again = BaseTablet(tables.cell.storage(TABLET))
    assert await _turns(again.start()) > 2000 * 100 // TURN_BYTES
    assert again.tables["a"].get(("k", 3)) == {"x": 0}
    assert len(again.tables["a"]) == 2000


@pytest.mark.parametrize("commits", range(14))
async def test_a_crash_between_the_parts_of_a_snapshot_loses_nothing(
    tables: Tables, monkeypatch: pytest.MonkeyPatch, commits: int
) -> None:
    monkeypatch.setattr("pqbroker.storage.basetablet.PART_BYTES_MAX", 1000)
    for number in range(2):
        await tables.tablet.transact(_put(number, bytes(900)))
    tables.engine.faults.lose_next(after=commits)
    acknowledged = tables.contents()
    with contextlib.suppress(ShardLost):
        for number in range(2, 6):
            await tables.tablet.transact(_put(number, bytes(900)))
            acknowledged = tables.contents()
    await tables.tablet.stop()
    await tables.open()
    assert tables.contents() == acknowledged
    for number in range(3):
        await tables.tablet.transact(_put(10 + number))
    parts = [blob for blob in await tables.blobs() if blob.channel == 1]
    assert len(parts) == -(-sum(blob.size for blob in parts) // 1000), "of one snapshot only"


async def test_a_large_snapshot_is_cut_into_parts(tables: Tables) -> None:
    value = bytes(PART_BYTES_MAX // 2)
    for number in range(3):
        await tables.tablet.transact(_put(number, value))
    parts = [blob.size for blob in await tables.blobs() if blob.channel == 1]
    assert PART_BYTES_MAX in parts
    assert max(parts) == PART_BYTES_MAX
    before = tables.contents()
    await tables.open()
    assert tables.contents() == before


async def test_a_transaction_above_the_largest_blob_is_refused(tables: Tables) -> None:
    with pytest.raises(TableError, match="bytes"):
        await tables.tablet.transact(_put(1, bytes(PART_BYTES_MAX)))
    await tables.tablet.transact(_put(2))
    assert list(tables.contents()["a"]) == [("k", 2)]


async def test_what_a_plan_raises_passes_through_and_the_next_one_runs(tables: Tables) -> None:
    def plan(transaction: Transaction) -> None:
        transaction.put("a", ("k", 1), {})
        raise LookupError("of the plan's own")

    with pytest.raises(LookupError):
        await tables.tablet.transact(plan)
    await tables.tablet.transact(_put(2))
    assert list(tables.contents()["a"]) == [("k", 2)]


async def test_a_plan_sees_what_was_planned_before_it(tables: Tables) -> None:
    def count(transaction: Transaction) -> int:
        number = len(transaction.tables["a"])
        transaction.put("a", ("k", number), {})
        return number

    assert await asyncio.gather(*(tables.tablet.transact(count) for _ in range(5))) == [0, 1, 2, 3, 4]


async def test_a_cancelled_caller_neither_undoes_its_commit_nor_lets_the_next_plan_miss_it(tables: Tables) -> None:
    tables.engine.faults.hold()
    first = asyncio.ensure_future(tables.tablet.transact(_put(1)))
    await asyncio.sleep(0)
    first.cancel()
    second = asyncio.ensure_future(
        tables.tablet.transact(lambda transaction: len(transaction.tables["a"]))
    )
    await asyncio.wait([first])
    tables.engine.faults.release()
    assert await second == 1


async def test_rows_cannot_be_changed_from_outside_after_the_commit(tables: Tables) -> None:
    value = [1]
    await tables.tablet.transact(_put(1, value))
    value.append(2)
    assert tables.contents()["a"]["k", 1] == {"x": [1]}


@pytest.mark.parametrize(
    "plan",
    [
        lambda transaction: transaction.put("missing", ("k", 1), {}),
        lambda transaction: transaction.delete("missing", ("k", 1)),
        lambda transaction: transaction.drop_table("missing"),
        lambda transaction: transaction.alter_table("missing", []),
        lambda transaction: transaction.put("a", ("k", "1"), {}),
        lambda transaction: transaction.put("a", ("k", True), {}),
        lambda transaction: transaction.put("a", ("k",), {}),
        lambda transaction: transaction.put("a", ("k", 1), {"z": 1}),
        lambda transaction: transaction.create_table("a", [("k", "int")], []),
        lambda transaction: transaction.create_table("n", [], ["x"]),
        lambda transaction: transaction.create_table("n", [("k", "float")], ["x"]),
        lambda transaction: transaction.create_table("n", [("k", "int")], ["k"]),
    ],
)
async def test_a_change_that_does_not_fit_the_tables_is_refused(
    tables: Tables, plan: Callable[[Transaction], None]
) -> None:
    before = tables.contents()
    with pytest.raises(TableError):
        await tables.tablet.transact(plan)
    assert tables.contents() == before
