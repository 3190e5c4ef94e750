"""Flush, merge and partitioning: versions of logs and chunks, sorted and cleaned, as new chunks.

One road for the three. A flush reads log values; a merge reads chunks and cleans them; a partitioning has pivots
besides, and writes a chunk for each range between them that has rows. It goes range by range of keys, each of a size
that fits the worker's memory, and sends the bytes of a chunk while it makes them, so that nothing is left of a merge
that stops.
"""

import heapq
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Protocol

from pqbroker.tables.sorted.versions import CleanUp
from pqbroker.tables.work.messages import Line, Message, Stopped
from pqbroker.tables.work.sorted.chunk_runs import ChunkRun
from pqbroker.tables.work.sorted.chunk_writing import BlockRows, ChunkWriter
from pqbroker.tables.work.sorted.cleaning import check_counts, clean_columns, merge_deletes
from pqbroker.tables.work.sorted.log_runs import LogRun
from pqbroker.tables.work.sorted.refusal import unreadable
from pqbroker.tables.work.sorted.stored_values import StoredFiles, StoredValue, payload_bytes
from pqbroker.tables.work.sorted.version_columns import SortedShape, VersionColumns, concatenated

CHUNK_PIECE_BYTES: Final = 1 << 20
"""Bytes of a chunk in one message."""
MEMORY_PART: Final = 32
"""A range has this part of the worker's memory: its versions lie there as they are read, sorted, cleaned, and written,
beside 100 MiB of libraries."""
KEY_MEMORY_BYTES: Final = 32
"""A chunk has a key for each of this many bytes of the worker's memory at most: 12 of them are kept until its filter is
made (measured)."""
RANGE_BYTES_MAX: Final = 4 << 20
"""More makes a merge no faster (measured), and a stop wait longer."""


class SortedRun(Protocol):
    """Versions in order of one chunk, or of the logs."""

    greatest_timestamp: int

    def marks(self) -> Iterator[tuple[bytes, int]]: ...

    def spans(self) -> Iterator[tuple[bytes, bytes]]: ...

    def rows(self, first: bytes, end: bytes | None) -> VersionColumns | None: ...


def merge(line: Line, message: Message) -> dict[str, Any]:
    """Send the pieces of the new chunks: what the message `merged` says of them. MergeRefused, Stopped."""
    document, payload = message.document, memoryview(message.payload)
    shape = SortedShape.read(document["schema"])
    with StoredFiles() as files:
        runs = open_runs(document["inputs"], payload, files, shape, range(len(shape.columns)))
        chunks = _Chunks(line, document, shape)
        pivots = [bytes.fromhex(pivot) for pivot in document["pivots"]]
        budget = min(document["memory_bytes_max"] // MEMORY_PART, RANGE_BYTES_MAX)
        rows_read = 0
        for first, end in key_ranges(runs, pivots, budget):
            if line.has_unasked():
                raise Stopped
            chunks.enter(bisect_right(pivots, first))
            rows = read_range(runs, first, end)
            if rows is not None:
                rows_read += len(rows.deletes)
                chunks.write(rows)
        return {"chunks": chunks.finish(), "rows_read": rows_read}


def open_runs(
    inputs: Sequence[Mapping[str, Any]],
    payload: memoryview,
    files: StoredFiles,
    shape: SortedShape,
    wanted: Sequence[int],
) -> list[SortedRun]:
    """Open what a message names: the logs as one run, each chunk as one. MergeRefused."""
    runs: list[SortedRun] = []
    logs: dict[int, StoredValue] = {}
    for number, document in enumerate(inputs):
        pieces = document["pieces"]
        try:
            value = StoredValue(pieces, payload, files)
        except OSError as error:
            raise unreadable(error, number) from None
        payload = payload[payload_bytes(pieces) :]
        if document["kind"] == "log":
            logs[number] = value
        else:
            runs.append(ChunkRun(value, shape, wanted, number))
    if logs:
        runs.append(LogRun(logs, shape, wanted))
    return runs


def key_ranges(
    runs: Sequence[SortedRun], pivots: Sequence[bytes], range_bytes_max: int
) -> Iterator[tuple[bytes, bytes | None]]:
    """Yield ranges of keys, first and end, that have about as many bytes, and no pivot within. None: no end."""
    first, size = b"", 0
    for key, more in heapq.merge(*(run.marks() for run in runs), ((pivot, -1) for pivot in pivots)):
        is_full = more < 0 or (size and size + more > range_bytes_max)
        if is_full and key > first:
            yield first, key
            first, size = key, 0
        size += max(more, 0)
    yield first, None


def read_range(runs: Sequence[SortedRun], first: bytes, end: bytes | None) -> VersionColumns | None:
    """Return the versions of a range in order; None: there are none. MergeRefused."""
    parts = [part for run in runs if (part := run.rows(first, end)) is not None]
    if not parts:
        return None
    rows = concatenated(parts)
    return rows if len(parts) == 1 else rows.take(rows.order())


class _Chunks:
    """The chunks of one merge, one after the other."""

    def __init__(self, line: Line, document: Mapping[str, Any], shape: SortedShape) -> None:
        self._line = line
        self._shape = shape
        self._samples_max: int = document["samples_max"]
        self._chunk_bytes_max: int = document["chunk_bytes_max"]
        self._keys_max: int = document["memory_bytes_max"] // KEY_MEMORY_BYTES
        self._versions_max: int = document["versions_max"]
        self._merges_deletes: bool = document["merge_deletions"]
        self._rules = None if document["clean_up"] is None else CleanUp(**document["clean_up"])
        self._partition = 0
        self._writer: ChunkWriter | None = None
        self._facts: list[dict[str, Any]] = []
        self._unsent = bytearray()

    def enter(self, partition: int) -> None:
        """Take the versions that follow as those of a partition, by its number among the pivots."""
        if partition != self._partition:
            self._end()
        self._partition = partition

    def write(self, rows: VersionColumns) -> None:
        """Clean and write versions in order, all that their keys have. MergeRefused, Stopped."""
        if self._rules is not None:
            rows = clean_columns(rows, self._rules)
        if self._merges_deletes:
            rows = merge_deletes(rows)
        check_counts(rows, self._shape, self._versions_max)
        prepared = BlockRows(rows, self._shape)
        begin, count = 0, len(rows.deletes)
        while begin < count:
            end = prepared.end_of_block(begin)
            if self._is_full():
                if prepared.is_first[begin]:
                    self._end()
                else:
                    end = min(end, prepared.end_of_key(begin))
            if self._writer is None:
                self._writer = ChunkWriter(self._shape, self._samples_max, self._send)
            self._writer.write(prepared, begin, end)
            begin = end

    def finish(self) -> list[dict[str, Any]]:
        """End the last chunk: the facts of all."""
        self._end()
        return self._facts

    def _is_full(self) -> bool:
        writer = self._writer
        return writer is not None and (writer.stored_bytes >= self._chunk_bytes_max or writer.keys >= self._keys_max)

    def _end(self) -> None:
        if self._writer is None:
            return
        facts = self._writer.end()
        self._flush(0)
        self._facts.append({"partition": self._partition, **facts})
        self._writer = None

    def _send(self, data: bytes) -> None:
        self._unsent += data
        self._flush(CHUNK_PIECE_BYTES)

    def _flush(self, kept_bytes: int) -> None:
        """Send whole pieces, and what is left if less is to be kept."""
        while self._unsent and len(self._unsent) >= kept_bytes:
            if self._line.has_unasked():
                raise Stopped
            document = {"chunk": len(self._facts), "partition": self._partition}
            self._line.send("piece", document, bytes(self._unsent[:CHUNK_PIECE_BYTES]))
            del self._unsent[:CHUNK_PIECE_BYTES]
