"""Writes of one partition: their queue, and the write cycle around the pure plan (semantics A.5).

One cycle is in work at a time (writer_states.py), the first planned at the end of the loop's turn. Durable, it is
applied and answered; refused by the store, it fails with all that waits (A.5.10); on a full disk what waits fails
(A.12); a lost store, or rows that cannot be read, end the writer.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from time import perf_counter

from pqbroker.pq.counters import WriteCounters, blob_bytes
from pqbroker.pq.log.blob_cycles import plan_batches, plan_close
from pqbroker.pq.log.partition import Partition
from pqbroker.pq.log.row_facts import Weighed
from pqbroker.pq.log.write_cycle import Cycle
from pqbroker.pq.quota import PAUSE_MS_MAX
from pqbroker.pq.reading.body_pages import forget_bodies, forget_replaced, keep_body
from pqbroker.pq.reading.cache import NodeMemory
from pqbroker.pq.reading.head_loading import HeadLoader
from pqbroker.pq.serving import writer_states as states
from pqbroker.pq.serving.store_refusals import DISK_FULL, RECORDS, not_leader, store_refusal, unreadable
from pqbroker.pq.serving.timestamps import NodeTime
from pqbroker.pq.serving.write_queue import Answered, Job, Write, WriteQueue
from pqbroker.pq.serving.writer_states import AT_REST, IDLE, LOADING, LOSING, WRITING
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.protocol.records import BatchHeader
from pqbroker.storage.engine import BlobCorrupt, CommitRefused, ShardLost
from pqbroker.storage.kv.tablet import KeyValueTablet
from pqbroker.storage.outcome import Outcome
from pqbroker.storage.pool_status import Colour
from pqbroker.storage.tablets.tablet import USER_CHANNEL
from pqbroker.storage.uninterrupted import Uninterrupted

_log = logging.getLogger(__name__)


class Writer:
    """Takes writes and jobs in the order of the calls."""

    __slots__ = (
        "_at_rest", "_clock", "_cycle", "_cycle_seconds", "_head", "_job", "_kv", "_loop", "_memory",
        "_notify", "_partition", "_started_s", "_storage", "_timestamps", "_writes", "counters", "number", "queue",
        "state",
    )  # fmt: skip

    def __init__(
        self,
        partition: Partition,
        kv: KeyValueTablet,
        memory: NodeMemory,
        time: NodeTime,
        notify: Callable[[], None],
    ) -> None:
        self._partition = partition
        self._kv = kv
        self._storage = kv.storage
        self._memory = memory
        self.number = memory.new_partition()
        """The partition's in the node's cache."""
        self._clock, self._timestamps = time
        self._notify = notify
        self._loop = asyncio.get_running_loop()
        self.counters = WriteCounters()
        self.queue = WriteQueue(partition.producers, self.counters)
        self.state = IDLE
        self._cycle: Cycle | None = None
        """The one in work, of the `_writes` or for the `_job`, since `_started_s`."""
        self._writes: Sequence[Write] = ()
        self._job: Outcome[None] | None = None
        self._started_s = 0.0
        self._cycle_seconds = 0.0
        """Seconds that the last cycle took."""
        self._at_rest: asyncio.Future[None] | None = None
        """Done once no cycle is in work any more, nor will be."""
        self._head = HeadLoader(partition, kv)

    @property
    def is_disk_full(self) -> bool:
        """Return True if users stop writing until space is freed (A.12.2); reads and deletes continue."""
        return self._storage.status(USER_CHANNEL) >= Colour.YELLOW_STOP

    @property
    def is_prompt(self) -> bool:
        """Return True if a job that comes now waits for one cycle at most: nothing is held, or has to be read first."""
        return self.state <= WRITING and not self.queue.is_kept_out

    @property
    def disk_full(self) -> str:
        """Return what is reported to users while `is_disk_full`."""
        return self._storage.reading_only or DISK_FULL

    @property
    def pause_ms(self) -> int:
        """Return how many milliseconds producers have to pause for what is in flight to sink to its border (A.8)."""
        node = self._partition.settings.node
        cycles = (self.queue.in_flight_bytes - node.write_border_bytes) / node.write_cycle_bytes_max
        return min(1 + int(1000 * self._cycle_seconds * cycles), PAUSE_MS_MAX)

    def append(self, batch: memoryview, header: BatchHeader, answered: Answered, weights: Weighed = None) -> None:
        """Store a batch that `check_produced` let pass; enqueued, or refused, in this call. It stays as it is until
        `answered` is called.

        Fails with KafkaError: 45, 47, 32, 44 for this batch; 56 when the store refused (with all that waits, A.5.10);
        7 when too much waits; 6 when the tablet is lost.
        """
        queue, settings = self.queue, self._partition.settings.node
        bytes_max = settings.write_queue_bytes_max
        if self.state >= LOSING:
            error = self._over()
            self.counters.count_error(error.code)
            answered(error)
        elif queue.in_flight_bytes - queue.long_bytes >= bytes_max:
            text = f"pqbroker.write.queue.bytes = {bytes_max} are in flight at the partition: retry"
            queue.refuse(header, answered, ErrorCode.REQUEST_TIMED_OUT, text)
        else:
            size = len(batch)
            queue.items.append((batch, header, answered, weights))
            queue.bytes += size
            queue.in_flight_bytes += size
            if size > bytes_max:
                queue.long_bytes += size
            if queue.in_flight_bytes > settings.write_border_bytes and not self.counters.full.is_running:
                self.counters.full.start(self._loop.time())
            if self.state == IDLE:
                self.state = states.ON_WORK[self.state]
                self._storage.plan_later(self._run)
            elif self._cycle is not None and not self.counters.waiting.is_running:
                self.counters.waiting.start(self._loop.time())

    def perform(self, plan: Callable[[], Cycle], size: int = 0, decided_bytes: int = 0) -> Outcome[None]:
        """Have a cycle of its own planned and made durable, between the cycles of writes; `size` and `decided_bytes` as
        in `Job`."""
        if self.state >= LOSING:
            return Outcome.failed(self._over())
        job = Job(plan, size, Outcome(), decided_bytes)
        self.queue.jobs.append(job)
        self._wake()
        return job.outcome

    def keep_out(self, doubt: Callable[[], KafkaError] | None = None) -> None:
        """Begin nothing any more before `decide`: prepared rows are durable. `doubt` as in `Job`; it refuses what waits
        already, too."""
        if self.state < LOSING:
            self.queue.keep_out(doubt)

    def decide(self, plan: Callable[[], Cycle], decided_bytes: int) -> Outcome[None]:
        """Have prepared rows put into the log, or dropped, before all that waits behind them; `keep_out` came before.
        Where it fails, `keep_out` has to follow in the call of the outcome's listener."""
        if self.state not in (IDLE, WRITING, LOADING):
            return Outcome.failed(self._over())
        job = Job(plan, 0, Outcome(), decided_bytes)
        self.queue.decide(job)
        self._wake()
        return job.outcome

    async def load_head(self) -> None:
        """Bring the head's content into memory, for a read."""
        try:
            await Uninterrupted(self._head.load(self._count_held))
        except BlobCorrupt as damage:
            if self.state >= LOSING:
                raise self._over() from damage
            job = Job(self._plan_close(damage), 0, Outcome())
            self.queue.jobs.insert(0, job)  # reads do not wait for transactions
            self._wake()
            await job.outcome

    def drop_content(self) -> bool:
        """Forget the head's content, to be loaded when needed; not while a cycle works on it."""
        return self.state in AT_REST and self._head.drop()

    def lose(self) -> None:
        """The tablet's instance is over, or the partition is unreadable: fail everything, now and later."""
        if self.state >= LOSING:
            return
        self.state = states.ON_LOSS[self.state]
        self._memory.heads.forget(self)
        self.counters.full.stop(self._loop.time())
        over = self._over()
        self.queue.refuse_all(over.code, over.message, self._loop.time())
        self.queue.refuse_jobs(over)
        self._leave_joint(over)
        self._notify()

    async def hold(self) -> None:
        """Begin no cycle any more, and return when none is in work; what comes waits for `hand_over`, or `lose`."""
        self._at_rest = self._at_rest or self._loop.create_future()
        self.state = states.ON_HOLD[self.state]
        self._leave_joint(not_leader())
        if self.state in AT_REST and not self._at_rest.done():
            self._at_rest.set_result(None)
        await asyncio.shield(self._at_rest)

    def hand_over(self, later: "Writer") -> None:
        """Let the partition's next instance write what waits here, in its order."""
        for write in self.queue.take_all():
            later.append(*write)

    def _wake(self) -> None:
        """Begin a cycle at the end of the loop's turn, unless one is in work."""
        if self.state == IDLE:
            self.state = states.ON_WORK[self.state]
            self._storage.plan_later(self._run)

    def _leave_joint(self, why: KafkaError) -> None:
        """A cycle that waits for those of other partitions waits no longer."""
        if self._cycle is not None and self._cycle.joint is not None:
            self._cycle.joint.give_up(why)

    def _run(self) -> None:
        """Begin the next cycle, if there is anything to do. One that cannot be planned, a defect, is a loss."""
        try:
            if self._begin():
                return
        except BaseException as defect:
            self._rest()
            self._storage.wear_out()
            self._fail_cycle(ShardLost(f"a write cycle could not be planned: {defect!r}"))
            raise
        self._rest()

    def _rest(self) -> None:
        self.state = states.ON_REST[self.state]
        if self._at_rest is not None and not self._at_rest.done():
            self._at_rest.set_result(None)

    def _begin(self) -> bool:
        """Return True if a cycle is on its way, or will be when the head is loaded."""
        queue, counters = self.queue, self.counters
        while self.state == WRITING:
            settings = self._partition.settings.node
            queue.in_flight_bytes = queue.bytes
            if queue.long_bytes:
                queue.count_long(settings.write_queue_bytes_max)
            if counters.full.is_running and queue.in_flight_bytes <= settings.write_border_bytes:
                counters.full.stop(self._loop.time())
            jobs = queue.jobs
            size = jobs[0].size if jobs else queue.bytes
            if not jobs and not queue.items:
                break
            if size and self.is_disk_full:
                queue.refuse_all(ErrorCode.KAFKA_STORAGE_ERROR, self.disk_full, self._loop.time())
            elif size and not self._partition.head.is_warm and self._partition.needs_content(size):
                return self._await_content()
            elif size and self._partition.settings.keeps_facts and self._awaits_timestamps():
                return True
            elif jobs:
                begun = self._begin_job()
                if begun is not None:
                    return begun
            else:
                self._writes = queue.take(settings.write_cycle_bytes_max)
                if queue.items:
                    counters.waiting.start(self._loop.time())
                elif counters.waiting.is_running:
                    counters.waiting.stop(self._loop.time())
                batches = [(batch, header) for batch, header, _, _ in self._writes]
                weights = [each[3] for each in self._writes] if self._partition.settings.keeps_facts else ()
                cycle = plan_batches(self._partition, batches, self._clock(), weights)
                if self._perform(cycle):
                    return True
        return False

    def _begin_job(self) -> bool | None:
        """Begin the first job. Return what `_begin` returns then; None: what waits behind it may begin."""
        queue = self.queue
        plan, _, outcome, decided_bytes, doubt = queue.jobs[0]
        if plan is None:
            if doubt is None or not (queue.items or len(queue.jobs) > 1):
                return False
            queue.refuse_behind(doubt(), self._loop.time())
            return None
        if decided_bytes and self._partition.needs_content(decided_bytes):
            return self._await_content()
        del queue.jobs[0]
        self._job = outcome
        return True if self._perform(plan()) else None

    def _await_content(self) -> bool:
        """Have the next cycle wait until the head's content is in memory."""
        self.state = states.ON_COLD_HEAD[self.state]
        self.counters.waiting.start(self._loop.time())
        self._head.load(self._count_held).add_done_callback(self._loaded)
        return True

    def _perform(self, cycle: Cycle) -> bool:
        """Execute a plan; False when there was nothing to execute and all is answered."""
        if not cycle.puts and cycle.is_empty:
            self._answer(cycle)
            return False
        self._cycle, self._started_s = cycle, perf_counter()  # uvloop's time is in milliseconds, most take less
        if cycle.commands or cycle.parts or cycle.joint is not None:
            self._store_parts(None)
        else:
            self._kv.store(cycle.puts, cycle.gone, self._settle)
        return True

    def _store_parts(self, error: BaseException | None) -> None:
        """Make the parts of a large batch durable, one request each, so that others' commits come between; then the
        cycle's own request. `error`: of the part before."""
        cycle = self._cycle
        assert cycle is not None
        if error is not None or self.state >= LOSING:
            self._fail_cycle(error or ShardLost("the tablet was lost"))
            self._run()
        elif cycle.parts:
            part = cycle.parts.pop(0)
            self.counters.blob_bytes += blob_bytes((part,))
            self._kv.submit((part,), self._store_parts)
        elif cycle.joint is not None:
            cycle.joint.commit(self._kv, cycle, self._settle)
        else:
            self._kv.submit(cycle.as_commands(), self._settle)

    def _settle(self, error: BaseException | None) -> None:
        """The cycle's request is done: apply it or roll it back, answer, and begin the next."""
        cycle = self._cycle
        assert cycle is not None
        if error is None:
            self._cycle = None
            self._cycle_seconds = perf_counter() - self._started_s
            self._memory.cycles.observe(self._cycle_seconds)
            self._apply(cycle)
            self._answer(cycle)
            self._notify()
        else:
            self._fail_cycle(error)
        self._run()

    def _apply(self, cycle: Cycle) -> None:
        """Apply a cycle that is durable."""
        counters, partition = self.counters, self._partition
        counters.cycles += 1
        counters.written += cycle.end_offset - cycle.first_offset
        counters.bytes_written += partition.head.run.end - cycle.mark
        for _, _, size, is_row in cycle.puts:
            counters.blob_bytes += 0 if is_row else size
        if cycle.commands:
            counters.blob_bytes += blob_bytes(cycle.commands)
        cache = self._memory.cache
        for body in cycle.bodies:
            keep_body(cache, self.number, body, partition.head.run, self._loop.time())
        if cycle.replaced:
            forget_replaced(cache, self.number, partition.bodies, cycle.replaced)
        if cycle.start_offset > partition.start_offset:
            forget_bodies(cache, self.number, partition.bodies, partition.bodies.find(cycle.start_offset))
        partition.apply(cycle)
        self._count_held()

    def _answer(self, cycle: Cycle) -> None:
        """Give every write of the cycle its outcome, and the job that it was for."""
        counters = self.counters
        counters.duplicates += cycle.duplicates
        counters.duplicate_bytes += cycle.duplicate_bytes
        for (_, _, answered, _), decided in zip(self._writes, cycle.outcomes, strict=True):
            if isinstance(decided, KafkaError):
                counters.count_error(decided.code)
            answered(decided)
        if self._job is not None:
            self._job.set_result(None)
        self._writes, self._job = (), None

    def _fail_cycle(self, error: BaseException) -> None:
        """The cycle came to nothing: take its plan back, and fail what it was for."""
        cycle, self._cycle = self._cycle, None
        if cycle is not None:
            self._partition.rollback(cycle)
            self._count_held()
        refusal = store_refusal(error, RECORDS)
        if refusal is None:
            _log.critical("a KV request of partition %d is wrong", self._partition.index, exc_info=error)
        code, message = (refusal.code, refusal.message) if refusal else (RECORDS.lost, RECORDS.lost_text)
        if not isinstance(error, CommitRefused):
            self.lose()
        writes, job = self._writes, self._job
        self._writes, self._job = (), None
        for _, header, answered, _ in writes:
            self.queue.refuse(header, answered, code, message)
        if job is not None:
            job.set_exception(KafkaError(code, message))
        if writes:
            self.queue.refuse_all(code, message, self._loop.time())

    def _count_held(self) -> None:
        if self.state < LOSING:
            self._memory.heads.touch(self, self._partition.head.run.held)

    def _over(self) -> KafkaError:
        """Return the error with which everything fails."""
        if self._partition.unreadable is not None:
            return unreadable(ErrorCode.KAFKA_STORAGE_ERROR, self._partition.unreadable)
        return not_leader()

    def _plan_close(self, damage: BlobCorrupt) -> Callable[[], Cycle]:
        """A head that cannot be loaded becomes a body as it is, since damage in a body can be read around."""
        _log.error("partition %d: the head is closed: %s", self._partition.index, damage)
        return lambda: plan_close(self._partition, self._clock())

    def _awaits_timestamps(self) -> bool:
        """Return True if the next cycle waits until timestamps are reserved for its commits."""
        reservation = self._timestamps.prepare(self._clock())
        if reservation is None:
            return False
        self.state = states.ON_COLD_HEAD[self.state]
        self.counters.waiting.start(self._loop.time())
        reservation.add_done_callback(self._reserved)
        return True

    def _reserved(self, reservation: "asyncio.Task[None]") -> None:
        """A cycle waited for timestamps; without any, nothing is stored."""
        self.state = states.ON_LOADED[self.state]
        if self.state == WRITING and not self._timestamps.rule.can_give:
            text = "no commit timestamp is reserved: the system cell takes no writes; retry"
            self.queue.refuse_all(ErrorCode.KAFKA_STORAGE_ERROR, text, self._loop.time())
        self._run()

    def _loaded(self, load: "asyncio.Task[None]") -> None:
        """A cycle waited for the head's content."""
        self.state = states.ON_LOADED[self.state]
        error = None if load.cancelled() else load.exception()
        if isinstance(error, BlobCorrupt):
            self.queue.jobs.insert(0, Job(self._plan_close(error), 0, Outcome()))
        elif isinstance(error, OSError):  # such as no file being left: it may be read later
            text = f"the partition's head cannot be read: {error}"
            self.queue.refuse_all(ErrorCode.KAFKA_STORAGE_ERROR, text, self._loop.time())
        elif error is not None or load.cancelled():
            self.lose()
        self._run()
