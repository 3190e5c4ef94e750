"""Connections that a node keeps: the limit of all, that of each address, and who gives way to one that comes.

a connection comes                                   what happens
its address has max.connections.per.ip               it is refused
there is room for it by the rule of conf/shares.py   it stays
another holder has more connections, it included     one of the holder with most gives way, and it stays
else                                                 one of the holder with most that asks nothing gives way; if
                                                     there is none, it is refused
Connections without a request for longest give way first, those with requests in work last.
"""

from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from pqbroker.conf.addresses import address_counts
from pqbroker.conf.broker import BrokerSettings
from pqbroker.conf.shares import Shares, reserve_of

if TYPE_CHECKING:
    from pqbroker.broker.kafka.net.connection import Connection

IDLE_S: Final = 1.0
"""Seconds without a request after which a connection gives way to one whose holder has equally many."""
_ORDER_S: Final = 1.0
"""Seconds for which the order in which connections give way is kept: sorting ten thousand takes milliseconds."""


class ConnectionLimits:
    """Counts connections by address and by holder. `connections_max`: of the node, now; `clock`: seconds."""

    def __init__(
        self,
        connections_max: Callable[[], int],
        settings: Callable[[], BrokerSettings] | None,
        clock: Callable[[], float],
    ) -> None:
        self._connections_max = connections_max
        self._settings = settings
        self._clock = clock
        self._hosts = Shares[str]()
        self._holders = Shares[str]()
        self._order: deque[tuple[float, Connection]] = deque()
        self._ordered_s = -_ORDER_S

    def count(self, connection: "Connection") -> None:
        self._hosts.take(connection.peer.host)
        self._holders.take(connection.peer.holder)

    def forget(self, connection: "Connection") -> None:
        self._hosts.give_back(connection.peer.host)
        self._holders.give_back(connection.peer.holder)

    def refusal(self, connection: "Connection") -> str | None:
        """Return why a connection that is not counted yet must not stay, even if another gave way; None if it may."""
        host = connection.peer.host
        if self._settings is None:
            return None
        settings = self._settings()
        limit = address_counts(settings.connections_per_ip_overrides).get(host, settings.connections_per_ip_max)
        if self._hosts.of(host) < limit:
            return None
        return (
            f"its address has {limit} connections, the limit of max.connections.per.ip or its overrides: close some, "
            "or raise the limit"
        )

    def has_room(self, connection: "Connection") -> bool:
        """Return True if a connection that is not counted yet may stay without another giving way."""
        return self._holders.may_take(self._connections_max(), connection.peer.holder)

    def full(self, connection: "Connection") -> str:
        """Return why a connection that found no room is refused."""
        size = self._connections_max()
        held = self._holders.of(connection.peer.holder)
        return (
            f"{self._holders.total} connections are open, {held} of its address; max.connections allows {size}, of "
            f"which {reserve_of(size)} are kept for addresses with few: close some, or raise max.connections"
        )

    def gives_way(self, connection: "Connection", others: Iterable["Connection"]) -> "Connection | None":
        """The connection among `others` that gives way to one that is not counted yet."""
        own = self._holders.of(connection.peer.holder)
        now = self._clock()
        if self._order and now - self._ordered_s < _ORDER_S:
            found = self._first_that_may(own, now)
            if found is not None or self._order:
                return found
            # All of them have closed or asked since, so the order says nothing any more.
        self._sort(others, now)
        return self._first_that_may(own, now)

    def _first_that_may(self, own: int, now: float) -> "Connection | None":
        """The first connection in order that may give way to a holder of `own`; those that moved since leave it."""
        order = self._order
        while order:
            active_at, one = order.popleft()
            if not one.is_open or one.active_at != active_at:
                continue
            if self._holders.of(one.peer.holder) > own + 1 or (one.is_idle and now - active_at >= IDLE_S):
                return one
            order.appendleft((active_at, one))
            return None
        return None

    def _sort(self, others: Iterable["Connection"], now: float) -> None:
        largest = self._holders.largest()
        found = [one for one in others if one.peer.holder in largest]
        found.sort(key=lambda one: (not one.is_idle, one.active_at))
        self._order = deque((one.active_at, one) for one in found)
        self._ordered_s = now
