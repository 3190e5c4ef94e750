"""Rows of an answer as bytes: JSON lines, CSV, or an Arrow IPC stream, made batch by batch."""

import csv
import io
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from decimal import Decimal
from typing import Any, Final

import pyarrow
import pyarrow.ipc

from pqbroker.tables.work.json_rows import RowWriter, Show, dump, shown_by, values_of
from pqbroker.tables.work.messages import Line

PIECE_BYTES = 256 << 10
"""Bytes of the answer in one message at most."""
ROWS_AT_ONCE = 4096
"""Written at one go: a row may be large."""


ARROW: Final = "arrow"
"""Format that keeps the types of the columns."""


def send_pieces(line: Line, piece: bytes) -> None:
    """Send a part of an answer."""
    view = memoryview(piece)
    for start in range(0, len(view), PIECE_BYTES):
        line.send("result", {}, view[start : start + PIECE_BYTES])


def write_json(schema: Any, batches: Iterable[Any], documents: Collection[int]) -> Iterator[bytes]:
    """An object a line."""
    writer = RowWriter(schema, documents)
    for batch in batches:
        for start in range(0, batch.num_rows, ROWS_AT_ONCE):
            yield writer.write(batch.slice(start, ROWS_AT_ONCE))


def write_csv(schema: Any, batches: Iterable[Any], _: Collection[int]) -> Iterator[bytes]:
    """A line of names, then rows; null is empty, a list, a map or a struct is JSON, bytes that are no text are base64.
    """
    yield _csv_lines([schema.names])
    shows = [shown_by(kind) for kind in schema.types]
    for rows in _rows(batches):
        yield _csv_lines([_cell(value, show) for value, show in zip(row, shows, strict=True)] for row in rows)


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
    ARROW: write_arrow,
}
"""Writers by format name. Each yields an answer's bytes from the Arrow schema, the batches and the numbers of JSON
columns."""


def _rows(batches: Iterable[Any]) -> Iterator[list[tuple[Any, ...]]]:
    for batch in batches:
        for start in range(0, batch.num_rows, ROWS_AT_ONCE):
            rows = batch.slice(start, ROWS_AT_ONCE)
            columns = [values_of(name, column) for name, column in zip(rows.schema.names, rows.columns, strict=True)]
            yield list(zip(*columns, strict=True))


def _cell(value: Any, show: Show) -> Any:
    if value is None or (isinstance(value, str | int | float | Decimal) and not isinstance(value, bool)):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    shown = show(value)
    if isinstance(value, bytes):
        return shown["base64"] if isinstance(shown, dict) else shown
    return shown if isinstance(shown, str) else dump(shown)


def _csv_lines(rows: Iterable[Iterable[Any]]) -> bytes:
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue().encode(errors="backslashreplace")


def _taken(sink: io.BytesIO) -> bytes:
    data = sink.getvalue()
    sink.seek(0)
    sink.truncate()
    return data

