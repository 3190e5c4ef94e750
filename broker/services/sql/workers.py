"""The worker processes for SQL, and for rows in Arrow, with the slots of queries and what is counted of them."""

from pqbroker.broker.ground.holder_queue import HolderQueue
from pqbroker.broker.services.sql.least_times import LeastTimes
from pqbroker.broker.services.workers.task_pool import TaskPool


class Workers(TaskPool):
    """The node's pool for queries."""

    __slots__ = ("decodings", "least_times")

    def __init__(self) -> None:
        super().__init__("answered")
        self.least_times = LeastTimes()
        self.decodings = HolderQueue(has_reserve=True)
        """Slots of answers whose records are decoded."""
