"""Counts of the tablet floor, where requests and blobs pass: plain numbers, read when somebody asks for metrics."""

from bisect import bisect_left
from collections.abc import Sequence

LATENCY_BOUNDS_S = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)


class Histogram:
    """Counts per bucket; bounds in seconds."""

    __slots__ = ("buckets", "total")

    def __init__(self) -> None:
        self.buckets = [0] * (len(LATENCY_BOUNDS_S) + 1)
        self.total = 0.0

    @staticmethod
    def of(buckets: Sequence[int], total: float) -> "Histogram":
        """Return a histogram of counts that were taken elsewhere. ValueError for another number of buckets."""
        made = Histogram()
        if len(buckets) != len(made.buckets):
            raise ValueError(f"a histogram has {len(made.buckets)} buckets, not {len(buckets)}")
        made.buckets, made.total = list(buckets), total
        return made

    def observe(self, seconds: float) -> None:
        self.buckets[bisect_left(LATENCY_BOUNDS_S, seconds)] += 1
        self.total += seconds

    @property
    def count(self) -> int:
        return sum(self.buckets)


class KeyValueCounters:
    """Requests to KV tablets that came to their end; a joint one counts in each of its tablets."""

    __slots__ = ("commands", "failed", "reads", "requests", "written_bytes")

    def __init__(self) -> None:
        self.requests = Histogram()
        """Seconds of requests that became durable, from their plan on."""
        self.commands = 0
        self.written_bytes = 0
        """Rows and blobs of theirs."""
        self.failed = 0
        """Requests that the store refused or lost."""
        self.reads = 0
        """Ranges of values that were read."""


class BlobCounters:
    """BlobStorage of one opening of the cell."""

    __slots__ = ("blocked", "collections", "put_bytes", "puts")

    def __init__(self) -> None:
        self.puts = 0
        self.put_bytes = 0
        self.blocked = 0
        """Puts, commits and collections refused because a later instance of their tablet runs."""
        self.collections = 0
        """CollectGarbage done: barriers moved, garbage behind them deleted."""


class ChannelCounters:
    """One channel of a tablet since its instance started."""

    __slots__ = ("put_bytes", "puts")

    def __init__(self) -> None:
        self.puts = 0
        self.put_bytes = 0
