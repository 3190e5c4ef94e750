"""The open connections of a node: the limit on them, what is known of each, draining."""

import asyncio
import logging
from collections.abc import Callable, Iterator
from itertools import islice
from typing import TYPE_CHECKING

from pqbroker.broker.ground.client_connections import ConnectionFacts
from pqbroker.broker.ground.metrics import Metrics
from pqbroker.broker.ground.seldom_log import SeldomLog
from pqbroker.broker.kafka.net.connection_limits import ConnectionLimits
from pqbroker.broker.kafka.net.costs import MEASURED_S
from pqbroker.conf.broker import BrokerSettings

if TYPE_CHECKING:
    from pqbroker.broker.kafka.net.connection import Connection

log = logging.getLogger(__name__)
seldom = SeldomLog(log)


class Connections:
    """The open connections of a node."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        metrics: Metrics,
        connections_max: Callable[[], int],
        settings: Callable[[], BrokerSettings] | None = None,
        pause_ms: Callable[[str], int] | None = None,
    ) -> None:
        """`settings`: those in force now, for the limits of each address; None: there are no such limits. `pause_ms`:
        counts a connection of an address, and returns for how long it comes too early; None: never."""
        self._loop = loop
        self._metrics = metrics
        self._pause_ms = pause_ms
        self._limits = ConnectionLimits(connections_max, settings, loop.time)
        self._open: dict[Connection, int] = {}
        """Connections with their numbers, which rise and are never reused."""
        self._count = 0
        self._emptied: asyncio.Future[None] | None = None
        self._measured_until = 0.0
        """Time (of the loop) at which costs are measured no longer; 0: they are not."""

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> "Iterator[Connection]":
        """Iterate over the connections open now; they may close meanwhile."""
        return iter(list(self._open))

    def after(self, number: int, count: int) -> list[tuple[int, ConnectionFacts]]:
        """Return facts of at most `count` connections of a greater number, which came later, each with its number."""
        later = ((own, connection) for connection, own in self._open.items() if own > number)
        return [(own, connection.facts()) for own, connection in islice(later, count)]

    def measure(self) -> None:
        """Have every connection count what its requests cost, until nobody has called this for a while."""
        is_new = not self._measured_until
        self._measured_until = self._loop.time() + MEASURED_S
        if is_new:
            self._measure_each(is_wanted=True)
            self._loop.call_at(self._measured_until, self._end_measuring)

    def _end_measuring(self) -> None:
        if self._loop.time() < self._measured_until:
            self._loop.call_at(self._measured_until, self._end_measuring)
            return
        self._measured_until = 0.0
        self._measure_each(is_wanted=False)

    def _measure_each(self, *, is_wanted: bool) -> None:
        for connection in self._open:
            connection.measure(is_wanted=is_wanted)

    def add(self, connection: "Connection") -> bool:
        """Add a connection; False above a limit: it must close. Another one may close for its sake."""
        limits = self._limits
        refusal = limits.refusal(connection)
        pause_ms = 0 if refusal is not None or self._pause_ms is None else self._pause_ms(connection.peer.host)
        if pause_ms:
            refusal = f"its address makes more connections a second than its quota allows; it has to wait {pause_ms} ms"
        if refusal is None and not limits.has_room(connection):
            gives_way = limits.gives_way(connection, self._open)
            if gives_way is None:
                refusal = limits.full(connection)
            else:
                self._metrics.connections_gave_way += 1
                self.remove(gives_way)
                gives_way.give_way()
        if refusal is not None:
            self._metrics.connections_refused += 1
            seldom.warning("connection from %s refused: %s", connection.peer.host, refusal)
            return False
        self._count += 1
        self._open[connection] = self._count
        if self._measured_until:
            connection.measure(is_wanted=True)
        limits.count(connection)
        self._metrics.connections = len(self._open)
        return True

    def remove(self, connection: "Connection") -> None:
        if self._open.pop(connection, None) is not None:
            self._limits.forget(connection)
        self._metrics.connections = len(self._open)
        if not self._open and self._emptied is not None and not self._emptied.done():
            self._emptied.set_result(None)

    def close_lanes(self) -> None:
        """Have the next request of every connection dispatched: what a lane goes by holds no longer."""
        for connection in self:
            connection.peer.lanes.clear()

    def close_idle(self, idle_s: float) -> None:
        since = self._loop.time() - idle_s
        for connection in self:
            connection.close_if_idle_since(since)

    def cut_stalled(self, stall_s: float) -> None:
        """Cut every connection whose peer takes too little of its answers."""
        for connection in self:
            connection.cut_if_stalled(stall_s)

    async def drain(self, timeout_s: float) -> None:
        """Let every connection answer what it has received; abort those that take longer."""
        for connection in self:
            connection.drain()
        if not self._open:
            return
        self._emptied = self._loop.create_future()
        await asyncio.wait([self._emptied], timeout=timeout_s)
        if self._open:
            log.warning("%d connections did not drain in %g s and are cut", len(self._open), timeout_s)
            for connection in self:
                connection.abort()
