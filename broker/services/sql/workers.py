"""The worker processes for SQL, and for rows in Arrow, with the slots of queries and what is counted of them."""

from pqbroker.broker.ground.holder_queue import HolderQueue
from pqbroker.broker.services.sql.counters import SqlCounters
from pqbroker.tables.work.pool import WorkerPool


class Workers(WorkerPool):
    """The node's pool for queries."""

    __slots__ = ("counters", "decodings", "slots")

    def __init__(self) -> None:
        self.counters = SqlCounters()
        super().__init__(self.counters)
        self.slots = HolderQueue(has_reserve=True)
        """Slots of queries that run, or wait for their worker to start."""
        self.decodings = HolderQueue(has_reserve=True)
        """Slots of answers whose records are decoded."""
