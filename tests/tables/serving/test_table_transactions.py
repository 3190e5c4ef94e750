"""Transactions beside changes of whole sorted tables: deletion, resharding, mount states, schemas."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import nullcontext
from dataclasses import replace

import pytest

from pqbroker.pq.serving.timestamps import NodeTime, without_scheme
from pqbroker.pq.transactions.stored_forms import CommitDecision, ParticipantId, PreparedHead, TransactionId
from pqbroker.storage.bundles.hive import Hive
from pqbroker.storage.bundles.open_cells import OpenCells
from pqbroker.storage.counters import KeyValueCounters
from pqbroker.storage.ids import TabletId
from pqbroker.storage.memory import MemoryEngine
from pqbroker.storage.tablets.cell import Cell
from pqbroker.storage.tablets.hosting import TabletHost
from pqbroker.storage.tablets.mounted_attributes import MountedAttributes
from pqbroker.storage.tablets.scheme import Scheme
from pqbroker.storage.tablets.scheme_tables import SortedTableRecord
from pqbroker.tables.mount import MountState
from pqbroker.tables.refusals import TableError
from pqbroker.tables.serving.resharding import plan_reshard
from pqbroker.tables.serving.share import SortedShare
from pqbroker.tables.serving.table import SortedTable
from pqbroker.tables.serving.tables import SortedTables
from pqbroker.tables.sorted.schema import read_sorted_schema
from tests.tables.serving.commit_bench import BEGUN_MS, KEY, MORE, SCHEMA, SETTINGS, VALUE, key_of, rows_of

ONE = TransactionId(b"one".ljust(16, b"."))
TWO = TransactionId(b"two".ljust(16, b"."))
SOMEWHERE = ParticipantId(TabletId(99_999))
LIMIT_S = 0.01


class TableBench:
    """A table of two tablets in the system cell, beside its scheme."""

    async def open(self) -> None:
        self.cell = await Cell.open(MemoryEngine(1 << 30))
        host = TabletHost(self.cell)
        hive, scheme = await Hive.open(host), await Scheme.open(host)
        time = NodeTime(lambda: BEGUN_MS, without_scheme())
        self.share = SortedShare(time, SETTINGS, KeyValueCounters(), lock_wait_s=LIMIT_S)
        self.tables = SortedTables(OpenCells(host, hive), scheme, self.share)

    async def close(self) -> None:
        await self.tables.stop()
        await self.cell.close()

    async def create(self, state: MountState = MountState.MOUNTED) -> SortedTable:
        pivots = (b"", key_of(100))
        mounted = MountedAttributes.collect([{}] * len(pivots))
        states = (state.value,) * len(pivots)
        record = SortedTableRecord(
            "t", b"", SCHEMA.documents(), {}, mounted, pivots, states, (), "default", BEGUN_MS
        )  # fmt: skip
        table = await self.tables.create(record)
        for tablet in table.tablets:
            await tablet.mounted()
        return table

    async def set_states(self, table: SortedTable, states: Sequence[MountState]) -> None:
        await self.tables.change(table, lambda record: replace(record, states=tuple(state.value for state in states)))


@pytest.fixture
async def bench() -> AsyncIterator[TableBench]:
    opened = TableBench()
    await opened.open()
    yield opened
    await opened.close()


async def prepare(table: SortedTable, index: int, transaction: TransactionId, key: int) -> None:
    """Have a row prepared whose decision is made elsewhere."""
    part = table.part(index, rows_of({key: 1}), None)
    part.prepares(PreparedHead(transaction, SOMEWHERE, 0, BEGUN_MS))
    turn = asyncio.get_running_loop().create_future()
    part.enter(turn.set_result)
    assert await turn is None
    assert part.refusal() is None
    await part.encode(None)
    await part.participant.kv.execute(part.commands(None))
    await part.told(None)


async def decide(table: SortedTable, index: int, transaction: TransactionId, others: Sequence[ParticipantId]) -> None:
    home = table.tablets[index].transactions
    decision = CommitDecision(transaction, 5, BEGUN_MS, b"d" * 16, 1, others)
    await home.kv.execute([home.decision_command(decision)])
    home.take_decision(decision)


async def test_a_table_with_prepared_rows_is_not_deleted(bench: TableBench) -> None:
    table = await bench.create()
    await prepare(table, 1, ONE, 150)
    with pytest.raises(TableError, match=ONE.hex()) as found:
        await bench.tables.delete(table)
    assert found.value.code == "TRANSACTION_UNDER_WAY"
    assert [tablet.writes.is_held for tablet in table.tablets] == [False, False]
    assert bench.tables.get("t") is table
    await table.tablets[1].transactions.finish(ONE, 7)
    await bench.tables.delete(table)
    assert bench.tables.get("t") is None


async def test_a_table_whose_decisions_others_wait_for_is_not_deleted(bench: TableBench) -> None:
    table = await bench.create()
    await decide(table, 0, ONE, [SOMEWHERE])
    with pytest.raises(TableError, match=r"1 other participants.*tablet 0") as found:
        await bench.tables.delete(table)
    assert found.value.code == "TRANSACTION_UNDER_WAY"
    bench.share.lock_wait_s = 60
    deleting = asyncio.ensure_future(bench.tables.delete(table))
    await asyncio.sleep(0)
    await decide(table, 0, ONE, [])
    await deleting
    assert bench.tables.get("t") is None


async def test_a_reshard_keeps_decisions_and_is_refused_while_others_wait_for_one(bench: TableBench) -> None:
    table = await bench.create(MountState.UNMOUNTED)
    await decide(table, 0, ONE, [])
    await decide(table, 1, TWO, [SOMEWHERE])
    pivots = [b"", key_of(50), key_of(100)]
    with pytest.raises(TableError, match=TWO.hex()) as found:
        plan_reshard(table, 0, 1, pivots)
    assert found.value.code == "TRANSACTION_UNDER_WAY"
    await bench.tables.reshard(table, plan_reshard(table, 0, 0, pivots[:2]), nullcontext())
    kept = [set(tablet.transactions.decisions) for tablet in table.tablets]
    assert kept == [{ONE}, set(), {TWO}]
    await decide(table, 2, TWO, [])
    await bench.tables.reshard(table, plan_reshard(table, 0, 2, [b""]), nullcontext())
    assert [set(tablet.transactions.decisions) for tablet in table.tablets] == [{ONE, TWO}]


async def test_a_reshard_is_refused_where_a_decision_came_while_chunks_were_copied(bench: TableBench) -> None:
    table = await bench.create(MountState.UNMOUNTED)
    plan = plan_reshard(table, 0, 0, [b"", key_of(50)])
    resharding = asyncio.ensure_future(bench.tables.reshard(table, plan, nullcontext()))
    await decide(table, 0, ONE, [SOMEWHERE])
    with pytest.raises(TableError) as found:
        await resharding
    assert found.value.code == "TRANSACTION_UNDER_WAY"
    assert len(table.tablets) == 2


async def test_a_part_is_refused_when_its_tablet_takes_no_rows_by_its_turn(bench: TableBench) -> None:
    table = await bench.create()
    part, other = (table.part(index, rows_of({index * 100: 1}), None) for index in (0, 1))
    turns = [asyncio.get_running_loop().create_future() for _ in "12"]
    part.enter(turns[0].set_result)
    other.enter(turns[1].set_result)
    await asyncio.gather(*turns)
    assert (part.refusal(), other.refusal()) == (None, None)
    await bench.set_states(table, [MountState.FROZEN, MountState.MOUNTED])
    refusal = part.refusal()
    assert isinstance(refusal, TableError)
    assert (refusal.code, other.refusal()) == ("WRONG_STATE", None)
    table.schema = read_sorted_schema([KEY, VALUE, MORE], 100)
    refusal = other.refusal()
    assert isinstance(refusal, TableError)
    assert refusal.code == "TABLE_CHANGED"
    part.leave()
    other.leave()


async def test_prepared_rows_of_a_frozen_tablet_are_finished(bench: TableBench) -> None:
    table = await bench.create()
    await prepare(table, 0, ONE, 5)
    await bench.set_states(table, [MountState.FROZEN] * 2)
    await table.tablets[0].transactions.finish(ONE, 7)
    assert await table.tablets[0].lookup(7).find(key_of(5)) == [1]


async def test_an_unmounted_tablet_takes_no_part(bench: TableBench) -> None:
    table = await bench.create(MountState.UNMOUNTED)
    part = table.part(0, rows_of({1: 1}), None)
    turn = asyncio.get_running_loop().create_future()
    part.enter(turn.set_result)
    refusal = await turn
    assert isinstance(refusal, TableError)
    assert refusal.code == "WRONG_STATE"
    assert isinstance(part.refusal(), Exception)
    part.leave()
