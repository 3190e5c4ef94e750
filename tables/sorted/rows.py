"""Rows of sorted tables in JSON: as they are written, and as keys that are looked up."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from pqbroker.tables.refusals import TableError, nearest
from pqbroker.tables.sorted.keys import prefix_end
from pqbroker.tables.sorted.log_entries import NewRow
from pqbroker.tables.sorted.packed_rows import ABSENT, DELETED
from pqbroker.tables.sorted.schema import SortedColumn, SortedSchema
from pqbroker.tables.sorted.shown_columns import ShownColumns, show_value
from pqbroker.tables.types import bytes_of

VALUE_BYTES_MAX: Final = 16 << 20
ROWS_MAX: Final = 100_000
"""Rows and keys of one request."""
ROWS_BYTES_MAX: Final = 32 << 20
"""Bytes that the rows of one request become: a row takes room for each column of its table, whether it has a value."""
_SHOWN = 100


def encode_rows(schema: SortedSchema, rows: Sequence[Any], place: str, *, is_update: bool) -> list[NewRow]:
    """Return rows as they are logged, in their order. TableError INVALID_ROW names row and field; TOO_MANY_ROWS,
    ROWS_TOO_LARGE."""
    check_count(rows, place)
    encoded: list[NewRow] = []
    size = 0
    for index, row in enumerate(rows):
        one = _encode_row(schema, row, f"{place}[{index}]", is_update)
        size += len(one.key) + len(one.body)
        check_size(size, place)
        encoded.append(one)
    return _distinct(encoded, place)


def encode_deletes(schema: SortedSchema, keys: Sequence[Any], place: str) -> list[NewRow]:
    """Return deletes of keys as they are logged. TableError INVALID_ROW, TOO_MANY_ROWS."""
    check_count(keys, place)
    encoded = [NewRow(encode_key(schema, key, f"{place}[{index}]"), DELETED) for index, key in enumerate(keys)]
    return _distinct(encoded, place)


def encode_key(schema: SortedSchema, key: Any, where: str) -> bytes:
    """Return the encoded form of a whole key, {column: value}. TableError INVALID_ROW."""
    _check_names(schema, key, where, schema.given_key_names)
    return _key(schema, key, where)


def encode_prefix(schema: SortedSchema, key: Any, where: str) -> tuple[bytes, bytes | None]:
    """Return the range of encoded keys, from the first to before the second (None: to the end), that begin with the
    values of the first key columns. A column that the table fills is given, or follows from the others. TableError
    INVALID_ROW."""
    _check_names(schema, key, where, [column.name for column in schema.keys])
    values = {column.name: pack_value(column, key[column.name], where) for column in schema.keys if column.name in key}
    for column in schema.keys:
        if column.expression is not None and column.name not in key and values.keys() >= {*column.expression.columns}:
            values[column.name] = schema.computers[column.name](values)
    first: list[Any] = []
    for column in schema.keys:
        if column.name not in values:
            break
        first.append(values[column.name])
    if len(first) < len(values):
        text = f"{where} has no {schema.keys[len(first)].name}, which comes before other columns of the key"
        raise _invalid(text, "Give the first columns of the key, or all of them.")
    prefix = _encoded(schema, first, where)
    return prefix, prefix_end(prefix)


def show_key(schema: SortedSchema, key: bytes) -> list[Any]:
    """Return the values of a key as JSON. ValueError for bytes that are no key of the schema."""
    return [show_value(column, value) for column, value in zip(schema.keys, schema.decode_key(key), strict=True)]


def shown_columns(schema: SortedSchema, names: Sequence[str] | None) -> ShownColumns:
    """Return the columns that are asked for; None: all of them. TableError NO_COLUMN."""
    if names is None:
        return schema.all_shown
    for name in names:
        if name not in schema.columns:
            text = f"columns has {name[:_SHOWN]!r}, and the table has no such column"
            raise TableError("NO_COLUMN", text, nearest(name[:_SHOWN], schema.columns))
    return ShownColumns(schema, {*names})


def check_count(rows: Sequence[Any], place: str) -> None:
    """TableError TOO_MANY_ROWS for more rows, or keys, than a request may have."""
    if len(rows) > ROWS_MAX:
        text = f"{place} has {len(rows)} entries; one request has at most {ROWS_MAX}"
        raise TableError("TOO_MANY_ROWS", text, "Send them in several requests.")


def check_size(size: int, place: str) -> None:
    """TableError ROWS_TOO_LARGE for more bytes than the rows of a request may become."""
    if size > ROWS_BYTES_MAX:
        text = f"{place} become more than {ROWS_BYTES_MAX} bytes, counting room for each column of the table"
        raise TableError("ROWS_TOO_LARGE", text, "Send fewer rows at once.")


def _encode_row(schema: SortedSchema, row: Any, where: str, is_update: bool) -> NewRow:
    _check_names(schema, row, where, schema.columns)
    values: list[Any] = []
    for column in schema.values:
        if column.name not in row and is_update:
            values.append(ABSENT)
        else:
            values.append(pack_value(column, row.get(column.name), where))
    return NewRow(_key(schema, row, where), schema.form.pack(values, is_update=is_update))


def _key(schema: SortedSchema, row: Mapping[str, Any], where: str) -> bytes:
    if not schema.computers:
        return _encoded(schema, [pack_value(column, row.get(column.name), where) for column in schema.keys], where)
    for name in schema.computers:
        if name in row:
            raise _invalid(f"{where} gives the column {name}", "Leave it out: the table fills it.")
    values = {column.name: pack_value(column, row.get(column.name), where) for column in schema.given_keys}
    for name, compute in schema.computers.items():
        values[name] = compute(values)
    return _encoded(schema, [values[column.name] for column in schema.keys], where)


def _encoded(schema: SortedSchema, values: Sequence[Any], where: str) -> bytes:
    try:
        key: bytes = schema.encode_key(values)
    except ValueError as wanted:
        raise _invalid(f"{where} has a key that is too long, or no key", _sentence(str(wanted))) from None
    return key


def pack_value(column: SortedColumn, given: Any, where: str) -> Any:
    """Return a value as it is packed. TableError INVALID_ROW names `where` and the column."""
    if given is None:
        if column.is_required:
            raise _invalid(f"{where}.{column.name} is missing, or null", "Give a value: the column is required.")
        return None
    try:
        stored, size = column.type.read(given)
    except ValueError as wanted:
        raise _invalid(f"{where}.{column.name} is no {column.type.name}", _sentence(str(wanted))) from None
    if size > VALUE_BYTES_MAX:
        raise _invalid(f"{where}.{column.name} has {size} bytes", f"Give a value of at most {VALUE_BYTES_MAX} bytes.")
    if column.type.name == "any":
        return json.dumps(stored, ensure_ascii=False, separators=(",", ":"))
    return bytes_of(stored) if column.type.name == "string" else stored


def _check_names(schema: SortedSchema, row: Any, where: str, known: Any) -> None:
    if not isinstance(row, dict):
        raise _invalid(f"{where} is no object", "Give an object, one field a column.")
    for name in row:
        if name not in known:
            column = schema.columns.get(name)
            what = "is no column" if column is None else "is no part of the key"
            if column is not None and column.expression is not None:
                what = "the table fills"
            raise _invalid(f"{where} has {name[:_SHOWN]!r}, which {what}", nearest(name[:_SHOWN], known))


def _distinct(rows: list[NewRow], place: str) -> list[NewRow]:
    """Check that no key comes twice. TableError INVALID_ROW."""
    if len({row.key for row in rows}) < len(rows):
        first: dict[bytes, int] = {}
        for index, row in enumerate(rows):
            before = first.setdefault(row.key, index)
            if before != index:
                text = f"{place}[{index}] has the key of {place}[{before}]"
                raise _invalid(text, "Give each key once in a request: which row is the later one is not said.")
    return rows


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def _invalid(message: str, cure: str) -> TableError:
    return TableError("INVALID_ROW", message, cure)
