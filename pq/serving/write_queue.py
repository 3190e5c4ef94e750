"""Queue for the write cycles of one partition: batches in the order they came, with how many bytes are in flight (A.8),
and jobs, each a cycle of its own.

A batch larger than the whole limit is not counted by it: it waits in line like any other, what comes behind waits for
it, and nothing is refused on its account. What all of these take is bounded by pqbroker.inflight.bytes.max.
"""

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from pqbroker.pq.counters import WriteCounters
from pqbroker.pq.log.producers import Producers
from pqbroker.pq.log.row_facts import Weighed
from pqbroker.pq.log.write_cycle import Cycle, Written
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.protocol.records import BatchHeader
from pqbroker.storage.outcome import Outcome

Answered = Callable[[Written | BaseException], object]
"""Called once with what became of a batch: durable, or why it is not stored."""
Write = tuple[memoryview, BatchHeader, Answered, Weighed]
"""The weights of its rows, where they are kept."""


class Job(NamedTuple):
    """A cycle to plan. `size`: bytes of batches that it puts behind the head, for which the head may have to be in
    memory."""

    plan: Callable[[], Cycle] | None
    """None: prepared rows wait for the decision of their transaction, and all behind them waits too."""
    size: int
    outcome: Outcome[None]
    decided_bytes: int = 0
    """Bytes as in `size`, of rows that are committed: neither limits nor a full disk refuse them."""
    doubt: Callable[[], KafkaError] | None = None
    """Gives the error that refuses all behind prepared rows whose decision may take long; None: it comes soon."""


class WriteQueue:
    """The writer, which alone changes it, adds to `items`, `bytes` and `in_flight_bytes` itself: that is a Produce."""

    __slots__ = ("_counters", "_producers", "bytes", "in_flight_bytes", "items", "jobs", "long_bytes")

    def __init__(self, producers: Producers, counters: WriteCounters) -> None:
        self._producers = producers
        self._counters = counters
        self.items: deque[Write] = deque()
        self.jobs: list[Job] = []
        self.bytes = 0
        self.in_flight_bytes = 0
        """Bytes of batches that are not durable yet: those that wait and the cycle's."""
        self.long_bytes = 0
        """Bytes in flight that belong to batches over the limit."""

    def __len__(self) -> int:
        return len(self.items)

    def count_long(self, bytes_max: int) -> None:
        """Count the long batches after a cycle has ended, when only waiting ones are in flight. `bytes_max`: the
        limit."""
        self.long_bytes = sum(len(item[0]) for item in self.items if len(item[0]) > bytes_max)

    def take(self, bytes_max: int) -> list[Write]:
        """The batches of one cycle, from the front: at least one, at most `bytes_max`."""
        items = self.items
        taken = [items.popleft()]
        size = len(taken[0][0])
        while items and size + len(items[0][0]) <= bytes_max:
            item = items.popleft()
            size += len(item[0])
            taken.append(item)
        self.bytes -= size
        return taken

    def refuse(self, header: BatchHeader, answered: Answered, code: ErrorCode, message: str) -> None:
        """Refuse a batch that will come again; while it does not, nothing behind it may be stored."""
        self._producers.refuse(header.producer_id, header.producer_epoch, header.base_sequence)
        self._counters.count_error(code)
        answered(KafkaError(code, message))

    def refuse_all(self, code: ErrorCode, message: str, now_s: float) -> None:
        """Refuse every batch that waits, jobs that write some included; they will come again."""
        self.refuse_jobs(KafkaError(code, message), with_batches=True)
        self._counters.waiting.stop(now_s)
        for _, header, answered, _ in self.take_all():
            self.refuse(header, answered, code, message)

    def refuse_jobs(self, error: KafkaError, *, with_batches: bool = False) -> None:
        """All jobs, or those alone that write batches."""
        jobs = self.jobs
        self.jobs = [job for job in jobs if with_batches and not (job.size or job.decided_bytes)]
        for job in jobs:
            if job not in self.jobs:
                job.outcome.set_exception(error)

    def keep_out(self, doubt: Callable[[], KafkaError] | None) -> None:
        """Let nothing be begun any more before the decision about prepared rows."""
        self.jobs.insert(0, Job(None, 0, Outcome(), 0, doubt))

    @property
    def is_kept_out(self) -> bool:
        """Return True while prepared rows wait for the decision of their transaction."""
        return any(job.plan is None for job in self.jobs)

    def decide(self, job: Job) -> None:
        """Put a job in the place of the prepared rows that are decided about."""
        number = next(number for number, waiting in enumerate(self.jobs) if waiting.plan is None)
        self.jobs[number] = job

    def refuse_behind(self, refusal: KafkaError, now_s: float) -> None:
        """Refuse all that waits behind the prepared rows."""
        first, behind = self.jobs[0], self.jobs[1:]
        self.jobs = [first]
        for job in behind:
            job.outcome.set_exception(refusal)
        self.refuse_all(refusal.code, refusal.message, now_s)

    def take_all(self) -> list[Write]:
        taken = list(self.items)
        self.items.clear()
        self.bytes = 0
        return taken
