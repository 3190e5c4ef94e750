"""Typed row sets of a base tablet in memory, and the operations that change them; nothing here is stored.

A log says these operations in order; live changes and replay go through the same `apply`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

from sortedcontainers import SortedDict

from pqbroker.storage.tablets.value_encoding import Value

Key = tuple[int | str | bytes, ...]
Row = Mapping[str, Value]
Changed = Callable[[str, Key, Row | None], None]
"""Called with every row that is set, or gone (None): row set, key, row."""

_COLUMN_TYPES: dict[str, type] = {"int": int, "str": str, "bytes": bytes}


class Operation(IntEnum):
    """The first item of an operation; the numbers are stored. The second is the row set's name."""

    CREATE = 1
    """key columns as [name, type], value columns"""
    ALTER = 2
    """value columns"""
    DROP = 3
    PUT = 4
    """key, row"""
    DELETE = 5
    """key"""


class RowSetError(ValueError):
    """A change that does not fit the row sets: no such row set or column, a key of other types."""


@dataclass(frozen=True, slots=True)
class RowSetSchema:
    """Typed key columns (`int`, `str`, `bytes`) and the names of value columns, whose values may be anything."""

    key: tuple[tuple[str, str], ...]
    columns: tuple[str, ...]
    _key_types: list[type] = field(init=False, repr=False, compare=False)
    _names: frozenset[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        names = [name for name, _ in self.key] + list(self.columns)
        if not self.key or len(set(names)) != len(names):
            raise RowSetError(f"a row set needs a key and columns of different names, not {names}")
        unknown = [kind for _, kind in self.key if kind not in _COLUMN_TYPES]
        if unknown:
            raise RowSetError(f"a key column is int, str or bytes, not {', '.join(unknown)}")
        object.__setattr__(self, "_key_types", [_COLUMN_TYPES[kind] for _, kind in self.key])
        object.__setattr__(self, "_names", frozenset(self.columns))

    def check_key(self, key: Key) -> None:
        if [*map(type, key)] != self._key_types:
            raise RowSetError(f"{key!r} is no key of the columns {self.key}")

    def check_row(self, row: Row) -> None:
        if not row.keys() <= self._names:
            raise RowSetError(f"there is no column {', '.join(sorted(row.keys() - self._names))}")


class RowSet:
    """One row set's schema and rows in key order. Only `apply` changes it."""

    __slots__ = ("rows", "schema")

    def __init__(self, schema: RowSetSchema) -> None:
        self.schema = schema
        self.rows: SortedDict[Key, Row] = SortedDict()

    def get(self, key: Key) -> Row | None:
        row: Row | None = self.rows.get(key)
        return row

    def __iter__(self) -> Iterator[tuple[Key, Row]]:
        return iter(self.rows.items())

    def __len__(self) -> int:
        return len(self.rows)


class RowChanges:
    """Changes to be made together. What it reads is the state before all of them."""

    def __init__(self, row_sets: Mapping[str, RowSet]) -> None:
        self.row_sets = row_sets
        self.operations: list[list[Any]] = []
        self._schemas = {name: row_set.schema for name, row_set in row_sets.items()}

    def create_row_set(self, name: str, key: Sequence[tuple[str, str]], columns: Sequence[str]) -> None:
        """`key`: column names and types. RowSetError when the row set exists."""
        if name in self._schemas:
            raise RowSetError(f"there is a row set {name} already")
        self._schemas[name] = RowSetSchema(tuple(key), tuple(columns))
        self.operations.append(creation(name, self._schemas[name]))

    def alter_row_set(self, name: str, columns: Sequence[str]) -> None:
        """Give the row set other value columns; values of those that go are gone."""
        self._schemas[name] = RowSetSchema(self._schema(name).key, tuple(columns))
        self.operations.append([Operation.ALTER, name, list(columns)])

    def columns(self, name: str) -> tuple[str, ...]:
        """Return the value columns that a row set has with these changes."""
        return self._schema(name).columns

    def drop_row_set(self, name: str) -> None:
        self._schema(name)
        del self._schemas[name]
        self.operations.append([Operation.DROP, name])

    def put(self, name: str, key: Key, row: Row) -> None:
        """Set a whole row."""
        schema = self._schema(name)
        schema.check_key(key)
        schema.check_row(row)
        self.operations.append(put_operation(name, key, row))

    def delete(self, name: str, key: Key) -> None:
        """Delete a row; one that is not there already is as good."""
        self._schema(name).check_key(key)
        self.operations.append([Operation.DELETE, name, list(key)])

    def _schema(self, name: str) -> RowSetSchema:
        schema = self._schemas.get(name)
        if schema is None:
            raise RowSetError(f"there is no row set {name}")
        return schema


def snapshot(row_sets: Mapping[str, RowSet]) -> Iterator[list[Any]]:
    """The operations that make these row sets out of none, `operation_count` of them."""
    for name, row_set in row_sets.items():
        yield creation(name, row_set.schema)
        for key, row in row_set:
            yield put_operation(name, key, row)


def creation(name: str, schema: RowSetSchema) -> list[Any]:
    """Return the operation that makes a row set without rows."""
    return [Operation.CREATE, name, [list(column) for column in schema.key], list(schema.columns)]


def put_operation(name: str, key: Key, row: Row) -> list[Any]:
    """Return the operation that sets a row."""
    return [Operation.PUT, name, list(key), dict(row)]


def operation_count(row_sets: Mapping[str, RowSet]) -> int:
    return sum(1 + len(row_set) for row_set in row_sets.values())


def apply(row_sets: dict[str, RowSet], operation: Sequence[Any], changed: Changed) -> None:
    """Make one change in memory. LookupError, ValueError or TypeError for one that no change makes."""
    kind, name, *rest = operation
    if kind == Operation.PUT:
        key = tuple(rest[0])
        row_sets[name].rows[key] = rest[1]
        changed(name, key, rest[1])
    elif kind == Operation.DELETE:
        key = tuple(rest[0])
        if row_sets[name].rows.pop(key, None) is not None:
            changed(name, key, None)
    elif kind == Operation.CREATE:
        row_sets[name] = RowSet(RowSetSchema(tuple((column, type_) for column, type_ in rest[0]), tuple(rest[1])))
    elif kind == Operation.ALTER:
        _alter(name, row_sets[name], tuple(rest[0]), changed)
    elif kind != Operation.DROP:
        raise ValueError(f"there is no operation {kind!r}")
    else:
        for key in row_sets.pop(name).rows:
            changed(name, key, None)


def _alter(name: str, row_set: RowSet, columns: tuple[str, ...], changed: Changed) -> None:
    gone = set(row_set.schema.columns) - set(columns)
    row_set.schema = RowSetSchema(row_set.schema.key, columns)
    for key, row in row_set if gone else ():
        left = {column: value for column, value in row.items() if column not in gone}
        if len(left) != len(row):
            row_set.rows[key] = left
            changed(name, key, left)
