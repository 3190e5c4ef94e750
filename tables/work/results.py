"""Rows of an answer as bytes: JSON lines, CSV, or an Arrow IPC stream, made batch by batch."""

import csv
import io
import json
import math
from base64 import b64encode
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow
import pyarrow.ipc

from pqbroker.tables.work.messages import Line

PIECE_BYTES = 256 << 10
"""Bytes of the answer in one message at most."""
ROWS_AT_ONCE = 4096
"""Written at one go: a row may be large."""


def send_pieces(line: Line, piece: bytes) -> None:
    """Send a part of an answer."""
    view = memoryview(piece)
    for start in range(0, len(view), PIECE_BYTES):
        line.send("result", {}, view[start : start + PIECE_BYTES])


def write_json(schema: Any, batches: Iterable[Any], documents: Collection[int]) -> Iterator[bytes]:
    """An object a line. Of columns with one name, which an object cannot hold, the later have a number behind it."""
    names = _distinct(schema.names)
    shows = [_document if number in documents else _shown for number in range(len(names))]
    for rows in _rows(batches):
        objects = ({name: show(value) for name, show, value in zip(names, shows, row, strict=True)} for row in rows)
        yield "".join(f"{_dump(each)}\n" for each in objects).encode(errors="backslashreplace")


def write_csv(schema: Any, batches: Iterable[Any], _: Collection[int]) -> Iterator[bytes]:
    """A line of names, then rows; null is empty, a list or a struct is JSON, bytes that are no text are base64."""
    yield _csv_lines([schema.names])
    for rows in _rows(batches):
        yield _csv_lines([_cell(value) for value in row] for row in rows)


def write_arrow(schema: Any, batches: Iterable[Any], _: Collection[int]) -> Iterator[bytes]:
    """An IPC stream, with its end."""
    sink = io.BytesIO()
    with pyarrow.ipc.new_stream(sink, schema) as stream:
        for batch in batches:
            stream.write_batch(batch)
            yield _taken(sink)
    yield _taken(sink)


WRITERS: Mapping[str, Callable[[Any, Iterable[Any], Collection[int]], Iterator[bytes]]] = {
    "json": write_json,
    "csv": write_csv,
    "arrow": write_arrow,
}
"""Writers by format name. Each yields an answer's bytes from the Arrow schema, the batches and the numbers of JSON
columns."""


def _rows(batches: Iterable[Any]) -> Iterator[list[tuple[Any, ...]]]:
    for batch in batches:
        for start in range(0, batch.num_rows, ROWS_AT_ONCE):
            columns = [column.to_pylist() for column in batch.slice(start, ROWS_AT_ONCE).columns]
            yield list(zip(*columns, strict=True))


def _distinct(names: Iterable[str]) -> list[str]:
    found: dict[str, None] = {}
    for name in names:
        number, free = 1, name
        while free in found:
            free, number = f"{name}_{number}", number + 1
        found[free] = None
    return list(found)


def _shown(value: Any) -> Any:
    """A value as JSON has it: 64-bit integers stay numbers, what is no number and no text is text."""
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return {"base64": b64encode(value).decode()}
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, dict):
        return {name: _shown(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_shown(each) for each in value]
    return _text(value)


def _document(value: str | None) -> Any:
    """A JSON document as what it is."""
    try:
        return None if value is None else json.loads(value)
    except ValueError:
        return value


def _text(value: Any) -> str:
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    return str(value) if isinstance(value, timedelta | UUID) else repr(value)


def _cell(value: Any) -> Any:
    if isinstance(value, bytes):
        shown = _shown(value)
        return shown["base64"] if isinstance(shown, dict) else shown
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict | list | tuple):
        return _dump(_shown(value))
    return value if value is None or isinstance(value, str | int | float | Decimal) else _text(value)


def _csv_lines(rows: Iterable[Iterable[Any]]) -> bytes:
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue().encode(errors="backslashreplace")


def _taken(sink: io.BytesIO) -> bytes:
    data = sink.getvalue()
    sink.seek(0)
    sink.truncate()
    return data


_dump = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
