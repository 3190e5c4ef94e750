"""Columns in Avro: each is the field of its name; a field that no column has the name of is left out.

A datum is bare, or stands behind the five bytes of a schema registry: 0 and the schema's number, which is left aside.
"""

import io
import json
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

import fastavro
from fastavro.schema import SchemaParseException, UnknownType

from pqbroker.tables.avro_schema import (
    DECIMAL,
    JSON_TEXT,
    MICROS,
    AvroRecord,
    Branch,
    read_avro_schema,
)
from pqbroker.tables.columns import Column
from pqbroker.tables.refusals import TableError
from pqbroker.tables.types import bytes_of, show_string

REGISTRY_BYTES: Final = 5
_UNDECODABLE = (EOFError, IndexError, KeyError, OverflowError, TypeError, ValueError)
_UNENCODABLE = (AttributeError, IndexError, KeyError, OverflowError, TypeError, ValueError)
_KINDS: Final[Mapping[str, Sequence[str]]] = {
    "timestamp": ("long",),
    "double": ("float", "double"),
    "boolean": ("boolean",),
    "string": ("bytes", "string", "fixed", "enum"),
    "utf8": ("string", "enum"),
}
"""Avro types that a column's type may have; integers have int, long, and decimals without a fraction."""
_INT_END = 1 << 31
_SCHEMAS_KEPT = 64


class _Field(NamedTuple):
    """A column's values, from what Avro has to what `ColumnType.read` takes, and back from what that gave."""

    read: Callable[[Any], Any]
    write: Callable[[Any], Any]


class AvroFormat:
    """One record of a checked schema for each part."""

    __slots__ = ("_fields", "_lacking", "_part", "_read", "_written")
    name = "avro"

    def __init__(self, part: str, record: AvroRecord, fields: Mapping[str, _Field], lacking: Sequence[str]) -> None:
        self._part = part
        self._written = fastavro.parse_schema(record.document)
        self._read = fastavro.parse_schema(record.narrowed(fields))
        """Arrays and maps of other fields are skipped."""
        self._fields = fields
        self._lacking = lacking
        """Columns that the schema has no field of."""

    def read(self, stored: bytes | None) -> Mapping[str, Any]:
        if stored is None:
            return {}
        datum = self._decoded(stored)
        if datum is None and stored[:1] == b"\0":
            datum = self._decoded(stored[REGISTRY_BYTES:])
        if datum is None:
            raise ValueError(f"the {self._part} is no Avro of {self._part}.avro.schema")
        return {
            name: None if datum[name] is None else field.read(datum[name]) for name, field in self._fields.items()
        }

    def write(self, fields: Mapping[str, Any]) -> bytes:
        for name in self._lacking:
            if name in fields:
                raise ValueError(f"{self._part}.avro.schema has no field {name}")
        encoded = io.BytesIO()
        try:
            datum = {name: self._fields[name].write(value) for name, value in fields.items()}
            fastavro.schemaless_writer(encoded, self._written, datum)
        except _UNENCODABLE as error:
            raise ValueError(f"it does not fit {self._part}.avro.schema: {str(error)[:200]}") from None
        return encoded.getvalue()

    def _decoded(self, content: bytes) -> Any:
        """Return the whole content as one record; None if it is not one."""
        stream = io.BytesIO(content)
        try:
            datum = fastavro.schemaless_reader(stream, self._written, self._read)
        except _UNDECODABLE:
            return None
        return datum if stream.tell() == len(content) else None


@lru_cache(maxsize=_SCHEMAS_KEPT)
def avro_format(part: str, columns: tuple[Column, ...], text: str) -> AvroFormat:
    """`text`: the Avro schema. TableError INVALID_SCHEMA."""
    config = f"{part}.avro.schema"
    record = read_avro_schema(text, config)
    fields = {}
    for column in columns:
        branches = [branch for branch in record.branches.get(column.name, ()) if branch.kind != "null"]
        if branches:
            fields[column.name] = _field(column, branches, config)
        elif column.is_required:
            text = f"{config} has no field {column.name!r}, and the column is required"
            raise TableError("INVALID_SCHEMA", text, "Add the field, or make the column optional.")
    lacking = [column.name for column in columns if column.name not in fields]
    try:
        return AvroFormat(part, record, fields, lacking)
    except (SchemaParseException, UnknownType, *_UNENCODABLE) as error:
        cure = "Give an Avro schema as the specification of Avro has it."
        raise TableError("INVALID_SCHEMA", f"{config}: {str(error)[:200]}", cure) from None


def _field(column: Column, branches: Sequence[Branch], config: str) -> _Field:
    kind = column.type.name
    if kind == "any":
        return _JSON_FIELD if len(branches) == 1 and branches[0].logical == JSON_TEXT else _ANY_FIELD
    if len(branches) > 1:
        text = f"{config}: the field {column.name} has several types besides null"
        raise TableError("INVALID_SCHEMA", text, "Make the column one of type any, or the field one of a single type.")
    (branch,) = branches
    if column.type.bounds is not None and branch.logical == DECIMAL and not branch.scale:
        return _Field(_read_decimal, _decimal_writer(branch))
    taken = ("int", "long") if column.type.bounds is not None else _KINDS[kind]
    if branch.kind not in taken:
        text = f"{config}: the field {column.name} is {branch.kind}, and the column is {kind}"
        raise TableError("INVALID_SCHEMA", text, f"Have {' or '.join(taken)} there, or a column of another type.")
    if kind == "timestamp":
        return _TIMESTAMPS.get(branch.logical.removeprefix("local-"), _TIMESTAMPS[MICROS])
    if kind == "string":
        return _Field(_read_string, _string_writer(branch))
    return _Field(_same, _write_int if branch.kind == "int" else _same)


def _same(value: Any) -> Any:
    return value


def _write_int(value: int) -> int:
    if not -_INT_END <= value < _INT_END:
        raise ValueError(f"{value} is no int of Avro's, which has 32 bits")
    return value


def _read_decimal(stored: bytes) -> int:
    return int.from_bytes(stored, "big", signed=True)


def _decimal_writer(branch: Branch) -> Callable[[int], bytes]:
    def write(value: int) -> bytes:
        return value.to_bytes(branch.size or value.bit_length() // 8 + 1, "big", signed=True)

    return write


def _read_string(stored: Any) -> Any:
    return show_string(stored) if isinstance(stored, bytes) else stored


def _string_writer(branch: Branch) -> Callable[[Any], Any]:
    def write(value: Any) -> Any:
        if branch.kind == "bytes":
            return bytes_of(value)
        if branch.kind == "fixed":
            content = bytes_of(value)
            if len(content) != branch.size:
                raise ValueError(f"{len(content)} bytes are given, and the field has {branch.size}")
            return content
        if not isinstance(value, str):
            raise ValueError(f"bytes that are no UTF-8 are given, and the field is {branch.kind}")
        return value

    return write


def _plain(value: Any) -> Any:
    """Return a decoded value as it is in JSON; containers change in place, for there may be many."""
    if isinstance(value, bytes):
        return show_string(value)
    if isinstance(value, dict):
        for name, each in value.items():
            value[name] = _plain(each)
    elif isinstance(value, list):
        for number, each in enumerate(value):
            value[number] = _plain(each)
    return value


_dump = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_ANY_FIELD = _Field(_plain, _same)
_JSON_FIELD = _Field(json.loads, _dump)
_TIMESTAMPS: Final[Mapping[str, _Field]] = {
    "timestamp-millis": _Field(lambda stored: stored * 1000, lambda micros: micros // 1000),
    MICROS: _Field(_same, _same),
    "timestamp-nanos": _Field(lambda stored: stored // 1000, lambda micros: micros * 1000),
}
"""Fields by logical type."""
