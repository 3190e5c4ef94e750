"""Writes of one partition: their queue, the write cycle around the pure plan (semantics A.5).

state     event                      next
idle      write, job                 writing: a cycle is planned and its KV request executed
idle      write on a full disk       idle; all that waits fails (A.12)
idle      write that must copy       loading, while head content is not in memory
loading   content is there           writing
loading   it cannot be read now      idle; all that waits fails
writing   durable                    the next cycle, or idle
writing   refused                    this cycle and all that waits fail; idle
any       hold                       held, when no cycle is in work: what comes waits for the next instance
any       the store is lost          lost: everything fails with NOT_LEADER_OR_FOLLOWER
any       its rows are unreadable    refused: everything fails with KAFKA_STORAGE_ERROR
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from time import perf_counter

from pqbroker.conf.broker import BrokerSettings
from pqbroker.pq.body_pages import forget_bodies, keep_body
from pqbroker.pq.cache import NodeMemory
from pqbroker.pq.counters import PartitionCounters, blob_bytes
from pqbroker.pq.cycle import Cycle, Written
from pqbroker.pq.not_served import not_leader, unreadable
from pqbroker.pq.partition import Partition
from pqbroker.pq.quota import PAUSE_MS_MAX
from pqbroker.pq.warming import HeadLoader
from pqbroker.pq.write_queue import Write, WriteQueue
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.protocol.records import BatchHeader
from pqbroker.storage.engine import BlobCorrupt, CommitRefused, ShardLost
from pqbroker.storage.kv import KeyValueTablet
from pqbroker.storage.lasting import Lasting
from pqbroker.storage.outcome import Outcome
from pqbroker.storage.status import Colour
from pqbroker.storage.tablet import USER_CHANNEL
from pqbroker.storage.unreadable import StoredUnreadable

DISK_FULL = "the disk is full: it takes writes again once retention, DeleteRecords or you have made room"

_log = logging.getLogger(__name__)

_Job = tuple[Callable[[], Cycle], "asyncio.Future[None]"]


class Writer:
    """Takes writes and jobs in the order of the calls; one cycle is in flight at a time."""

    __slots__ = (
        "_clock", "_cycle_seconds", "_head", "_held", "_jobs", "_kv", "_loop", "_memory", "_notify", "_number",
        "_partition", "_running", "_settings", "counters", "is_lost", "queue", "unreadable",
    )  # fmt: skip

    def __init__(
        self,
        partition: Partition,
        kv: KeyValueTablet,
        memory: NodeMemory,
        number: int,
        settings: BrokerSettings,
        clock: Callable[[], int],
        notify: Callable[[], None],
    ) -> None:
        self._partition = partition
        self._kv = kv
        self._memory = memory
        self._number = number
        self._settings = settings
        self._clock = clock
        self._notify = notify
        self._loop = asyncio.get_running_loop()
        self.queue = WriteQueue(settings.write_queue_bytes_max)
        self._cycle_seconds = 0.0
        """How long the last cycle took."""
        self._jobs: list[_Job] = []
        self._running = False
        self._held: asyncio.Future[None] | None = None
        """Done once no cycle is in work any more, nor will be."""
        self._head = HeadLoader(partition, kv, self._count_held)
        self.is_lost = False
        """Whether everything fails: the tablet is lost, or the partition is `unreadable`."""
        self.unreadable: StoredUnreadable | None = None
        self.counters = PartitionCounters()

    @property
    def is_disk_full(self) -> bool:
        """Whether users stop writing until there is room again (A.12.2); reads and deletes go on."""
        return self._kv.storage.status(USER_CHANNEL) >= Colour.YELLOW_STOP

    @property
    def pause_ms(self) -> int:
        """How long who writes has to pause, for what is in flight to sink to its border from above (A.8)."""
        settings = self._settings
        excess = self.queue.in_flight_bytes - settings.write_border_bytes
        return min(1 + int(1000 * self._cycle_seconds * excess / settings.write_cycle_bytes_max), PAUSE_MS_MAX)

    def write(self, batch: memoryview, header: BatchHeader, told: Outcome[Written] | None = None) -> Outcome[Written]:
        """Store a checked batch, which stays as it is until the outcome (`told`) is there; enqueued in this call.

        Fails with KafkaError: 45, 47, 32, 44 for this batch; 56 when the store refused (with all that waits, A.5.10);
        7 when too much waits; 6 when the tablet is lost.
        """
        outcome: Outcome[Written] = told or Outcome()
        queue, bytes_max = self.queue, self._settings.write_queue_bytes_max
        if self.is_lost:
            self._refuse(outcome, self._over())
        elif queue.in_flight_bytes - queue.long_bytes >= bytes_max:
            text = f"pqbroker.write.queue.bytes = {bytes_max} are in flight at the partition: retry"
            self._refuse_for_now(header, outcome, ErrorCode.REQUEST_TIMED_OUT, text)
        else:
            size = len(batch)
            queue.items.append((batch, header, outcome))
            queue.bytes += size
            queue.in_flight_bytes += size
            if size > bytes_max:
                queue.long_bytes += size
            if queue.in_flight_bytes > self._settings.write_border_bytes and not self.counters.full.is_running:
                self.counters.full.start(self._loop.time())
            if not self._running:
                self._run()
            elif not self.counters.waiting.is_running:
                self.counters.waiting.start(self._loop.time())
        return outcome

    async def perform(self, plan: Callable[[], Cycle]) -> None:
        """Have a cycle of its own planned and made durable, between the cycles of writes."""
        await self._enqueue(plan)

    def ask(self, plan: Callable[[], Cycle]) -> None:
        """Have a cycle performed that nobody waits for."""
        self._enqueue(plan).add_done_callback(_retrieve)

    async def load_head(self) -> None:
        """Bring the head's content into memory, for a read."""
        try:
            await Lasting(self._head.load())
        except BlobCorrupt as damage:
            await self.perform(self._plan_close(damage))

    def drop_content(self) -> bool:
        """Forget the head's content, to be loaded when needed; not while a cycle works on it."""
        return not self._running and self._head.drop()

    def lose(self) -> None:
        """The tablet's instance is over: fail everything, now and later."""
        if self.is_lost:
            return
        self.is_lost = True
        self._memory.heads.forget(self)
        self.counters.full.stop(self._loop.time())
        over = self._over()
        self._fail_queue(over.code, over.message)
        jobs, self._jobs = self._jobs, []
        for _, job in jobs:
            _fail(job, self._over())
        self._notify()

    async def hold(self) -> None:
        """Begin no cycle any more, and return when none is in work; what comes waits for `hand_over`, or `lose`."""
        self._held = self._held or self._loop.create_future()
        if not self._running and not self._held.done():
            self._held.set_result(None)
        await asyncio.shield(self._held)

    def hand_over(self, later: "Writer") -> None:
        """Let the partition's next instance write what waits here, in its order."""
        for batch, header, outcome in self.queue.take_all():
            later.write(batch, header, outcome)

    def refuse(self, cause: StoredUnreadable) -> None:
        """What is stored of the partition cannot be read: fail everything, now and later."""
        self.unreadable = cause
        self.lose()

    def _enqueue(self, plan: Callable[[], Cycle]) -> "asyncio.Future[None]":
        job: asyncio.Future[None] = self._loop.create_future()
        if self.is_lost:
            job.set_exception(self._over())
            return job
        self._jobs.append((plan, job))
        if not self._running:
            self._run()
        return job

    def _run(self) -> None:
        """Start the next cycle, if there is anything to do. One that cannot be planned, a defect, is a loss."""
        self._running = True
        writes: list[Write] = []
        try:
            if self._begin(writes):
                return
        except BaseException as defect:
            self._running = False
            self._kv.storage.wear_out()
            self._fail_cycle(ShardLost(f"a write cycle could not be planned: {defect!r}"), writes, None)
            raise
        self._running = False
        if self._held is not None and not self._held.done():
            self._held.set_result(None)

    def _begin(self, writes: list[Write]) -> bool:
        """Whether a cycle is on its way, of these `writes`, or will be when the head is loaded."""
        queue = self.queue
        while not self.is_lost and self._held is None:
            queue.in_flight_bytes = queue.bytes
            if queue.long_bytes:
                queue.count_long()
            if self.counters.full.is_running and queue.in_flight_bytes <= self._settings.write_border_bytes:
                self.counters.full.stop(self._loop.time())
            if self._jobs:
                plan, job = self._jobs.pop(0)  # before it is performed: a refusal at once begins the next cycle
                try:
                    if self._perform(plan(), (), job):
                        return True
                except BaseException:
                    _fail(job, not_leader())
                    raise
            elif not queue.items:
                break
            elif self.is_disk_full:
                self._fail_queue(ErrorCode.KAFKA_STORAGE_ERROR, DISK_FULL)
            elif self._partition.needs_content(queue.bytes):
                self.counters.waiting.start(self._loop.time())
                self._head.load().add_done_callback(self._loaded)
                return True
            else:
                writes[:] = queue.take(self._settings.write_cycle_bytes_max)
                if not queue.items and self.counters.waiting.is_running:
                    self.counters.waiting.stop(self._loop.time())
                cycle = self._partition.plan([(batch, header) for batch, header, _ in writes], self._clock())
                if self._perform(cycle, writes, None):
                    return True
                writes.clear()
        return False

    def _perform(self, cycle: Cycle, writes: Sequence[Write], job: "asyncio.Future[None] | None") -> bool:
        """Execute a plan; False when there was nothing to execute and all is answered."""
        if not cycle.commands:
            self._answer(cycle, writes, job)
            return False
        started = perf_counter()  # uvloop tells the time in whole milliseconds, most cycles take less
        if cycle.parts:
            self._store_parts(started, cycle, writes, job, None)
            return True
        committed = self._kv.execute(cycle.commands)
        committed.add_done_callback(partial(self._settle, started, cycle, writes, job))
        return True

    def _store_parts(
        self,
        started: float,
        cycle: Cycle,
        writes: Sequence[Write],
        job: "asyncio.Future[None] | None",
        stored: Outcome[None] | None,
    ) -> None:
        """Make the parts of a large batch durable, one request each, so that others' commits come between; then the
        cycle's own request. `stored` is the part before."""
        if stored is not None and (self.is_lost or stored.exception() is not None):
            self._partition.rollback(cycle)
            self._count_held()
            self._fail_cycle(stored.exception() or ShardLost("the tablet was lost"), writes, job)
            self._run()
        elif cycle.parts:
            part = cycle.parts.pop(0)
            self.counters.blob_bytes += blob_bytes((part,))
            self._kv.execute((part,)).add_done_callback(partial(self._store_parts, started, cycle, writes, job))
        else:
            committed = self._kv.execute(cycle.commands)
            committed.add_done_callback(partial(self._settle, started, cycle, writes, job))

    def _settle(
        self,
        started: float,
        cycle: Cycle,
        writes: Sequence[Write],
        job: "asyncio.Future[None] | None",
        committed: Outcome[None],
    ) -> None:
        """The cycle's request is done: apply it or roll it back, answer, go on."""
        error = committed.exception()
        if error is None:
            self._cycle_seconds = perf_counter() - started
            self._memory.cycles.observe(self._cycle_seconds)
            self._count(cycle)
            self._apply(cycle)
            self._answer(cycle, writes, job)
            self._notify()
        else:
            self._partition.rollback(cycle)
            self._count_held()
            self._fail_cycle(error, writes, job)
        self._run()

    def _answer(self, cycle: Cycle, writes: Sequence[Write], job: "asyncio.Future[None] | None") -> None:
        counters = self.counters
        counters.duplicates += cycle.duplicates
        counters.duplicate_bytes += cycle.duplicate_bytes
        for (_, _, outcome), decided in zip(writes, cycle.outcomes, strict=True):
            if type(decided) is Written:
                outcome.set_result(decided)
            else:
                assert isinstance(decided, KafkaError)
                self._refuse(outcome, decided)
        if job is not None and not job.done():
            job.set_result(None)

    def _refuse_for_now(
        self, header: BatchHeader, outcome: Outcome[Written], code: ErrorCode, message: str
    ) -> None:
        """Refuse a batch that will come again; while it does not, nothing behind it may be stored."""
        self._partition.sources.refuse(header.producer_id, header.producer_epoch, header.base_sequence)
        self._refuse(outcome, KafkaError(code, message))

    def _refuse(self, outcome: Outcome[Written], error: KafkaError) -> None:
        self.counters.count_error(error.code)
        outcome.set_exception(error)

    def _fail_cycle(self, error: BaseException, writes: Sequence[Write], job: "asyncio.Future[None] | None") -> None:
        if isinstance(error, CommitRefused):
            code, message = ErrorCode.KAFKA_STORAGE_ERROR, f"the store refused the write: {error}"
        else:
            code, message = ErrorCode.NOT_LEADER_OR_FOLLOWER, "the tablet was lost"
            if not isinstance(error, ShardLost):
                _log.critical("a KV request of partition %d is wrong", self._partition.index, exc_info=error)
            self.lose()
        for _, header, outcome in writes:
            self._refuse_for_now(header, outcome, code, message)
        if job is not None:
            _fail(job, KafkaError(code, message))
        if writes:
            self._fail_queue(code, message)

    def _count(self, cycle: Cycle) -> None:
        """A cycle is durable and not applied yet."""
        counters, partition = self.counters, self._partition
        counters.cycles += 1
        counters.written += cycle.end_offset - cycle.first_offset
        counters.bytes_written += partition.head.run.end - cycle.mark
        counters.blob_bytes += blob_bytes(cycle.commands)

    def _apply(self, cycle: Cycle) -> None:
        partition = self._partition
        cache = self._memory.cache
        for body in cycle.bodies:
            keep_body(cache, self._number, body, partition.head.run, self._loop.time())
        if cycle.start_offset > partition.start_offset:
            forget_bodies(cache, self._number, partition.bodies, partition.bodies.find(cycle.start_offset))
        partition.apply(cycle)
        self._count_held()

    def _count_held(self) -> None:
        if not self.is_lost:
            self._memory.heads.touch(self, self._partition.head.run.held)

    def _over(self) -> KafkaError:
        """Why everything fails."""
        if self.unreadable is not None:
            return unreadable(ErrorCode.KAFKA_STORAGE_ERROR, self.unreadable)
        return not_leader()

    def _fail_queue(self, code: ErrorCode, message: str) -> None:
        self.counters.waiting.stop(self._loop.time())
        for _, header, outcome in self.queue.take_all():
            self._refuse_for_now(header, outcome, code, message)

    def _plan_close(self, damage: BlobCorrupt) -> Callable[[], Cycle]:
        """A head that cannot be loaded becomes a body as it is: what is damaged in a body can be read around."""
        _log.error("partition %d: the head is closed: %s", self._partition.index, damage)
        return lambda: self._partition.plan_close(self._clock())

    def _loaded(self, load: "asyncio.Task[None]") -> None:
        """A cycle waited for the head's content."""
        error = None if load.cancelled() else load.exception()
        if isinstance(error, BlobCorrupt):
            closed: asyncio.Future[None] = self._loop.create_future()
            closed.add_done_callback(_retrieve)
            self._jobs.insert(0, (self._plan_close(error), closed))
        elif isinstance(error, OSError):  # such as no file being left: it may be read later
            self._fail_queue(ErrorCode.KAFKA_STORAGE_ERROR, f"the partition's head cannot be read: {error}")
        elif error is not None or load.cancelled():
            self.lose()
        self._run()


def _fail(job: "asyncio.Future[None]", error: KafkaError) -> None:
    if not job.done():
        job.set_exception(error)


def _retrieve(job: "asyncio.Future[None]") -> None:
    """Nobody waits for this job: its failure shows at the next write."""
    if not job.cancelled():
        job.exception()
