"""Materializations of a scheme: which topic feeds which sorted table, and how. They own no tablets and have no names.

    of a table: none --create--> running <--pause, resume--> paused --drop, or the table is deleted--> none

One commit each. The progress is not here: it is committed with the rows.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from typing import Any

from pqbroker.storage.ids import new_uuid
from pqbroker.storage.tablets.row_sets import Row, RowChanges
from pqbroker.storage.tablets.scheme import Scheme, SchemeError
from pqbroker.storage.tablets.scheme_objects import MATERIALIZATIONS, SORTED_TABLES


class MaterializationExists(SchemeError):
    """The table is fed from a topic already."""


class MaterializationUnknown(SchemeError):
    """The table is fed from no topic."""


@dataclass(frozen=True, slots=True)
class MaterializationRecord:
    """One materialization as stored: the rules for it are those of the tables' floor."""

    table_id: bytes
    topic_id: bytes
    topic: str
    """Name that the topic had when it was tied to the table."""
    run: bytes
    """Id of this reading of the topic: progress of another one does not count."""
    origins: Mapping[str, str]
    """Origin of each column that has one."""
    declared: Mapping[str, str] | None
    """Origins as they were asked for; None: those of the columns' names."""
    columns: tuple[Mapping[str, Any], ...]
    """Columns of the table that the origins were found for."""
    letter_topic: str
    """Topic of the dead letters; empty: there is none."""
    is_paused: bool
    created_ms: int
    creator: str = ""
    """Principal whose rights it has, where access was checked when it was made or resumed."""

    def fields(self) -> dict[str, Any]:
        """Return what is stored. Earlier versions know no creator."""
        left_out = {"table_id"} if self.creator else {"table_id", "creator"}
        return {field.name: getattr(self, field.name) for field in fields(self) if field.name not in left_out}

    @classmethod
    def read(cls, table_id: bytes, row: Row) -> "MaterializationRecord":
        """Read what `fields` returned. ValueError for a row that this version did not write."""
        stored: Any = row
        try:
            return cls(table_id=table_id, **{**stored, "columns": tuple(stored["columns"])})
        except (LookupError, TypeError) as bad:
            raise ValueError(f"what feeds the sorted table {table_id.hex()} is unreadable: {bad}") from None


class MaterializationChanges:
    """Each is durable when its call returns. They raise as `Scheme.change`, besides what is said."""

    def __init__(self, scheme: Scheme) -> None:
        self._scheme = scheme

    def known(self) -> dict[bytes, MaterializationRecord]:
        """Return every materialization that is readable, by the id of its table."""
        found: dict[bytes, MaterializationRecord] = {}
        rows: Any = self._scheme.rows(MATERIALIZATIONS)
        for (table_id,), row in rows.items():
            with suppress(ValueError):  # what feeds tables tells of it once
                found[table_id] = MaterializationRecord.read(table_id, row)
        return found

    async def create(self, wanted: MaterializationRecord) -> MaterializationRecord:
        """Tie a topic to a table; the run is given here. MaterializationExists, MaterializationUnknown where the table
        was deleted."""

        def plan(changes: RowChanges) -> MaterializationRecord:
            tables = changes.row_sets.get(SORTED_TABLES)
            if tables is None or tables.get((wanted.table_id,)) is None:
                raise MaterializationUnknown("the table was deleted meanwhile")
            record = replace(wanted, run=new_uuid())
            if MATERIALIZATIONS not in changes.row_sets:
                columns = tuple(record.fields())
                changes.create_row_set(MATERIALIZATIONS, [("table_id", "bytes")], columns)
            elif changes.row_sets[MATERIALIZATIONS].get((wanted.table_id,)) is not None:
                raise MaterializationExists("the table is fed from a topic already")
            _put(changes, record)
            return record

        return await self._scheme.change(plan)

    async def change(
        self, table_id: bytes, change: Callable[[MaterializationRecord], MaterializationRecord], *, is_new_run: bool
    ) -> MaterializationRecord:
        """Replace a record by what `change` makes of it; `is_new_run`: the topic is read from its start again.
        MaterializationUnknown."""

        def plan(changes: RowChanges) -> MaterializationRecord:
            record = change(_known(changes, table_id))
            record = replace(record, run=new_uuid()) if is_new_run else record
            _put(changes, record)
            return record

        return await self._scheme.change(plan)

    async def drop(self, table_id: bytes) -> None:
        """Feed the table no more; its rows stay. MaterializationUnknown."""

        def plan(changes: RowChanges) -> None:
            rows = changes.row_sets.get(MATERIALIZATIONS)
            if rows is None or rows.get((table_id,)) is None:
                raise MaterializationUnknown("the table is fed from no topic")
            changes.delete(MATERIALIZATIONS, (table_id,))

        await self._scheme.change(plan)


def _known(changes: RowChanges, table_id: bytes) -> MaterializationRecord:
    rows = changes.row_sets.get(MATERIALIZATIONS)
    row = None if rows is None else rows.get((table_id,))
    if row is None:
        raise MaterializationUnknown("the table is fed from no topic")
    return MaterializationRecord.read(table_id, row)


def _put(changes: RowChanges, record: MaterializationRecord) -> None:
    row_set = changes.row_sets.get(MATERIALIZATIONS)
    if row_set is not None and (joining := record.fields().keys() - set(row_set.schema.columns)):
        changes.alter_row_set(MATERIALIZATIONS, (*row_set.schema.columns, *sorted(joining)))
    changes.put(MATERIALIZATIONS, (record.table_id,), record.fields())
