"""Topics, tables and local files that a caller may read, page by page, for `information_schema`. No record is read."""

import asyncio
from bisect import bisect_right
from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from pqbroker.broker.ground.access import AclOperation, is_allowed
from pqbroker.broker.services.sql.files import list_files, place_of, without_missing
from pqbroker.broker.services.topics.finding import topic_resource
from pqbroker.broker.services.topics.named_registries import decoding_of
from pqbroker.broker.services.topics.topic_schemas import schema_of
from pqbroker.pq.serving.topic import Topic

if TYPE_CHECKING:
    from pqbroker.broker.services.sql.callers import ListingCaller
    from pqbroker.tables.serving.table import SortedTable

PAGE_NAMES = 500
"""Names on a page at most, those that the caller may not read included."""
PAGE_COLUMNS = 2000
"""Columns on a page, about: it ends with the first name that has it reach them."""


class Listing:
    """Lists of one query: names as they were when it began, the rest as it is when its page is made."""

    def __init__(self, caller: "ListingCaller") -> None:
        self._caller = caller
        self._names: Sequence[str] | None = None

    async def page(self, after: str, names: Sequence[str] | None, *, has_columns: bool) -> dict[str, Any]:
        """Return the page behind a name as {tables, next}. `names`: those that the query names, or None: every one."""
        if self._names is None:
            self._names = sorted(set(await (self._every_name() if names is None else self._existing(names))))
        found: list[dict[str, Any]] = []
        columns, first = 0, bisect_right(self._names, after)
        last = after
        for last in islice(self._names, first, first + PAGE_NAMES):
            await self._caller.node.turns.breathe()
            if (entry := self._entry(last, has_columns=has_columns, is_named=names is not None)) is not None:
                found.append(entry)
                columns += _column_count(entry)
            if columns >= PAGE_COLUMNS:
                break
        return {"tables": found, "next": last if self._names and last < self._names[-1] else None}

    async def _existing(self, names: Sequence[str]) -> Sequence[str]:
        """Return names without those of files that do not exist, unless a topic or table has them."""
        node = self._caller.node
        if not node.settings.sql_files_directory:
            return names
        topics, tables = node.cell.current.topics, node.cell.current.sorted_tables.tables
        known = [name for name in names if name in tables or topics.get(name, or_static=True) is not None]
        return [*known, *await asyncio.to_thread(without_missing, names, node.settings)]

    async def _every_name(self) -> list[str]:
        node = self._caller.node
        files = await asyncio.to_thread(list_files, node.settings) if node.settings.sql_files_directory else ()
        return [*node.cell.current.topics.names(or_static=True), *node.cell.current.sorted_tables.tables, *files]

    def _entry(self, name: str, *, has_columns: bool, is_named: bool) -> dict[str, Any] | None:
        """Return a topic, table or file, or None where none has the name or the caller may not read it. A registry is
        asked for the schema only of what the query names, and only such a file is opened."""
        opening = self._caller.node.cell.current
        topic = opening.topics.get(name, or_static=True)
        table = opening.sorted_tables.tables.get(name) if topic is None else None
        place = place_of(name, self._caller.node.settings) if topic is None and table is None else None
        if topic is None and table is None and place is None:
            return None
        if not is_allowed(self._caller, AclOperation.READ, topic_resource(name)):
            return None
        if table is not None:
            sorted_ = {"sorted": schema_document(table)} if has_columns else {}
            return {"name": name, "kind": "sorted table", "tablets": len(table.tablets), **sorted_}
        if topic is None:
            return {"name": name, "kind": "file", "tablets": None, "file": place if is_named else None}
        columns, formats = schema_of(topic) or (None, {})
        kind = "static table" if topic.record.is_static else "topic" if columns is None else "table"
        entry = {"name": name, "kind": kind, "tablets": len(topic.partitions)}
        if not has_columns:
            return entry
        return entry | {"columns": columns, "formats": formats} | (self._decoding(topic) if is_named else {})

    def _decoding(self, topic: Topic) -> dict[str, Any]:
        settings = self._caller.node.settings
        return {"decoding": decoding_of(topic, settings), "columns_max": settings.table_columns_max}


def schema_document(table: "SortedTable") -> dict[str, Any]:
    """Return the schema of a sorted table as a worker takes it."""
    return {
        "key": [(column.name, column.type.name) for column in table.schema.keys],
        "value": [(column.name, column.type.name) for column in table.schema.values],
    }


def _column_count(entry: dict[str, Any]) -> int:
    if "sorted" in entry:
        return sum(map(len, entry["sorted"].values()))
    return len(entry.get("columns") or ())
