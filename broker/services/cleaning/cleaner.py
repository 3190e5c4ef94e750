"""The cleaner of a node: looks for compacted partitions that are to be cleaned, and has passes go over them.

A look every log.cleaner.backoff.ms, and after each pass, begins what is due as far as there is room: what was asked for
or is late first, then the partition with the greatest dirty ratio, as Kafka does. Before that it has records leave the
head that lie there for longer than segment.ms or max.compaction.lag.ms; no look waits for that, which a transaction may
keep back. A pass that failed is tried again later. What makes a pass is loaded with the first one.
"""

import asyncio
import logging
import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pqbroker.broker.services.cleaning.cleanable import may_be_cleaned
from pqbroker.broker.services.cleaning.passes import (
    DEFECT,
    PASS_LEFT,
    CleanerCounters,
    PassFailed,
    PassHistory,
    PassRecord,
    PassStopped,
)
from pqbroker.broker.services.tables.callers import TablesNode
from pqbroker.broker.services.topics.partitions import needs_keys
from pqbroker.conf.broker import BrokerSettings
from pqbroker.pq.log.cleaning_windows import CleaningLimits, Dirt, Due, when_due
from pqbroker.pq.reading.query import READ_COMMITTED, visible_end
from pqbroker.pq.serving.partition_server import PartitionServer
from pqbroker.pq.serving.topic import Topic
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.storage.outcome import Outcome
from pqbroker.tables.serving.share import WriteRate
from pqbroker.tables.work.pool import WorkerPool

if TYPE_CHECKING:
    from pqbroker.broker.services.cleaning.cleaning_pass import CleaningPass

FAILED_WAIT_MS: Final = 60_000
"""Time after a failed pass before its partition is tried again, unless somebody asks for it."""
CLEANER_OFF_S: Final = 15.0
"""Seconds between looks while there is nothing to look for."""
LOOK_PAUSE_S: Final = 0.01
"""Seconds between looks at least, whatever log.cleaner.backoff.ms says, so that they leave the loop to other work."""
LOOKED_AT_ONCE: Final = 10_000
"""Bodies that are looked at before the loop's other work has its turn; a partition counts as `PARTITION_BODIES`."""
PARTITION_BODIES: Final = 100
_LEFT: Final = frozenset((ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.LEADER_NOT_AVAILABLE))
_log = logging.getLogger(__name__)

PartitionPlace = tuple[bytes, int]
"""Id of a topic and index of a partition."""


class Failed(NamedTuple):
    """A pass that failed: why, and the time in milliseconds before which its partition is not tried again."""

    text: str
    until_ms: int


class _Wanted(NamedTuple):
    """A partition that is to be cleaned."""

    topic: Topic
    server: PartitionServer
    due: Due


class Cleaner:
    """Passes over the compacted partitions of a node."""

    def __init__(self) -> None:
        self.counters = CleanerCounters()
        self.history = PassHistory()
        self.running: dict[PartitionPlace, PassRecord] = {}
        self.failed: dict[PartitionPlace, Failed] = {}
        self._workers = WorkerPool(self.counters)
        self._tasks: dict[asyncio.Task[None], PartitionPlace] = {}
        self._forced: set[PartitionPlace] = set()
        self._heads: dict[PartitionPlace, tuple[int, int]] = {}
        """First offset of a head, and the time of the look that found it first."""
        self._closing: dict[PartitionPlace, Outcome[None]] = {}
        """Heads that are on their way to become bodies."""
        self._io: WriteRate | None = None
        self._io_rate = 0.0
        self._wanted = asyncio.Event()

    @property
    def worker_pids(self) -> list[int]:
        """Return the ids of the processes that clean, or wait for a pass."""
        return self._workers.pids

    def force(self, topic: Topic, server: PartitionServer) -> None:
        """Have a partition cleaned soon, whatever its dirty ratio; those asked for first come first."""
        self._forced.add((topic.record.topic_id, server.index))
        self._wanted.set()

    def is_forced(self, topic: Topic, server: PartitionServer) -> bool:
        """Return True if a cleaning was asked for that has not begun yet."""
        return (topic.record.topic_id, server.index) in self._forced

    async def run(self, node: TablesNode) -> None:
        """Clean until the task is cancelled."""
        try:
            while True:
                self._wanted.clear()
                if node.settings.cleaner_enable:
                    await self.look(node)
                await self._wait(node.settings)
        finally:
            for task in list(self._tasks):
                task.cancel()
            while self._tasks:
                await asyncio.wait(self._tasks)
            await self._workers.close()

    async def _wait(self, settings: BrokerSettings) -> None:
        pause_s = max(settings.cleaner_backoff_ms / 1000, LOOK_PAUSE_S) if settings.cleaner_enable else CLEANER_OFF_S
        with suppress(TimeoutError):
            async with asyncio.timeout(pause_s):
                await self._wanted.wait()

    async def look(self, node: TablesNode) -> None:
        """Begin the passes that are due, as far as there is room."""
        wanted: list[_Wanted] = []
        seen: set[PartitionPlace] = set()
        looked_at = 0
        for topic, server in _compacted(node):
            looked_at += PARTITION_BODIES + len(server.state.bodies)
            if looked_at >= LOOKED_AT_ONCE:
                looked_at = 0
                await asyncio.sleep(0)
            place = topic.record.topic_id, server.index
            seen.add(place)
            if not may_be_cleaned(server) or place in self.running:
                continue
            is_forced = place in self._forced
            if self._close_head(place, server, node.clock(), is_forced=is_forced) and is_forced:
                continue
            now_ms = node.clock()  # a body that the head has become is not younger than that
            due = due_of(topic, server, now_ms, is_forced=is_forced)
            if due.is_due and (is_forced or now_ms >= self.retry_ms(place)):
                wanted.append(_Wanted(topic, server, due))
            elif is_forced:
                self._forced.discard(place)  # there is nothing to clean
        for known in (self._heads, self.failed, self._closing):
            for place in known.keys() - seen:
                del known[place]
        self._forced &= seen
        wanted.sort(key=_urgency)
        for each in wanted[: max(node.settings.cleaner_threads - len(self.running), 0)]:
            await self._begin(node, each)

    def retry_ms(self, place: PartitionPlace) -> int:
        """Return the time before which no pass over a partition is tried again, in milliseconds since 1970; 0: any."""
        failed = self.failed.get(place)
        return 0 if failed is None else failed.until_ms

    def _close_head(
        self, place: PartitionPlace, server: PartitionServer, now_ms: int, *, is_forced: bool
    ) -> bool:
        """Have the head become a body where a cleaning is asked for, or records have lain there for too long. True: it
        will soon, and a look follows."""
        head = server.state.head
        closing = self._closing.pop(place, None)
        if closing is not None and not closing.done():
            self._closing[place] = closing
            return True
        if not head.blobs:
            self._heads.pop(place, None)
            return False
        first = head.blobs[0].offset
        known, since_ms = self._heads.get(place, (-1, now_ms))
        if known != first:
            since_ms = now_ms
            self._heads[place] = first, now_ms
        config = server.state.settings.topic
        most_ms = min(config.segment_ms, config.max_compaction_lag_ms)
        if not is_forced and now_ms - min(since_ms, head.written_ms) < most_ms:
            return False
        closing = server.flush()
        if closing.done():  # the partition takes no writes
            return False
        self._closing[place] = closing
        closing.add_done_callback(self._closed)
        return True

    def _closed(self, closing: Outcome[None]) -> None:
        """A head has become a body, unless it was refused: the next look tries again then."""
        if closing.exception() is None:
            self._wanted.set()

    async def _begin(self, node: TablesNode, wanted: _Wanted) -> None:
        passes = await asyncio.to_thread(_load)
        topic, server, due = wanted
        place = topic.record.topic_id, server.index
        if place in self.running or not may_be_cleaned(server):
            return
        self._forced.discard(place)
        record = PassRecord(
            topic.record.name, server.index, due.reason.value, node.clock(), due.body_count, due.bytes,
            due.dirty_bytes, due.bound, topic.record.topic_id,
        )  # fmt: skip
        settings = node.settings
        share = passes.PassShare(self._workers, self._io_of(settings), node.cell.current.sorted_tables.share.rate)
        of_pass = passes.PassSettings(
            settings.cleaner_buffer_bytes, settings.cleaner_load_factor, settings.cleaner_batch_bytes_max,
            server.state.settings.topic.delete_retention_ms, settings.sql_worker_idle_ms / 1000,
        )  # fmt: skip
        self.running[place] = record
        task = asyncio.get_running_loop().create_task(
            self._clean(node, place, passes.CleaningPass(server, share, of_pass, record))
        )
        self._tasks[task] = place
        task.add_done_callback(self._ended)

    def _io_of(self, settings: BrokerSettings) -> WriteRate:
        if self._io is None or self._io_rate != settings.cleaner_io_rate:
            self._io, self._io_rate = WriteRate(int(settings.cleaner_io_rate)), settings.cleaner_io_rate
        return self._io

    async def _clean(self, node: TablesNode, place: PartitionPlace, cleaning: "CleaningPass") -> None:
        record = cleaning.record
        where = f"{record.topic}-{record.partition}"
        record.failure, bound = DEFECT, record.bound
        try:
            await cleaning.run(record.begun_ms)
        except KafkaError as refusal:
            record.failure = PASS_LEFT if refusal.code in _LEFT else refusal.message
        except PassStopped:
            record.failure = PASS_LEFT
        except (OSError, PassFailed) as failure:
            record.failure = str(failure)
        except asyncio.CancelledError:
            record.failure = PASS_LEFT
            raise
        else:
            record.failure = ""
        finally:
            if record.reason == Dirt.FORCED.value and (record.bound < bound or record.failure == PASS_LEFT):
                self._forced.add(place)  # there was no room for more keys, or the partition is served elsewhere
            record.ended_ms = node.clock()
            self.running.pop(place, None)
            self.history.ended.append(record)
            self.counters.count(record)
        if record.failure in ("", PASS_LEFT):
            self.failed.pop(place, None)
        else:
            self.failed[place] = Failed(record.failure, node.clock() + FAILED_WAIT_MS)
            _log.warning("cleaning of %s failed, and is tried again in a minute: %s", where, record.failure)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        place = self._tasks.pop(task)
        if not task.cancelled() and (defect := task.exception()) is not None:
            self.failed[place] = Failed(DEFECT, sys.maxsize)
            _log.critical("a pass of the cleaner failed; this is a defect", exc_info=defect)
        self._wanted.set()


def due_of(topic: Topic, server: PartitionServer, now_ms: int, *, is_forced: bool = False) -> Due:
    """Return whether a partition is to be cleaned, and what of it."""
    config, state = topic.config, server.state
    limits = CleaningLimits(
        config.min_cleanable_dirty_ratio, config.min_compaction_lag_ms, config.max_compaction_lag_ms
    )
    stable_end = server.scans.bound(visible_end(state, READ_COMMITTED))
    return when_due(state.bodies, state.cleaned, stable_end, limits, now_ms, is_forced=is_forced)


def _compacted(node: TablesNode) -> Iterator[tuple[Topic, PartitionServer]]:
    topics = node.cell.current.topics
    for name in list(topics.names()):  # topics come and go between the turns
        topic = topics.get(name)
        if topic is not None and needs_keys(topic):
            for server in list(topic.partitions):
                yield topic, server


def _urgency(wanted: _Wanted) -> tuple[bool, float]:
    is_first = wanted.due.reason in (Dirt.FORCED, Dirt.LATE)
    return not is_first, -wanted.due.dirty_ratio


def _load() -> Any:
    from pqbroker.broker.services.cleaning import cleaning_pass

    return cleaning_pass
