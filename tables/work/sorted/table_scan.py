"""The rows of a sorted table that a query reads: of the tablets and keys that it leaves, as they are seen at a
timestamp.

The broker says where the values of a tablet lie when the scan comes to it; the files stay open from then on.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple

import pyarrow

from pqbroker.tables.column_documents import clashing
from pqbroker.tables.columns import folded
from pqbroker.tables.rows import TABLET_INDEX
from pqbroker.tables.work.messages import Line, Stopped
from pqbroker.tables.work.parsing import Named
from pqbroker.tables.work.refusal import QueryRefused
from pqbroker.tables.work.scanning import Tally
from pqbroker.tables.work.sorted.chunk_runs import ChunkRun
from pqbroker.tables.work.sorted.key_pruning import KeyBounds, key_ranges_of, within
from pqbroker.tables.work.sorted.merging import SortedRun, open_runs
from pqbroker.tables.work.sorted.refusal import MergeRefused
from pqbroker.tables.work.sorted.scanning import SortedScan, scan_rows
from pqbroker.tables.work.sorted.stored_values import StoredFiles
from pqbroker.tables.work.sorted.version_columns import SortedShape
from pqbroker.tables.work.typed import ARROW_TYPES

OPEN_ATTEMPTS_MAX: Final = 10
"""Tries to open the files of a tablet, which are moved and removed meanwhile."""


class TabletKeys(NamedTuple):
    """Ranges of keys that are read of one tablet, in order."""

    tablet: int
    ranges: Sequence[KeyBounds]


class ReadTablets(NamedTuple):
    """The count of what a scan has opened and read; see `explained`."""

    chunks_read: int = 0
    chunks: int = 0
    blocks_read: int = 0
    blocks: int = 0


class SortedTableScan:
    """The part of a table that one place in a query reads."""

    def __init__(self, named: Named, found: Mapping[str, Any]) -> None:
        """QueryRefused INVALID_SCHEMA, where two columns have one name in SQL."""
        self.topic = named.topic
        self.shape = SortedShape.read(found["sorted"])
        self.timestamp: int = found["timestamp"]
        self.tablet_count = len(found["pivots"])
        self.types = {name: ARROW_TYPES[kind] for name, kind in self.shape.columns} | {TABLET_INDEX: pyarrow.int64()}
        self.columns = self._needed(named)
        self.spans = self._tablets(named, [bytes.fromhex(pivot) for pivot in found["pivots"]])
        self.read = ReadTablets()

    def _needed(self, named: Named) -> Sequence[str]:
        """Return the columns that the query needs; one at least, for rows are counted."""
        shown = len(self.shape.columns)
        found = [
            name
            for number, name in enumerate(self.types)
            if (named.has_star and number < shown) or folded(name) in named.used
        ]
        if clash := clashing(found):
            raise QueryRefused(
                "INVALID_SCHEMA",
                f"the columns {clash[0]!r} and {clash[1]!r} differ by upper and lower case alone; in SQL they are one",
                "Make a table that names them differently.",
            )  # fmt: skip
        return found or [self.shape.columns[0][0]]

    def _tablets(self, named: Named, pivots: Sequence[bytes]) -> list[TabletKeys]:
        ranges = key_ranges_of(self.shape.key_columns, named.comparisons)
        found = []
        for tablet, (first, end) in enumerate(pairwise([*pivots, None])):
            some = within(ranges, first or b"", end)
            if some and named.tablets.least <= tablet <= named.tablets.most:
                found.append(TabletKeys(tablet, some))
        return found

    def schema(self) -> Any:
        """Return the Arrow schema of the rows."""
        return pyarrow.schema([(name, self.types[name]) for name in self.columns])

    def explained(self) -> dict[str, Any]:
        """Return what a scan read, and of how much."""
        tablets = [span.tablet for span in self.spans]
        return {
            "topic": self.topic, "tablets": tablets, "tablet_count": self.tablet_count, "columns": list(self.columns),
            "timestamp": self.timestamp, "key_ranges": sum(len(span.ranges) for span in self.spans),
            **self.read._asdict(),
        }  # fmt: skip

    def rows(self, line: Line, tally: Tally) -> Iterator[Any]:
        """Yield batches, tablet by tablet. QueryRefused, which the tally has too; Stopped."""
        for span in self.spans:
            try:
                yield from self._rows_of(line, span, tally)
            except MergeRefused as damage:
                where = f"{self.topic}, tablet {span.tablet}"
                text = f"rows of {where} are unreadable: {damage.message}"
                tally.refusal = QueryRefused("TABLET_DAMAGED", text, damage.cure)
                raise tally.refusal from None

    def _rows_of(self, line: Line, span: TabletKeys, tally: Tally) -> Iterator[Any]:
        names = [name for name in self.columns if name != TABLET_INDEX] or [self.shape.columns[0][0]]
        numbers = {name: number for number, (name, _) in enumerate(self.shape.columns)}
        wanted = SortedScan(self.shape, [numbers[name] for name in names], self.timestamp, is_ordered=False)
        with StoredFiles() as files:
            runs, chunks = self._opened(line, span, files, wanted)
            try:
                for batch in _batches(line, runs, span.ranges, wanted):
                    tally.rows += batch.num_rows
                    yield self._shown(batch, span.tablet)
            finally:
                self._count(runs, chunks, tally)

    def _count(self, runs: Sequence[SortedRun], chunks: int, tally: Tally) -> None:
        """Count what was read of a tablet, which has `chunks` in all."""
        before, read = self.read, [run for run in runs if isinstance(run, ChunkRun)]
        self.read = ReadTablets(
            before.chunks_read + len(read), before.chunks + chunks,
            before.blocks_read + sum(run.blocks_read for run in read),
            before.blocks + sum(len(run.index.places) for run in read),
        )  # fmt: skip
        tally.stored_bytes += sum(run.bytes_read for run in read)

    def _opened(
        self, line: Line, span: TabletKeys, files: StoredFiles, wanted: SortedScan
    ) -> tuple[list[SortedRun], int]:
        """Open what the broker says that the tablet has, and return it with the count of all its chunks. MergeRefused,
        Stopped."""
        ranges = [(first.hex(), None if end is None else end.hex()) for first, end in span.ranges]
        asked = {"table": self.topic, "tablet": span.tablet, "ranges": ranges}
        for attempt in range(OPEN_ATTEMPTS_MAX):
            answer = line.ask("locate", asked)
            document = answer.document
            try:
                runs = open_runs(document["inputs"], memoryview(answer.payload), files, self.shape, wanted.columns)
            except MergeRefused as refusal:
                if refusal.code != "INPUT_GONE" or attempt + 1 == OPEN_ATTEMPTS_MAX:
                    raise
            else:
                return runs, document["chunks"]
        raise AssertionError("the last try returned or raised")

    def _shown(self, batch: Any, tablet: int) -> Any:
        if TABLET_INDEX not in self.columns:
            return batch
        index = pyarrow.repeat(pyarrow.scalar(tablet, pyarrow.int64()), batch.num_rows)
        arrays = [index if name == TABLET_INDEX else batch.column(name) for name in self.columns]
        return pyarrow.RecordBatch.from_arrays(arrays, schema=self.schema())


def _batches(line: Line, runs: Sequence[SortedRun], ranges: Sequence[KeyBounds], wanted: SortedScan) -> Iterator[Any]:
    """Yield the rows of ranges. MergeRefused, Stopped."""
    for first, end in ranges:
        for batch in scan_rows(runs, wanted._replace(first=first, end=end)):
            if line.has_unasked():
                line.finish_stop()
                raise Stopped
            yield batch
