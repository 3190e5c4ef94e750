"""Writing rows into an `ordered_table`, each once.

Tasks stage their rows, which nobody sees; one request of the driver then has them written. What a task staged that
Spark started again, or whose answer was lost, is not named in it. A micro-batch of a stream is a batch of the session
that the query has: one that comes again is known by its rows, however they are split over tasks. A data frame is the
one batch of a session of its own.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from pqbroker.client import ClientError, Column, StagedPiece
from pqbroker.pipeline.errors import JobError
from pqbroker.pipeline.ordered_tables.columns import check_insertable
from pqbroker.pipeline.ordered_tables.options import ON_CHANGED, Options
from pqbroker.pipeline.ordered_tables.own_line import own_line_first

REQUEST_ROWS = 5000
"""Fewer where they are too large for the broker."""
_BATCH_ID, _QUERY_ID = "streaming.sql.batchId", "sql.streaming.queryId"
_CHANGED, _AHEAD, _DAMAGED = "CHANGED_BATCH", "SESSION_AHEAD", "BATCH_DAMAGED"


@dataclass
class Staged(WriterCommitMessage):
    """The pieces that a task has staged."""

    session: str
    partition: int
    pieces: Sequence[StagedPiece]


class OrderedTableWriter(DataSourceArrowWriter):
    """The base class is Spark's way to be called."""

    def __init__(
        self, options: Options, columns: Sequence[Column] | None, schema: StructType, *, overwrite: bool
    ) -> None:
        self._options = options
        self._types = column_types(options, columns, schema, overwrite=overwrite)
        self._session = f"job-{uuid4()}"

    @own_line_first()
    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        context = TaskContext.get()
        partition = context.partitionId() if context is not None else 0
        return _stage(self._options, self._types, iterator, Staged(self._session, partition, ()), 0)

    @own_line_first()
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        _commit(self._options, _staged(messages), 0)


class OrderedTableStreamWriter(DataSourceStreamArrowWriter):
    """The base class is Spark's way to be called."""

    def __init__(
        self, options: Options, columns: Sequence[Column] | None, schema: StructType, *, overwrite: bool
    ) -> None:
        self._options = options
        self._types = column_types(options, columns, schema, overwrite=overwrite)

    @own_line_first()
    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        context = TaskContext.get()
        batch_id = context and context.getLocalProperty(_BATCH_ID)
        query = self._options.app_id or (context and context.getLocalProperty(_QUERY_ID))
        if context is None or not batch_id or not query:
            raise JobError("Spark does not tell which micro-batch this is: write streams by writeStream")
        message = Staged(query, context.partitionId(), ())
        return _stage(self._options, self._types, iterator, message, int(batch_id))

    @own_line_first()
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 (Spark's name)
        _commit(self._options, _staged(messages), batchId)


def column_types(
    options: Options, columns: Sequence[Column] | None, schema: StructType, *, overwrite: bool
) -> Mapping[str, str]:
    """Types of the table's columns by name. JobError for what takes no rows, or not such rows."""
    if overwrite:
        raise JobError('a table is not overwritten: give .mode("append"), or .outputMode("append") for a stream')
    if columns is None:
        raise JobError(f"{options.table} is a topic without a schema: create a table, or write with format kafka")
    check_insertable(options.table, columns, schema)
    return {column.name: column.type for column in columns}


def _stage(
    options: Options, types: Mapping[str, str], iterator: Iterator[Any], message: Staged, batch_id: int
) -> Staged:
    """The message, with what a task's rows were staged as; they keep their order in one tablet."""
    from pqbroker.pipeline.ordered_tables.batches import insertable, slices

    pieces: list[StagedPiece] = []
    with options.client() as client:
        table = client.table(options.table)
        for rows in slices((insertable(batch, types) for batch in iterator), REQUEST_ROWS):
            hint = pieces[0].tablet_index if pieces else None
            pieces += table.stage(rows, session=message.session, sequence=batch_id, tablet_hint=hint)
    return Staged(message.session, message.partition, pieces)


def _staged(messages: Sequence[WriterCommitMessage | None]) -> list[Staged]:
    """The messages of tasks, in the order of their partitions."""
    return sorted((one for one in messages if isinstance(one, Staged)), key=lambda one: one.partition)


def _commit(options: Options, staged: Sequence[Staged], batch_id: int) -> None:
    if not staged:
        return  # not even a task without rows
    pieces = [piece for message in staged for piece in message.pieces]
    with options.client() as client:
        try:
            client.table(options.table).commit_staged(
                pieces, session=staged[0].session, sequence=batch_id, on_changed=options.on_changed_batch
            )
        except ClientError as failure:
            raise _explained(failure, options, batch_id) from failure


def _explained(failure: ClientError, options: Options, batch_id: int) -> Exception:
    """Return the broker's refusal of a batch in Spark's words."""
    if failure.code == _CHANGED:
        _, keep, append = ON_CHANGED
        return JobError(
            f"micro-batch {batch_id} of {options.table} comes again with other rows ({failure.message}); nothing of it "
            f'was written now. Start the query once with option("onChangedBatch", "{keep}"), which leaves the new rows '
            f'out, or "{append}", which writes them beside those that are there: rows of both are then there twice'
        )
    if failure.code == _DAMAGED:
        _, keep, append = ON_CHANGED
        return JobError(
            f"micro-batch {batch_id} of {options.table} stands still, since a disk lost rows ({failure.message}); "
            f'nothing was written now. Start the query once with option("onChangedBatch", "{append}"), which writes '
            f'all its rows beside those that are there: these are then there twice; or with "{keep}", which leaves the '
            "lost ones out"
        )
    if failure.code == _AHEAD:
        return JobError(
            f"micro-batch {batch_id} of {options.table} is older than what the query wrote before ({failure.message}): "
            "its checkpoint is an old copy, or appId is that of another query. Give another appId to write it all the "
            "same"
        )
    return failure
