"""Attributes of sorted tables: what is set is the table's; each tablet takes it at its mount or remount."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pqbroker.broker.ground.access import AclOperation
from pqbroker.broker.services.sorted_tables.finding import find_sorted
from pqbroker.broker.services.tables.callers import TablesCaller
from pqbroker.broker.services.tables.finding import ALL_TABLETS, TabletRange
from pqbroker.conf.sorted_attributes import FORCED_REVISION
from pqbroker.storage.tablets.scheme_tables import SortedTableRecord
from pqbroker.tables.serving.table import SortedTable
from pqbroker.tables.sorted.attribute_checks import check_sorted_attributes, with_next_revision


async def set_sorted_attributes(caller: TablesCaller, name: str, given: Mapping[str, Any]) -> SortedTable:
    """Set some attributes; they act in a tablet from its next mount or remount on. A forced compaction of 1 becomes the
    table's next revision. TableError NO_TABLE, INVALID_ATTRIBUTE."""
    table = find_sorted(caller, AclOperation.ALTER_CONFIGS, name)

    def changed(record: SortedTableRecord) -> SortedTableRecord:
        check_sorted_attributes(given, record.attributes)
        next_revision = record.revision + 1
        stored = with_next_revision(given, next_revision)
        revision = next_revision if stored.get(FORCED_REVISION) == next_revision else record.revision
        return replace(record, attributes={**record.attributes, **stored}, revision=revision)

    return await caller.node.cell.current.sorted_tables.change(table, changed)


async def remount_sorted(caller: TablesCaller, name: str, tablets: TabletRange = ALL_TABLETS) -> SortedTable:
    """Make the set attributes act now in a range of tablets, or in all of them. TableError NO_TABLE, NO_TABLET."""
    table = find_sorted(caller, AclOperation.ALTER, name)

    def changed(record: SortedTableRecord) -> SortedTableRecord:
        indexes = tablets.among(record.name, len(record.tablets))
        return replace(record, mounted=record.mounted.taken(indexes, record.attributes))

    sorted_tables = caller.node.cell.current.sorted_tables
    await sorted_tables.change(table, changed)
    sorted_tables.background.look_soon()
    return table
