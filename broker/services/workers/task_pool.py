"""A pool of worker processes for tasks of one kind, with the slots of the tasks and what is counted of them."""

from typing import Final

from pqbroker.broker.ground.holder_queue import HolderQueue
from pqbroker.storage.counters import Histogram
from pqbroker.tables.work.pool import WorkerPool

LEFT: Final = "left"
"""The client went before the end."""
FAILED: Final = "failed"


class TaskCounters:
    """Tasks by outcome (`done`, `left`, `failed`, or the code of a refusal), their seconds, and workers."""

    __slots__ = ("done", "ended", "seconds", "workers_lost", "workers_started")

    def __init__(self, done: str) -> None:
        self.done = done
        """Outcome of a task that was answered to its end."""
        self.ended: dict[str, int] = {}
        self.seconds = Histogram()
        self.workers_started = 0
        self.workers_lost = 0
        """Worker processes that ended by themselves."""

    def count_end(self, outcome: str, seconds: float) -> None:
        """Count a task that has ended."""
        self.ended[outcome] = self.ended.get(outcome, 0) + 1
        self.seconds.observe(seconds)


class TaskPool(WorkerPool):
    """A node's pool for tasks of one kind: each kind has its own, so that none waits for another."""

    __slots__ = ("counters", "slots")

    def __init__(self, done: str) -> None:
        """`done`: what a task that was answered to its end is counted as."""
        self.counters = TaskCounters(done)
        super().__init__(self.counters)
        self.slots = HolderQueue(has_reserve=True)
        """Slots of tasks that run, or wait for their worker to start."""
