"""Sorted tables of a scheme: their records, and changes of these.

    table:   unknown --create--> known --delete--> tombstone --forget--> unknown

One commit each. Their names are those of topics too: an object of either kind takes its name from the other.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pqbroker.storage.ids import SYSTEM_CELL, CellId, TabletId, new_uuid
from pqbroker.storage.tablets.mounted_attributes import MountedAttributes
from pqbroker.storage.tablets.row_sets import Row, RowChanges
from pqbroker.storage.tablets.scheme import Scheme, SchemeError
from pqbroker.storage.tablets.scheme_objects import FEED_CREATORS, MATERIALIZATIONS, NAMES, SORTED_TABLE, SORTED_TABLES
from pqbroker.storage.tablets.scheme_state import (
    SORTED_TABLES_FORMAT,
    Tombstone,
    put_tombstone,
    raise_format,
    stored_cells,
)
from pqbroker.storage.tablets.scheme_topics import ChooseCells, check_free, in_the_system_cell

_COLUMNS = (
    "name", "columns", "attributes", "mounted", "mounted_others", "mounted_numbers", "pivots", "states", "tablets",
    "cells", "bundle", "created_ms", "revision",
)  # fmt: skip


class TableUnknown(SchemeError):
    """No sorted table has that name."""


@dataclass(frozen=True, slots=True)
class SortedTableRecord:
    """One sorted table as stored: the rules for it are those of the tables' floor.

    `columns`: the schema's, each with its fields. `attributes` were set, `mounted` act in each tablet. `pivots`: the
    least encoded key of each tablet, the first one empty. `states`: mount states, never one on its way.
    """

    name: str
    table_id: bytes
    columns: tuple[Mapping[str, Any], ...]
    attributes: Mapping[str, Any]
    mounted: MountedAttributes
    pivots: tuple[bytes, ...]
    states: tuple[str, ...]
    tablets: tuple[TabletId, ...]
    bundle: str
    created_ms: int
    cells: tuple[CellId, ...] = ()
    """Cell of each tablet; empty: all are in the system cell."""
    revision: int = 0
    """Rises with every forced compaction that is asked for."""

    def cell_of(self, index: int) -> CellId:
        """Return the cell of a tablet."""
        return self.cells[index] if self.cells else SYSTEM_CELL

    def moved(self, tablet_id: TabletId, cell: CellId) -> "SortedTableRecord":
        """Return the record with one of its tablets in another cell."""
        homes = [cell if known == tablet_id else self.cell_of(index) for index, known in enumerate(self.tablets)]
        return replace(self, cells=stored_cells(homes))

    def fields(self) -> dict[str, Any]:
        """Return what is stored."""
        return {
            "name": self.name, "columns": self.columns, "attributes": self.attributes, **self.mounted.fields(),
            "pivots": self.pivots, "states": self.states, "tablets": self.tablets, "cells": self.cells,
            "bundle": self.bundle, "created_ms": self.created_ms, "revision": self.revision,
        }  # fmt: skip

    @classmethod
    def read(cls, table_id: bytes, row: Row) -> "SortedTableRecord":
        """Read what `fields` returned. ValueError, LookupError, TypeError."""
        stored: Any = row
        lists = {name: tuple(stored[name]) for name in ("columns", "pivots", "states", "tablets", "cells")}
        counts = {len(lists[name]) for name in ("pivots", "states", "tablets")}
        if len(counts) != 1:
            raise ValueError(f"sorted table {stored['name']!r} has pivots, states and tablets of different numbers")
        return cls(
            name=stored["name"], table_id=table_id, attributes=stored["attributes"],
            mounted=MountedAttributes.read(stored, len(lists["states"])), bundle=stored["bundle"],
            created_ms=stored["created_ms"], revision=stored["revision"], **lists,
        )  # fmt: skip


class SortedTableChanges:
    """Each is durable when its call returns. They raise as `Scheme.change`, besides what is said."""

    def __init__(self, scheme: Scheme, choose_cells: ChooseCells = in_the_system_cell) -> None:
        self._scheme = scheme
        self._choose_cells = choose_cells

    def known(self) -> list[SortedTableRecord]:
        """Return every table. ValueError, LookupError, TypeError for one that no version wrote."""
        found: Any = self._scheme.rows(SORTED_TABLES)
        return [SortedTableRecord.read(key[0], row) for key, row in found.items()]

    async def create(self, wanted: SortedTableRecord) -> SortedTableRecord:
        """Create a table; its id, tablets and cells are given here. Raises TopicExists, and what `choose_cells`
        raises."""

        def plan(changes: RowChanges) -> SortedTableRecord:
            check_free(changes, wanted.name)
            count = len(wanted.pivots)
            cells = stored_cells(self._choose_cells(wanted.bundle, count))
            tablets = self._scheme.new_tablets(changes, count)
            record = replace(wanted, table_id=new_uuid(), tablets=tablets, cells=cells)
            if SORTED_TABLES not in changes.row_sets:
                changes.create_row_set(SORTED_TABLES, [("id", "bytes")], _COLUMNS)
            raise_format(changes, SORTED_TABLES_FORMAT)
            changes.put(NAMES, (record.name,), {"kind": SORTED_TABLE, "id": record.table_id})
            _put(changes, record)
            return record

        return await self._scheme.change(plan)

    async def change(
        self, table_id: bytes, change: Callable[[SortedTableRecord], SortedTableRecord]
    ) -> SortedTableRecord:
        """Replace the table's record, but for its name and id, by what `change` makes of it. Raises TableUnknown, and
        what `change` raises."""

        def plan(changes: RowChanges) -> SortedTableRecord:
            record = change(self._known(changes, table_id))
            _put(changes, record)
            return record

        return await self._scheme.change(plan)

    async def reshard(
        self, table_id: bytes, change: Callable[[SortedTableRecord], SortedTableRecord]
    ) -> tuple[SortedTableRecord, Tombstone | None]:
        """Replace the record by one with other tablets; those that it has no more get a tombstone. Raises TableUnknown,
        and what `change` raises."""

        def plan(changes: RowChanges) -> tuple[SortedTableRecord, Tombstone | None]:
            before = self._known(changes, table_id)
            record = change(before)
            _put(changes, record)
            removed = tuple(tablet for tablet in before.tablets if tablet not in set(record.tablets))
            tombstone = Tombstone(before.name, new_uuid(), removed) if removed else None
            if tombstone is not None:
                put_tombstone(changes, tombstone)
            return record, tombstone

        return await self._scheme.change(plan)

    async def delete(self, table_id: bytes) -> SortedTableRecord:
        """Free the name, leave a tombstone. Raises TableUnknown."""

        def plan(changes: RowChanges) -> SortedTableRecord:
            record = self._known(changes, table_id)
            changes.delete(NAMES, (record.name,))
            changes.delete(SORTED_TABLES, (table_id,))
            for further in (MATERIALIZATIONS, FEED_CREATORS):
                if further in changes.row_sets:
                    changes.delete(further, (table_id,))
            put_tombstone(changes, Tombstone(record.name, table_id, record.tablets))
            return record

        return await self._scheme.change(plan)

    def _known(self, changes: RowChanges, table_id: bytes) -> SortedTableRecord:
        rows = changes.row_sets.get(SORTED_TABLES)
        row = None if rows is None else rows.get((table_id,))
        if row is None:
            raise TableUnknown("the table was deleted meanwhile")
        return SortedTableRecord.read(table_id, row)


def _put(changes: RowChanges, record: SortedTableRecord) -> None:
    changes.put(SORTED_TABLES, (record.table_id,), record.fields())
