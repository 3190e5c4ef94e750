"""Reading an `ordered_table`: one partition a tablet and half a million rows, each read by SQL in pieces."""

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from pqbroker.client import Client, ClientError
from pqbroker.http_client.facts import RowRanges
from pqbroker.http_client.table_calls import TableCalls
from pqbroker.pipeline.errors import JobError
from pqbroker.pipeline.ordered_tables.options import EARLIEST, LATEST, Offsets, Options
from pqbroker.pipeline.ordered_tables.own_line import own_line_first

ROWS_PER_QUERY = 65_536
"""Fewer where its answer is too large."""
BUSY_TRIES = 60
BUSY_PAUSE_S = 0.5
"""The broker runs few queries at once; a task waits its turn for half a minute."""
ANSWER_TOO_LARGE = frozenset(("RESULT_TOO_LARGE", "QUERY_TOO_LARGE", "QUERY_TOO_LONG"))


class RowRange(NamedTuple):
    """Rows of a tablet, up to below `end`."""

    tablet: int
    start: int
    end: int


class Table(NamedTuple):
    """The facts that a task needs, pickled with it."""

    options: Options
    wanted: StructType


class OrderedTableReader(DataSourceReader):
    """A reader of a batch. The base class is Spark's way to be called."""

    def __init__(self, table: Table) -> None:
        self._table = table

    @own_line_first()
    def partitions(self) -> Sequence[InputPartition]:
        options = self._table.options
        found = row_ranges(options)
        starts, ends = resolved(options.starting, found), resolved(options.ending, found)
        spans = [RowRange(tablet, start, ends[tablet]) for tablet, start in starts.items() if tablet in ends]
        return [InputPartition(span) for span in planned(spans, found, options)] or [InputPartition(RowRange(0, 0, 0))]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        with own_line_first():
            yield from read_span(self._table, partition.value)


def row_ranges(options: Options) -> RowRanges:
    with options.client() as client:
        return client.table(options.table).row_ranges()


def resolved(offsets: Offsets, found: RowRanges) -> Mapping[int, int]:
    """Row indexes by tablet; of tablets that are not named: their first."""
    first, last = ({tablet: one[end] for tablet, one in enumerate(found.ranges)} for end in (0, 1))
    if offsets in (EARLIEST, LATEST):
        return first if offsets == EARLIEST else last
    assert isinstance(offsets, Mapping)
    for tablet in offsets.keys() - first.keys():
        raise JobError(f"there is no tablet {tablet}: give 0 to {len(found.ranges) - 1}")
    return {**first, **offsets}


def planned(spans: Sequence[RowRange], found: RowRanges, options: Options) -> Sequence[RowRange]:
    """Spans of rows that exist, none too long for a task. JobError for rows that are gone."""
    tasks = []
    for tablet, start, end in spans:
        first, last = found.ranges[tablet]
        if start < first and options.fails_on_data_loss and end > start:
            raise JobError(
                f"rows {start} to {first - 1} of tablet {tablet} of {options.table} are gone, trimmed or too old; "
                "failOnDataLoss=false reads on without them"
            )
        step = options.rows_per_partition
        begin, stop = max(start, first), min(end, last)
        tasks += [RowRange(tablet, one, min(one + step, stop)) for one in range(begin, stop, step)]
    return tasks


def read_span(table: Table, span: RowRange) -> Iterator[Any]:
    """Record batches of a task."""
    from pqbroker.pipeline.ordered_tables.batches import record_batches  # jobs that read no table need no pyarrow

    start, count = span.start, ROWS_PER_QUERY
    with table.options.client() as client:
        while start < span.end:
            part = RowRange(span.tablet, start, min(start + count, span.end))
            records = _records(client, table, part)
            if records is None:
                count = max(1, count // 4)
                continue
            if records.num_rows < part.end - part.start:
                planned([part], client.table(table.options.table).row_ranges(), table.options)
            yield from record_batches(table.wanted, records)
            start = part.end


def _records(client: Client, table: Table, part: RowRange) -> Any:
    """Rows in Arrow; None: more rows than one answer can hold. ClientError."""
    try:
        return answered(client, _query(table, part))
    except ClientError as failure:
        if failure.code not in ANSWER_TOO_LARGE or part.end - part.start == 1:
            raise
        return None


def _query(table: Table, part: RowRange) -> str:
    names = ", ".join(map(quoted, table.wanted.names))
    return (
        f'SELECT {names} FROM {quoted(TableCalls(table.options.table).name)} WHERE "$tablet_index" = {part.tablet} '
        f'AND "$row_index" >= {part.start} AND "$row_index" < {part.end}'
    )


def quoted(name: str) -> str:
    """Return a name as SQL has it."""
    return '"' + name.replace('"', '""') + '"'


def answered(client: Client, query: str, timestamp: int | None = None) -> Any:
    """Rows in Arrow, of sorted tables at a timestamp; ClientError."""
    for _ in range(BUSY_TRIES):
        try:
            return client.sql(query, timestamp=timestamp).arrow()
        except ClientError as failure:
            if failure.code != "TOO_MANY_QUERIES":
                raise
        time.sleep(BUSY_PAUSE_S)
    return client.sql(query, timestamp=timestamp).arrow()
