"""Tables, their columns and tablets, as a client gives and gets them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a schema. `part`: the part of a record that its values are stored in, `value` or `key`, in a table
    that is a topic. `sort_order`: "ascending" for the columns that a sorted table's rows are found by, which come
    first."""

    name: str
    type: str
    is_required: bool = False
    part: str = "value"
    sort_order: str | None = None

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> Self:
        part, order = document.get("from", "value"), document.get("sort_order")
        return cls(document["name"], document["type"], document["required"], part, order)

    def document(self) -> dict[str, Any]:
        part = {} if self.part == "value" else {"from": self.part}
        order = {} if self.sort_order is None else {"sort_order": self.sort_order}
        return {"name": self.name, "type": self.type, "required": self.is_required, **part, **order}


@dataclass(frozen=True, slots=True)
class TableSummary:
    """The entry of a table in a list. `state`: of all its tablets, else `mixed`, or `transient` while one changes; a
    static table has none."""

    name: str
    path: str
    tablet_count: int
    state: str
    bundle: str
    is_dynamic: bool = True
    is_sorted: bool = False
    """True if rows are found by key; such a table is no topic."""

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> Self:
        return cls(
            document["name"], document["path"], document["tablet_count"], document["state"], document["bundle"],
            document["dynamic"], document.get("sorted", False),
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class TableDescription:
    """A table. `attributes` are set, and act in a tablet from its next mount or remount on; `mounted_attributes` act in
    all tablets. Where tablets differ in one, only their descriptions have it."""

    summary: TableSummary
    columns: tuple[Column, ...]
    attributes: Mapping[str, Any]
    mounted_attributes: Mapping[str, Any]
    pivot_keys: tuple[tuple[Any, ...], ...] = ()
    """The first key of each tablet of a sorted table: values of the first key columns, none for the first tablet."""

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> Self:
        columns = tuple(map(Column.read, document["schema"]))
        pivots = tuple(map(tuple, document.get("pivot_keys", ())))
        attributes, mounted = document["attributes"], document["mounted_attributes"]
        return cls(TableSummary.read(document), columns, attributes, mounted, pivots)


@dataclass(frozen=True, slots=True)
class TabletDescription:
    """A tablet. Rows from `trimmed_row_count` to below `total_row_count` exist; those before `flushed_row_count` lie in
    the body. A sorted table's tablet has no such counts, and a `pivot_key` instead: its rows begin there. `cell_id`
    None: it is unmounted. `mounted_attributes` act in it."""

    index: int
    state: str
    trimmed_row_count: int | None
    flushed_row_count: int | None
    total_row_count: int | None
    cell_id: str | None
    home_cell_id: str
    mounted_attributes: Mapping[str, Any]
    statistics: Mapping[str, Any]
    pivot_key: tuple[Any, ...] | None = None

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> Self:
        found: dict[str, Any] = {name: document.get(name) for name in cls.__slots__}
        if found["pivot_key"] is not None:
            found["pivot_key"] = tuple(found["pivot_key"])
        return cls(**found)


@dataclass(frozen=True, slots=True)
class RowRanges:
    """The rows of any topic: by tablet the index of its first row, and the one behind its last. A topic that is deleted
    and created again has another `topic_id`."""

    topic_id: str
    ranges: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class InsertedRows:
    """The place of the rows of one request: all in a row, from `first_row_index` on."""

    tablet_index: int
    first_row_index: int
    row_count: int


@dataclass(frozen=True, slots=True)
class Inserted:
    """Rows that an insert has written. `parts`: their places in a table that is a topic, request by request."""

    parts: tuple[InsertedRows, ...]
    data_weight: int
    is_duplicate: bool = False
    """True if the session's batch was stored before: nothing was written now, and `parts` has only its last request."""
    row_count: int = 0
    timestamp: int | None = None
    """Timestamp of the last commit, of a sorted table: lookups at it see all rows."""

    @classmethod
    def read(cls, documents: list[dict[str, Any]]) -> Self:
        """Read the answers to the requests."""
        tablets = [tablet for document in documents for tablet in document["tablets"]]
        parts = tuple(InsertedRows(**{name: one[name] for name in InsertedRows.__slots__}) for one in tablets)
        weight = sum(document["data_weight"] for document in documents)
        is_duplicate = any(document.get("duplicate", False) for document in documents)
        rows = sum(part.row_count for part in parts) + sum(document.get("row_count", 0) for document in documents)
        timestamp = documents[-1].get("timestamp") if documents else None
        return cls(parts, weight, is_duplicate, rows, timestamp)


@dataclass(frozen=True, slots=True)
class DeletedRows:
    """Rows that were deleted by key: as many as keys were given, whether there was a row or not."""

    row_count: int
    timestamp: int | None
    """Timestamp of the last commit; None: no key was given."""


@dataclass(frozen=True, slots=True)
class StagedPiece:
    """Rows that wait for the commit of their batch."""

    name: str
    tablet_index: int
    row_count: int

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> Self:
        return cls(**{name: document[name] for name in cls.__slots__})


@dataclass(frozen=True, slots=True)
class CommittedBatch:
    """A batch whose rows are in the table. `is_duplicate`: they were before; nothing was written now."""

    row_count: int
    is_duplicate: bool
