"""Rows of a table as typed Arrow columns: JSON documents parsed by the thousand, or one by one where one is no row,
and what is not in JSON too.

The rules are `rows.decode_row`'s: what Arrow's parser takes, it takes as they do, and what it refuses they decide.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import pyarrow
import pyarrow.compute
import pyarrow.json

from pqbroker.tables.columns import PARTS
from pqbroker.tables.formats import JSON
from pqbroker.tables.rows import ERROR, decode_row
from pqbroker.tables.schema import Schema
from pqbroker.tables.types import TIMESTAMP_END, ColumnType, bytes_of

JSON_TYPE: Final = pyarrow.json_(pyarrow.string())
ARROW_TYPES: Final[Mapping[str, Any]] = {
    **{f"{sign}int{bits}": getattr(pyarrow, f"{sign}int{bits}")() for sign in ("", "u") for bits in (8, 16, 32, 64)},
    "double": pyarrow.float64(),
    "boolean": pyarrow.bool_(),
    "string": pyarrow.binary(),
    "utf8": pyarrow.string(),
    "any": JSON_TYPE,
    "timestamp": pyarrow.timestamp("us"),
}
"""Arrow types by the name of a column's type."""
_PARSED: Final[Mapping[str, Any]] = {**ARROW_TYPES, "string": pyarrow.string(), "timestamp": pyarrow.int64()}
"""Arrow types that the JSON parser is given in their place."""
Documents = Sequence[bytes | None]


class TypedColumns:
    """Makes the columns of a schema, and `$error`, of records' keys and values."""

    __slots__ = ("_has_key", "_is_plain", "_parsed", "_schema", "types")

    def __init__(self, schema: Schema) -> None:
        columns = schema.columns.values()
        self._schema = schema
        self._has_key = any(column.part == "key" for column in columns)
        is_json = all(schema.formats[part].name == JSON for part in schema.parts)
        self._is_plain = is_json and all(column.type.name != "any" for column in columns)
        """True if Arrow's parser can make every column."""
        fields = {
            part: [(column.name, _PARSED[column.type.name]) for column in columns if column.part == part]
            for part in PARTS
        }
        self._parsed = pyarrow.schema([(part, pyarrow.struct(fields[part])) for part in PARTS if fields[part]])
        self.types = {column.name: ARROW_TYPES[column.type.name] for column in columns} | {ERROR: pyarrow.string()}
        """Arrow types of the columns by name, in order; `$error` says why a record is not a row."""

    def make(self, keys: Documents, values: Documents) -> Mapping[str, Any]:
        """Arrays by name. Columns of a record that is no row are null."""
        return self._parse(keys, values) or self._decode(keys, values)

    def _parse(self, keys: Documents, values: Documents) -> Mapping[str, Any] | None:
        """Parse all documents at once; None if that is impossible, or if one is not a row."""
        parts = {"value": values, "key": keys} if self._has_key else {"value": values}
        documents = {part: parts[part] for part in self._parsed.names}
        if not self._is_plain or not values or any(None in each for each in documents.values()):
            return None
        try:
            table = _parsed(documents, self._parsed)
        except (pyarrow.ArrowException, UnicodeDecodeError):
            return None
        if table.num_rows != len(values) or any(column.null_count for column in table.columns):
            return None
        found: dict[str, Any] = {}
        for part in table.columns:
            found |= zip([field.name for field in part.type], part.flatten(), strict=True)
        arrays = {name: _checked(found[name], column) for name, column in self._schema.columns.items()}
        if any(array is None for array in arrays.values()):
            return None
        return {**arrays, ERROR: pyarrow.nulls(len(values), pyarrow.string())}

    def _decode(self, keys: Documents, values: Documents) -> Mapping[str, Any]:
        rows = [decode_row(self._schema, key, value) for key, value in zip(keys, values, strict=True)]
        arrays = {
            name: _array([row[name] for row in rows], column.type.name)
            for name, column in self._schema.columns.items()
        }
        return {**arrays, ERROR: pyarrow.array([row.get(ERROR) for row in rows], pyarrow.string())}


def _parsed(documents: Mapping[str, Documents], schema: Any) -> Any:
    """One row for each document of each part: {"value": …, "key": …}. A document that holds more or less than one
    object is an error, for what is around it."""
    first, *others = documents
    lines = [b'{"%b":%b' % (first.encode(), each) for each in documents[first] if each is not None]
    for part in others:
        ends = [b',"%b":%b' % (part.encode(), each) for each in documents[part] if each is not None]
        lines = [line + end for line, end in zip(lines, ends, strict=True)]
    data = b"}\n".join(lines) + b"}\n"
    data.decode()  # the parser takes any bytes for text
    return pyarrow.json.read_json(
        pyarrow.BufferReader(data),
        pyarrow.json.ReadOptions(use_threads=False, block_size=len(data) + 1),
        pyarrow.json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore"),
    ).combine_chunks()


def _checked(array: Any, column: Any) -> Any:
    """The column's array of what was parsed; None where a value is none of its type's, or a required one is missing."""
    array = array.combine_chunks() if isinstance(array, pyarrow.ChunkedArray) else array
    if column.is_required and array.null_count:
        return None
    kind: ColumnType = column.type
    if kind.name == "double" and pyarrow.compute.all(pyarrow.compute.is_finite(array)).as_py() is False:
        return None
    if kind.name == "timestamp":
        least, most = pyarrow.compute.min_max(array).as_py().values()
        if least is not None and not 0 <= least <= most < TIMESTAMP_END:
            return None
    return array.cast(ARROW_TYPES[kind.name])


def _array(values: Sequence[Any], kind: str) -> Any:
    convert = _STORED.get(kind)
    stored = values if convert is None else [None if value is None else convert(value) for value in values]
    if kind == "any":
        return pyarrow.ExtensionArray.from_storage(JSON_TYPE, pyarrow.array(stored, pyarrow.string()))
    return pyarrow.array(stored, ARROW_TYPES[kind])


_dump = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_STORED: Final[Mapping[str, Callable[[Any], Any]]] = {"string": bytes_of, "any": _dump}
