"""One partition as the broker sees it: what it serves now.

Writing is in writer.py, reading in reader.py, deleting in partition_retention.py; partition.py decides.
"""

from collections.abc import Awaitable, Sequence
from functools import partial

from pqbroker.pq.log.batch_admission import why_closed
from pqbroker.pq.log.batch_run import Batches
from pqbroker.pq.log.blob_cycles import plan_batch_at, plan_close
from pqbroker.pq.log.cleaned_log import CleanedLog
from pqbroker.pq.log.consumers import Consumers
from pqbroker.pq.log.partition import Partition
from pqbroker.pq.log.partition_settings import Closed, PartitionSettings, TabletClosed
from pqbroker.pq.log.replacing_cycles import NewBody, plan_replacing
from pqbroker.pq.log.row_facts import Weighed
from pqbroker.pq.log.write_cycle import Cycle, Written
from pqbroker.pq.quota import write_quota
from pqbroker.pq.reading.cache import NodeMemory
from pqbroker.pq.reading.query import ReadQuery
from pqbroker.pq.reading.reader import Reader
from pqbroker.pq.reading.run_loading import RunLoader
from pqbroker.pq.serving.end_markers import EndMarkers
from pqbroker.pq.serving.facts_reading import FactsReader
from pqbroker.pq.serving.open_scans import OpenScans
from pqbroker.pq.serving.partition_consumers import PartitionConsumers
from pqbroker.pq.serving.partition_retention import PartitionRetention
from pqbroker.pq.serving.partition_times import PartitionTimes
from pqbroker.pq.serving.partition_transactions import PartitionTransactions
from pqbroker.pq.serving.staged_pieces import StagedPieces
from pqbroker.pq.serving.store_refusals import not_leader, unreadable
from pqbroker.pq.serving.stretches import StretchReader
from pqbroker.pq.serving.timestamps import NodeTime
from pqbroker.pq.serving.watchers import Watchers
from pqbroker.pq.serving.writer import Writer
from pqbroker.pq.serving.writer_states import LOSING
from pqbroker.protocol.control_records import EndMarker
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.protocol.records import BatchHeader
from pqbroker.storage.kv.tablet import KeyValueTablet
from pqbroker.storage.outcome import Outcome
from pqbroker.storage.tablets.tablet import USER_CHANNEL, TabletStorage
from pqbroker.storage.unreadable import StoredUnreadable


class PartitionServer:
    """One partition as the broker sees it. Writes are taken in the order of the calls."""

    __slots__ = (
        "_clock", "_kv", "_markers", "_quota", "consumers", "facts", "index", "is_unmounted", "known_transactions",
        "leader_epoch", "reader", "retention", "scans", "staged", "state", "stretches", "times", "watchers", "writer",
    )  # fmt: skip

    def __init__(
        self,
        partition: Partition,
        consumers: Consumers,
        kv: KeyValueTablet,
        memory: NodeMemory,
        time: NodeTime,
    ) -> None:
        clock = time.clock
        self._kv = kv
        self._clock = clock
        self._quota = write_quota(partition.settings.topic, clock())
        self.state = partition
        """State below, for readers and administration; callers must not change it."""
        self.index = partition.index
        self.leader_epoch = partition.generation
        self.is_unmounted = partition.settings.closed.get(partition.index) is Closed.EVERYTHING
        """True while the tablet of a table is unmounted: reads and writes are refused (D.2)."""
        self.watchers = Watchers()
        self.writer = Writer(partition, kv, memory, time, self.watchers.notify)
        runs = RunLoader(partition, kv, memory.cache, self.writer.number, self.writer.load_head)
        self.reader = Reader(partition, kv, runs, memory, partition.settings.node.partition_reads_max)
        """Reads whatever the mount state is: `read` checks that first."""
        self.retention = PartitionRetention(partition, consumers, self.writer, clock)
        self.consumers = PartitionConsumers(consumers, kv, self.retention.read_on)
        self.staged = StagedPieces(partition, kv, self.writer, clock)
        check_served = partial(_check_served, partition, self.writer)  # no method of this: that would be a cycle
        self.times = PartitionTimes(partition, self.reader, check_served)
        self.stretches = StretchReader(partition, kv, self.reader, check_served)
        self.facts = FactsReader(partition, kv, self.reader, check_served)
        self._markers: EndMarkers | None = None
        """None: no Kafka transaction has ended here since the start."""
        self.scans = OpenScans()
        self.known_transactions: PartitionTransactions | None = None
        """None: no transaction over several tablets has come here since the start, nor left anything before."""

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
    def revision(self) -> str:
        """Return what changes whenever rows that were read before may be gone amid those that stay: bodies were
        replaced, or the tablet began again, which does not know of earlier replacements."""
        return f"{self.writer.number}.{self.state.bodies.revision}"

    @property
    def storage(self) -> TabletStorage:
        """Return the storage of the tablet's instance."""
        return self._kv.storage

    @property
    def pool(self) -> str:
        """The pool that writes go to."""
        return self._kv.storage.pool(USER_CHANNEL)

    @property
    def is_held(self) -> bool:
        """Return True if its cell was salvaged and the losses are not accepted yet: retention waits."""
        return self._kv.storage.is_held

    @property
    def is_lost(self) -> bool:
        """Return True if every call fails: its tablet is lost or unmounted, its topic deleted, or the partition
        refused."""
        return self.writer.state >= LOSING or self.is_unmounted

    @property
    def is_loaded(self) -> bool:
        """Return True if what is known here of the partition is all that is stored of it."""
        return self.writer.state < LOSING

    @property
    def transactions(self) -> PartitionTransactions:
        """Return the partition as a participant of transactions over several tablets."""
        if self.known_transactions is None:
            self.known_transactions = PartitionTransactions(self.state, self._kv, self.writer, self._clock)
        return self.known_transactions

    def write(self, batch: memoryview, header: BatchHeader, weights: Weighed = None) -> Outcome[Written]:
        """Store a batch as `Writer.append` does, for a caller that waits."""
        outcome: Outcome[Written] = Outcome()
        self.writer.append(batch, header, outcome.decide, weights)
        return outcome

    async def write_at(
        self, offset: int, batch: memoryview, header: BatchHeader, weights: Weighed = None
    ) -> Written:
        """Store a checked batch at an offset of the caller's choosing, for mirroring; durable when this returns.

        What it leaves out becomes a gap; readers continue at the next batch. KafkaError as `write`, and
        OFFSET_OUT_OF_RANGE for an offset before the end.
        """
        planned: list[Written | KafkaError] = []

        def plan() -> Cycle:
            cycle = plan_batch_at(self.state, offset, (batch, header), self._clock(), weights)
            planned.append(cycle.outcomes.pop())
            return cycle

        await self.writer.perform(plan, len(batch))
        (written,) = planned
        if isinstance(written, KafkaError):
            raise written
        return written

    def end_transaction(
        self, producer_id: int, epoch: int, coordinator_epoch: int, *, is_commit: bool
    ) -> Outcome[int]:
        """End the Kafka transaction that a producer has in the partition, by a marker behind its batches; its offset,
        once it is durable. Without one the marker fences older epochs alone.

        Neither mount states, limits, quotas nor a full disk refuse it. KafkaError TRANSACTION_COORDINATOR_FENCED,
        INVALID_PRODUCER_EPOCH; and as `write`: the marker has to come again.
        """
        if self._markers is None:
            self._markers = EndMarkers(self.state, self.writer, self._clock)
        return self._markers.add(EndMarker(producer_id, epoch, coordinator_epoch, is_commit))

    async def replace_bodies(
        self, made: Sequence[NewBody], cleaned: CleanedLog | None = None, emptied: Sequence[int] = ()
    ) -> bool:
        """Have bodies take the place of others, all together, and `cleaned` be known; durable when this returns True.
        `emptied`: markers of aborted transactions that have no batch left.

        False, and nothing is done: one of the others was deleted or replaced meanwhile, or nothing may be deleted, as
        in a salvaged cell or of a tablet that is frozen or unmounted. KafkaError as `flush`.
        """
        planned: list[bool] = []

        def plan() -> Cycle:
            may_delete = not self.is_held and self.index not in self.state.settings.closed
            cycle = self.state.no_change(0)
            if may_delete:
                cycle = plan_replacing(self.state, made, self._clock(), cleaned, emptied)
            planned.append(not cycle.is_empty)
            return cycle

        await self.writer.perform(plan)
        return planned == [True]

    def flush(self) -> Outcome[None]:
        """Have all that was written before the call lie in the body (D.2); durable when it is done."""
        return self.writer.perform(lambda: plan_close(self.state, self._clock()))

    def read(self, query: ReadQuery) -> Batches | Awaitable[Batches]:
        """Whole batches, at once when they are in memory; see `Reader.read`. NOT_LEADER_OR_FOLLOWER."""
        if self.writer.state >= LOSING or self.is_unmounted:
            _check_served(self.state, self.writer)
        return self.reader.read(query)

    def why_no_writes(self) -> tuple[str, str] | None:
        """Return what keeps writers out now, those that a change feed is for: a word, and the cause with its cure; None
        when nothing does."""
        if self.state.unreadable is not None:
            return "unreadable", str(self.state.unreadable)
        closed = self.state.settings.closed.get(self.index)
        if closed is not None:
            return closed.value, TabletClosed(ErrorCode.NONE, self.index, closed).message
        if self.is_lost:
            return "lost", not_leader().message
        if self.known_transactions is not None and self.known_transactions.is_in_doubt:
            return "transaction", self.known_transactions.why_held
        if self.writer.is_disk_full:
            return "disk", self.writer.disk_full
        refusal = why_closed(self.state, is_feed=True)
        return None if refusal is None else ("full" if self.state.is_active else "inactive", refusal.message)

    def throttle_ms(self, size: int, records: int) -> int:
        """Milliseconds that the producer of a write has to pause, 0 for not at all. Once a write."""
        pause_ms = self.writer.pause_ms if self.writer.counters.full.is_running else 0
        if self._quota is None:
            return pause_ms
        quota_ms = self._quota.take(size, records, self._clock())
        self.writer.counters.quota_wait_ms += quota_ms
        return max(pause_ms, quota_ms)

    def configure(self, settings: PartitionSettings) -> Watchers | None:
        """Thousands may be configured in one turn of the loop, so its watchers are returned where they have to be
        notified: those of a partition that is unmounted now."""
        state, was_unmounted = self.state, self.is_unmounted
        if settings.topic is not state.settings.topic:
            self._quota = write_quota(settings.topic, self._clock())
        state.settings = settings
        self.is_unmounted = settings.closed.get(self.index) is Closed.EVERYTHING
        return self.watchers if self.is_unmounted and not was_unmounted and self.watchers else None

    def stop(self) -> None:
        """The tablet's instance is over: everything fails, now and later."""
        self.writer.lose()

    async def hold(self) -> None:
        """Write nothing more: what comes waits for `hand_over`. Returns when no write is in work."""
        await self.writer.hold()
        if self.known_transactions is not None:
            self.known_transactions.stop()

    def hand_over(self, later: "PartitionServer") -> None:
        """Let the next instance of the partition write what waits here."""
        self.writer.hand_over(later.writer)

    def refuse(self, cause: StoredUnreadable) -> None:
        """Refuse the partition, whose stored data is unreadable: nothing is taken, given or deleted from now on."""
        self.state.unreadable = cause
        self.writer.lose()

    def check_readable(self) -> None:
        """KafkaError CORRUPT_MESSAGE for a partition that is refused."""
        _check_readable(self.state)


def _check_served(partition: Partition, writer: Writer) -> None:
    """KafkaError CORRUPT_MESSAGE or NOT_LEADER_OR_FOLLOWER when every call fails."""
    _check_readable(partition)
    if partition.settings.closed.get(partition.index) is Closed.EVERYTHING:
        raise TabletClosed(ErrorCode.NOT_LEADER_OR_FOLLOWER, partition.index, Closed.EVERYTHING)
    if writer.state >= LOSING:
        raise not_leader()


def _check_readable(partition: Partition) -> None:
    if partition.unreadable is not None:
        raise unreadable(ErrorCode.CORRUPT_MESSAGE, partition.unreadable)
