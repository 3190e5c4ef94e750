"""Rows of a table as typed Arrow columns: JSON documents by the thousand (`json_columns`); what that calls doubtful,
and what is not in JSON, one by one.

The rules are `rows.decode_row`'s, which reads the latter.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

import numpy
import pyarrow
import pyarrow.compute as compute

from pqbroker.tables.formats import JSON
from pqbroker.tables.rows import ERROR, decode_row
from pqbroker.tables.schema import Schema
from pqbroker.tables.types import bytes_of
from pqbroker.tables.work.json_columns import MADE_TYPES, JsonColumns, write_document

JSON_TYPE: Final = pyarrow.json_(pyarrow.string())
ARROW_TYPES: Final[Mapping[str, Any]] = {**MADE_TYPES, "any": JSON_TYPE, "timestamp": pyarrow.timestamp("us")}
"""Arrow types by the name of a column's type."""


class RowColumns(Protocol):
    """Makes columns, and `$error`, of records' keys and values."""

    @property
    def types(self) -> Mapping[str, Any]:
        """Return the Arrow types of the columns by name, in order; `$error` says why a record is not a row."""

    @property
    def is_whole(self) -> bool:
        """Return True unless a record was no row for a reason that may pass: its columns are not kept."""

    @property
    def parts(self) -> tuple[str, ...]:
        """Return the parts of a record that columns come from."""

    def make(self, parts: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return arrays by name from the parts, binary arrays by name."""


class TypedColumns:
    """Makes the columns of a schema that the topic has."""

    __slots__ = ("_parts", "_schema", "types")
    is_whole = True

    def __init__(self, schema: Schema) -> None:
        columns = schema.columns.values()
        self._schema = schema
        self._parts: Mapping[str, JsonColumns] | None = None
        """Makers by part, where every part is in JSON."""
        if all(schema.formats[part].name == JSON for part in schema.parts):
            self._parts = {
                part: JsonColumns([column for column in columns if column.part == part]) for part in schema.parts
            }
        self.types = {column.name: ARROW_TYPES[column.type.name] for column in columns} | {ERROR: pyarrow.string()}
        """Arrow types of the columns by name, in order; `$error` says why a record is not a row."""

    @property
    def parts(self) -> tuple[str, ...]:
        """Return the parts of a record that columns come from."""
        return self._schema.parts

    def make(self, parts: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return arrays by name from the parts, binary arrays by name. Columns of a record that is no row are null."""
        count = len(next(iter(parts.values())))
        arrays: dict[str, Any] = dict.fromkeys(self._schema.columns)
        doubtful = numpy.zeros(count, bool)
        if self._parts is None:
            doubtful[:] = True
        else:
            for part, columns in self._parts.items():
                made, is_doubtful = columns.make(parts[part])
                arrays |= made
                doubtful |= is_doubtful
        arrays[ERROR] = pyarrow.nulls(count, pyarrow.string())
        if doubtful.any():
            self._decode(parts, doubtful, arrays)
        return {name: _typed(array, self.types[name]) for name, array in arrays.items()}

    def _decode(self, parts: Mapping[str, Any], doubtful: Any, arrays: dict[str, Any]) -> None:
        """Read the doubtful records one by one, and put them in their places."""
        mask = pyarrow.array(doubtful)
        wanted = {part: array.filter(mask).to_pylist() for part, array in parts.items()}
        nothing = [None] * int(doubtful.sum())
        documents = zip(wanted.get("key", nothing), wanted.get("value", nothing), strict=True)
        rows = [decode_row(self._schema, key, value) for key, value in documents]
        kinds = {name: column.type.name for name, column in self._schema.columns.items()} | {ERROR: "utf8"}
        for name, kind in kinds.items():
            found = _array([row.get(name) for row in rows], kind)
            array = arrays[name]
            arrays[name] = found if doubtful.all() else compute.replace_with_mask(array, mask, found)


def _array(values: Sequence[Any], kind: str) -> Any:
    convert = _STORED.get(kind)
    stored = values if convert is None else [None if value is None else convert(value) for value in values]
    return pyarrow.array(stored, MADE_TYPES[kind])


def _typed(array: Any, kind: Any) -> Any:
    if kind == JSON_TYPE:
        return pyarrow.ExtensionArray.from_storage(JSON_TYPE, array)
    return array if array.type == kind else array.cast(kind)


_STORED: Final[Mapping[str, Callable[[Any], Any]]] = {"string": bytes_of, "any": write_document}
