"""Columns of a topic in SQL: those of every record, and those of its schema where it has one."""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow

from pqbroker.pq.log.row_facts import CUMULATIVE_WEIGHT, TIMESTAMP
from pqbroker.tables.column_documents import clashing
from pqbroker.tables.columns import folded
from pqbroker.tables.formats import Formats
from pqbroker.tables.rows import ERROR, ROW_INDEX, TABLET_INDEX
from pqbroker.tables.schema import read_schema
from pqbroker.tables.work.refusal import QueryRefused
from pqbroker.tables.work.typed import RowColumns, TypedColumns

HEADER_TYPE: Final = pyarrow.struct([("key", pyarrow.string()), ("value", pyarrow.binary())])
RAW: Final[Mapping[str, Any]] = {
    TABLET_INDEX: pyarrow.int64(),
    ROW_INDEX: pyarrow.int64(),
    TIMESTAMP: pyarrow.uint64(),
    "timestamp_ms": pyarrow.int64(),
    "key": pyarrow.binary(),
    "value": pyarrow.binary(),
    "headers": pyarrow.list_(HEADER_TYPE),
}
"""Columns of every topic, in order."""
_FILLED: Final[Mapping[str, Any]] = {TIMESTAMP: pyarrow.uint64(), CUMULATIVE_WEIGHT: pyarrow.int64()}
"""Columns of schemas that are no part of a record."""


@dataclass(frozen=True, slots=True)
class View:
    """A topic's columns. A column of the schema hides the record's of the same name, in any case."""

    types: Mapping[str, Any]
    """Arrow types of columns by name; the columns of `*` come first."""
    starred: int
    """Number of columns that `*` shows."""
    typed: RowColumns | None = None
    text: str = ""
    """The schema; two views with one text have the same columns."""
    filled: tuple[str, ...] = ()
    """Columns of the schema that the table fills."""
    reason: str = ""
    """Reason why columns of a registry's schema are missing."""

    @property
    def is_whole(self) -> bool:
        """Return True if the columns that were made may be kept."""
        return self.typed is None or self.typed.is_whole

    def columns(self, used: Collection[str], *, has_star: bool) -> tuple[str, ...]:
        """Return the columns that a query needs which uses these names, folded; one at least, for rows are counted.
        QueryRefused where two of them have one name: schemas were once taken with such."""
        found = [
            name
            for number, name in enumerate(self.types)
            if (has_star and number < self.starred) or folded(name) in used
        ]
        if clash := clashing(found):
            raise QueryRefused(
                "INVALID_SCHEMA",
                f"the columns {clash[0]!r} and {clash[1]!r} differ by upper and lower case alone; in SQL they are one",
                "Set a schema that names them differently, or read the topic by a schema that has one of them.",
            )  # fmt: skip
        return tuple(found) or (ROW_INDEX,)

    def is_typed(self, name: str) -> bool:
        """Return True if a column comes from the schema, where its name may be spelled in another case."""
        return self.typed is not None and any(folded(each) == folded(name) for each in self.typed.types)

    def wants_facts(self, columns: Collection[str]) -> bool:
        """Return True if some of the columns are made of what the broker knows beside the records."""
        return any(name in self.filled for name in columns)

    def schema(self, columns: Sequence[str]) -> Any:
        """The Arrow schema of some columns."""
        return pyarrow.schema([(name, self.types[name]) for name in columns])


RAW_VIEW: Final = View(RAW, len(RAW))


def view_of(columns: Sequence[Mapping[str, Any]] | None, formats: Formats) -> View:
    """The view of a topic whose schema has these columns, as stored, in these formats; None: it has no schema."""
    if columns is None:
        return RAW_VIEW
    schema = read_schema(columns, len(columns), formats)
    typed = TypedColumns(schema)
    text = json.dumps([columns, formats])
    return _view(typed, schema.shown, {**typed.types, **_FILLED}, text, schema.filled)


def registry_view(topic: str, decoding: Mapping[str, Any], columns_max: int) -> View:
    """The view of a topic that names a registry; where that does not answer, it has the columns of every topic, and
    `$error` says why."""
    from pqbroker.tables.work.registry_columns import RegistryColumns

    typed = RegistryColumns(topic, decoding, columns_max)
    names = [name for name in typed.types if name != ERROR]
    view = _view(typed, names, typed.types, typed.identity, ())
    if names:
        return replace(view, reason=typed.reason)
    return View({**RAW, ERROR: typed.types[ERROR]}, len(RAW) + 1, typed, typed.identity, (), typed.reason)


def _view(
    typed: RowColumns, shown: Iterable[str], known: Mapping[str, Any], text: str, filled: tuple[str, ...]
) -> View:
    types = {name: RAW[name] for name in (TABLET_INDEX, ROW_INDEX)} | {name: known[name] for name in shown}
    taken = {folded(name) for name in types}
    hidden = {name: kind for name, kind in RAW.items() if name not in taken}
    return View({**types, **hidden, ERROR: known[ERROR]}, len(types), typed, text, filled)
