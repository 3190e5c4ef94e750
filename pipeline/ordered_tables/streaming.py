"""Reading an `ordered_table` as a stream. An offset is {"topic_id": …, "0": row index, …}: the rows to be read next.

A tablet that is added while a query runs is read from its first row on.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from pqbroker.http_client.facts import RowRanges
from pqbroker.pipeline.errors import JobError
from pqbroker.pipeline.ordered_tables.own_line import own_line_first
from pqbroker.pipeline.ordered_tables.reading import RowRange, Table, planned, read_span, resolved, row_ranges

TOPIC_ID = "topic_id"
Offset = dict[str, Any]


class OrderedTableStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A reader of a stream. Its offsets are in Spark's checkpoint, and nowhere else. The base classes are Spark's way
    to be called."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._last: RowRanges | None = None
        """End of a query of what is available now."""

    @own_line_first()
    def initialOffset(self) -> Offset:  # noqa: N802 (Spark's names)
        found = row_ranges(self._table.options)
        return _offset(found, resolved(self._table.options.starting, found))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        most = self._table.options.rows_per_trigger_max
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    @own_line_first()
    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        found = self._last or row_ranges(self._table.options)
        self._check(start, found)
        begins = _begins(start, found)
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return _offset(found, ends_within(begins, found, most))

    @own_line_first()
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._last = row_ranges(self._table.options)

    @own_line_first()
    def reportLatestOffset(self) -> Offset:  # noqa: N802
        found = row_ranges(self._table.options)
        return _offset(found, resolved("latest", found))

    @own_line_first()
    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        found = row_ranges(self._table.options)
        self._check(end, found)
        begins = _begins(start, found)
        spans = [RowRange(int(tablet), begins[int(tablet)], stop) for tablet, stop in end.items() if tablet != TOPIC_ID]
        return [InputPartition(span) for span in planned(spans, found, self._table.options)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        with own_line_first():
            yield from read_span(self._table, partition.value)

    def _check(self, offset: Offset, found: RowRanges) -> None:
        """JobError for another table of the same name: its rows are not those that follow."""
        if offset[TOPIC_ID] != found.topic_id:
            raise JobError(
                f"{self._table.options.table} was deleted and created again: start a query with a new checkpoint"
            )


def ends_within(begins: Mapping[int, int], found: RowRanges, most: int | None) -> Mapping[int, int]:
    """Return where to stop in each tablet so that at most `most` rows are read, of each its share."""
    rest = {tablet: max(0, found.ranges[tablet][1] - begin) for tablet, begin in begins.items()}
    ends: dict[int, int] = {}
    left, waiting = most, sum(rest.values())
    for tablet, begin in begins.items():
        count = rest[tablet] if left is None or waiting <= left else -(-rest[tablet] * left // waiting)
        ends[tablet] = begin + count
        waiting -= rest[tablet]
        left = None if left is None else left - count
    return ends


def _begins(start: Offset, found: RowRanges) -> Mapping[int, int]:
    return {tablet: start.get(str(tablet), first) for tablet, (first, _) in enumerate(found.ranges)}


def _offset(found: RowRanges, indexes: Mapping[int, int]) -> Offset:
    return {TOPIC_ID: found.topic_id, **{str(tablet): index for tablet, index in sorted(indexes.items())}}
