"""Arrow IPC streams: answers, and rows to insert. Needs pyarrow, and is imported when one is read or written."""

from collections.abc import Iterator
from typing import Any

import pyarrow
import pyarrow.ipc

from pqbroker.http_client.row_pieces import ROWS_PIECE_BYTES, TABLET_INDEX, Piece

ARROW_STREAM = "application/vnd.apache.arrow.stream"
_NUMBER_TEXT_BYTES = 16
"""Bytes of a number in JSON, about."""


class ArrowPiece:
    """Rows as a record batch."""

    content_type = ARROW_STREAM

    def __init__(self, batch: Any) -> None:
        self._batch = batch

    @property
    def row_count(self) -> int:
        return int(self._batch.num_rows)

    def body(self) -> bytes:
        sink = pyarrow.BufferOutputStream()
        with pyarrow.ipc.new_stream(sink, self._batch.schema) as stream:
            stream.write_batch(self._batch)
        return bytes(sink.getvalue())

    def halves(self) -> tuple[Piece, Piece]:
        middle = self.row_count // 2
        return ArrowPiece(self._batch.slice(0, middle)), ArrowPiece(self._batch.slice(middle))


def read_stream(data: bytes) -> Any:
    """A pyarrow.Table."""
    with pyarrow.ipc.open_stream(pyarrow.py_buffer(data)) as stream:
        return stream.read_all()


def arrow_pieces(rows: Any, tablet_index: int | None) -> Iterator[Piece]:
    """Yield the pieces of whatever has an Arrow stream or array."""
    for batch in _batches(rows):
        whole = _in_tablet(batch, tablet_index)
        count = _rows_a_piece(whole)
        for start in range(0, whole.num_rows, count):
            yield ArrowPiece(whole.slice(start, count))


def arrow_piece(rows: Any, tablet_index: int | None) -> Piece:
    """All rows of such a thing."""
    batches = _batches(rows)
    table = pyarrow.Table.from_batches(batches, rows.schema if isinstance(batches, list) else batches.schema)
    (batch,) = table.combine_chunks().to_batches() or [pyarrow.RecordBatch.from_pylist([], table.schema)]
    return ArrowPiece(_in_tablet(batch, tablet_index))


def _batches(rows: Any) -> Any:
    return [rows] if isinstance(rows, pyarrow.RecordBatch) else pyarrow.RecordBatchReader.from_stream(rows)


def _in_tablet(batch: Any, tablet_index: int | None) -> Any:
    """The batch, with the tablet where one is named."""
    if tablet_index is None:
        return batch
    return batch.append_column(TABLET_INDEX, pyarrow.repeat(tablet_index, batch.num_rows))


def _rows_a_piece(batch: Any) -> int:
    """Return how many rows are about ROWS_PIECE_BYTES as JSON, where each has its columns' names."""
    text_bytes = sum(len(name) + 4 + _NUMBER_TEXT_BYTES for name in batch.schema.names) * batch.num_rows
    return max(1, int(batch.num_rows * ROWS_PIECE_BYTES // max(1, batch.nbytes + text_bytes)))
