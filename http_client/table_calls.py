"""Calls of one table, and the list of all."""

import json
from base64 import b64decode
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

from pqbroker.http_client.errors import ClientError
from pqbroker.http_client.exchange import Request, Steps, ask, get, post, read
from pqbroker.http_client.facts import (
    Column,
    CommittedBatch,
    DeletedRows,
    Inserted,
    RowRanges,
    StagedPiece,
    TableDescription,
    TableSummary,
    TabletDescription,
)
from pqbroker.http_client.row_pieces import Piece

PAGE_ROWS = 1000
TOO_LARGE = 413
Row = dict[str, Any]
"""Values by column, `$tablet_index` and `$row_index` among them. Bytes are bytes, a timestamp is in microseconds."""


class Page(NamedTuple):
    """Rows, and the index behind them."""

    rows: list[Row]
    next_row_index: int


def list_tables() -> Steps[list[TableSummary]]:
    """All tables by name."""
    return [TableSummary.read(one) for one in (yield from _items("/v1/tables", "tables"))]


class TableCalls:
    """Calls of the table `name`, which may be a path: //shop/orders is shop.orders."""

    def __init__(self, name: str) -> None:
        self.name = name.removeprefix("//").replace("/", ".") if name.startswith("//") else name
        self._path = f"/v1/tables/{quote(self.name, safe='')}"
        self._byte_columns: frozenset[str] | None = None
        """Columns of type string: their values are bytes. None: not known yet."""

    def create(self, schema: Iterable[Column], options: Mapping[str, Any]) -> Steps[TableDescription]:
        """`options`: fields of POST /v1/tables, of which those that are None are left out."""
        path = "//" + self.name.replace(".", "/")
        body = {"path": path, "schema": [column.document() for column in schema], **_given(options)}
        return TableDescription.read((yield from post("/v1/tables", body)))

    def describe(self) -> Steps[TableDescription]:
        return TableDescription.read((yield from get(self._path)))

    def delete(self) -> Steps[None]:
        answer = yield from ask(Request("DELETE", self._path))
        if answer.data:
            read(answer)

    def tablets(self) -> Steps[list[TabletDescription]]:
        return [TabletDescription.read(one) for one in (yield from _items(f"{self._path}/tablets", "tablets"))]

    def row_ranges(self) -> Steps[RowRanges]:
        """Return the row ranges of any topic."""
        path = f"/v1/topics/{quote(self.name, safe='')}"
        topic_id = (yield from get(f"{path}?limit=1"))["id"]
        partitions = yield from _items(path, "partitions")
        return RowRanges(topic_id, tuple((one["start_offset"], one["end_offset"]) for one in partitions))

    def columns(self) -> Steps[tuple[Column, ...] | None]:
        """Return the columns; None for a topic without a schema."""
        try:
            return (yield from self.describe()).columns
        except ClientError as failure:
            if failure.code != "NO_TABLE":
                raise
            return None

    def insert(self, pieces: Iterable[Piece], *, is_update: bool = False) -> Steps[Inserted]:
        """A piece that is too large for the broker goes in halves. `is_update`: columns that a row of a sorted table
        lacks stay as they were."""
        written: list[dict[str, Any]] = []
        path = f"{self._path}/rows{'?update=true' if is_update else ''}"
        try:
            yield from _send(
                pieces, lambda piece: Request("POST", path, piece.body(), piece.content_type), written.append
            )
        except ClientError as failure:
            raise failure.behind(Inserted.read(written).row_count) from None
        return Inserted.read(written)

    def insert_batch(self, piece: Piece, session: str, sequence: int) -> Steps[Inserted]:
        """Insert a whole batch of a session; if it is sent again it is not stored again."""
        path = f"{self._path}/rows?{urlencode({'session': session, 'sequence': sequence})}"
        request = Request("POST", path, piece.body(), piece.content_type, is_repeatable=True)
        return Inserted.read([read((yield from ask(request)))])

    def delete_rows(self, pieces: Iterable[Piece]) -> Steps[DeletedRows]:
        """Delete the rows of keys of a sorted table. A piece that is too large for the broker goes in halves."""
        done: list[dict[str, Any]] = []
        path = f"{self._path}/rows"
        yield from _send(pieces, lambda piece: Request("DELETE", path, piece.body(), piece.content_type), done.append)
        return DeletedRows(sum(one["row_count"] for one in done), done[-1]["timestamp"] if done else None)

    def lookup(self, pieces: Iterable[Piece]) -> Steps[list[Row | None]]:
        """Return the rows of keys of a sorted table, in their order; None where there is none."""
        names, path = (yield from self._byte_names()), f"{self._path}/lookup"
        found: list[Row | None] = []

        def request(piece: Piece) -> Request:
            return Request("POST", path, piece.body(), piece.content_type, is_repeatable=True)

        def take(answer: Mapping[str, Any]) -> None:
            found.extend(None if row is None else _read_row(row, names) for row in answer["rows"])

        yield from _send(pieces, request, take)
        return found

    def lookup_prefix(self, body: bytes) -> Steps[list[Row]]:
        """Return the rows of a sorted table whose keys begin with some values, in the order of their keys."""
        names = yield from self._byte_names()
        request = Request("POST", f"{self._path}/lookup", body, is_repeatable=True)
        return [_read_row(row, names) for row in read((yield from ask(request)))["rows"]]

    def stage(
        self, pieces: Iterable[Piece], session: str, sequence: int, tablet_hint: int | None
    ) -> Steps[list[StagedPiece]]:
        """A piece that is too large for the broker goes in halves. Rows that name no tablet go into the first one's."""
        staged: list[StagedPiece] = []
        query: dict[str, Any] = {"session": session, "sequence": sequence}

        def request(piece: Piece) -> Request:
            hint = staged[0].tablet_index if staged else tablet_hint
            path = f"{self._path}/staged-rows?{urlencode(_given({**query, 'tablet_hint': hint}))}"
            return Request("POST", path, piece.body(), piece.content_type, is_repeatable=True)

        yield from _send(pieces, request, lambda answer: staged.extend(map(StagedPiece.read, answer["pieces"])))
        return staged

    def commit_staged(
        self, pieces: Iterable[StagedPiece], session: str, sequence: int, on_changed: str
    ) -> Steps[CommittedBatch]:
        """Asked for until all rows are written."""
        names = [piece.name for piece in pieces]
        body = {"session": session, "sequence": sequence, "pieces": names, "on_changed": on_changed}
        requests = 0
        while True:
            document = yield from post(f"{self._path}/staged-rows/commit", body, is_repeatable=True)
            if document["done"]:
                return CommittedBatch(document["row_count"], document["duplicate"] and not requests)
            requests += 1

    def page(self, tablet_index: int, first_row_index: int, limit: int, is_raw: bool) -> Steps[Page]:
        """Return at most `limit` rows; fewer where one answer has no room for more."""
        if self._byte_columns is None and not is_raw:
            self._byte_columns = yield from self._learn_byte_columns()
        query: dict[str, Any] = {"tablet_index": tablet_index, "first_row_index": first_row_index}
        query |= {"limit": min(limit, PAGE_ROWS), **({"view": "raw"} if is_raw else {})}
        document = yield from get(f"{self._path}/rows?{urlencode(query)}")
        names = _RAW_BYTE_COLUMNS if is_raw else self._byte_columns or _RAW_BYTE_COLUMNS
        return Page([_read_row(row, names) for row in document["rows"]], document["next_row_index"])

    def read_rows(self, documents: Iterable[Row]) -> Steps[list[Row]]:
        """Return rows of an answer with their bytes as bytes."""
        names = yield from self._byte_names()
        return [_read_row(row, names) for row in documents]

    def select(self, tablet_index: int, first_row_index: int, limit: int, is_raw: bool) -> Steps[list[Row]]:
        """Return at most `limit` rows, with as many requests as it takes."""
        rows: list[Row] = []
        while len(rows) < limit:
            page = yield from self.page(tablet_index, first_row_index, limit - len(rows), is_raw)
            if page.next_row_index <= first_row_index:
                break
            rows += page.rows
            first_row_index = page.next_row_index
        return rows

    def trim(self, tablet_index: int, trimmed_row_count: int) -> Steps[int]:
        """The index of the first row that is left."""
        body = {"tablet_index": tablet_index, "trimmed_row_count": trimmed_row_count}
        document = yield from post(f"{self._path}/trim", body, is_repeatable=True)
        return int(document["trimmed_row_count"])

    def change(self, verb: str, body: Mapping[str, Any]) -> Steps[TableSummary]:
        """A command that answers with the table; fields that are None are left out."""
        return TableSummary.read((yield from post(f"{self._path}/{verb}", _given(body))))

    def alter(self, schema: Iterable[Column]) -> Steps[TableDescription]:
        self._byte_columns = None
        body = {"schema": [column.document() for column in schema]}
        return TableDescription.read((yield from post(f"{self._path}/alter", body)))

    def convert(self, *, is_dynamic: bool) -> Steps[TableDescription]:
        return TableDescription.read((yield from post(f"{self._path}/alter", {"dynamic": is_dynamic})))

    def set_attributes(self, attributes: Mapping[str, Any]) -> Steps[TableDescription]:
        body = json.dumps({"attributes": attributes}).encode()
        request = Request("PATCH", self._path, body, is_repeatable=True)
        return TableDescription.read(read((yield from ask(request))))

    def _byte_names(self) -> Steps[frozenset[str]]:
        if self._byte_columns is None:
            self._byte_columns = yield from self._learn_byte_columns()
        return self._byte_columns

    def _learn_byte_columns(self) -> Steps[frozenset[str]]:
        """A topic without a schema has those of the raw view."""
        columns = yield from self.columns()
        if columns is None:
            return _RAW_BYTE_COLUMNS
        return frozenset(column.name for column in columns if column.type == "string")


_RAW_BYTE_COLUMNS = frozenset(("key", "value", "headers"))
_LISTED = 1000


def _send(
    pieces: Iterable[Piece], request: Callable[[Piece], Request], take: Callable[[dict[str, Any]], object]
) -> Steps[None]:
    """Send each piece, and take the answer; one that is too large for the broker goes in halves."""
    waiting: list[Piece] = []
    given = iter(pieces)
    while (piece := waiting.pop() if waiting else next(given, None)) is not None:
        answer = yield from ask(request(piece))
        if answer.status == TOO_LARGE and piece.row_count > 1:
            waiting += reversed(piece.halves())
        else:
            take(read(answer))


def _items(path: str, name: str) -> Steps[list[dict[str, Any]]]:
    """The items of a list, of all its pages."""
    items: list[dict[str, Any]] = []
    query: dict[str, Any] = {"limit": _LISTED}
    while True:
        page = yield from get(f"{path}?{urlencode(query)}")
        items += page[name]
        if page.get("next") is None:
            return items
        query["after"] = page["next"]


def _given(options: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def _read_row(row: Row, byte_columns: frozenset[str]) -> Row:
    return {name: _read_bytes(value) if name in byte_columns else value for name, value in row.items()}


def _read_bytes(value: Any) -> Any:
    """Bytes of their JSON form; of headers, each value."""
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, dict):
        return b64decode(value["base64"])
    if isinstance(value, list):
        return [{**header, "value": _read_bytes(header["value"])} for header in value]
    return value
