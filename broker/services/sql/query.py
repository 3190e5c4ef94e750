"""One query's way through a worker: what it wants to know of topics and sorted tables, the rows that it reads, the
pieces of its answer.

Limits are kept here, where the worker cannot get round them: it is stopped at each of them, and when the client goes;
one that does not stop is killed.
"""

import json
from collections.abc import Awaitable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self

from pqbroker.broker.services.sql.workers import Workers
from pqbroker.broker.services.topics.named_registries import decoding_of
from pqbroker.broker.services.topics.partitions import needs_keys, unknown_topic
from pqbroker.broker.services.topics.topic_schemas import schema_of
from pqbroker.broker.services.workers.shown_stretches import show_stretch
from pqbroker.broker.services.workers.worker_task import TaskLimits, TaskRefusals, WorkerTask
from pqbroker.conf.broker import BrokerSettings
from pqbroker.pq.log.row_facts import RowFacts
from pqbroker.pq.reading.query import READ_COMMITTED, Isolation, visible_end
from pqbroker.pq.serving.open_scans import OpenScans
from pqbroker.pq.serving.stretches import StretchQuery
from pqbroker.pq.serving.topic import Topic
from pqbroker.storage.engine import Buffer
from pqbroker.tables.local_files import file_of, is_file_name, relation_of
from pqbroker.tables.refusals import TableError
from pqbroker.tables.work.messages import Message
from pqbroker.tables.work.process import MEMORY_EXIT, WorkerProcess
from pqbroker.tables.work.refusal import QueryRefused

if TYPE_CHECKING:
    from pqbroker.broker.services.sql.sorted_reads import SortedReads
    from pqbroker.tables.serving.table import SortedTable

STRETCH_BYTES = 8 << 20
"""Stored bytes of a stretch that a worker is shown, about."""
STRETCHES_MAX = 4
"""Shown at once: each turn of question and answer takes the broker as long as a few stretches."""
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


class ReadTargets(Protocol):
    """The topics and sorted tables that a caller may read."""

    def is_sorted(self, name: str) -> bool:
        """Return True if the name is a sorted table's."""

    def topic(self, name: str) -> Topic:
        """KafkaError."""

    def sorted_table(self, name: str) -> "SortedTable":
        """KafkaError, TableError."""

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
        self._scans: list[tuple[OpenScans, int]] = []
        """Compacted partitions that it reads, and up to where."""
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
            for scans, end_offset in self._scans:
                scans.close(end_offset)

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
        of_tables = [name for name in names if self._targets.is_sorted(name)]
        if self._question.timestamp is not None and not of_tables:
            text = "timestamp or transaction is given, and the query names no sorted table"
            raise QueryRefused("INVALID_QUERY", text, "Leave it out; topics have \"$timestamp\" as a column.")
        if len(names) == 1 or len(names) == len(of_tables):
            return await self._snapshot_of_now(names, of_tables)
        try:
            async with self._targets.moment(names):
                return await self._snapshot_of_now(names, of_tables)
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
        file = file_of(name)
        if file in self._question.files:
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

    async def _snapshot_of_now(self, names: Sequence[str], of_tables: Sequence[str]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        self._topics = {}
        for name in names:
            if name not in of_tables:
                self._topics[name] = topic = self._targets.topic(name)
                found[name] = self._snapshot_of_topic(topic)
                if needs_keys(topic):
                    self._keep_up_to(topic, [end_offset for _, end_offset in found[name]["bounds"]])
        for name in of_tables:
            found[name] = {**await self._sorted_reads().snapshot(name)}
        return found

    def _snapshot_of_topic(self, topic: Topic) -> dict[str, Any]:
        settings = self._settings
        found = _snapshot_of(topic, self._question.isolation)
        return {**found, "decoding": decoding_of(topic, settings), "columns_max": settings.table_columns_max}

    def _keep_up_to(self, topic: Topic, ends: Sequence[int]) -> None:
        """Have no cleaning take out what only a record behind these offsets makes superfluous."""
        for partition, end_offset in zip(topic.partitions, ends, strict=True):
            partition.scans.open(end_offset)
            self._scans.append((partition.scans, end_offset))

    def _sorted_reads(self) -> "SortedReads":
        if self._sorted is None:
            from pqbroker.broker.services.sql.sorted_reads import SortedReads

            self._sorted = SortedReads(self._targets.sorted_table, self._question.timestamp)
        return self._sorted

    def _learn_times(self, topic: str, partition: int, start: int, end: int, least: int) -> None:
        """Keep what the worker has met of the times of a partition."""
        self._workers.least_times.learn((self._topics[topic].record.topic_id, partition), start, end, least)

    async def _hand_over(self, worker: WorkerProcess, wanted: dict[str, Any]) -> None:
        """The next stretches of a partition, of the topic as it is served now: its cell may have been opened again."""
        name, index = wanted["topic"], wanted["partition"]
        topic = self._targets.topic(name)
        if topic.record.topic_id != self._topics[name].record.topic_id or index >= len(topic.partitions):
            raise unknown_topic()
        names = ("offset", "end_offset", "timestamp_min", "is_verified")
        offset, end_offset, timestamp_min, is_verified = (wanted[each] for each in names)
        if (most := wanted["timestamp_max"]) is not None:
            key = (topic.record.topic_id, index)
            offset, end_offset = self._workers.least_times.narrowed(key, offset, end_offset, most)
        bytes_max = min(wanted["bytes_max"] or STRETCH_BYTES, STRETCH_BYTES)
        query = StretchQuery(offset, end_offset, bytes_max, timestamp_min, is_verified)
        partition = topic.partitions[index]
        spans = partition.state.transactions.aborted if self._question.isolation is READ_COMMITTED else None
        is_one = is_verified or bytes_max < STRETCH_BYTES
        stretches = await partition.stretches.read(query, 1 if is_one else STRETCHES_MAX)
        shown: list[dict[str, Any]] = []
        payload: list[Buffer] = []
        for stretch in stretches:
            facts = None
            if wanted["facts"]:
                facts = await partition.facts.read(offset, stretch.next_offset)
                if _is_left_out(facts, stretch.next_offset - offset, wanted["commits"]):
                    stretch = stretch._replace(pieces=())
            shown.append({**show_stretch(stretch, payload), "offset": offset})
            if spans is not None:
                shown[-1]["aborted"] = spans.between(offset, stretch.next_offset)
            if facts is not None:
                payload.append(facts.encode())
                shown[-1] |= {"weight_before": facts.weight_before, "facts_bytes": len(payload[-1])}
            offset = stretch.next_offset
        await worker.send("stretches", {"stretches": shown}, payload)

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


def _snapshot_of(topic: Topic, isolation: Isolation) -> dict[str, Any]:
    """Return where the partitions of a topic start and end now, and the columns of its schema, where it has one."""
    for partition in topic.partitions:
        partition.check_readable()
    bounds = [(each.start_offset, visible_end(each.state, isolation)) for each in topic.partitions]
    unmounted = [partition.index for partition in topic.partitions if partition.is_unmounted]
    columns, formats = schema_of(topic) or (None, {})
    mark = "" if isolation is READ_COMMITTED else "u"  # columns kept of one isolation are not for another
    return {
        "id": topic.record.topic_id.hex(), "bounds": bounds, "columns": columns, "formats": formats,
        "unmounted": unmounted, "revisions": [mark + partition.revision for partition in topic.partitions],
    }  # fmt: skip


def _is_left_out(facts: RowFacts, rows: int, commits: Sequence[int] | None) -> bool:
    """Return True if all these rows are known, and none was committed at such a time."""
    return commits is not None and len(facts) == rows and not facts.may_have_timestamp(*commits)
