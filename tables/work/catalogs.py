"""Catalogs in SQL: `information_schema.tables` and `.columns`, filled by the broker with what the caller may read.

SHOW TABLES and DESCRIBE are written as queries over them.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow
from sqlglot import exp, parse_one

from pqbroker.tables.columns import folded
from pqbroker.tables.rows import ROW_INDEX, TABLET_INDEX
from pqbroker.tables.work.comparisons import EQUAL, LiteralComparison
from pqbroker.tables.work.messages import Line
from pqbroker.tables.work.spelling import topic_of

INFORMATION_SCHEMA: Final = "information_schema"
TABLES: Final = "tables"
COLUMNS: Final = "columns"
FILE_KIND: Final = "file"
"""Kind of local files."""
_CATALOG: Final = "pqbroker"
_MAIN: Final = "main"
_NAMES: Final = {"table_catalog": pyarrow.string(), "table_schema": pyarrow.string(), "table_name": pyarrow.string()}
CATALOG_TYPES: Final[Mapping[str, Mapping[str, Any]]] = {
    TABLES: {**_NAMES, "table_type": pyarrow.string(), "table_kind": pyarrow.string(), "tablet_count": pyarrow.int64()},
    COLUMNS: {
        **_NAMES, "column_name": pyarrow.string(), "ordinal_position": pyarrow.int32(), "is_nullable": pyarrow.string(),
        "data_type": pyarrow.string(), "is_key": pyarrow.string(), "is_hidden": pyarrow.string(),
    },
}  # fmt: skip
"""Arrow types of the columns of each catalog."""
_SHOW: Final = "SELECT table_name AS name, table_kind AS kind FROM information_schema.tables ORDER BY 1"
_DESCRIBE: Final = (
    'SELECT column_name, data_type AS column_type, is_nullable AS "null",'
    " CASE WHEN is_key = 'YES' THEN 'PRI' END AS \"key\", CASE WHEN is_hidden = 'YES' THEN 'not in *' END AS extra"
    " FROM information_schema.columns WHERE table_name = $name ORDER BY ordinal_position"
)
_WHOLE: Final = frozenset((TABLET_INDEX, ROW_INDEX))
"""Columns that are never null."""


@dataclass(frozen=True, slots=True)
class Catalog:
    """A catalog where the query names it, under a name of ours."""

    relation: str
    kind: str
    names: frozenset[str] | None = None
    """Topics and tables that its WHERE leaves; None: any."""

    @property
    def types(self) -> Mapping[str, Any]:
        """Return the Arrow types of the columns by name."""
        return CATALOG_TYPES[self.kind]

    def rows(self, line: Line, kinds: "ColumnKinds", sent: Mapping[str, bytes]) -> Any:
        """Return the rows as an Arrow table. `sent`: files that came with the query. QueryRefused, Stopped."""
        has_columns = self.kind == COLUMNS
        pages = _listed(line, self.names, has_columns=has_columns)
        rows = [
            row for entry in pages
            for row in (_column_rows(entry, kinds, sent) if has_columns else [_table_row(entry)])
        ]  # fmt: skip
        columns = list(zip(*rows, strict=True)) or [()] * len(self.types)
        arrays = [pyarrow.array(column, kind) for column, kind in zip(columns, self.types.values(), strict=True)]
        return pyarrow.table(dict(zip(self.types, arrays, strict=True)))


@dataclass(slots=True)
class ColumnKinds:
    """Names of Arrow types in SQL, as DuckDB has them."""

    connection: Any
    _names: dict[str, str] = field(default_factory=dict)

    def name_of(self, kind: Any) -> str:
        """Return the name of a type."""
        if str(kind) not in self._names:
            empty = pyarrow.schema([("c", kind)]).empty_table()
            self._names[str(kind)] = str(self.connection.from_arrow(empty).types[0])
        return self._names[str(kind)]


def rewritten(tree: Any) -> tuple[Any, str | None]:
    """Return SHOW TABLES and DESCRIBE as queries, other statements as they are; and the name that has to exist."""
    if isinstance(tree, exp.Show) and tree.name.upper() == "TABLES" and not tree.args.get("from_"):
        return parse_one(_SHOW, dialect="duckdb"), None
    if isinstance(tree, exp.Describe) and isinstance(tree.this, exp.Table) and not isinstance(tree.this.this, exp.Func):
        name = named_topic(tree.this)
        query = parse_one(_DESCRIBE, dialect="duckdb")
        for placeholder in list(query.find_all(exp.Placeholder)):
            placeholder.replace(exp.Literal.string(name))
        return query, name
    return tree, None


def named_topic(table: Any) -> str:
    """Return the topic's name: one quoted name, a path in one, or names with dots between them."""
    return topic_of(".".join(part.name for part in table.parts))


def catalog_of(table: Any) -> str | None:
    """Return the catalog that a place names; None: it names a topic."""
    db, name = table.args.get("db"), folded(table.name)
    is_one = db is not None and table.args.get("catalog") is None and folded(db.name) == INFORMATION_SCHEMA
    return name if is_one and name in CATALOG_TYPES else None


def names_left(compared: tuple[LiteralComparison, ...]) -> frozenset[str] | None:
    """Return the names that comparisons leave of `table_name`; None: any."""
    for each in compared:
        is_text = all(value.kind == "text" for value in each.values)
        if each.column == "table_name" and each.operator == EQUAL and is_text:
            return frozenset(value.text for value in each.values)
    return None


def _listed(line: Line, names: frozenset[str] | None, *, has_columns: bool) -> Iterator[Mapping[str, Any]]:
    """Yield what the broker lists, page by page."""
    after: str | None = ""
    wanted = None if names is None else sorted(names)
    while after is not None:
        page = line.ask("list", {"after": after, "names": wanted, "columns": has_columns}).document
        yield from page["tables"]
        after = page["next"]


def _table_row(entry: Mapping[str, Any]) -> tuple[Any, ...]:
    return _CATALOG, _MAIN, entry["name"], "BASE TABLE", entry["kind"], entry["tablets"]


def _column_rows(
    entry: Mapping[str, Any], kinds: ColumnKinds, sent: Mapping[str, bytes]
) -> list[tuple[Any, ...]]:
    keys, types, shown = _columns_of(entry, sent)
    return [
        (
            _CATALOG, _MAIN, entry["name"], name, number + 1, "NO" if name in _WHOLE else "YES", kinds.name_of(kind),
            "YES" if name in keys else "NO", "NO" if number < shown else "YES",
        )
        for number, (name, kind) in enumerate(types.items())
    ]  # fmt: skip


def _columns_of(
    entry: Mapping[str, Any], sent: Mapping[str, bytes]
) -> tuple[frozenset[str], Mapping[str, Any], int]:
    """Return key columns, types of all columns by name, and how many of them a star shows."""
    from pqbroker.tables.work.files.file_scan import FileScan
    from pqbroker.tables.work.files.opening import with_content
    from pqbroker.tables.work.typed import ARROW_TYPES
    from pqbroker.tables.work.views import registry_view, view_of

    if entry["kind"] == FILE_KIND:
        if entry["file"] is None:
            return frozenset(), {}, 0
        file = FileScan(entry["name"], with_content(entry["file"], sent), (), has_star=True)
        file.close()
        return frozenset(), file.types, len(file.types)
    if (schema := entry.get("sorted")) is not None:
        types = {name: ARROW_TYPES[kind] for name, kind in [*schema["key"], *schema["value"]]}
        keys = frozenset(name for name, _ in schema["key"])
        return keys, {**types, TABLET_INDEX: pyarrow.int64()}, len(types)
    if entry["columns"] is None and entry.get("decoding"):
        view = registry_view(entry["name"], entry["decoding"], entry["columns_max"])
    else:
        view = view_of(entry["columns"], entry["formats"])
    return frozenset(), view.types, view.starred
