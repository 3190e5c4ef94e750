"""Counters of searches in topics and of the worker processes that run them."""

from pqbroker.storage.counters import Histogram

SEARCHED = "searched"
SEARCH_LEFT = "left"
"""The client went before the end."""
SEARCH_FAILED = "failed"


class SearchCounters:
    """Searches by outcome (`searched`, `left`, `failed`, or the code of a refusal), their seconds, and workers."""

    __slots__ = ("ended", "seconds", "workers_lost", "workers_started")

    def __init__(self) -> None:
        self.ended: dict[str, int] = {}
        self.seconds = Histogram()
        self.workers_started = 0
        self.workers_lost = 0
        """Worker processes that ended by themselves."""

    def count_end(self, outcome: str, seconds: float) -> None:
        """Count a search that has ended."""
        self.ended[outcome] = self.ended.get(outcome, 0) + 1
        self.seconds.observe(seconds)
