"""A column of a schema, and the two parts of a record that columns come from."""

from dataclasses import dataclass
from typing import Any

from pqbroker.tables.types import ColumnType

PARTS = ("value", "key")


@dataclass(frozen=True, slots=True)
class Column:
    """One column; `part`: the part of a record that its values are stored in."""

    name: str
    type: ColumnType
    is_required: bool = False
    part: str = "value"

    def document(self) -> dict[str, Any]:
        """As it is stored and shown."""
        return {"name": self.name, "type": self.type.name, "required": self.is_required, "from": self.part}
