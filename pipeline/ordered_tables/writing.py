"""Writing rows into an `ordered_table`.

A data frame, at least once: a task that Spark starts again writes its rows again. A stream, once: each request is a
batch of a session that the task has in every replay. Its sequence is made of the micro-batch and of where its last row
stands in the task's rows, so that the broker leaves out what it has. That holds while a replayed micro-batch has the
same rows in the same tasks, as it has from sources with offsets.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from pqbroker.client import Client, ClientError, Column
from pqbroker.pipeline.errors import JobError
from pqbroker.pipeline.ordered_tables.options import Options

REQUEST_ROWS = 5000
"""Of a stream; fewer where they are too large for the broker."""
_ROW_BITS = 32
_TOO_LARGE = 413
_BATCH_ID, _QUERY_ID = "streaming.sql.batchId", "sql.streaming.queryId"


class OrderedTableWriter(DataSourceArrowWriter):
    """The base class is Spark's way to be called."""

    def __init__(self, options: Options, columns: Sequence[Column] | None, *, overwrite: bool) -> None:
        self._options = options
        self._types = column_types(options, columns, overwrite=overwrite)

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        from pqbroker.pipeline.ordered_tables.batches import insertable

        with Client(self._options.http) as client:
            table = client.table(self._options.table)
            for batch in iterator:
                table.insert(insertable(batch, self._types))
        return WriterCommitMessage()


class OrderedTableStreamWriter(DataSourceStreamArrowWriter):
    """The base class is Spark's way to be called."""

    def __init__(self, options: Options, columns: Sequence[Column] | None, *, overwrite: bool) -> None:
        self._options = options
        self._types = column_types(options, columns, overwrite=overwrite)

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        from pqbroker.pipeline.ordered_tables.batches import insertable, slices

        session, first = _of_task(self._options)
        with Client(self._options.http) as client:
            for end, rows in slices((insertable(batch, self._types) for batch in iterator), REQUEST_ROWS):
                _insert(client, self._options.table, rows, (session, first + end))
        return WriterCommitMessage()


def column_types(options: Options, columns: Sequence[Column] | None, *, overwrite: bool) -> Mapping[str, str]:
    """Types of the table's columns by name. JobError for what takes no rows, or not so."""
    if overwrite:
        raise JobError('a table is not overwritten: give .mode("append"), or .outputMode("append") for a stream')
    if columns is None:
        raise JobError(f"{options.table} is a topic without a schema: create a table, or write with format kafka")
    return {column.name: column.type for column in columns}


def _of_task(options: Options) -> tuple[str, int]:
    """The task's session, and the sequence before its first row of this micro-batch."""
    context = TaskContext.get()
    batch_id = context and context.getLocalProperty(_BATCH_ID)
    query = options.app_id or (context and context.getLocalProperty(_QUERY_ID))
    if context is None or not batch_id or not query:
        raise JobError("Spark does not tell which micro-batch this is: write streams by writeStream")
    return f"{query}/{context.partitionId()}", int(batch_id) << _ROW_BITS


def _insert(client: Client, table: str, rows: Any, batch: tuple[str, int]) -> None:
    """Rows of one request; where they are too large, in halves, which are the same in every replay."""
    session, sequence = batch
    try:
        client.table(table).insert(rows, session=session, sequence=sequence)
    except ClientError as failure:
        if failure.status != _TOO_LARGE or rows.num_rows == 1:
            raise
        middle = rows.num_rows // 2
        _insert(client, table, rows.slice(0, middle), (session, sequence - rows.num_rows + middle))
        _insert(client, table, rows.slice(middle), batch)
