"""The worker processes for searches in topics, with the slots of searches and what is counted of them."""

from pqbroker.broker.ground.holder_queue import HolderQueue
from pqbroker.broker.services.search.counters import SearchCounters
from pqbroker.tables.work.pool import WorkerPool


class Searchers(WorkerPool):
    """The node's pool for searches: apart from that for SQL, so that neither waits for the other."""

    __slots__ = ("counters", "slots")

    def __init__(self) -> None:
        self.counters = SearchCounters()
        super().__init__(self.counters)
        self.slots = HolderQueue(has_reserve=True)
        """Slots of searches that run, or wait for their worker to start."""
