"""A client of tables and SQL of a pqbroker, over its HTTP address: `Client`, and `AsyncClient` for asyncio.

with Client("127.0.0.1:8092") as client:
    client.table("events").insert([{"id": 1}])
    client.sql("SELECT count(*) AS n FROM events").rows()

Every call may raise ClientError. A call whose connection is lost is made once more where that is safe: reads,
queries, trims, batches of sessions. Records of topics are for Kafka clients.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from pqbroker.http_client.addresses import parse_http_address
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
from pqbroker.http_client.query_calls import QueryCalls
from pqbroker.http_client.row_pieces import ArrowRows, Piece, json_body, key_pieces, pieces_of, whole_piece
from pqbroker.http_client.table_calls import PAGE_ROWS, Row, TableCalls, list_tables
from pqbroker.http_client.transaction_calls import CONFLICT, TransactionCalls

if TYPE_CHECKING:
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
    """A client for one thread at a time. `timeout_s`: how long an answer may take."""

    def __init__(self, address: str = DEFAULT_ADDRESS, *, timeout_s: float = TIMEOUT_S) -> None:
        self._transport = BlockingTransport(parse_http_address(address), timeout_s)

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

    def sql(
        self,
        query: str,
        *,
        timeout_ms: int | None = None,
        timestamp: int | None = None,
        isolation: str | None = None,
    ) -> "Query":
        """A SELECT over topics and tables; each of its methods runs it. `timestamp`: sorted tables are read at it.
        `isolation`: read_committed, the usual one, or read_uncommitted: the records of topics that are read."""
        return Query(self._transport, QueryCalls(query, timeout_ms, timestamp, isolation=isolation))

    def transaction(self, *, timeout_ms: int | None = None) -> "Transaction":
        """Return a transaction over tables, which begins with its `with` block and is committed at the block's end.
        `timeout_ms`: the broker aborts it after that time without a call; 15 seconds unless given."""
        return Transaction(self._transport, TransactionCalls(timeout_ms))

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

    def sql(self, query: str, *, timeout_ms: int | None = None) -> "Query":
        """A SELECT that reads sorted tables as they were when the transaction began, and others as they are."""
        return Query(self._transport, QueryCalls(query, timeout_ms, transaction=self.name))

    def insert(self, table: str, rows: Iterable[Mapping[str, Any]]) -> None:
        """Write rows, whole, to a sorted table or to one that is a topic."""
        self._calls.keep("rows", table, rows)

    def update(self, table: str, rows: Iterable[Mapping[str, Any]]) -> None:
        """Write rows to a sorted table; columns that a row lacks stay as they were."""
        self._calls.keep("update", table, rows)

    def delete(self, table: str, keys: RowKeys) -> None:
        """Delete the rows of a sorted table that have these keys."""
        self._calls.keep("delete", table, keys)

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


class Query:
    """A query in SQL."""

    def __init__(self, transport: BlockingTransport, calls: QueryCalls) -> None:
        self._perform = transport.perform
        self._calls = calls

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

    def __init__(self, address: str = DEFAULT_ADDRESS, *, timeout_s: float = TIMEOUT_S) -> None:
        from pqbroker.http_client.asynchronous import AsyncioTransport  # the synchronous client loads no asyncio

        self._transport = AsyncioTransport(parse_http_address(address), timeout_s)

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

    def sql(
        self,
        query: str,
        *,
        timeout_ms: int | None = None,
        timestamp: int | None = None,
        isolation: str | None = None,
    ) -> "AsyncQuery":
        return AsyncQuery(self._transport, QueryCalls(query, timeout_ms, timestamp, isolation=isolation))

    def transaction(self, *, timeout_ms: int | None = None) -> "AsyncTransaction":
        return AsyncTransaction(self._transport, TransactionCalls(timeout_ms))

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

    def sql(self, query: str, *, timeout_ms: int | None = None) -> "AsyncQuery":
        return AsyncQuery(self._transport, QueryCalls(query, timeout_ms, transaction=self.name))

    def insert(self, table: str, rows: Iterable[Mapping[str, Any]]) -> None:
        self._calls.keep("rows", table, rows)

    def update(self, table: str, rows: Iterable[Mapping[str, Any]]) -> None:
        self._calls.keep("update", table, rows)

    def delete(self, table: str, keys: RowKeys) -> None:
        self._calls.keep("delete", table, keys)

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


class AsyncQuery:
    """`Query` for asyncio."""

    def __init__(self, transport: "AsyncioTransport", calls: QueryCalls) -> None:
        self._perform = transport.perform
        self._calls = calls

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


def _looked_up(keys: RowKeys, timestamp: int | None, columns: Sequence[str] | None) -> Iterator[Piece]:
    return key_pieces(keys, _as_of(timestamp, columns))


def _as_of(timestamp: int | None, columns: Sequence[str] | None) -> dict[str, Any]:
    """Return the fields of a lookup beside its keys; without those that are not given."""
    given = {"timestamp": timestamp, "columns": None if columns is None else list(columns)}
    return {name: value for name, value in given.items() if value is not None}


def _tablets(first: int | None, last: int | None, **more: bool) -> dict[str, Any]:
    """Without what is false: each verb knows its own fields."""
    return {"first_tablet_index": first, "last_tablet_index": last, **{name: True for name in more if more[name]}}


def _arrow(stream: bytes) -> "pyarrow.Table":
    from pqbroker.http_client.arrow_streams import read_stream

    return read_stream(stream)
