"""Sorted tables in the format of tables: all rows at one timestamp, a partition a tablet; and rows written by key.

A row that is written again is the same row, so a task that Spark starts again, or a micro-batch that comes again,
leaves the table as it is: there is nothing to stage and to commit. Rows appear request by request.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from pqbroker.client import Client, ClientError, Column
from pqbroker.http_client.table_calls import TableCalls
from pqbroker.pipeline.errors import JobError
from pqbroker.pipeline.ordered_tables.columns import SPARK_TYPES
from pqbroker.pipeline.ordered_tables.options import Options
from pqbroker.pipeline.ordered_tables.own_line import own_line_first
from pqbroker.pipeline.ordered_tables.reading import ANSWER_TOO_LARGE, Table, answered, quoted
from pqbroker.pipeline.ordered_tables.writing import REQUEST_ROWS, column_types

PARTS_STEP = 4
"""Parts that an answer which is too large is asked for in."""
PARTS_MAX = 4**6


class TabletPart(NamedTuple):
    """Rows of a tablet at a timestamp: those whose key's hash leaves `part` when it is divided by `parts`."""

    tablet: int
    timestamp: int
    parts: int = 1
    part: int = 0

    def smaller(self) -> "list[TabletPart]":
        """Return the parts of this one, the last first."""
        parts = self.parts * PARTS_STEP
        return [self._replace(parts=parts, part=part) for part in range(self.part, parts, self.parts)][::-1]


def sorted_schema(columns: Sequence[Column]) -> StructType:
    """Return the columns as Spark sees them."""
    schema = StructType()
    for column in columns:
        schema = schema.add(column.name, SPARK_TYPES[column.type])
    return schema


class SortedTableReader(DataSourceReader):
    """A reader of a batch. The base class is Spark's way to be called."""

    def __init__(self, table: Table, columns: Sequence[Column]) -> None:
        self._table = table
        self._keys = [column.name for column in columns if column.sort_order is not None]

    @own_line_first()
    def partitions(self) -> Sequence[InputPartition]:
        """Choose the timestamp for all tasks, now unless it is given."""
        options = self._table.options
        query = f'SELECT count(*) FROM {_name(options)} WHERE "$tablet_index" = -1'
        with options.client() as client:
            (scan,) = client.sql(query, timestamp=options.timestamp).explain()["scans"]
        return [InputPartition(TabletPart(tablet, scan["timestamp"])) for tablet in range(scan["tablet_count"])]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        with own_line_first():
            yield from self._read(partition.value)

    def _read(self, whole: TabletPart) -> Iterator[Any]:
        from pqbroker.pipeline.ordered_tables.batches import record_batches  # jobs that read no table need no pyarrow

        waiting = [whole]
        with self._table.options.client() as client:
            while waiting:
                part = waiting.pop()
                rows = self._answered(client, part)
                if rows is None:
                    waiting += part.smaller()
                else:
                    yield from record_batches(self._table.wanted, rows)

    def _answered(self, client: Client, part: TabletPart) -> Any:
        """Return rows in Arrow; None: more than one answer can hold. ClientError."""
        try:
            return answered(client, self._query(part), part.timestamp)
        except ClientError as failure:
            if failure.code not in ANSWER_TOO_LARGE or part.parts >= PARTS_MAX:
                raise
            return None

    def _query(self, part: TabletPart) -> str:
        names = ", ".join(map(quoted, self._table.wanted.names)) or "1"
        hashed = ", ".join(map(quoted, self._keys))
        some = "" if part.parts == 1 else f" AND hash({hashed}) % {part.parts} = {part.part}"
        return f'SELECT {names} FROM {_name(self._table.options)} WHERE "$tablet_index" = {part.tablet}{some}'


class SortedTableStreamReader(DataSourceStreamReader):
    """The refusal of a stream of rows: raised here, for Spark names no error of the source itself."""

    def __init__(self, options: Options) -> None:
        self._options = options

    @own_line_first()
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 (Spark's name)
        raise self._refusal()

    def read(self, partition: InputPartition) -> Iterator[Any]:
        raise self._refusal()

    def _refusal(self) -> JobError:
        text = f"{self._options.table} is a sorted table, which has no order in time to follow"
        return JobError(f"{text}: read it with spark.read, or follow the topic that feeds it")


class SortedTableWriter(DataSourceArrowWriter):
    """The base class is Spark's way to be called."""

    def __init__(self, options: Options, columns: Sequence[Column], schema: StructType, *, overwrite: bool) -> None:
        self._options = options
        self._types = column_types(options, columns, schema, overwrite=overwrite)

    @own_line_first()
    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        return _write(self._options, self._types, iterator)


class SortedTableStreamWriter(DataSourceStreamArrowWriter):
    """The base class is Spark's way to be called."""

    def __init__(self, options: Options, columns: Sequence[Column], schema: StructType, *, overwrite: bool) -> None:
        self._options = options
        self._types = column_types(options, columns, schema, overwrite=overwrite)

    @own_line_first()
    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        return _write(self._options, self._types, iterator)


def _write(options: Options, types: Mapping[str, str], iterator: Iterator[Any]) -> WriterCommitMessage:
    from pqbroker.pipeline.ordered_tables.batches import insertable, slices

    with options.client() as client:
        table = client.table(options.table)
        for rows in slices((insertable(batch, types) for batch in iterator), REQUEST_ROWS):
            table.insert(rows, update=options.is_update)
    return WriterCommitMessage()


def _name(options: Options) -> str:
    return quoted(TableCalls(options.table).name)
