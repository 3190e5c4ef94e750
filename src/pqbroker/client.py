"""A client of tables and SQL of a pqbroker, over its HTTP address: `Client`, and `AsyncClient` for asyncio.

with Client("127.0.0.1:8092") as client:
    client.table("events").insert([{"id": 1}])
    client.sql("SELECT count(*) AS n FROM events").rows()

Every call may raise ClientError. A call whose connection is lost is made once more where that is safe: reads,
queries, trims, batches of sessions. Records of topics are for Kafka clients.
"""

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from pqbroker.http_client.addresses import HttpAddress, UserOrToken, authorization_of, parse_http_address, token_file_of
from pqbroker.http_client.blocking import BlockingTransport
from pqbroker.http_client.errors import ClientError as ClientError
from pqbroker.http_client.exchange import Steps
from pqbroker.http_client.facts import Column as Column
from pqbroker.http_client.facts import CommittedBatch as CommittedBatch
from pqbroker.http_client.facts import DeletedRows as DeletedRows
from pqbroker.http_client.facts import Inserted as Inserted
from pqbroker.http_client.facts import InsertedRows as InsertedRows
from pqbroker.http_client.facts import RowRanges as RowRanges
from pqbroker.http_client.facts import StagedPiece as StagedPiece
from pqbroker.http_client.facts import TableDescription as TableDescription
from pqbroker.http_client.facts import TableSummary as TableSummary
from pqbroker.http_client.facts import TabletDescription as TabletDescription
from pqbroker.http_client.query_calls import FilesByName, Params, QueryCalls
from pqbroker.http_client.queue_calls import AutoTrim as AutoTrim
from pqbroker.http_client.queue_calls import ConsumerPlace as ConsumerPlace
from pqbroker.http_client.queue_calls import ProducerSession as ProducerSession
from pqbroker.http_client.queue_calls import PulledRows as PulledRows
from pqbroker.http_client.queue_calls import PushedRows as PushedRows
from pqbroker.http_client.queue_calls import QueueCalls, list_queues
from pqbroker.http_client.queue_calls import QueueDescription as QueueDescription
from pqbroker.http_client.row_pieces import ArrowRows, Piece, json_body, key_pieces, pieces_of, whole_piece
from pqbroker.http_client.table_calls import PAGE_ROWS, Row, TableCalls, list_tables
from pqbroker.http_client.transaction_calls import CONFLICT, TransactionCalls

if TYPE_CHECKING:
    import ssl

    import pandas
    import pyarrow

    from pqbroker.http_client.asynchronous import AsyncioTransport

T = TypeVar("T")
DEFAULT_ADDRESS = "127.0.0.1:8092"
TIMEOUT_S = 60.0
ATTEMPTS = 5
Rows = Iterable[Mapping[str, Any]] | ArrowRows
"""Rows to insert: a mapping each, or anything of Arrow."""
RowKeys = Iterable[Mapping[str, Any]]
"""Keys of a sorted table's rows: the values of all key columns by name."""


class Client:
    """A client for one thread at a time. `timeout_s`: how long an answer may take.

    Of an https:// address `ca` is the file with certificates that the broker's must lead to (None: the system's), and
    `tls` a context in its place, for a client that shows a certificate. `login` is a token, the
    Path of a file with one, which each request reads, or a user and its password; None: what the environment says,
    PQBROKER_TOKEN_FILE, PQBROKER_TOKEN, or PQBROKER_USER and PQBROKER_PASSWORD.
    """

    def __init__(
        self, address: str = DEFAULT_ADDRESS, *, timeout_s: float = TIMEOUT_S, ca: str | None = None,
        tls: "ssl.SSLContext | None" = None, login: UserOrToken | None = None,
    ) -> None:  # fmt: skip
        self._transport = BlockingTransport(_place(address, ca, tls, login), timeout_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; the next call opens another."""
        self._transport.close()

    def table(self, name: str) -> "Table":
        """Return a table, which need not exist, by its topic's name or its path: shop.orders is //shop/orders."""
        return Table(self._transport, name)

    def tables(self) -> list[TableSummary]:
        """All tables by name."""
        return self._transport.perform(list_tables())

    def queue(self, name: str) -> "Queue":
        """Return a queue by its topic's name or its path."""
        return Queue(self._transport, name)

    def queues(self, consumer: str | None = None) -> list[QueueDescription]:
        """Return all queues that have consumers or auto trim, by name; or those of one consumer."""
        return self._transport.perform(list_queues(consumer))

    def sql(
        self,
        query: str,
        *,
        timeout_ms: int | None = None,
        timestamp: int | None = None,
        isolation: str | None = None,
        params: Params | None = None,
    ) -> "Query":
        """A SELECT over topics and tables; each of its methods runs it. `timestamp`: sorted tables are read at it.
        `isolation`: read_committed, the usual one, or read_uncommitted: the records of topics that are read.
        `params`: values of `$1`, `$2` in the query as a sequence, or of `$name` as a mapping."""
        return Query(self._transport, QueryCalls(query, timeout_ms, timestamp, isolation=isolation, params=params))

    def transaction(self, *, timeout_ms: int | None = None, transactional_id: str | None = None) -> "Transaction":
        """Return a transaction over tables, which begins with its `with` block and is committed at the block's end.
        `timeout_ms`: the broker aborts it after that time without a call; 15 seconds unless given."""
        return Transaction(self._transport, TransactionCalls(timeout_ms, transactional_id))

    def run_transaction(
        self, function: "Callable[[Transaction], T]", *, attempts: int = ATTEMPTS, timeout_ms: int | None = None
    ) -> T:
        """Return what a function returns that is called with a transaction, once that is committed; after a conflict
        with another transaction it is called again, with a new one, `attempts` times in all."""
        for conflicts in range(attempts):
            calls = TransactionCalls(timeout_ms)
            self._transport.perform(calls.begin(conflicts))
            try:
                with Transaction(self._transport, calls) as transaction:
                    return function(transaction)
            except ClientError as failure:
                if not _is_repeated(failure, conflicts, attempts):
                    raise
        raise _no_attempts(attempts)


class Transaction:
    """One transaction over tables: it reads as of its start, and all its writes appear at one timestamp, or none does.

    Writes are kept here and travel with the commit at the end of the `with` block; reads do not see them. An exception
    in the block aborts. If somebody else has written one of its rows meanwhile, the commit is refused: ClientError with
    the code ROW_LOCK_CONFLICT. Tables are given by name or path.
    """

    def __init__(self, transport: BlockingTransport, calls: TransactionCalls) -> None:
        self._transport = transport
        self._calls = calls

    def __enter__(self) -> Self:
        if not self._calls.name:
            self._transport.perform(self._calls.begin())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._calls.is_over:
            return
        if kind is None:
            self.commit()
            return
        with suppress(ClientError):  # its timeout aborts it then
            self.abort()

    @property
    def name(self) -> str:
        """Return what the broker and its commands call it, once it has begun."""
        return self._calls.name

    @property
    def start_timestamp(self) -> int:
        """Return the timestamp that it reads at."""
        return self._calls.start_timestamp

    @property
    def timestamp(self) -> int | None:
        """Return the timestamp of the commit; None before."""
        return self._calls.timestamp

    def lookup(self, table: str, keys: RowKeys, *, columns: Sequence[str] | None = None) -> list[Row | None]:
        """Return rows as `Table.lookup`, as they were when the transaction began."""
        return self._transport.perform(self._calls.lookup(table, keys, columns))

    def lookup_prefix(
        self, table: str, prefix: Mapping[str, Any], *, columns: Sequence[str] | None = None
    ) -> list[Row]:
        """Return rows as `Table.lookup_prefix`, as they were when the transaction began."""
        return self._transport.perform(self._calls.lookup_prefix(table, prefix, columns))

    def sql(self, query: str, *, timeout_ms: int | None = None, params: Params | None = None) -> "Query":
        """A SELECT that reads sorted tables as they were when the transaction began, and others as they are. `params`
        as in `Client.sql`."""
        return Query(self._transport, QueryCalls(query, timeout_ms, transaction=self.name, params=params))

    def insert(self, table: str, rows: Iterable[Mapping[str, Any]]) -> None:
        """Write rows, whole, to a sorted table or to one that is a topic."""
        self._calls.keep("rows", table, rows)

    def update(self, table: str, rows: Iterable[Mapping[str, Any]]) -> None:
        """Write rows to a sorted table; columns that a row lacks stay as they were."""
        self._calls.keep("update", table, rows)

    def delete(self, table: str, keys: RowKeys) -> None:
        """Delete the rows of a sorted table that have these keys."""
        self._calls.keep("delete", table, keys)

    def commit_offset(self, group: str, topic: str, partition: int, offset: int, metadata: str = "") -> None:
        """Commit an offset of a consumer group with it: the first one of the partition that the group has not read."""
        self._calls.keep_offset(group, topic, partition, offset, metadata)

    def ping(self) -> None:
        """Keep it open for its timeout again; reads do so too."""
        self._transport.perform(self._calls.ping())

    def abort(self) -> None:
        """Abort it: nothing is written."""
        self._transport.perform(self._calls.abort())

    def commit(self) -> None:
        """Commit it before the block's end. Where no answer comes it is sent again for half a minute; if the outcome is
        unknown even then (ClientError CONNECTION_LOST, COMMIT_UNKNOWN and the like), another call asks for it."""
        self._transport.perform(self._calls.commit())


class Table:
    """One table; rows of any topic can be selected too."""

    def __init__(self, transport: BlockingTransport, name: str) -> None:
        self._perform = transport.perform
        self._calls = TableCalls(name)

    @property
    def name(self) -> str:
        """Return the name of the table's topic."""
        return self._calls.name

    def create(self, schema: Iterable[Column], **options: Any) -> TableDescription:
        """`options`: tablet_count, trimmed_row_counts, attributes, bundle, mount, config, dynamic, and pivot_keys of a
        sorted table, as in POST /v1/tables."""
        return self._perform(self._calls.create(schema, options))

    def describe(self) -> TableDescription:
        return self._perform(self._calls.describe())

    def tablets(self) -> list[TabletDescription]:
        return self._perform(self._calls.tablets())

    def columns(self) -> tuple[Column, ...] | None:
        """Return the columns of the schema; None: a topic without one."""
        return self._perform(self._calls.columns())

    def row_ranges(self) -> RowRanges:
        """Return by tablet the index of its first row, and the one behind its last."""
        return self._perform(self._calls.row_ranges())

    def delete(self) -> None:
        """Delete the table, its topic and all rows."""
        self._perform(self._calls.delete())

    def insert(
        self,
        rows: Rows,
        *,
        tablet_index: int | None = None,
        session: str | None = None,
        sequence: int | None = None,
        update: bool = False,
    ) -> Inserted:
        """Insert rows, into any mounted tablet unless it is named.

        Many rows take several requests, each taken as a whole or not at all: ClientError.rows_inserted counts those
        that were written before one failed. Values: as in JSON, or bytes, or a datetime for a timestamp. Rows in Arrow
        (a table, a batch or a stream of pyarrow, a data frame) go as they are, which is much faster.

        With a `session` the rows are one batch of it: they go in one request, and a batch whose `sequence` is not above
        that of one taken before is not taken (Inserted.is_duplicate). So it may be sent again after any error.
        """
        return self._perform(_insertion(self._calls, rows, tablet_index, (session, sequence), is_update=update))

    def lookup(
        self, keys: RowKeys, *, timestamp: int | None = None, columns: Sequence[str] | None = None
    ) -> list[Row | None]:
        """Return the rows of a sorted table that have these keys, in their order; None where there is none.

        `timestamp`: that of a commit (Inserted.timestamp), to read rows as they were then; without it each thousand of
        keys is read as committed when it is asked for. `columns`: those to return, all unless given.
        """
        return self._perform(self._calls.lookup(_looked_up(keys, timestamp, columns)))

    def lookup_prefix(
        self, prefix: Mapping[str, Any], *, timestamp: int | None = None, columns: Sequence[str] | None = None
    ) -> list[Row]:
        """Return the rows of a sorted table whose keys begin with the values of the first key columns, in the order of
        their keys: 10 000 at most, else ClientError TOO_MANY_ROWS. The other arguments are those of `lookup`."""
        return self._perform(self._calls.lookup_prefix(json_body({"prefix": prefix, **_as_of(timestamp, columns)})))

    def delete_rows(self, keys: RowKeys) -> DeletedRows:
        """Delete the rows of a sorted table that have these keys; a thousand in a request, all of it or none."""
        return self._perform(self._calls.delete_rows(key_pieces(keys, {})))

    def stage(
        self,
        rows: Rows,
        *,
        session: str,
        sequence: int,
        tablet_index: int | None = None,
        tablet_hint: int | None = None,
    ) -> list[StagedPiece]:
        """Keep rows for the batch `sequence` of a session, in as many requests as they need: nobody sees them until
        `commit_staged`. Several programs may stage rows of one batch. Without `tablet_index` they go into one mounted
        tablet, `tablet_hint` if that is one."""
        return self._perform(self._calls.stage(pieces_of(rows, tablet_index), session, sequence, tablet_hint))

    def commit_staged(
        self, pieces: Iterable[StagedPiece], *, session: str, sequence: int, on_changed: str = "fail"
    ) -> CommittedBatch:
        """Write the rows of all pieces, in the order given within each tablet, once however often it is asked for.

        A batch that was committed before is not written again, however its rows were split into pieces then. If it had
        other rows, ClientError CHANGED_BATCH says so; `on_changed` "keep" keeps the stored ones alone, "append" writes
        the new ones too. Errors can be followed by the same call, or by staging and committing the batch again.
        """
        return self._perform(self._calls.commit_staged(pieces, session, sequence, on_changed))

    def select(
        self, tablet_index: int = 0, first_row_index: int = 0, *, limit: int = PAGE_ROWS, is_raw: bool = False
    ) -> list[Row]:
        """Rows of a tablet, typed; raw ones are records: timestamp_ms, key, value, headers. Topics have raw ones only.
        """
        return self._perform(self._calls.select(tablet_index, first_row_index, limit, is_raw))

    def rows(self, tablet_index: int = 0, first_row_index: int = 0, *, is_raw: bool = False) -> Iterator[Row]:
        """Yield rows as `select` returns them, all up to the end, read while they are taken."""
        while True:
            page = self._perform(self._calls.page(tablet_index, first_row_index, PAGE_ROWS, is_raw))
            yield from page.rows
            if page.next_row_index <= first_row_index:
                return
            first_row_index = page.next_row_index

    def trim(self, trimmed_row_count: int, *, tablet_index: int = 0) -> int:
        """Delete the rows before an index: the index of the first one that is left."""
        return self._perform(self._calls.trim(tablet_index, trimmed_row_count))

    def mount(self, first: int | None = None, last: int | None = None, *, freeze: bool = False) -> TableSummary:
        """Mount the tablets from `first` to `last`, all unless given. This and the next ones return when it is done."""
        return self._perform(self._calls.change("mount", _tablets(first, last, freeze=freeze)))

    def unmount(self, first: int | None = None, last: int | None = None, *, force: bool = False) -> TableSummary:
        """`force`: without bringing rows to the body first."""
        return self._perform(self._calls.change("unmount", _tablets(first, last, force=force)))

    def freeze(self, first: int | None = None, last: int | None = None) -> TableSummary:
        return self._perform(self._calls.change("freeze", _tablets(first, last)))

    def unfreeze(self, first: int | None = None, last: int | None = None) -> TableSummary:
        return self._perform(self._calls.change("unfreeze", _tablets(first, last)))

    def remount(self, first: int | None = None, last: int | None = None) -> TableSummary:
        """Have the attributes that were set act in these tablets."""
        return self._perform(self._calls.change("remount", _tablets(first, last)))

    def alter(self, schema: Iterable[Column]) -> TableDescription:
        """Change the schema of an unmounted table, or of a topic, whose records are then rows; none takes it away."""
        return self._perform(self._calls.alter(schema))

    def make_static(self) -> TableDescription:
        """Have an unmounted table be for SQL alone: no topic, and all its rows together."""
        return self._perform(self._calls.convert(is_dynamic=False))

    def make_dynamic(self) -> TableDescription:
        """Have a static table be dynamic again: a new topic with one tablet, unmounted."""
        return self._perform(self._calls.convert(is_dynamic=True))

    def set_attributes(self, attributes: Mapping[str, Any]) -> TableDescription:
        """Set attributes. They act in a tablet from its next mount or remount on."""
        return self._perform(self._calls.set_attributes(attributes))


class Queue:
    """One queue: a topic, most often an ordered table, whose rows consumers pull and producers push in sessions."""

    def __init__(self, transport: BlockingTransport, name: str) -> None:
        self._perform = transport.perform
        self._calls = QueueCalls(name)

    @property
    def name(self) -> str:
        """Return the name of the queue's topic."""
        return self._calls.name

    def describe(self) -> QueueDescription:
        return self._perform(self._calls.describe())

    def set_auto_trim(self, trim: AutoTrim) -> QueueDescription:
        """Have rows deleted that all vital consumers have read, but for those that the bounds keep."""
        return self._perform(self._calls.set_auto_trim(trim))

    def register(self, consumer: str, *, vital: bool = False) -> QueueDescription:
        """Register a consumer, which is the consumer group of its name, or change whether it is vital."""
        return self._perform(self._calls.register(consumer, is_vital=vital))

    def unregister(self, consumer: str) -> None:
        """Take a consumer from the queue; its offsets stay."""
        self._perform(self._calls.unregister(consumer))

    def places(self, consumer: str) -> list[ConsumerPlace]:
        """Return where a consumer stands, by tablet."""
        return self._perform(self._calls.places(consumer))

    def pull(
        self,
        tablet_index: int = 0,
        *,
        consumer: str | None = None,
        offset: int | None = None,
        max_row_count: int | None = None,
        max_data_weight: int | None = None,
    ) -> PulledRows:
        """Return rows from `offset` on, or from where a registered consumer stands; none where there are none yet."""
        query = _pulled(consumer, offset, max_row_count, max_data_weight)
        return self._perform(self._calls.pull(tablet_index, query))

    def advance(
        self, consumer: str, new_offset: int, *, tablet_index: int = 0, old_offset: int | None = None
    ) -> None:
        """Commit that a consumer has read all rows before `new_offset`. If it does not stand at `old_offset`, nothing
        changes: ClientError CONSUMER_OFFSET_CONFLICT."""
        self._perform(self._calls.advance(consumer, tablet_index, new_offset, old_offset))

    def take_session(self, producer: str, session: str, *, user_meta: Any = None) -> ProducerSession:
        """Take a session of a producer: pushes of its earlier owners are refused from now on. `user_meta`: a JSON
        document to keep with it; None leaves it as it was."""
        return self._perform(self._calls.take_session(producer, session, user_meta))

    def end_session(self, producer: str, session: str) -> None:
        """Forget a session."""
        self._perform(self._calls.end_session(producer, session))

    def sessions(self) -> list[ProducerSession]:
        """Return the sessions of all producers by name."""
        return self._perform(self._calls.sessions())

    def push(
        self,
        session: ProducerSession,
        rows: Iterable[Mapping[str, Any]],
        *,
        sequence_number: int | None = None,
        user_meta: Any = None,
    ) -> PushedRows:
        """Push rows in one request, all or none. Rows have rising numbers, in `$sequence_number` of each, or from
        `sequence_number` on; those that the session has taken before are left out, so that a push may be repeated.

        ClientError ZOMBIE_EPOCH if another producer has taken the session meanwhile.
        """
        more = {"sequence_number": sequence_number, "user_meta": user_meta}
        return self._perform(self._calls.push(session, rows, more))


class Query:
    """A query in SQL."""

    def __init__(self, transport: BlockingTransport, calls: QueryCalls) -> None:
        self._transport = transport
        self._perform = transport.perform
        self._calls = calls

    def with_files(self, files: FilesByName) -> "Query":
        """Return the query with files that go with it: the bytes of CSV and Parquet files by name. The relation
        `files.new.csv` in it is the file `new.csv`."""
        return Query(self._transport, replace(self._calls, files=files))

    def rows(self) -> list[Row]:
        """Rows as JSON has them: bytes that are no UTF-8 are {"base64": …}, times are text."""
        return self._perform(self._calls.rows())

    def arrow(self) -> "pyarrow.Table":
        """Columns of their types. Needs pyarrow."""
        return _arrow(self._perform(self._calls.arrow()))

    def to_pandas(self) -> "pandas.DataFrame":
        """Needs pyarrow and pandas."""
        return self.arrow().to_pandas()

    def explain(self) -> dict[str, Any]:
        """Run the query, and say what it read: plan, blobs_read, rows_read, bytes_read."""
        return self._perform(self._calls.explain())


class AsyncClient:
    """`Client` for asyncio: several calls may be under way at once."""

    def __init__(
        self, address: str = DEFAULT_ADDRESS, *, timeout_s: float = TIMEOUT_S, ca: str | None = None,
        tls: "ssl.SSLContext | None" = None, login: UserOrToken | None = None,
    ) -> None:  # fmt: skip
        from pqbroker.http_client.asynchronous import AsyncioTransport  # the synchronous client loads no asyncio

        self._transport = AsyncioTransport(_place(address, ca, tls, login), timeout_s)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Nothing stays open between calls; here for what closes either client."""

    def table(self, name: str) -> "AsyncTable":
        return AsyncTable(self._transport, name)

    async def tables(self) -> list[TableSummary]:
        return await self._transport.perform(list_tables())

    def queue(self, name: str) -> "AsyncQueue":
        return AsyncQueue(self._transport, name)

    async def queues(self, consumer: str | None = None) -> list[QueueDescription]:
        return await self._transport.perform(list_queues(consumer))

    def sql(
        self,
        query: str,
        *,
        timeout_ms: int | None = None,
        timestamp: int | None = None,
        isolation: str | None = None,
        params: Params | None = None,
    ) -> "AsyncQuery":
        return AsyncQuery(self._transport, QueryCalls(query, timeout_ms, timestamp, isolation=isolation, params=params))

    def transaction(self, *, timeout_ms: int | None = None, transactional_id: str | None = None) -> "AsyncTransaction":
        return AsyncTransaction(self._transport, TransactionCalls(timeout_ms, transactional_id))

    async def run_transaction(
        self,
        function: "Callable[[AsyncTransaction], Awaitable[T]]",
        *,
        attempts: int = ATTEMPTS,
        timeout_ms: int | None = None,
    ) -> T:
        for conflicts in range(attempts):
            calls = TransactionCalls(timeout_ms)
            await self._transport.perform(calls.begin(conflicts))
            try:
                async with AsyncTransaction(self._transport, calls) as transaction:
                    return await function(transaction)
            except ClientError as failure:
                if not _is_repeated(failure, conflicts, attempts):
                    raise
        raise _no_attempts(attempts)


class AsyncTransaction:
    """`Transaction` for asyncio, in an `async with` block. Writes are kept here: `insert`, `update` and `delete` are no
    coroutines."""

    def __init__(self, transport: "AsyncioTransport", calls: TransactionCalls) -> None:
        self._transport = transport
        self._calls = calls

    async def __aenter__(self) -> Self:
        if not self._calls.name:
            await self._transport.perform(self._calls.begin())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._calls.is_over:
            return
        if kind is None:
            await self.commit()
            return
        with suppress(ClientError):  # its timeout aborts it then
            await self.abort()

    @property
    def name(self) -> str:
        return self._calls.name

    @property
    def start_timestamp(self) -> int:
        return self._calls.start_timestamp

    @property
    def timestamp(self) -> int | None:
        return self._calls.timestamp

    async def lookup(self, table: str, keys: RowKeys, *, columns: Sequence[str] | None = None) -> list[Row | None]:
        return await self._transport.perform(self._calls.lookup(table, keys, columns))

    async def lookup_prefix(
        self, table: str, prefix: Mapping[str, Any], *, columns: Sequence[str] | None = None
    ) -> list[Row]:
        return await self._transport.perform(self._calls.lookup_prefix(table, prefix, columns))

    def sql(self, query: str, *, timeout_ms: int | None = None, params: Params | None = None) -> "AsyncQuery":
        return AsyncQuery(self._transport, QueryCalls(query, timeout_ms, transaction=self.name, params=params))

    def insert(self, table: str, rows: Iterable[Mapping[str, Any]]) -> None:
        self._calls.keep("rows", table, rows)

    def update(self, table: str, rows: Iterable[Mapping[str, Any]]) -> None:
        self._calls.keep("update", table, rows)

    def delete(self, table: str, keys: RowKeys) -> None:
        self._calls.keep("delete", table, keys)

    def commit_offset(self, group: str, topic: str, partition: int, offset: int, metadata: str = "") -> None:
        self._calls.keep_offset(group, topic, partition, offset, metadata)

    async def ping(self) -> None:
        await self._transport.perform(self._calls.ping())

    async def abort(self) -> None:
        await self._transport.perform(self._calls.abort())

    async def commit(self) -> None:
        await self._transport.perform(self._calls.commit())


class AsyncTable:
    """`Table` for asyncio."""

    def __init__(self, transport: "AsyncioTransport", name: str) -> None:
        self._perform = transport.perform
        self._calls = TableCalls(name)

    @property
    def name(self) -> str:
        return self._calls.name

    async def create(self, schema: Iterable[Column], **options: Any) -> TableDescription:
        return await self._perform(self._calls.create(schema, options))

    async def describe(self) -> TableDescription:
        return await self._perform(self._calls.describe())

    async def tablets(self) -> list[TabletDescription]:
        return await self._perform(self._calls.tablets())

    async def columns(self) -> tuple[Column, ...] | None:
        return await self._perform(self._calls.columns())

    async def row_ranges(self) -> RowRanges:
        return await self._perform(self._calls.row_ranges())

    async def delete(self) -> None:
        await self._perform(self._calls.delete())

    async def insert(
        self,
        rows: Rows,
        *,
        tablet_index: int | None = None,
        session: str | None = None,
        sequence: int | None = None,
        update: bool = False,
    ) -> Inserted:
        return await self._perform(_insertion(self._calls, rows, tablet_index, (session, sequence), is_update=update))

    async def lookup(
        self, keys: RowKeys, *, timestamp: int | None = None, columns: Sequence[str] | None = None
    ) -> list[Row | None]:
        return await self._perform(self._calls.lookup(_looked_up(keys, timestamp, columns)))

    async def lookup_prefix(
        self, prefix: Mapping[str, Any], *, timestamp: int | None = None, columns: Sequence[str] | None = None
    ) -> list[Row]:
        body = json_body({"prefix": prefix, **_as_of(timestamp, columns)})
        return await self._perform(self._calls.lookup_prefix(body))

    async def delete_rows(self, keys: RowKeys) -> DeletedRows:
        return await self._perform(self._calls.delete_rows(key_pieces(keys, {})))

    async def stage(
        self,
        rows: Rows,
        *,
        session: str,
        sequence: int,
        tablet_index: int | None = None,
        tablet_hint: int | None = None,
    ) -> list[StagedPiece]:
        return await self._perform(self._calls.stage(pieces_of(rows, tablet_index), session, sequence, tablet_hint))

    async def commit_staged(
        self, pieces: Iterable[StagedPiece], *, session: str, sequence: int, on_changed: str = "fail"
    ) -> CommittedBatch:
        return await self._perform(self._calls.commit_staged(pieces, session, sequence, on_changed))

    async def select(
        self, tablet_index: int = 0, first_row_index: int = 0, *, limit: int = PAGE_ROWS, is_raw: bool = False
    ) -> list[Row]:
        return await self._perform(self._calls.select(tablet_index, first_row_index, limit, is_raw))

    async def rows(
        self, tablet_index: int = 0, first_row_index: int = 0, *, is_raw: bool = False
    ) -> AsyncIterator[Row]:
        while True:
            page = await self._perform(self._calls.page(tablet_index, first_row_index, PAGE_ROWS, is_raw))
            for row in page.rows:
                yield row
            if page.next_row_index <= first_row_index:
                return
            first_row_index = page.next_row_index

    async def trim(self, trimmed_row_count: int, *, tablet_index: int = 0) -> int:
        return await self._perform(self._calls.trim(tablet_index, trimmed_row_count))

    async def mount(self, first: int | None = None, last: int | None = None, *, freeze: bool = False) -> TableSummary:
        return await self._perform(self._calls.change("mount", _tablets(first, last, freeze=freeze)))

    async def unmount(self, first: int | None = None, last: int | None = None, *, force: bool = False) -> TableSummary:
        return await self._perform(self._calls.change("unmount", _tablets(first, last, force=force)))

    async def freeze(self, first: int | None = None, last: int | None = None) -> TableSummary:
        return await self._perform(self._calls.change("freeze", _tablets(first, last)))

    async def unfreeze(self, first: int | None = None, last: int | None = None) -> TableSummary:
        return await self._perform(self._calls.change("unfreeze", _tablets(first, last)))

    async def remount(self, first: int | None = None, last: int | None = None) -> TableSummary:
        return await self._perform(self._calls.change("remount", _tablets(first, last)))

    async def alter(self, schema: Iterable[Column]) -> TableDescription:
        return await self._perform(self._calls.alter(schema))

    async def make_static(self) -> TableDescription:
        return await self._perform(self._calls.convert(is_dynamic=False))

    async def make_dynamic(self) -> TableDescription:
        return await self._perform(self._calls.convert(is_dynamic=True))

    async def set_attributes(self, attributes: Mapping[str, Any]) -> TableDescription:
        return await self._perform(self._calls.set_attributes(attributes))


class AsyncQueue:
    """`Queue` for asyncio."""

    def __init__(self, transport: "AsyncioTransport", name: str) -> None:
        self._perform = transport.perform
        self._calls = QueueCalls(name)

    @property
    def name(self) -> str:
        return self._calls.name

    async def describe(self) -> QueueDescription:
        return await self._perform(self._calls.describe())

    async def set_auto_trim(self, trim: AutoTrim) -> QueueDescription:
        return await self._perform(self._calls.set_auto_trim(trim))

    async def register(self, consumer: str, *, vital: bool = False) -> QueueDescription:
        return await self._perform(self._calls.register(consumer, is_vital=vital))

    async def unregister(self, consumer: str) -> None:
        await self._perform(self._calls.unregister(consumer))

    async def places(self, consumer: str) -> list[ConsumerPlace]:
        return await self._perform(self._calls.places(consumer))

    async def pull(
        self,
        tablet_index: int = 0,
        *,
        consumer: str | None = None,
        offset: int | None = None,
        max_row_count: int | None = None,
        max_data_weight: int | None = None,
    ) -> PulledRows:
        query = _pulled(consumer, offset, max_row_count, max_data_weight)
        return await self._perform(self._calls.pull(tablet_index, query))

    async def advance(
        self, consumer: str, new_offset: int, *, tablet_index: int = 0, old_offset: int | None = None
    ) -> None:
        await self._perform(self._calls.advance(consumer, tablet_index, new_offset, old_offset))

    async def take_session(self, producer: str, session: str, *, user_meta: Any = None) -> ProducerSession:
        return await self._perform(self._calls.take_session(producer, session, user_meta))

    async def end_session(self, producer: str, session: str) -> None:
        await self._perform(self._calls.end_session(producer, session))

    async def sessions(self) -> list[ProducerSession]:
        return await self._perform(self._calls.sessions())

    async def push(
        self,
        session: ProducerSession,
        rows: Iterable[Mapping[str, Any]],
        *,
        sequence_number: int | None = None,
        user_meta: Any = None,
    ) -> PushedRows:
        more = {"sequence_number": sequence_number, "user_meta": user_meta}
        return await self._perform(self._calls.push(session, rows, more))


class AsyncQuery:
    """`Query` for asyncio."""

    def __init__(self, transport: "AsyncioTransport", calls: QueryCalls) -> None:
        self._transport = transport
        self._perform = transport.perform
        self._calls = calls

    def with_files(self, files: FilesByName) -> "AsyncQuery":
        return AsyncQuery(self._transport, replace(self._calls, files=files))

    async def rows(self) -> list[Row]:
        return await self._perform(self._calls.rows())

    async def arrow(self) -> "pyarrow.Table":
        return _arrow(await self._perform(self._calls.arrow()))

    async def to_pandas(self) -> "pandas.DataFrame":
        return (await self.arrow()).to_pandas()

    async def explain(self) -> dict[str, Any]:
        return await self._perform(self._calls.explain())


def _is_repeated(failure: ClientError, conflicts: int, attempts: int) -> bool:
    """Return True if a transaction begins again after a failure; `conflicts`: those before this one."""
    return failure.code == CONFLICT and conflicts + 1 < attempts


def _no_attempts(attempts: int) -> ValueError:
    return ValueError(f"attempts is {attempts}; give 1 or more")


def _insertion(
    calls: TableCalls, rows: Rows, tablet_index: int | None, batch: tuple[str | None, int | None], *, is_update: bool
) -> Steps[Inserted]:
    session, sequence = batch
    if session is None and sequence is None:
        return calls.insert(pieces_of(rows, tablet_index), is_update=is_update)
    if session is None or sequence is None:
        raise ValueError("of session and sequence one is missing: give both, or neither")
    if is_update:
        raise ValueError("update is for sorted tables, which have no sessions: leave one of them out")
    return calls.insert_batch(whole_piece(rows, tablet_index), session, sequence)


def _pulled(
    consumer: str | None, offset: int | None, max_row_count: int | None, max_data_weight: int | None
) -> dict[str, Any]:
    return {
        "consumer": consumer, "offset": offset, "max_row_count": max_row_count, "max_data_weight": max_data_weight,
    }  # fmt: skip


def _looked_up(keys: RowKeys, timestamp: int | None, columns: Sequence[str] | None) -> Iterator[Piece]:
    return key_pieces(keys, _as_of(timestamp, columns))


def _as_of(timestamp: int | None, columns: Sequence[str] | None) -> dict[str, Any]:
    """Return the fields of a lookup beside its keys; without those that are not given."""
    given = {"timestamp": timestamp, "columns": None if columns is None else list(columns)}
    return {name: value for name, value in given.items() if value is not None}


def _tablets(first: int | None, last: int | None, **more: bool) -> dict[str, Any]:
    """Without what is false: each verb knows its own fields."""
    return {"first_tablet_index": first, "last_tablet_index": last, **{name: True for name in more if more[name]}}


def _place(address: str, ca: str | None, tls: "ssl.SSLContext | None", login: UserOrToken | None) -> HttpAddress:
    found = parse_http_address(address, ca, tls)
    token_file = token_file_of(login, os.environ)
    return replace(found, authorization=authorization_of(login, os.environ), token_file=token_file)


def _arrow(stream: bytes) -> "pyarrow.Table":
    from pqbroker.http_client.arrow_streams import read_stream

    return read_stream(stream)
