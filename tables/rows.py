"""Rows of an ordered table as records: columns in value and key, checked against the schema, weighed (E.8). In JSON:

    row {"id": 1, "name": "a"}   <->   value {"id":1,"name":"a"}, key null; with "from": "key" on id: key {"id":1}
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from pqbroker.tables.columns import PARTS
from pqbroker.tables.refusals import TableError, nearest
from pqbroker.tables.schema import Schema
from pqbroker.tables.types import ROW_WEIGHT

TABLET_INDEX = "$tablet_index"
ROW_INDEX = "$row_index"
ERROR = "$error"
"""Column that says why a stored record is not a row of the schema; the other columns are null then."""
TABLETS_MAX = 100
"""Tablets that the rows of one request are for."""
_SHOWN = 100


class EncodedRow(NamedTuple):
    """A row to store. `tablet_index` None: any mounted tablet."""

    tablet_index: int | None
    key: bytes | None
    value: bytes | None
    weight: int


def encode_row(schema: Schema, row: Any, where: str) -> EncodedRow:
    """The record that a row becomes; TableError INVALID_ROW names the field."""
    if not isinstance(row, dict):
        raise _invalid(f"{where} is no object", "Give each row as an object, one field a column.")
    columns = schema.columns
    for name in row:
        if name in schema.filled:
            raise _invalid(f"{where} gives the column {name}", "Leave it out: the table fills it.")
        if name not in columns and name != TABLET_INDEX:
            text = f"{where} has the unknown column {name[:_SHOWN]!r}"
            raise _invalid(text, nearest(name[:_SHOWN], (*columns, TABLET_INDEX)))
    parts: dict[str, dict[str, Any]] = {part: {} for part in PARTS}
    weight = ROW_WEIGHT + schema.filled_weight
    for name, column in columns.items():
        given = row.get(name)
        if given is None:
            if column.is_required:
                raise _invalid(f"{where}.{name} is missing, or null", "Give a value: the column is required.")
            continue
        try:
            parts[column.part][name], size = column.type.read(given)
        except ValueError as wanted:
            raise _invalid(f"{where}.{name} is no {column.type.name}", _sentence(str(wanted))) from None
        weight += size
    try:
        key = schema.formats["key"].write(parts["key"]) if "key" in schema.parts else None
        value = schema.formats["value"].write(parts["value"])
    except ValueError as wrong:
        raise _invalid(f"{where}: {wrong}", "Give what the topic's configs value.format and key.format take.") from None
    return EncodedRow(_tablet_index(row, where), key, value, weight)


def decode_row(schema: Schema, key: bytes | None, value: bytes | None) -> dict[str, Any]:
    """The columns of a stored record; what lacks is null. One that is no row of the schema has `$error` besides. A part
    that no column comes from may hold anything."""
    return read_row(schema, key, value)[0]


def read_row(schema: Schema, key: bytes | None, value: bytes | None) -> tuple[dict[str, Any], int]:
    """The same, and what the row weighs. Columns that the table fills are null here; a record that is no row weighs its
    bytes."""
    row: dict[str, Any] = dict.fromkeys(schema.shown)
    weight = ROW_WEIGHT + schema.filled_weight
    try:
        stored_parts = {"value": value, "key": key}
        parts = {part: schema.formats[part].read(stored_parts[part]) for part in schema.parts}
        for name, column in schema.columns.items():
            stored = parts[column.part].get(name)
            if stored is None and column.is_required:
                raise ValueError(f"{name} is missing, or null")
            if stored is not None:
                row[name], stored_weight = _read(name, column.type.read, stored)
                weight += stored_weight
    except ValueError as wrong:
        weight = ROW_WEIGHT + schema.filled_weight + len(key or b"") + len(value or b"")
        return {**dict.fromkeys(schema.shown), ERROR: str(wrong)}, weight
    return row, weight


def _read(name: str, read: Any, stored: Any) -> tuple[Any, int]:
    try:
        return read(stored)  # type: ignore[no-any-return]
    except ValueError as wanted:
        raise ValueError(f"{name}: {wanted}") from None


def _tablet_index(row: Mapping[str, Any], where: str) -> int | None:
    index = row.get(TABLET_INDEX)
    if index is not None and (isinstance(index, bool) or not isinstance(index, int)):
        raise _invalid(f"{where}.{TABLET_INDEX} is no integer", "Give the tablet's number, or leave it out.")
    return index


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def _invalid(message: str, cure: str) -> TableError:
    return TableError("INVALID_ROW", message, cure)
