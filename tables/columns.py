"""A column of a schema, and the two parts of a record that columns come from."""

from dataclasses import dataclass
from typing import Any

from pqbroker.tables.types import ColumnType

PARTS = ("value", "key")


def folded(name: str) -> str:
    """A name as it is compared with others: two columns whose names differ by case alone are one, as in SQL and Spark.
    In Arrow, which carries names to DuckDB, a name ends at a NUL."""
    return name.partition("\0")[0].casefold()


@dataclass(frozen=True, slots=True)
class Column:
    """One column; `part`: the part of a record that its values are stored in."""

    name: str
    type: ColumnType
    is_required: bool = False
    part: str = "value"

    def document(self) -> dict[str, Any]:
        """Return the column as it is stored and shown."""
        return {"name": self.name, "type": self.type.name, "required": self.is_required, "from": self.part}
