"""Versions of rows as columns: what logs and chunks are read into, what is sorted, cleaned, cut and written."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy
import pyarrow
import pyarrow.compute as compute

from pqbroker.tables.sorted.chunks import Columns
from pqbroker.tables.work.typed import ARROW_TYPES

STORED_TYPES: Final = {**ARROW_TYPES, "any": pyarrow.string(), "timestamp": pyarrow.uint64()}
"""Arrow types of columns as chunks have them, by the name of a column's type."""


@dataclass(frozen=True, slots=True)
class SortedShape:
    """Columns of a table: those of the key, and the others behind them."""

    key_columns: Columns
    value_columns: Columns

    @classmethod
    def read(cls, document: dict[str, list[list[str]]]) -> "SortedShape":
        """Read what a message says."""
        key, value = (tuple((name, kind) for name, kind in document[part]) for part in ("key", "value"))
        return cls(key, value)

    @property
    def columns(self) -> Columns:
        return self.key_columns + self.value_columns

    @property
    def key_types(self) -> tuple[str, ...]:
        return tuple(kind for _, kind in self.key_columns)


class ColumnVersions(NamedTuple):
    """One column's values, an array of Arrow. `presence`: an array of booleans, False where a version leaves the column
    as it was, and the value is null; None: no write does."""

    values: Any
    presence: Any


class VersionColumns(NamedTuple):
    """Versions: encoded keys as binary of Arrow, timestamps and deletes as arrays of numpy, then each column."""

    keys: Any
    timestamps: Any
    deletes: Any
    columns: Sequence[ColumnVersions]

    def take(self, numbers: Any) -> "VersionColumns":
        """Return the versions with these numbers, an array."""
        return VersionColumns(
            self.keys.take(pyarrow.array(numbers)), self.timestamps[numbers], self.deletes[numbers],
            [_taken(column, numbers) for column in self.columns],
        )  # fmt: skip

    def slice(self, begin: int, end: int) -> "VersionColumns":
        size = end - begin
        return VersionColumns(
            self.keys.slice(begin, size), self.timestamps[begin:end], self.deletes[begin:end],
            [
                ColumnVersions(values.slice(begin, size), None if presence is None else presence[begin:end])
                for values, presence in self.columns
            ],
        )  # fmt: skip

    def order(self) -> Any:
        """Return the numbers of the versions by key, those of one key the newest first."""
        table = pyarrow.table({"key": self.keys, "timestamp": self.timestamps})
        order = compute.sort_indices(table, [("key", "ascending"), ("timestamp", "descending")])
        return order.to_numpy()

    def first_of_keys(self) -> Any:
        """Return an array of booleans, True where a version is the first of its key; the versions are in order."""
        count = len(self.keys)
        found = numpy.ones(count, bool)
        if count > 1:
            found[1:] = compute.not_equal(self.keys.slice(1), self.keys.slice(0, count - 1)).to_numpy(
                zero_copy_only=False
            )
        return found


def concatenated(parts: Sequence[VersionColumns]) -> VersionColumns:
    """Return versions end to end; one part at least."""
    if len(parts) == 1:
        return parts[0]
    return VersionColumns(
        pyarrow.concat_arrays([part.keys for part in parts]),
        numpy.concatenate([part.timestamps for part in parts]),
        numpy.concatenate([part.deletes for part in parts]),
        [_concatenated(columns) for columns in zip(*[part.columns for part in parts], strict=True)],
    )


def arrow_array(kind: str, rows: int, validity: Any, buffers: Sequence[Any]) -> Any:
    """Return an array of a column's type over buffers: offsets and bytes, or values. `validity`: booleans, or None
    where all are valid."""
    bits = None if validity is None or validity.all() else pack_bits(validity)
    return pyarrow.Array.from_buffers(STORED_TYPES[kind], rows, [bits, *buffers])


def pack_bits(booleans: Any) -> Any:
    """Return a bitmap of Arrow."""
    return pyarrow.py_buffer(numpy.packbits(booleans, bitorder="little"))


def _taken(column: ColumnVersions, numbers: Any) -> ColumnVersions:
    presence = None if column.presence is None else column.presence[numbers]
    return ColumnVersions(column.values.take(pyarrow.array(numbers)), presence)


def _concatenated(columns: Sequence[ColumnVersions]) -> ColumnVersions:
    values = pyarrow.concat_arrays([column.values for column in columns])
    if all(column.presence is None for column in columns):
        return ColumnVersions(values, None)
    presence = numpy.concatenate([
        numpy.ones(len(column.values), bool) if column.presence is None else column.presence for column in columns
    ])  # fmt: skip
    return ColumnVersions(values, presence)
