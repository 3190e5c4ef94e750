"""Rows of coordinator tablets' residents, whatever kind they are of: kind by kind a row set or several."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pqbroker.storage.tablets.row_sets import Row, RowChanges


@dataclass(frozen=True, slots=True)
class ResidentRows:
    """Stored form of the residents of one kind, or of a part of each."""

    name: str
    """Word for one resident."""
    row_set: str
    """Row set, with the resident's id, a text, as its key; behind it, in `part`, the name of a part."""
    columns: tuple[str, ...]
    read: Callable[..., Any]
    """Reads the row that is stored under a key, whose columns are the first arguments. LookupError, TypeError,
    ValueError for a row that no version writes."""
    part: str = ""
    """Name of the second column of the key, where a resident has several rows in the set."""
    parts: "tuple[ResidentRows, ...]" = ()
    """Rows of a resident's parts, which are read behind those of all residents."""

    def put(self, changes: RowChanges, resident_id: str, row: Row) -> None:
        """Set the row of a resident."""
        self.create_if_missing(changes)
        changes.put(self.row_set, (resident_id,), row)

    def create(self, changes: RowChanges) -> None:
        """Create the row set, which is done once."""
        key = [(f"{self.name}_id", "str")]
        if self.part:
            key.append((self.part, "str"))
        changes.create_row_set(self.row_set, key, self.columns)

    def create_if_missing(self, changes: RowChanges) -> None:
        """Create the row set unless it exists, in a change that has not created it yet."""
        if self.row_set not in changes.row_sets:
            self.create(changes)

    def delete(self, changes: RowChanges, resident_id: str) -> None:
        """Delete the row of a resident, if it has one."""
        if self.row_set in changes.row_sets:
            changes.delete(self.row_set, (resident_id,))
