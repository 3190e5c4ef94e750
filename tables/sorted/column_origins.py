"""Columns of a sorted table that is fed from a topic: where each one's values come from, and the row that a record is.

An origin is a column of the topic's schema, or `key`, `value`, `timestamp_ms`, `$tablet_index` or `$row_index`, which
every record has: the names are SQL's, and a column of the schema hides the record's of the same name. A record whose
value is null deletes the row of its key.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from pqbroker.tables.column_documents import is_wider
from pqbroker.tables.columns import PARTS
from pqbroker.tables.refusals import TableError, nearest
from pqbroker.tables.rows import ROW_INDEX, TABLET_INDEX
from pqbroker.tables.schema import Schema
from pqbroker.tables.sorted.log_entries import NewRow
from pqbroker.tables.sorted.packed_rows import DELETED
from pqbroker.tables.sorted.rows import VALUE_BYTES_MAX, pack_value
from pqbroker.tables.sorted.schema import SortedColumn, SortedSchema
from pqbroker.tables.types import show_string

KEY, VALUE = "key", "value"
TIMESTAMP_MS: Final = "timestamp_ms"
NO_KEY: Final = "the record has no key, and the table's key comes from it"
NO_DELETE: Final = "the value is null, and the table's key comes from the value: no row can be found for it"
_TEXTS = frozenset(("string", "utf8"))
_NUMBERS = frozenset(("int64", "uint64"))
_RECORD_TYPES: Mapping[str, frozenset[str]] = {
    KEY: _TEXTS,
    VALUE: _TEXTS,
    TIMESTAMP_MS: _NUMBERS | {"timestamp"},
    TABLET_INDEX: _NUMBERS,
    ROW_INDEX: _NUMBERS,
}
"""Types of the columns that may come from what every record has, by its name."""

Origins = Mapping[str, str]
"""The origin of each column, by its name."""


class FedRecord(NamedTuple):
    """A record as a row is made of it. `timestamp_ms` below 0: it has none."""

    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None


def resolve_origins(table: SortedSchema, topic: Schema | None, declared: Origins | None) -> dict[str, str]:
    """Return the origin of each column of a table; those that `declared` leaves out are null. Without it every column
    comes from the origin of its name. `topic`: the topic's schema, if it has one. TableError INVALID_ORIGINS."""
    if declared is not None:
        for name in declared:
            if name not in table.columns:
                text = f"columns has {name[:100]!r}, and the table has no such column"
                raise _invalid(text, nearest(name[:100], table.columns))
            if table.columns[name].expression is not None:
                raise _invalid(f"columns has {name!r}, which the table fills", "Leave it out.")
    wanted = {name: name for name in table.columns} if declared is None else declared
    known = _known(topic)
    for column in _given(table):
        origin = wanted.get(column.name)
        if origin is None:
            if column.is_key or column.is_required:
                what = "part of the key" if column.is_key else "required"
                raise _invalid(f"columns names no origin of {column.name!r}, which is {what}", _one_of(known))
        elif origin not in known:
            cure = f'{_one_of(known)} Give columns as {{"{column.name}": ORIGIN}}.'
            raise _invalid(f"column {column.name!r} comes from {origin[:100]!r}, which the topic has not", cure)
        else:
            _check_type(column, topic, origin)
    return {column.name: wanted[column.name] for column in _given(table) if column.name in wanted}


def _given(table: SortedSchema) -> list[SortedColumn]:
    """Return the columns that rows give: the table fills the others."""
    return [column for column in table.columns.values() if column.expression is None]


def _check_type(column: SortedColumn, topic: Schema | None, name: str) -> None:
    typed = None if topic is None else topic.columns.get(name)
    if typed is None:
        if column.type.name in _RECORD_TYPES[name]:
            return
        given, cure = f"the record's {name}", f"Give the column the type {' or '.join(sorted(_RECORD_TYPES[name]))}"
    else:
        is_text = column.type.name in _TEXTS and typed.type.name in _TEXTS
        if is_text or is_wider(typed.type, column.type):
            return
        given, cure = f"the topic's column {name!r}, which is {typed.type.name}", f"Give it the type {typed.type.name}"
    text = f"column {column.name!r} is {column.type.name}, and comes from {given}"
    raise _invalid(text, f"{cure}, or another origin; pq.schema gives a topic typed columns.")


def _known(topic: Schema | None) -> list[str]:
    typed = [] if topic is None else list(topic.columns)
    return [*typed, *(name for name in _RECORD_TYPES if name not in typed)]


@dataclass(frozen=True, slots=True)
class _ColumnReader:
    """One column, and what takes its value out of a record and its parts."""

    column: SortedColumn
    read: Callable[[FedRecord, Mapping[str, Mapping[str, Any]]], Any]


class RowMaker:
    """Makes rows of a table of records."""

    def __init__(self, table: SortedSchema, topic: Schema | None, origins: Origins) -> None:
        """`origins` as `resolve_origins` gave them."""
        self._table = table
        self._formats = {} if topic is None else topic.formats
        typed = {} if topic is None else topic.columns
        readers = {
            name: _ColumnReader(table.columns[name], _reader(table.columns[name], topic, origin))
            for name, origin in origins.items()
        }
        self._keys = [readers[column.name] for column in table.given_keys]
        self._values = [readers.get(column.name) for column in table.values]
        parts = {name: _part_of(typed, origin) for name, origin in origins.items()}
        self._key_parts = _parsed_parts(typed, origins, [column.name for column in table.given_keys])
        self._parts = _parsed_parts(typed, origins, list(origins))
        of_key = {parts[column.name] for column in table.given_keys}
        self._needs_key = KEY in of_key
        self._can_delete = VALUE not in of_key

    def make(self, record: FedRecord) -> NewRow:
        """Return the row of a record, or the delete of its key. ValueError says why it is neither."""
        if record.key is None and self._needs_key:
            raise ValueError(NO_KEY)
        is_delete = record.value is None
        if is_delete and not self._can_delete:
            raise ValueError(NO_DELETE)
        try:
            parts = self._parse(record, self._key_parts if is_delete else self._parts)
            key = self._encode_key([_packed(each, record, parts) for each in self._keys])
            if is_delete:
                return NewRow(key, DELETED)
            values = [None if each is None else _packed(each, record, parts) for each in self._values]
        except TableError as refusal:
            raise ValueError(refusal.message) from None
        return NewRow(key, self._table.form.pack(values, is_update=False))

    def _encode_key(self, values: Sequence[Any]) -> bytes:
        try:
            key: bytes = self._table.encode_key(self._completed(values) if self._table.computers else values)
        except ValueError as wanted:
            raise ValueError(f"the key of the row: {wanted}") from None
        return key

    def _completed(self, given: Sequence[Any]) -> Sequence[Any]:
        """Return the values of all key columns, those too that the table fills."""
        values = {column.name: value for column, value in zip(self._table.given_keys, given, strict=True)}
        for name, compute in self._table.computers.items():
            values[name] = compute(values)
        return [values[column.name] for column in self._table.keys]

    def _parse(self, record: FedRecord, parts: Sequence[str]) -> Mapping[str, Mapping[str, Any]]:
        return {part: self._formats[part].read(record.key if part == KEY else record.value) for part in parts}


def _packed(reader: _ColumnReader, record: FedRecord, parts: Mapping[str, Mapping[str, Any]]) -> Any:
    column = reader.column
    given = reader.read(record, parts)
    if type(given) is bytes and len(given) <= VALUE_BYTES_MAX:
        return given
    return pack_value(column, given if type(given) is not bytes else show_string(given), "row")


def _reader(column: SortedColumn, topic: Schema | None, name: str) -> Any:
    typed = None if topic is None else topic.columns.get(name)
    if typed is not None:
        part, read = typed.part, typed.type.read
        if typed.type is column.type:
            return lambda record, parts: parts[part].get(name)

        def of_schema(record: FedRecord, parts: Mapping[str, Mapping[str, Any]]) -> Any:
            given = parts[part].get(name)
            try:
                return None if given is None else read(given)[0]
            except ValueError as wanted:
                raise ValueError(f"the topic's column {name}: {wanted}") from None

        return of_schema
    if name in (KEY, VALUE):
        return _text_reader(column, name)
    if name == TIMESTAMP_MS:
        scale = 1000 if column.type.name == "timestamp" else 1
        return lambda record, parts: None if record.timestamp_ms < 0 else record.timestamp_ms * scale
    if name == ROW_INDEX:
        return lambda record, parts: record.offset
    return lambda record, parts: record.partition


def _text_reader(column: SortedColumn, name: str) -> Any:
    is_bytes = column.type.name == "string"

    def of_record(record: FedRecord, parts: Any) -> Any:
        content = record.key if name == KEY else record.value
        if content is None or is_bytes:
            return content
        try:
            return content.decode()
        except UnicodeDecodeError:
            raise ValueError(f"{column.name}: the record's {name} is no UTF-8") from None

    return of_record


def _part_of(typed: Mapping[str, Any], name: str) -> str:
    """Return the part of a record that a origin is of; empty: of neither."""
    if name in typed:
        part: str = typed[name].part
        return part
    return name if name in PARTS else ""


def _parsed_parts(typed: Mapping[str, Any], origins: Origins, names: Sequence[str]) -> Sequence[str]:
    """Return the parts that the schema's columns among the origins of these columns come from."""
    found = {typed[origins[name]].part for name in names if origins[name] in typed}
    return [part for part in PARTS if part in found]


def _one_of(known: Sequence[str]) -> str:
    return f"The topic has {', '.join(known)}."


def _invalid(message: str, cure: str) -> TableError:
    return TableError("INVALID_ORIGINS", message, cure)
