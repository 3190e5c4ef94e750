"""Tables, their columns and tablets, as a client gives and gets them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a schema. `part`: the part of a record that its values are stored in, `value` or `key`."""

    name: str
    type: str
    is_required: bool = False
    part: str = "value"

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> Self:
        return cls(document["name"], document["type"], document["required"], document["from"])

    def document(self) -> dict[str, Any]:
        return {"name": self.name, "type": self.type, "required": self.is_required, "from": self.part}


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

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> Self:
        return cls(
            document["name"], document["path"], document["tablet_count"], document["state"], document["bundle"],
            document["dynamic"],
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class TableDescription:
    """A table. `attributes` are set, and act in a tablet from its next mount or remount on; `mounted_attributes` act in
    all tablets. Where tablets differ in one, only their descriptions have it."""

    summary: TableSummary
    columns: tuple[Column, ...]
    attributes: Mapping[str, Any]
    mounted_attributes: Mapping[str, Any]

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> Self:
        columns = tuple(map(Column.read, document["schema"]))
        return cls(TableSummary.read(document), columns, document["attributes"], document["mounted_attributes"])


@dataclass(frozen=True, slots=True)
class TabletDescription:
    """A tablet. Rows from `trimmed_row_count` to below `total_row_count` exist; those before `flushed_row_count` lie in
    the body. `cell_id` None: it is unmounted. `mounted_attributes` act in it."""

    index: int
    state: str
    trimmed_row_count: int
    flushed_row_count: int
    total_row_count: int
    cell_id: str | None
    home_cell_id: str
    mounted_attributes: Mapping[str, Any]
    statistics: Mapping[str, Any]

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> Self:
        return cls(**{name: document[name] for name in cls.__slots__})


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
    """The places where an insert has put the rows, request by request."""

    parts: tuple[InsertedRows, ...]
    data_weight: int
    is_duplicate: bool = False
    """True if the session's batch was stored before: nothing was written now, and `parts` has only its last request."""

    @property
    def row_count(self) -> int:
        return sum(part.row_count for part in self.parts)

    @classmethod
    def read(cls, documents: list[dict[str, Any]]) -> Self:
        """Read the answers to the requests."""
        tablets = [tablet for document in documents for tablet in document["tablets"]]
        parts = (InsertedRows(**{name: one[name] for name in InsertedRows.__slots__}) for one in tablets)
        weight = sum(document["data_weight"] for document in documents)
        return cls(tuple(parts), weight, any(document.get("duplicate", False) for document in documents))


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
