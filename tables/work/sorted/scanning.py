"""Rows of a sorted table at one timestamp, as batches of Arrow: of chunks, and of logs for what is in memory.

Blocks of a chunk that no other input reaches into, and that have a row for each key, are taken as they stand. The
others are read range by range: keys and timestamps alone say which versions are seen, then columns follow.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import chain, groupby
from typing import Any, Final, NamedTuple

import numpy
import pyarrow

from pqbroker.tables.work.messages import Line, Message, Stopped
from pqbroker.tables.work.results import WRITERS, send_pieces
from pqbroker.tables.work.sorted.chunk_runs import ChunkRun
from pqbroker.tables.work.sorted.cleaning import SortedKeys
from pqbroker.tables.work.sorted.merging import SortedRun, key_ranges, open_runs
from pqbroker.tables.work.sorted.stored_values import StoredFiles
from pqbroker.tables.work.sorted.version_columns import ColumnVersions, SortedShape, VersionColumns, concatenated
from pqbroker.tables.work.typed import ARROW_TYPES, JSON_TYPE

BATCH_ROWS: Final = 16_384
"""Rows of a batch that is made of several blocks, about."""
RANGE_BYTES: Final = 8 << 20
"""Unpacked bytes of blocks that are read at once."""


class SortedScan(NamedTuple):
    """The rows that a scan reads: of the keys from `first` to before `end` (None: to the last), as they are seen at a
    timestamp. `columns`: numbers of columns of the table, one at least."""

    shape: SortedShape
    columns: Sequence[int]
    timestamp: int
    first: bytes = b""
    end: bytes | None = None
    is_ordered: bool = True
    """True if rows come in the order of their keys; else those of a range may come in any."""

    def schema(self) -> Any:
        """Return the Arrow schema of the batches."""
        fields = [self.shape.columns[number] for number in self.columns]
        return pyarrow.schema([(name, ARROW_TYPES[kind]) for name, kind in fields])


def scan_rows(runs: Sequence[SortedRun], wanted: SortedScan) -> Iterator[Any]:
    """Yield batches; the runs were opened with the columns that are wanted. MergeRefused."""
    alone = {first: chunk for run in runs for first, chunk in _stretches_alone(run, runs, wanted)}
    borders = sorted({border for first, (_, end) in alone.items() for border in (first, end)})
    owner: ChunkRun | None = None
    for first, end in key_ranges(runs, borders, RANGE_BYTES):
        at = bisect_right(borders, first) - 1
        owner = alone[borders[at]][0] if at >= 0 and borders[at] in alone and first < alone[borders[at]][1] else None
        first, end = max(first, wanted.first), _least(end, wanted.end)
        if end is not None and first >= end:
            continue
        if owner is not None:
            yield from _batches_alone(owner, owner.index.blocks_of_range(first, end), wanted)
        else:
            parts = [part for run in runs if (part := run.rows(first, end)) is not None]
            if parts:
                yield from _batches(_seen(parts, wanted), wanted)


def answer_scan(line: Line, message: Message) -> dict[str, Any]:
    """Send the rows that a message `scan` asks for: what `done` says of them. MergeRefused, Stopped."""
    document = message.document
    shape = SortedShape.read(document["schema"])
    numbers = {name: number for number, (name, _) in enumerate(shape.columns)}
    first, end = document["first"], document["end"]
    wanted = SortedScan(
        shape, [numbers[name] for name in document["columns"]], document["timestamp"],
        bytes.fromhex(first), None if end is None else bytes.fromhex(end),
    )  # fmt: skip
    tally = _Tally(line, document["rows_max"])
    with StoredFiles() as files:
        runs = open_runs(document["inputs"], memoryview(message.payload), files, shape, wanted.columns)
        schema = wanted.schema()
        documents = frozenset(number for number, field in enumerate(schema) if field.type == JSON_TYPE)
        for piece in WRITERS[document["format"]](schema, tally.counted(scan_rows(runs, wanted)), documents):
            send_pieces(line, piece)
    chunks = [run for run in runs if isinstance(run, ChunkRun)]
    return {
        "rows": tally.rows, "blocks_read": sum(chunk.blocks_read for chunk in chunks),
        "blocks": sum(len(chunk.index.places) for chunk in chunks),
    }  # fmt: skip


class _Tally:
    """The rows that are sent, up to a limit (None: all)."""

    def __init__(self, line: Line, rows_max: int | None) -> None:
        self._line = line
        self._rows_max = rows_max
        self.rows = 0

    def counted(self, batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            if self._line.has_unasked():
                raise Stopped
            if self._rows_max is not None:
                batch = batch.slice(0, self._rows_max - self.rows)
            self.rows += batch.num_rows
            yield batch
            if self.rows == self._rows_max:
                return


def _stretches_alone(
    run: SortedRun, runs: Sequence[SortedRun], wanted: SortedScan
) -> Iterator[tuple[bytes, tuple[ChunkRun, bytes]]]:
    """Yield the first key of blocks that follow one another and can be taken as they stand, with the end behind
    them."""
    if not isinstance(run, ChunkRun) or run.greatest_timestamp > wanted.timestamp:
        return
    places, end_of_chunk = run.index.places, run.index.last_key + b"\0"
    keys = [*places.first_keys, end_of_chunk]
    is_alone = [
        not place.traits
        and place.first_key >= wanted.first
        and (wanted.end is None or keys[number + 1] <= wanted.end)
        and (number + 1 == len(places) or not places.continues(number + 1))
        for number, place in enumerate(places)
    ]
    for first, last in chain.from_iterable(other.spans() for other in runs if other is not run):
        begin = max(bisect_right(keys, first) - 1, 0)
        for number in range(begin, bisect_right(keys, last, 0, len(places))):
            is_alone[number] = False
    for is_taken, numbers in groupby(range(len(places)), is_alone.__getitem__):
        if is_taken:
            some = list(numbers)
            yield keys[some[0]], (run, keys[some[-1] + 1])


def _batches_alone(run: ChunkRun, numbers: range, wanted: SortedScan) -> Iterator[Any]:
    """Yield blocks as they stand, several in a batch."""
    waiting: list[Any] = []
    count = 0
    for block in run.blocks(numbers):
        waiting.append([run.column_of(block, at).values for at in range(len(wanted.columns))])
        count += block.rows
        if count >= BATCH_ROWS:
            yield _joined(waiting, wanted)
            waiting, count = [], 0
    if waiting:
        yield _joined(waiting, wanted)


def _batches(found: Sequence[list[Any]], wanted: SortedScan) -> Iterator[Any]:
    for columns in found:
        if len(columns[0]):
            yield _joined([columns], wanted)


def _joined(parts: Sequence[Sequence[Any]], wanted: SortedScan) -> Any:
    """Return a batch of arrays, part by part, with the types that a reader knows."""
    schema = wanted.schema()
    arrays = []
    for field, columns in zip(schema, zip(*parts, strict=True), strict=True):
        array = columns[0] if len(columns) == 1 else pyarrow.concat_arrays(columns)
        if field.type == JSON_TYPE:
            array = pyarrow.ExtensionArray.from_storage(JSON_TYPE, array)
        elif field.type != array.type:
            array = array.view(field.type)
        arrays.append(array)
    return pyarrow.RecordBatch.from_arrays(arrays, schema=schema)


def _seen(parts: Sequence[VersionColumns], wanted: SortedScan) -> list[list[Any]]:
    """Return the columns of the rows that are seen, in one part or several."""
    if any(column.presence is not None for part in parts for column in part.columns):
        return [_put_together(concatenated(parts), wanted.timestamp)]
    heads = concatenated([part._replace(columns=()) for part in parts])
    order = heads.order()
    sorted_heads = heads.take(order)
    is_newest = _is_newest(sorted_heads, wanted.timestamp)
    numbers = order[is_newest & ~sorted_heads.deletes]
    if wanted.is_ordered:
        return [[column.values for column in concatenated(parts).take(numbers).columns]]
    mask = numpy.zeros(len(order), bool)
    mask[numbers] = True
    bounds = numpy.cumsum([0, *(len(part.deletes) for part in parts)]).tolist()
    return [_filtered(part, mask[begin:end]) for part, begin, end in zip(parts, bounds, bounds[1:], strict=False)]


def _filtered(part: VersionColumns, mask: Any) -> list[Any]:
    if mask.all():
        return [column.values for column in part.columns]
    chosen = pyarrow.array(mask)
    return [column.values.filter(chosen) for column in part.columns]


def _is_newest(rows: VersionColumns, timestamp: int) -> Any:
    """Return which versions, in order, are the newest of their keys at a timestamp."""
    is_old = rows.timestamps <= numpy.uint64(timestamp)
    is_first = rows.first_of_keys()
    return is_first if is_old.all() else is_old & (SortedKeys(is_first).ranks(is_old) == 0)


def _put_together(unsorted: VersionColumns, timestamp: int) -> list[Any]:
    """Return the columns of rows that updates wrote in part: of each the newest value since the last delete."""
    rows = unsorted.take(unsorted.order())
    keys = SortedKeys(rows.first_of_keys())
    is_old = rows.timestamps <= numpy.uint64(timestamp)
    deletes = is_old & rows.deletes
    is_live = is_old & ~rows.deletes & (keys.ranks(deletes) == 0)
    found = numpy.flatnonzero(keys.counts(is_live))
    return [_newest(column, is_live, keys, found) for column in rows.columns]


def _newest(column: ColumnVersions, is_live: Any, keys: SortedKeys, found: Any) -> Any:
    """Return the newest live value of each of the keys that were found; null where none has the column."""
    mask = is_live if column.presence is None else is_live & column.presence
    is_pick = mask & (keys.ranks(mask) == 0)
    picks = numpy.full(len(keys.begins), -1)
    picks[keys.numbers[is_pick]] = numpy.flatnonzero(is_pick)
    numbers = picks[found]
    return column.values.take(pyarrow.array(numbers, mask=numbers < 0))


def _least(one: bytes | None, other: bytes | None) -> bytes | None:
    return other if one is None else one if other is None else min(one, other)
