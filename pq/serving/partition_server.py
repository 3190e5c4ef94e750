"""One partition as the broker sees it.

Writing is in writer.py, reading in reader.py; partition.py decides.
"""

from collections.abc import Awaitable
from functools import partial
from typing import Protocol

from pqbroker.pq.log.batch_run import Batches
from pqbroker.pq.log.consumers import Consumers
from pqbroker.pq.log.partition import Partition
from pqbroker.pq.log.partition_settings import Closed, PartitionSettings, TabletClosed
from pqbroker.pq.log.retention import FirstUnread, Held, why_held
from pqbroker.pq.log.row_facts import Weighed
from pqbroker.pq.log.write_cycle import Cycle, Written
from pqbroker.pq.quota import write_quota
from pqbroker.pq.reading.cache import NodeMemory
from pqbroker.pq.reading.facts_reading import FactsReader
from pqbroker.pq.reading.query import ReadQuery
from pqbroker.pq.reading.reader import Reader
from pqbroker.pq.reading.run_loading import RunLoader
from pqbroker.pq.serving.partition_consumers import PartitionConsumers
from pqbroker.pq.serving.partition_times import PartitionTimes
from pqbroker.pq.serving.staged_pieces import StagedPieces
from pqbroker.pq.serving.store_refusals import not_leader, unreadable
from pqbroker.pq.serving.stretches import StretchReader
from pqbroker.pq.serving.timestamps import NodeTime
from pqbroker.pq.serving.watchers import Watchers
from pqbroker.pq.serving.write_queue import Answered
from pqbroker.pq.serving.writer import Writer
from pqbroker.pq.serving.writer_states import LOSING
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.protocol.records import BatchHeader
from pqbroker.storage.kv.tablet import KeyValueTablet
from pqbroker.storage.outcome import Outcome
from pqbroker.storage.tablets.tablet import USER_CHANNEL
from pqbroker.storage.unreadable import StoredUnreadable


class _Append(Protocol):
    def __call__(
        self, batch: memoryview, header: BatchHeader, answered: Answered, weights: Weighed = None
    ) -> None: ...


class _Write(Protocol):
    def __call__(self, batch: memoryview, header: BatchHeader, weights: Weighed = None) -> Outcome[Written]: ...


class PartitionServer:
    """One partition as the broker sees it. Writes are taken in the order of the calls."""

    __slots__ = (
        "_clock", "_consumers", "_kv", "_quota", "_reader", "_writer", "append", "consumers", "decode", "facts",
        "flush", "index", "is_unmounted", "leader_epoch", "perform", "queue", "read_counters", "read_stored",
        "readable_bytes",
        "staged", "state", "stretches", "times", "watch", "watchers", "write", "write_counters",
    )  # fmt: skip

    append: _Append
    """Store a batch that `produced_batches.check_produced` let pass; see `Writer.append`."""
    write: _Write
    """The same for who waits."""
    state: Partition
    """State below, for readers and administration; callers must not change it."""

    def __init__(
        self,
        partition: Partition,
        consumers: Consumers,
        kv: KeyValueTablet,
        memory: NodeMemory,
        time: NodeTime,
    ) -> None:
        clock = time.clock
        self.state = partition
        self.index = partition.index
        self.leader_epoch = partition.generation
        self._consumers = consumers
        self._kv = kv
        self._clock = clock
        self.watchers = Watchers()
        self._writer = Writer(partition, kv, memory, time, self.watchers.notify)
        runs = RunLoader(partition, kv, memory.cache, self._writer.number, self._writer.load_head)
        self._reader = Reader(partition, kv, runs, memory, partition.settings.node.partition_reads_max)
        self._quota = write_quota(partition.settings.topic, clock())
        self.is_unmounted = _is_unmounted(partition)
        """True while the tablet of a table is unmounted: reads and writes are refused (D.2)."""
        self.append = self._writer.append
        self.write = partial(_write, self.append)
        self.perform = self._writer.perform
        """Have a cycle that the caller plans made durable; for joint_write.py."""
        self.flush = partial(self._writer.perform, lambda: partition.plan_close(clock()))
        """Have all that was written before the call lie in the body (D.2); durable when it returns."""
        self.staged = StagedPieces(partition, kv, self._writer.perform, clock)
        self.queue = self._writer.queue
        """Batches that wait to be written, and what of them is in flight; only to be looked at."""
        self.watch = self.watchers.add
        self.consumers = PartitionConsumers(consumers, kv, self._consumed)
        self.times = PartitionTimes(partition, self._reader, self._check_served)
        self.stretches = StretchReader(partition, kv, self._reader, self._check_served)
        self.read_stored = self._reader.read
        """Read in any mount state, for copying rows."""
        self.facts = FactsReader(partition, kv, self._reader, self._check_served)
        self.readable_bytes = self._reader.readable_bytes
        self.decode = self._reader.decode
        self.read_counters = self._reader.counters
        self.write_counters = self._writer.counters

    @property
    def start_offset(self) -> int:
        return self.state.start_offset

    @property
    def end_offset(self) -> int:
        """The high watermark."""
        return self.state.end_offset

    @property
    def size_bytes(self) -> int:
        return self.state.size_bytes

    @property
    def pool(self) -> str:
        """The pool that writes go to."""
        return self._kv.storage.pool(USER_CHANNEL)

    @property
    def is_held(self) -> bool:
        """Return True if its cell was salvaged, and nobody has accepted that: retention waits."""
        return self._kv.storage.is_held

    @property
    def is_lost(self) -> bool:
        """Return True if every call fails: its tablet is lost or unmounted, its topic deleted, or the partition
        refused."""
        return self._writer.state >= LOSING or self.is_unmounted

    @property
    def is_loaded(self) -> bool:
        """Return True if what is known here of the partition is all that is stored of it."""
        return self._writer.state < LOSING

    async def write_at(
        self, offset: int, batch: memoryview, header: BatchHeader, weights: Weighed = None
    ) -> Written:
        """Store a checked batch at an offset of the caller's choosing, for mirroring; durable when this returns.

        What it leaves out becomes a gap; readers continue at the next batch. KafkaError as `write`, and
        OFFSET_OUT_OF_RANGE for an offset before the end.
        """
        planned: list[Written | KafkaError] = []

        def plan() -> Cycle:
            cycle = self.state.plan_at(offset, (batch, header), self._clock(), weights)
            planned.append(cycle.outcomes.pop())
            return cycle

        await self._writer.perform(plan, len(batch))
        (written,) = planned
        if isinstance(written, KafkaError):
            raise written
        return written

    def read(self, query: ReadQuery) -> Batches | Awaitable[Batches]:
        """Whole batches, at once when they are in memory; see `Reader.read`. NOT_LEADER_OR_FOLLOWER."""
        if self._writer.state >= LOSING or self.is_unmounted:
            self._check_served()
        return self._reader.read(query)

    async def delete_before(self, offset: int) -> int:
        """Move the start offset up to `offset` (DeleteRecords); durable when it returns the start offset.

        OFFSET_OUT_OF_RANGE beyond the end offset; an offset at or before the start changes nothing.
        """
        self.state.settings.check_mounted(self.index)
        if self.is_loaded and not 0 <= offset <= self.end_offset:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"offset {offset} is outside [0, {self.end_offset}]")
        partition = self.state
        while True:
            await self._writer.perform(lambda: partition.plan_trim(max(offset, partition.start_offset), self._clock()))
            if offset <= partition.start_offset:
                return self.start_offset

    async def retain(self) -> None:
        """Delete what retention no longer keeps, and forget producers (A.11). KafkaError 6, 56."""
        while self.index not in self.state.settings.closed and self._is_retention_due():
            before = self.start_offset
            await self._writer.perform(self._plan_retention)
            if self.start_offset == before:
                return

    def why_no_writes(self) -> tuple[str, str] | None:
        """Return what keeps writers out now: a word, and the cause with its cure; None when nothing does."""
        if self.state.unreadable is not None:
            return "unreadable", str(self.state.unreadable)
        closed = self.state.settings.closed.get(self.index)
        if closed is not None:
            return closed.value, TabletClosed(ErrorCode.NONE, self.index, closed).message
        if self.is_lost:
            return "lost", not_leader().message
        if self._writer.is_disk_full:
            return "disk", self._writer.disk_full
        refusal = self.state.why_closed()
        return None if refusal is None else ("full" if self.state.is_active else "inactive", refusal.message)

    def why_held(self) -> Held:
        """Return why the oldest data was not deleted by now."""
        partition = self.state
        return why_held(partition.bodies, partition.head, partition.settings, self._clock(), self._first_unread())

    def throttle_ms(self, size: int, records: int) -> int:
        """Milliseconds that the producer of a write has to pause, 0 for not at all. Once a write."""
        pause_ms = self._writer.pause_ms if self.write_counters.full.is_running else 0
        if self._quota is None:
            return pause_ms
        quota_ms = self._quota.take(size, records, self._clock())
        self.write_counters.quota_wait_ms += quota_ms
        return max(pause_ms, quota_ms)

    def configure(self, settings: PartitionSettings) -> None:
        """Thousands may be configured in one turn of the loop."""
        state, was_unmounted = self.state, self.is_unmounted
        if settings.topic is not state.settings.topic:
            self._quota = write_quota(settings.topic, self._clock())
        state.settings = settings
        self.is_unmounted = settings.closed.get(self.index) is Closed.EVERYTHING
        if self.is_unmounted and not was_unmounted:
            self.watchers.notify()

    def stop(self) -> None:
        """The tablet's instance is over: everything fails, now and later."""
        self._writer.lose()

    async def hold(self) -> None:
        """Write nothing more: what comes waits for `hand_over`. Returns when no write is in work."""
        await self._writer.hold()

    def hand_over(self, later: "PartitionServer") -> None:
        """Let the next instance of the partition write what waits here."""
        self._writer.hand_over(later._writer)

    def refuse(self, cause: StoredUnreadable) -> None:
        """Refuse the partition, whose stored data is unreadable: nothing is taken, given or deleted from now on."""
        self.state.unreadable = cause
        self._writer.lose()

    def check_readable(self) -> None:
        """KafkaError CORRUPT_MESSAGE for a partition that is refused."""
        if self.state.unreadable is not None:
            raise unreadable(ErrorCode.CORRUPT_MESSAGE, self.state.unreadable)

    def _check_served(self) -> None:
        """KafkaError CORRUPT_MESSAGE or NOT_LEADER_OR_FOLLOWER when every call fails."""
        self.check_readable()
        if self.is_unmounted:
            raise TabletClosed(ErrorCode.NOT_LEADER_OR_FOLLOWER, self.index, Closed.EVERYTHING)
        if self.is_lost:
            raise not_leader()

    def _consumed(self, group_id: str) -> None:
        """A group has read on: what only it still needed may go."""
        topic = self.state.settings.topic
        if topic.pq_delete_when_read and group_id in topic.pq_important_groups and self._is_retention_due():
            self._writer.perform(self._plan_retention)

    def _first_unread(self) -> FirstUnread:
        return self._consumers.first_unread(self.state.settings.topic.pq_important_groups)

    def _is_retention_due(self) -> bool:
        return self.state.is_retention_due(self._clock(), self._first_unread())

    def _plan_retention(self) -> Cycle:
        return self.state.plan_retention(self._clock(), self._first_unread())


def _write(
    append: _Append, batch: memoryview, header: BatchHeader, weights: Weighed = None
) -> Outcome[Written]:
    outcome: Outcome[Written] = Outcome()
    append(batch, header, outcome.decide, weights)
    return outcome


def _is_unmounted(partition: Partition) -> bool:
    return partition.settings.closed.get(partition.index) is Closed.EVERYTHING
