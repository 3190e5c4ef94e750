"""One search's way through a worker: the batches that it reads, the pieces of its answer.

The worker keeps the limits of what it reads and finds, and ends by itself; one that does not end in time, or whose
client has gone, is stopped, and killed where it does not stop.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self

from pqbroker.broker.services.topics.partitions import unknown_topic
from pqbroker.broker.services.workers.shown_stretches import show_stretch
from pqbroker.broker.services.workers.task_pool import TaskPool
from pqbroker.broker.services.workers.worker_task import TaskLimits, TaskRefusals, WorkerTask
from pqbroker.conf.broker import BrokerSettings
from pqbroker.pq.reading.query import READ_COMMITTED, Isolation
from pqbroker.pq.serving.partition_server import PartitionServer
from pqbroker.pq.serving.stretches import StretchQuery
from pqbroker.pq.serving.topic import Topic
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.storage.engine import Buffer
from pqbroker.tables.work.messages import Message
from pqbroker.tables.work.process import MEMORY_EXIT, WorkerProcess
from pqbroker.tables.work.refusal import QueryRefused

SEARCH_STRETCH_BYTES: Final = 4 << 20
"""Stored bytes of a stretch that a worker is shown, about."""
SEARCH_STRETCHES_MAX: Final = 8
"""Shown at once: each turn of question and answer takes the broker as long as a few stretches."""
GRACE_S: Final = 5.0
"""Seconds that a worker has to end by itself when its time is over."""

SearchSpan = tuple[int, int, int]
"""A partition, its first offset to look at, and the first one not to."""


@dataclass(frozen=True, slots=True)
class SearchQuestion:
    """A search as it came. `terms`: as `tables/search/terms.py` reads them; `holder`: its client, as `holder_of` names
    it; `matches_max` and `timeout_ms`: at most the settings."""

    topic: Topic
    terms: Mapping[str, Any]
    spans: Sequence[SearchSpan]
    isolation: Isolation
    holder: str
    matches_max: int
    timeout_ms: int
    decoding: Mapping[str, Any] | None
    """Registries that decode its records, as `named_registries.decoding_of` returns them; None: none does."""


class TopicSearch:
    """One search: `async with` it, and ask for piece after piece."""

    def __init__(
        self, searchers: TaskPool, settings: BrokerSettings, find: Callable[[], Topic], question: SearchQuestion
    ) -> None:
        """`find` finds the topic as it is served now, if the caller may read it; KafkaError."""
        self._settings = settings
        self._find = find
        self._question = question
        grace_s = GRACE_S
        if question.decoding is not None:  # a key and a value may each have just asked a registry that does not answer
            grace_s += 2 * settings.registry_timeout_ms / 1000
        self._limits = TaskLimits(
            question.holder, settings.search_searches_max, question.timeout_ms / 1000, settings.search_memory_bytes_max,
            settings.sql_worker_idle_ms / 1000, settings.search_searches_waiting_max, grace_s,
        )  # fmt: skip
        refusals = TaskRefusals(
            "searches", "TOO_MANY_SEARCHES", "pqbroker.search.searches", self._too_long, self._lost
        )
        self._task = WorkerTask(searchers, self._limits, refusals)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._task.close(error)

    def piece(self) -> Awaitable[bytes | None]:
        """Return the next lines of the answer; None at its end. QueryRefused, KafkaError."""
        return self._task.piece(self._ask, self._follow)

    async def _ask(self, worker: WorkerProcess) -> None:
        await worker.send("search", self._document())

    def _document(self) -> dict[str, Any]:
        settings, question = self._settings, self._question
        return {
            "topic": question.topic.record.name, "terms": question.terms, "spans": question.spans,
            "bytes_total": _stored_bytes(question.topic, question.spans),
            "memory_bytes_max": settings.search_memory_bytes_max, "decoding": question.decoding,
            "limits": {
                "matches_max": question.matches_max, "bytes_max": settings.search_bytes_max,
                "decompressed_bytes_max": settings.search_decompressed_bytes_max,
                "batch_bytes_max": settings.search_batch_bytes_max,
                "decoded_bytes_max": settings.search_decoded_bytes_max,
                "answer_bytes_max": settings.search_answer_bytes_max, "time_ms": max(int(self._task.left_s * 1000), 0),
            },
        }  # fmt: skip

    async def _follow(self, worker: WorkerProcess) -> Message:
        """Answer what the worker asks, up to the first message that is for the client. WorkerGone, KafkaError."""
        while (message := await worker.receive()).kind == "read":
            await self._hand_over(worker, message.document)
        return message

    async def _hand_over(self, worker: WorkerProcess, wanted: Mapping[str, Any]) -> None:
        """The next stretches of a partition, of the topic as it is served now: its cell may have been opened again."""
        topic, index = self._find(), wanted["partition"]
        if topic.record.topic_id != self._question.topic.record.topic_id or index >= len(topic.partitions):
            raise unknown_topic()
        offset, end_offset, is_verified = wanted["offset"], wanted["end_offset"], wanted["is_verified"]
        partition = topic.partitions[index]
        query = StretchQuery(offset, end_offset, SEARCH_STRETCH_BYTES, is_verified=is_verified)
        try:
            stretches = await partition.stretches.read(query, 1 if is_verified else SEARCH_STRETCHES_MAX)
        except KafkaError as refusal:
            if refusal.code is not ErrorCode.CORRUPT_MESSAGE or partition.state.unreadable is not None:
                raise
            behind = _behind_damage(partition, offset, end_offset)
            damaged = {"pieces": (), "next_offset": behind, "unread": refusal.message}
            await worker.send("stretches", {"stretches": [damaged]})
            return
        spans = partition.state.transactions.aborted if self._question.isolation is READ_COMMITTED else None
        shown: list[dict[str, Any]] = []
        payload: list[Buffer] = []
        for stretch in stretches:
            shown.append(show_stretch(stretch, payload))
            if spans is not None:
                shown[-1]["aborted"] = spans.between(offset, stretch.next_offset)
            offset = stretch.next_offset
        await worker.send("stretches", {"stretches": shown}, payload)

    def _too_long(self) -> QueryRefused:
        limits = self._limits
        return QueryRefused(
            "SEARCH_TOO_LONG", f"the search did not end {limits.grace_s:g} s after its time of {limits.time_s:g} s",
            "Search less of the topic, or raise timeout_ms or pqbroker.search.time.ms.max.",
        )  # fmt: skip

    def _lost(self, status: int) -> QueryRefused:
        if status == MEMORY_EXIT:
            most = self._limits.memory_bytes_max
            return QueryRefused(
                "SEARCH_TOO_LARGE", f"the search needs more memory than pqbroker.search.memory.bytes.max = {most}",
                "Raise the setting, or lower pqbroker.search.batch.bytes.max to pass over large batches.",
            )  # fmt: skip
        return QueryRefused(
            "WORKER_LOST", f"the process that searched ended with status {status}",
            "Try again; the log of the broker may say why it ended.",
        )  # fmt: skip


def _stored_bytes(topic: Topic, spans: Sequence[SearchSpan]) -> int:
    """Return about how many bytes are stored of these spans."""
    total = 0
    for index, start, end in spans:
        state = topic.partitions[index].state
        offsets = max(state.end_offset - state.start_offset, 1)
        total += state.size_bytes * min(end - start, offsets) // offsets
    return total


def _behind_damage(partition: PartitionServer, offset: int, end_offset: int) -> int:
    """Return where to continue behind a body that cannot be read."""
    bodies = partition.state.bodies
    number = bodies.find(offset)
    return min(bodies.ends[number], end_offset) if number < len(bodies) else end_offset
