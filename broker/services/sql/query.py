"""One query's way through a worker: what it wants to know of topics and sorted tables, the rows that it reads, the
pieces of its answer.

Limits are kept here, where the worker cannot get round them: it is stopped at each of them, and when the client goes;
one that does not stop is killed.
"""

import asyncio
import json
from collections.abc import Awaitable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Protocol, Self

from pqbroker.broker.services.sql.topic_reads import (
    NodeReads,
    PartitionSnapshot,
    Snapshots,
    TopicParts,
    WantedStretches,
)
from pqbroker.broker.services.sql.wanted_inputs import TabletReads
from pqbroker.broker.services.sql.workers import Workers
from pqbroker.broker.services.topics.named_registries import decoding_of
from pqbroker.broker.services.topics.topic_schemas import schema_of
from pqbroker.broker.services.workers.worker_task import TaskLimits, TaskRefusals, WorkerTask
from pqbroker.conf.broker import BrokerSettings
from pqbroker.pq.reading.query import READ_COMMITTED, Isolation
from pqbroker.pq.serving.store_refusals import not_leader
from pqbroker.pq.serving.topic import Topic
from pqbroker.protocol.errors import KafkaError
from pqbroker.tables.local_files import file_of, is_file_name, relation_of
from pqbroker.tables.refusals import TableError
from pqbroker.tables.work.messages import Message
from pqbroker.tables.work.process import MEMORY_EXIT, WorkerProcess
from pqbroker.tables.work.refusal import QueryRefused

if TYPE_CHECKING:
    from pqbroker.broker.services.sql.sorted_reads import SortedReads
    from pqbroker.tables.serving.open_reads import OpenReads
    from pqbroker.tables.serving.table import SortedTable

BEGIN_TRIES_MAX: Final = 5
"""Tries of a query to begin at several nodes, while topics grow or cells move."""
BEGIN_AGAIN_S: Final = 0.1
_OF_A_CHANGE: Final = frozenset({"NOT_LEADER_OR_FOLLOWER", "UNKNOWN_TOPIC_OR_PARTITION"})
"""Codes of refusals that another node gives, or this one, while a topic or a cell changes."""
QueryParams = list[Any] | dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class Question:
    """A query as it came. `timeout_ms` None: as long as it may take. `holder`: its client, as `holder_of` names it.
    `timestamp`: sorted tables are read at it; None: as they are now. `isolation`: the records of topics that it sees.
    `params`: values of `$1`, `$2`, or of `$name`, as JSON has them.
    """

    text: str
    format: str
    holder: str
    timeout_ms: int | None = None
    explain: bool = False
    timestamp: int | None = None
    isolation: Isolation = READ_COMMITTED
    params: QueryParams = None
    files: Mapping[str, bytes] = field(default_factory=dict)
    """Files that came with it, by name."""


class OtherReads(NodeReads, TabletReads, Protocol):
    """Reads of one query at another node, of topics and of sorted tablets."""


class ReadTargets(Protocol):
    """The topics and sorted tables that a caller may read."""

    def is_sorted(self, name: str) -> bool:
        """Return True if the name is a sorted table's."""

    def topic(self, name: str) -> Topic:
        """KafkaError."""

    def parts_away(self, names: Sequence[str]) -> Mapping[int, TopicParts]:
        """Return the partitions of topics that other nodes run, by the node's number. KafkaError."""

    def parts_here(self, names: Sequence[str]) -> TopicParts:
        """Return the partitions of topics that this node runs. KafkaError."""

    def node_of(self, name: str, partition: int) -> int | None:
        """Return the number of the other node that runs a partition of a topic now; None: none does. KafkaError."""

    def reads_here(self, isolation: Isolation) -> NodeReads:
        """Return the reads of topics of one query at this node."""

    def reads_at(self, node: int, isolation: Isolation) -> OtherReads:
        """Return the reads of one query at another node."""

    def sorted_table(self, name: str) -> "SortedTable":
        """KafkaError, TableError."""

    def nodes_of(self, table: "SortedTable", indexes: Sequence[int]) -> Sequence[int | None]:
        """Return the number of the other node that runs each of some tablets of a sorted table now; None: none does."""

    def open_reads(self) -> "OpenReads":
        """Return the timestamps that queries read sorted tables at, of the node's cells as they are open now."""

    def file(self, name: str) -> Mapping[str, Any] | None:
        """Return the local file that the name means, as a worker opens it; None: it means none. KafkaError where the
        caller may not read it."""

    async def listed(self, after: str, names: Sequence[str] | None, *, has_columns: bool) -> dict[str, Any]:
        """Return a page of topics and tables, as `Listing` makes it."""

    def moment(self, names: Sequence[str]) -> AbstractAsyncContextManager[None]:
        """Return a moment at which no transaction over these is visible in a part. TableError ROW_LOCKED."""


class Query:
    """One query: `async with` it, and ask for piece after piece."""

    def __init__(
        self, workers: Workers, settings: BrokerSettings, targets: ReadTargets, question: Question
    ) -> None:
        self._workers = workers
        self._settings = settings
        self._targets = targets
        self._question = question
        self._sorted: SortedReads | None = None
        """Reads of sorted tables, once one is named."""
        self._topics: dict[str, Topic] = {}
        """Topics that were found, by name."""
        self._here = targets.reads_here(question.isolation)
        """Reads of topics at this node."""
        self._away: dict[int, OtherReads] = {}
        """Reads at other nodes by their numbers."""
        self._result_bytes = 0
        most_ms = settings.sql_time_ms_max
        self._time_ms = min(question.timeout_ms or most_ms, most_ms)
        limits = TaskLimits(
            question.holder, settings.sql_queries_max, self._time_ms / 1000, settings.sql_memory_bytes_max,
            settings.sql_worker_idle_ms / 1000, settings.sql_queries_waiting_max,
        )  # fmt: skip
        refusals = TaskRefusals(
            "SQL queries", "TOO_MANY_QUERIES", "pqbroker.sql.queries", self._too_long, self._lost
        )
        self._task = WorkerTask(workers, limits, refusals)

    @property
    def explanation(self) -> Any:
        """Plan and costs of a query that was to be explained, once it is done."""
        last = self._task.last
        return None if last is None else last.document.get("explanation")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self._task.close(error)
        finally:
            if self._sorted is not None:
                self._sorted.close()
            self._here.close()
            for reads in self._away.values():
                reads.close()

    def piece(self) -> Awaitable[bytes | None]:
        """Return the next piece of the answer as it is made; None at its end. QueryRefused, KafkaError."""
        return self._task.piece(self._ask, self._follow)

    async def _ask(self, worker: WorkerProcess) -> None:
        settings, question = self._settings, self._question
        document = {
            "query": question.text, "params": question.params, "format": question.format,
            "explain": question.explain,
            "depth_max": settings.sql_depth_max, "memory_bytes_max": settings.sql_memory_bytes_max,
            "columns_bytes_max": settings.sql_columns_bytes_max,
            "files": list(zip(question.files, map(len, question.files.values()), strict=True)),
        }  # fmt: skip
        await worker.send("query", document, list(question.files.values()))

    async def _follow(self, worker: WorkerProcess) -> Message:
        """Answer what the worker asks, up to the first message that is for the client. WorkerGone."""
        while True:
            message = await worker.receive()
            if message.kind == "find":
                await worker.send("found", {"topics": await self._snapshot(message.document["topics"])})
            elif message.kind == "check":
                await worker.send("checked", {"file": self._check_named(message.document["name"])})
            elif message.kind == "list":
                await worker.send("listed", await self._listed(**message.document))
            elif message.kind == "times":
                self._learn_times(**message.document)
            elif message.kind == "read":
                await self._hand_over(worker, message.document)
            elif message.kind == "locate":
                assert self._sorted is not None, "a sorted table was found"
                located = await self._sorted.inputs(message.document)
                await worker.send("inputs", {"inputs": located.documents, "chunks": located.chunks}, located.payload)
            else:
                if message.kind == "result":
                    self._count(len(message.payload))
                return message

    async def _snapshot(self, names: list[str]) -> dict[str, Any]:
        """Return what the worker needs to know of topics, sorted tables and files. What comes later is none of the
        query's."""
        files: dict[str, Any] = {}
        others = []
        for name in names:
            if (place := self._place_of(name)) is None:
                others.append(name)
            else:
                files[name] = {"file": place}
        return files | await self._snapshot_of_tables(others)

    async def _snapshot_of_tables(self, names: list[str]) -> dict[str, Any]:
        of_tables, of_topics = list[str](), list[str]()
        for name in names:
            (of_tables if self._targets.is_sorted(name) else of_topics).append(name)
        if self._question.timestamp is not None and not of_tables:
            text = "timestamp or transaction is given, and the query names no sorted table"
            raise QueryRefused("INVALID_QUERY", text, "Leave it out; topics have \"$timestamp\" as a column.")
        if len(names) == 1 or not of_topics:
            return await self._snapshot_of_now(of_tables, of_topics)
        for name in of_topics:
            self._targets.topic(name)  # what is refused does not wait first
        try:
            async with self._targets.moment(names):
                return await self._snapshot_of_now(of_tables, of_topics)
        except TableError as refusal:
            raise QueryRefused(refusal.code, refusal.message, refusal.cure) from None

    def _check_named(self, name: str) -> Mapping[str, Any] | None:
        """Return where a local file lies. QueryRefused, KafkaError unless the name is a topic, table or file that the
        caller may read."""
        if (place := self._place_of(name)) is not None:
            return place
        try:
            self._targets.sorted_table(name) if self._targets.is_sorted(name) else self._targets.topic(name)
        except TableError as refusal:
            raise QueryRefused(refusal.code, refusal.message, refusal.cure) from None
        return None

    def _place_of(self, name: str) -> Mapping[str, Any] | None:
        """Return where the file of that name lies, as a worker opens it; None: it is none. One that came with the query
        comes before all else. KafkaError."""
        if self._question.files and (file := file_of(name)) in self._question.files:
            return {"name": file, "columns_max": self._settings.table_columns_max, "is_sent": True}
        return self._targets.file(name)

    async def _listed(self, after: str, names: Sequence[str] | None, columns: bool) -> dict[str, Any]:
        """Return a page of topics, tables and files; the first one has the files that came with the query."""
        sent = [relation_of(name) for name in self._question.files]
        others = None if names is None else [name for name in names if name not in sent]
        page = await self._targets.listed(after, others, has_columns=columns)
        shown = [entry for entry in page["tables"] if entry["name"] not in sent]
        if not after:
            wanted = [relation for relation in sent if names is None or relation in names]
            shown += [{"name": each, "kind": "file", "tablets": None, "file": self._place_of(each)} for each in wanted]
        return {**page, "tables": shown}

    async def _begin_away(self, of_topics: Sequence[str]) -> Sequence[Snapshots]:
        """Begin the reads of partitions that other nodes run; return what these said."""
        away = list[Snapshots]()
        for node, parts in self._targets.parts_away(of_topics).items():
            away.append(await self.reads_at(node).begin(parts))
        return away

    async def _snapshot_of_now(self, of_tables: Sequence[str], of_topics: Sequence[str]) -> dict[str, Any]:
        found = await self._snapshot_of_topics(of_topics)
        for name in of_tables:
            found[name] = {**await self._sorted_reads().snapshot(name)}
        return found

    async def _snapshot_of_topics(self, names: Sequence[str]) -> dict[str, Any]:
        """Return what is known of topics. What other nodes say is of a moment before: where a topic has grown since, or
        a cell has moved, all begins again. QueryRefused TABLE_CHANGED: it did so again and again."""
        for attempt in range(BEGIN_TRIES_MAX):
            if attempt:
                await asyncio.sleep(BEGIN_AGAIN_S)
            try:
                away = await self._begin_away(names)
                here = self._targets.parts_here(names)
                found = self._whole(here, [await self._here.begin(here), *away])
            except (KafkaError, QueryRefused) as refusal:
                is_last = not self._away or attempt + 1 == BEGIN_TRIES_MAX
                if is_last or _code_of(refusal) not in _OF_A_CHANGE:
                    raise
                continue
            if found is not None:
                return found
            if not away:
                raise not_leader()
        text = f"partitions were added to {', '.join(names)[:200]}, or moved, each time that the query began"
        raise QueryRefused("TABLE_CHANGED", text, "Send the query again.")

    def _whole(self, here: TopicParts, seen: Sequence[Snapshots]) -> dict[str, Any] | None:
        """Return topics as their nodes have seen them; None: partitions of one are missing."""
        found: dict[str, Any] = {}
        for name, (topic, _) in here.items():
            self._topics[name] = topic
            partitions = sorted(one for of_node in seen for one in of_node.get(name, ()))
            if [one.partition for one in partitions] != list(range(len(topic.partitions))):
                return None
            found[name] = _snapshot_of(topic, partitions, self._settings)
        return found

    def nodes_of(self, table: "SortedTable", indexes: Sequence[int]) -> Sequence[int | None]:
        """Return the node of each of some tablets, as `TabletNodes` does."""
        return self._targets.nodes_of(table, indexes)

    def reads_at(self, node: int) -> OtherReads:
        """Return the query's reads at another node."""
        if node not in self._away:
            self._away[node] = self._targets.reads_at(node, self._question.isolation)
        return self._away[node]

    def _sorted_reads(self) -> "SortedReads":
        if self._sorted is None:
            from pqbroker.broker.services.sql.sorted_reads import SortedReads
            from pqbroker.broker.services.sql.tablet_reads import TabletsHere

            here = TabletsHere(self._targets.sorted_table, self._targets.open_reads)
            self._sorted = SortedReads(self._targets.sorted_table, here, self, self._question.timestamp)
        return self._sorted

    def _learn_times(self, topic: str, partition: int, start: int, end: int, least: int) -> None:
        """Keep what the worker has met of the times of a partition."""
        self._workers.least_times.learn((self._topics[topic].record.topic_id, partition), start, end, least)

    async def _hand_over(self, worker: WorkerProcess, wanted: dict[str, Any]) -> None:
        """The next stretches of a partition, of the topic as it is served now: its cell may have been opened again."""
        name, index = wanted["topic"], wanted["partition"]
        topic_id = self._topics[name].record.topic_id
        names = ("offset", "end_offset", "timestamp_min", "is_verified")
        offset, end_offset, timestamp_min, is_verified = (wanted[each] for each in names)
        if (most := wanted["timestamp_max"]) is not None:
            key = (topic_id, index)
            offset, end_offset = self._workers.least_times.narrowed(key, offset, end_offset, most)
        asked = WantedStretches(
            name, topic_id.hex(), index, offset, end_offset, timestamp_min, is_verified, wanted["facts"],
            wanted["commits"], wanted["bytes_max"],
        )  # fmt: skip
        node = self._targets.node_of(name, index)
        document, payload = await (self._here if node is None else self.reads_at(node)).stretches(asked)
        await worker.send("stretches", document, payload)

    def _count(self, size: int) -> None:
        self._result_bytes += size
        most = self._settings.sql_result_bytes_max
        if self._result_bytes > most:
            raise QueryRefused(
                "RESULT_TOO_LARGE", f"the answer is larger than pqbroker.sql.result.bytes.max = {most}",
                "Select fewer rows or columns, or raise the setting.",
            )  # fmt: skip

    def _too_long(self) -> QueryRefused:
        limit = "" if self._time_ms < self._settings.sql_time_ms_max else " (pqbroker.sql.time.ms.max)"
        return QueryRefused(
            "QUERY_TOO_LONG", f"the query took longer than {self._time_ms} ms{limit}",
            'Read less of the topic ("$row_index", timestamp_ms), or raise timeout_ms or pqbroker.sql.time.ms.max.',
        )  # fmt: skip

    def _lost(self, status: int) -> QueryRefused:
        if status == MEMORY_EXIT:
            most = self._settings.sql_memory_bytes_max
            return QueryRefused(
                "QUERY_TOO_LARGE", f"the query needs more memory than pqbroker.sql.memory.bytes.max = {most}",
                "Read fewer rows or columns at once, or raise the setting.",
            )  # fmt: skip
        return QueryRefused(
            "WORKER_LOST", f"the process that ran the query ended with status {status}",
            "Try again; the log of the broker may say why it ended.",
        )  # fmt: skip


def check_params(params: QueryParams, settings: BrokerSettings) -> None:
    """QueryRefused for more values, or more bytes of them, than a query may have."""
    if not params:
        return
    most = settings.sql_params_max
    if len(params) > most:
        raise QueryRefused(
            "INVALID_QUERY", f"params has {len(params)} values, more than pqbroker.sql.params.max = {most}",
            "Give fewer, one array in place of many values for instance, or raise the setting.",
        )  # fmt: skip
    size, most = len(json.dumps(params)), settings.sql_params_bytes_max
    if size > most:
        raise QueryRefused(
            "INVALID_QUERY", f"params has {size} bytes of JSON, more than pqbroker.sql.params.bytes.max = {most}",
            "Give less, or raise the setting.",
        )  # fmt: skip


def check_files(files: Mapping[str, bytes], settings: BrokerSettings) -> None:
    """QueryRefused for more files, or a larger one, than may come with a query, and for names that are none."""
    most, bytes_max = settings.sql_uploads_max, settings.sql_files_bytes_max
    if len(files) > most:
        raise QueryRefused(
            "INVALID_QUERY", f"{len(files)} files came with the query, more than pqbroker.sql.uploads.max = {most}",
            "Send fewer, or raise the setting.",
        )  # fmt: skip
    for name, content in files.items():
        if not is_file_name(name):
            raise QueryRefused(
                "INVALID_QUERY", f"{name[:255]!r} is no name of a file", "Give one that ends in .csv or .parquet."
            )
        if len(content) > bytes_max:
            raise QueryRefused(
                "FILE_TOO_LARGE",
                f"{name} has {len(content)} bytes, more than pqbroker.sql.files.bytes.max = {bytes_max}",
                "Produce its rows to a topic, make it smaller, or raise the setting.",
            )  # fmt: skip


def _code_of(refusal: KafkaError | QueryRefused) -> str:
    return refusal.code.name if isinstance(refusal, KafkaError) else refusal.code


def _snapshot_of(topic: Topic, partitions: Sequence[PartitionSnapshot], settings: BrokerSettings) -> dict[str, Any]:
    """Return where the partitions of a topic start and end, and the columns of its schema, where it has one."""
    bounds, revisions, unmounted = list[tuple[int, int]](), list[str](), list[int]()
    for one in partitions:
        bounds.append((one.start_offset, one.end_offset))
        revisions.append(one.revision)
        if one.is_unmounted:
            unmounted.append(one.partition)
    columns, formats = schema_of(topic) or (None, {})
    return {
        "id": topic.record.topic_id.hex(), "bounds": bounds, "columns": columns, "formats": formats,
        "unmounted": unmounted, "revisions": revisions, "decoding": decoding_of(topic, settings),
        "columns_max": settings.table_columns_max,
    }  # fmt: skip
