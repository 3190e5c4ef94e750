"""Rows to insert, in pieces of a request each. The broker takes the rows of a request together or not at all."""

import json
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any, Protocol

from pqbroker.http_client.exchange import JSON

ROWS_PIECE_BYTES = 512 << 10
"""About; with the broker's defaults a request may have 2 MiB, and its rows as records 1 MiB."""
KEYS_PIECE_COUNT = 1000
TABLET_INDEX = "$tablet_index"
ROWS_FORM = b'{"rows":[%b]}'
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Piece(Protocol):
    """Rows of one request."""

    @property
    def content_type(self) -> str: ...
    @property
    def row_count(self) -> int: ...
    def body(self) -> bytes: ...
    def halves(self) -> "tuple[Piece, Piece]":
        """Split a piece of two rows or more: for a broker to which they are too many at once."""


class JsonPiece:
    """Rows as JSON documents."""

    content_type = JSON

    def __init__(self, rows: Sequence[bytes], form: bytes = ROWS_FORM) -> None:
        """`form`: the body, with a place for the rows."""
        self._rows = rows
        self._form = form

    @property
    def row_count(self) -> int:
        return len(self._rows)

    def body(self) -> bytes:
        return self._form % b",".join(self._rows)

    def halves(self) -> tuple[Piece, Piece]:
        middle = len(self._rows) // 2
        return JsonPiece(self._rows[:middle], self._form), JsonPiece(self._rows[middle:], self._form)


class ArrowRows(Protocol):
    """Tables, batches and streams of Arrow, of pyarrow, pandas, Polars, DuckDB and others."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...


def pieces_of(rows: Iterable[Mapping[str, Any]] | ArrowRows, tablet_index: int | None) -> Iterator[Piece]:
    """TypeError for a value that has no JSON form; ModuleNotFoundError for Arrow without pyarrow."""
    if hasattr(rows, "__arrow_c_stream__"):
        from pqbroker.http_client.arrow_streams import arrow_pieces

        return arrow_pieces(rows, tablet_index)
    assert isinstance(rows, Iterable)
    return _json_pieces(rows, tablet_index)


def whole_piece(rows: Iterable[Mapping[str, Any]] | ArrowRows, tablet_index: int | None) -> Piece:
    """All rows as one piece; errors as `pieces_of`."""
    if hasattr(rows, "__arrow_c_stream__"):
        from pqbroker.http_client.arrow_streams import arrow_piece

        return arrow_piece(rows, tablet_index)
    assert isinstance(rows, Iterable)
    return JsonPiece(list(_documents(rows, tablet_index)))


def key_pieces(keys: Iterable[Mapping[str, Any]], more: Mapping[str, Any]) -> Iterator[Piece]:
    """Yield the pieces of keys; `more`: further fields of each request. TypeError for a value that has no JSON form."""
    fields = b"".join(b"%b:%b," % (_encode(name).encode(), _encode(value).encode()) for name, value in more.items())
    form = b"{%b%b}" % (fields.replace(b"%", b"%%"), b'"keys":[%b]')
    documents = _documents(keys, None)
    while some := list(islice(documents, KEYS_PIECE_COUNT)):
        yield JsonPiece(some, form)


def row_documents(rows: Iterable[Mapping[str, Any]]) -> list[bytes]:
    """Return rows or keys as JSON documents. TypeError for a value that has no JSON form."""
    return list(_documents(rows, None))


def json_body(fields: Mapping[str, Any]) -> bytes:
    """Return a body with values of rows in it. TypeError for a value that has no JSON form."""
    return _encode(fields).encode()


def _json_pieces(rows: Iterable[Mapping[str, Any]], tablet_index: int | None) -> Iterator[Piece]:
    gathered: list[bytes] = []
    size = 0
    for document in _documents(rows, tablet_index):
        if gathered and size + len(document) > ROWS_PIECE_BYTES:
            yield JsonPiece(gathered)
            gathered, size = [], 0
        gathered.append(document)
        size += len(document)
    if gathered:
        yield JsonPiece(gathered)


def _documents(rows: Iterable[Mapping[str, Any]], tablet_index: int | None) -> Iterator[bytes]:
    if isinstance(rows, Mapping):
        raise TypeError("rows or keys are one mapping; give a list of mappings")
    for row in rows:
        yield _encode(row if tablet_index is None else {**row, TABLET_INDEX: tablet_index}).encode()


def _shown(value: Any) -> Any:
    """The JSON of bytes and of a time; one without a zone is in UTC."""
    if isinstance(value, bytes | bytearray | memoryview):
        content = bytes(value)
        try:
            return content.decode()
        except UnicodeDecodeError:
            return {"base64": b64encode(content).decode()}
    if isinstance(value, datetime):
        aware = value if value.tzinfo else value.replace(tzinfo=UTC)
        return (aware - _EPOCH) // timedelta(microseconds=1)
    raise TypeError(f"{type(value).__name__} is no type that rows have: {value!r:.100}")


_encode = json.JSONEncoder(separators=(",", ":"), default=_shown).encode
