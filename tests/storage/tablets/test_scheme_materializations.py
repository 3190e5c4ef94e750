"""Materializations in a scheme: one for each table, read again after a restart, gone with the table."""

from dataclasses import replace

import pytest

from pqbroker.storage.memory import MemoryEngine
from pqbroker.storage.tablets.cell import Cell
from pqbroker.storage.tablets.hosting import TabletHost
from pqbroker.storage.tablets.mounted_attributes import MountedAttributes
from pqbroker.storage.tablets.scheme import Scheme
from pqbroker.storage.tablets.scheme_materializations import (
    MaterializationChanges,
    MaterializationExists,
    MaterializationRecord,
    MaterializationUnknown,
)
from pqbroker.storage.tablets.scheme_objects import MATERIALIZATIONS
from pqbroker.storage.tablets.scheme_tables import SortedTableChanges, SortedTableRecord

COLUMNS = ({"name": "k", "type": "utf8", "required": False, "sort_order": "ascending"},)
TABLE = SortedTableRecord(
    "latest", b"", COLUMNS, {}, MountedAttributes.collect([{}]), (b"",), ("mounted",), (), "default", 5
)  # fmt: skip


def wanted(table: SortedTableRecord, **more: object) -> MaterializationRecord:
    record = MaterializationRecord(table.table_id, b"t" * 16, "orders", b"", {"k": "key"}, None, COLUMNS, "", False, 7)
    return replace(record, **more)  # type: ignore[arg-type]


async def opened(engine: MemoryEngine) -> Scheme:
    return await Scheme.open(TabletHost(await Cell.open(engine)))


async def test_a_table_has_one_which_changes_and_outlives_a_restart() -> None:
    engine = MemoryEngine(1 << 26)
    scheme = await opened(engine)
    table = await SortedTableChanges(scheme).create(TABLE)
    changes = MaterializationChanges(scheme)
    assert changes.known() == {}
    made = await changes.create(wanted(table))
    assert len(made.run) == 16
    with pytest.raises(MaterializationExists):
        await changes.create(wanted(table))
    paused = await changes.change(table.table_id, lambda record: replace(record, is_paused=True), is_new_run=False)
    assert paused == replace(made, is_paused=True)
    scheme = await opened(engine)
    changes = MaterializationChanges(scheme)
    assert changes.known() == {table.table_id: paused}
    again = await changes.change(table.table_id, lambda record: replace(record, is_paused=False), is_new_run=True)
    assert (again.run != made.run, replace(again, run=made.run)) == (True, made)
    await changes.drop(table.table_id)
    assert changes.known() == {}
    for change in (changes.drop(table.table_id), changes.change(table.table_id, lambda same: same, is_new_run=False)):
        with pytest.raises(MaterializationUnknown):
            await change
    await changes.create(wanted(table, declared={"k": "key"}, letter_topic="dead"))
    assert changes.known()[table.table_id].declared == {"k": "key"}


async def test_a_row_that_no_version_wrote_is_left_out_and_may_be_dropped() -> None:
    scheme = await opened(MemoryEngine(1 << 26))
    table = await SortedTableChanges(scheme).create(TABLE)
    changes = MaterializationChanges(scheme)
    await changes.create(wanted(table))
    await scheme.change(lambda rows: rows.put(MATERIALIZATIONS, (table.table_id,), {"topic": "orders"}))
    assert changes.known() == {}
    with pytest.raises(ValueError, match="is unreadable"):
        MaterializationRecord.read(table.table_id, {"topic": "orders"})
    await changes.drop(table.table_id)
    assert not scheme.rows(MATERIALIZATIONS)


async def test_one_is_gone_with_its_table_in_the_same_commit_and_needs_one() -> None:
    scheme = await opened(MemoryEngine(1 << 26))
    tables, changes = SortedTableChanges(scheme), MaterializationChanges(scheme)
    table = await tables.create(TABLE)
    await tables.create(replace(TABLE, name="other"))
    await changes.create(wanted(table))
    await tables.delete(table.table_id)
    assert not scheme.rows(MATERIALIZATIONS)
    with pytest.raises(MaterializationUnknown):
        await changes.create(wanted(table))
