"""Schemas of ordered tables: columns, each from the record's value or its key; which schema may follow (E.10)."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pqbroker.tables.column_documents import check_column_names, invalid_schema, is_wider, read_column
from pqbroker.tables.columns import PARTS, Column
from pqbroker.tables.formats import Formats, PartFormat, read_formats
from pqbroker.tables.refusals import TableError, nearest
from pqbroker.tables.types import NUMBER_WEIGHT

FIELDS = ("name", "type", "required", "from")
SYSTEM = "$"
"""Names of the table's own columns begin so."""
_FILLED: Mapping[str, str] = {"$timestamp": "uint64", "$cumulative_data_weight": "int64"}
"""Columns that the table fills if a schema has them (E.8), with their types."""
_JSON_FORMATS: Formats = {}


@dataclass(frozen=True, slots=True)
class Schema:
    """Columns by name, in their order: those that records hold, and all with those that the table fills."""

    columns: Mapping[str, Column]
    shown: Mapping[str, Column]
    formats: Mapping[str, PartFormat] = dataclasses.field(compare=False)
    """Format of each part."""
    format_configs: Formats
    """Configs of the topic that choose the formats, completed with what they leave to the columns; empty: JSON
    documents."""
    filled: tuple[str, ...] = dataclasses.field(init=False)
    """Names of the columns that the table fills."""
    filled_weight: int = dataclasses.field(init=False)
    """The weight of the filled columns in each row."""
    parts: tuple[str, ...] = dataclasses.field(init=False)
    """The parts of a record that columns come from."""

    def __post_init__(self) -> None:
        filled = tuple(name for name in self.shown if name not in self.columns)
        used = {column.part for column in self.columns.values()}
        object.__setattr__(self, "filled", filled)
        object.__setattr__(self, "filled_weight", NUMBER_WEIGHT * len(filled))
        object.__setattr__(self, "parts", tuple(part for part in PARTS if part in used))

    def documents(self) -> tuple[dict[str, Any], ...]:
        return tuple(column.document() for column in self.shown.values())


def read_schema(items: Sequence[Any], columns_max: int, formats: Formats = _JSON_FORMATS) -> Schema:
    """The schema that a client gives, or that is stored; `formats` may be all configs of the topic. TableError
    INVALID_SCHEMA names the field."""
    if not 1 <= len(items) <= columns_max:
        text = f"schema has {len(items)} columns; a table has 1 to {columns_max}"
        raise invalid_schema(text, "Give a column at least, and no more than pqbroker.table.columns.max.")
    columns: dict[str, Column] = {}
    for number, item in enumerate(items):
        column = _read_column(item, f"schema[{number}]")
        if column.name in columns:
            raise invalid_schema(f"schema[{number}].name {column.name!r} is there twice", "Name each column once.")
        columns[column.name] = column
    stored = {name: column for name, column in columns.items() if name not in _FILLED}
    if not stored:
        raise invalid_schema("schema has no column of your own", "Give one at least that rows are to hold.")
    return Schema(stored, columns, *read_formats(formats, list(stored.values())))


def check_names(schema: Schema, old: Schema | None = None) -> None:
    """TableError INVALID_SCHEMA as `check_column_names`. Columns that the old schema has already may stay."""
    check_column_names(schema.shown, {} if old is None else old.shown)


def check_alteration(old: Schema, new: Schema) -> None:
    """TableError INCOMPATIBLE_SCHEMA where rows of the old schema are none of the new one. Columns may be added that
    are not required, become optional, and integers become wider (K.5)."""
    for name, column in old.shown.items():
        later = new.shown.get(name)
        if later is None:
            raise _incompatible(f"column {name!r} is missing", "Keep every column; none can be removed or renamed.")
        if not is_wider(column.type, later.type):
            text = f"column {name!r} is {column.type.name}, which does not become {later.type.name}"
            raise _incompatible(text, "Keep the type, or give an integer that holds every value of the old one.")
        if later.is_required and not column.is_required:
            raise _incompatible(f"column {name!r} becomes required", "Leave it optional: stored rows may lack it.")
        if later.part != column.part:
            raise _incompatible(f"column {name!r} comes from the {later.part}", f"Leave it from the {column.part}.")
    for name, column in new.columns.items():
        if name not in old.columns and column.is_required:
            raise _incompatible(f"the new column {name!r} is required", "Make it optional: stored rows lack it.")


def _read_column(item: Any, where: str) -> Column:
    if isinstance(item, dict) and "sort_order" in item:
        cure = "Leave it out; a sorted table is created with it, and never made of a topic."
        raise invalid_schema(f"{where}.sort_order is set, and the rows are those of a topic", cure)
    name, column_type, is_required = read_column(item, where, FIELDS)
    part = item.get("from", "value")
    if name.startswith(SYSTEM) and name not in _FILLED:
        cure = f"Of the names that begin with {SYSTEM} a schema has {' and '.join(_FILLED)} alone."
        raise invalid_schema(f"{where}.name is {name!r}", cure)
    if part not in PARTS:
        raise invalid_schema(f"{where}.from of column {name!r} is {part!r}", nearest(str(part), PARTS))
    if name in _FILLED and (column_type.name != _FILLED[name] or is_required or part != "value"):
        text = f"{where} is the column {name}, which the table fills"
        raise invalid_schema(text, f'Give {{"name": "{name}", "type": "{_FILLED[name]}"}} and no more of it.')
    return Column(name, column_type, is_required, part)


def _incompatible(message: str, cure: str) -> TableError:
    return TableError("INCOMPATIBLE_SCHEMA", message, cure)
