"""Events of the last seconds that a look shows: counters that have risen, rounds that were slow, jumps of the clock.

Pure but for reading the node's counters: `now_s` is a monotonic clock's time.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from pqbroker.broker.services.health.callers import HealthyNode
from pqbroker.storage.engine import BlobKey

REFUSALS_SHOWN_S: Final = 10.0
"""Seconds for which a refusal is shown."""
SLOW_ROUNDS_SHOWN_S: Final = 10.0
LOST_WORKERS_SHOWN_S: Final = 60.0
LOST_WORKERS_MIN: Final = 3
"""Workers that end within a minute from which they count as failing: one that a query has killed is no condition."""
CLOCK_JUMP_S: Final = 60.0
"""Difference of the clocks between two looks that counts as a jump."""
CLOCK_JUMP_SHOWN_S: Final = 600.0


class _Risen:
    """Rise of a counter within a span of seconds."""

    def __init__(self, span_s: float) -> None:
        self._span_s = span_s
        self._seen: deque[tuple[float, int]] = deque()
        self._last = 0

    def take(self, value: int, now_s: float) -> int:
        """Return by how much the counter has risen within the span up to now."""
        if value != self._last:
            self._seen.append((now_s, max(value - self._last, 0)))
            self._last = value
        while self._seen and self._seen[0][0] < now_s - self._span_s:
            self._seen.popleft()
        return sum(rise for _, rise in self._seen)


class Recent:
    """Events that are shown for some time after they have happened. `look` once a look, before symptoms are made."""

    def __init__(self) -> None:
        self.refused_connections = 0
        self.refused_calls = 0
        self.lost_workers: Mapping[str, int] = {}
        """Processes lost within a minute, by what they are for, where there are enough of them."""
        self.slow_rounds: dict[str, float] = {}
        """Seconds of the slowest round of the last seconds, by cell, where one was slow."""
        self.damaged_blobs: dict[str, Mapping[BlobKey, str]] = {}
        """Blobs that reads found damaged and that are still there, with what is wrong, by cell."""
        self.clock_jump_s = 0.0
        """Seconds by which the clock jumped, forward or back; 0: it did not."""
        self.seconds_since_retention = 0.0
        """Seconds since the last look for expired records has ended, or since the start."""
        self._retained: tuple[float, int] | None = None
        self._connections = _Risen(REFUSALS_SHOWN_S)
        self._calls = _Risen(REFUSALS_SHOWN_S)
        self._workers: dict[str, _Risen] = {}
        self._slow_until: dict[str, float] = {}
        self._clocks: tuple[float, int] | None = None
        self._jump_until = 0.0

    def look(self, node: HealthyNode, slow_s: float, now_s: float) -> None:
        """Take the counters of the node; rounds of `slow_s` seconds are slow."""
        metrics = node.metrics
        self.refused_connections = self._connections.take(
            metrics.connections_refused + metrics.connections_gave_way, now_s
        )
        self.refused_calls = self._calls.take(metrics.http_refused, now_s)
        self._look_at_workers(_lost_workers(node), now_s)
        rounds = ((f"cell {cell}", host.cell.round_seconds) for cell, host in node.cell.current.cells.hosts())
        self._look_at_rounds(rounds, slow_s, now_s)
        self._look_at_clock(node.clock, now_s)
        if self._retained is None or self._retained[1] != node.cell.retentions:
            self._retained = (now_s, node.cell.retentions)
        self.seconds_since_retention = now_s - self._retained[0]

    def _look_at_workers(self, counted: Iterable[tuple[str, int]], now_s: float) -> None:
        risen = {
            kind: self._workers.setdefault(kind, _Risen(LOST_WORKERS_SHOWN_S)).take(lost, now_s)
            for kind, lost in counted
        }
        self.lost_workers = {kind: lost for kind, lost in risen.items() if lost >= LOST_WORKERS_MIN}

    def _look_at_rounds(self, rounds: Iterable[tuple[str, float]], slow_s: float, now_s: float) -> None:
        for place, seconds in rounds:
            if seconds >= slow_s:
                self.slow_rounds[place] = max(seconds, self.slow_rounds.get(place, 0.0))
                self._slow_until[place] = now_s + SLOW_ROUNDS_SHOWN_S
        for place in [place for place, until_s in self._slow_until.items() if until_s < now_s]:
            del self._slow_until[place], self.slow_rounds[place]

    def _look_at_clock(self, clock: Callable[[], int], now_s: float) -> None:
        now_ms = clock()
        if self._clocks is not None:
            before_s, before_ms = self._clocks
            jump_s = (now_ms - before_ms) / 1000 - (now_s - before_s)
            if abs(jump_s) >= CLOCK_JUMP_S:
                self.clock_jump_s, self._jump_until = jump_s, now_s + CLOCK_JUMP_SHOWN_S
        self._clocks = (now_s, now_ms)
        if now_s > self._jump_until:
            self.clock_jump_s = 0.0


def _lost_workers(node: HealthyNode) -> Iterable[tuple[str, int]]:
    yield "SQL queries", node.workers.counters.workers_lost
    yield "searches in topics", node.searchers.counters.workers_lost
    yield "sorted tables", node.cell.current.sorted_tables.share.counters.workers_lost
    yield "the cleaner", node.cleaner.counters.workers_lost
