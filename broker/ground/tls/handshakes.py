"""TLS handshakes under way, over all listeners of a node: their number and their time are limited.

a connection comes                                     what happens
there is room for it by the rule of conf/shares.py     it stays
else                                                   the oldest one of the address with most is cut, and it stays; one
                                                       whose own address has most gives way itself, if it is the oldest
Steps of handshakes are performed by one thread, address by address: a signature with RSA takes most of a millisecond,
and a flood of handshakes would hold up the requests and handshakes of others.
"""

import asyncio
import logging
from collections import OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, Protocol

from pqbroker.broker.ground.access import ANONYMOUS
from pqbroker.broker.ground.audit import AuditFacts, AuditLog
from pqbroker.broker.ground.seldom_log import SeldomLog
from pqbroker.conf.broker import BrokerSettings
from pqbroker.conf.shares import Shares

seldom = SeldomLog(logging.getLogger(__name__))
OVERDUE_LOOK_PERIOD_S = 0.25
"""Seconds between looks for handshakes whose time is over."""
HANDSHAKE: Final = "HANDSHAKE"
"""Operation of the audit log's lines of handshakes that failed."""

Done = Callable[["asyncio.Future[None]"], None]
"""Called in the loop with a step that was performed."""


class Handshake(Protocol):
    """A connection in its handshake, as this file sees it."""

    @property
    def holder(self) -> str:
        """Return the key of its client (`holder_of`)."""

    @property
    def host(self) -> str:
        """Return the client's address."""

    @property
    def peer_text(self) -> str:
        """Return the client's address and port."""

    @property
    def listener(self) -> str:
        """Return the name of the listener."""

    def cut(self) -> None:
        """Close at once."""


class Handshakes:
    """Handshakes of a node. `settings`: those in force now; `audit`: the log that those that failed get a line of."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, settings: Callable[[], BrokerSettings], audit: AuditLog | None = None
    ) -> None:
        self._audit = audit
        self._loop = loop
        self._settings = settings
        self._under_way: OrderedDict[Handshake, float] = OrderedDict()
        """Loop time at which each began, the earliest first."""
        self._shares = Shares[str]()
        self._thread = ThreadPoolExecutor(1, "pqbroker-handshakes")
        self._steps: OrderedDict[str, deque[tuple[Callable[[], None], Done]]] = OrderedDict()
        """Steps that wait for the thread, by holder: the one that has waited longest is next."""
        self._is_working = False
        self._is_closed = False
        self._look: asyncio.TimerHandle | None = None
        self.made = 0
        self.failed = 0

    @property
    def under_way(self) -> int:
        return len(self._under_way)

    def begin(self, handshake: Handshake) -> None:
        """Count a handshake; others may be cut for its sake."""
        most = self._settings().handshakes_max
        while self._under_way and not self._shares.may_take(most, handshake.holder):
            self._give_way(most)
        self._under_way[handshake] = self._loop.time()
        self._shares.take(handshake.holder)
        if self._look is None:
            self._look = self._loop.call_later(OVERDUE_LOOK_PERIOD_S, self._cut_overdue)

    def end(self, handshake: Handshake) -> bool:
        """Count it no more; False if it was not counted."""
        if self._under_way.pop(handshake, None) is None:
            return False
        self._shares.give_back(handshake.holder)
        return True

    def fail(self, handshake: Handshake, reason: str) -> None:
        """Count, log and audit a handshake that failed."""
        seldom.warning(
            "TLS handshake of %s with listener %s failed: %s", handshake.peer_text, handshake.listener, reason
        )
        self._note_failed(handshake, reason)

    def perform(self, holder: str, step: Callable[[], None], done: Done) -> None:
        """Perform a step of a holder's handshake beside the loop, then call `done` in the loop."""
        if self._is_closed:
            return
        self._steps.setdefault(holder, deque()).append((step, done))
        if not self._is_working:
            self._work()

    def _work(self) -> None:
        """Perform the next step of the holder that has waited longest."""
        self._is_working = bool(self._steps)
        if not self._steps:
            return
        holder, steps = self._steps.popitem(last=False)
        step, done = steps.popleft()
        if steps:
            self._steps[holder] = steps
        worked = self._loop.run_in_executor(self._thread, step)
        worked.add_done_callback(done)
        worked.add_done_callback(lambda _: self._work())

    def close(self) -> None:
        """Cut those under way and end the thread."""
        self._is_closed = True
        for handshake in list(self._under_way):
            handshake.cut()
        if self._look is not None:
            self._look.cancel()
        self._steps.clear()
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _give_way(self, most: int) -> None:
        largest = self._shares.largest()
        oldest = next(each for each in self._under_way if each.holder in largest)
        self._note_failed(oldest, f"cut: {most} are under way, the limit of pqbroker.handshakes.max")
        seldom.warning(
            "TLS handshake of %s cut: %d are under way, the limit of pqbroker.handshakes.max, and its address has most",
            oldest.peer_text, most,
        )  # fmt: skip
        self.end(oldest)
        oldest.cut()

    def _note_failed(self, handshake: Handshake, reason: str) -> None:
        self.failed += 1
        if self._audit is not None:
            on = f"listener {handshake.listener}"
            self._audit.tell(AuditFacts(str(ANONYMOUS), handshake.host, HANDSHAKE, on, is_allowed=False, detail=reason))

    def _cut_overdue(self) -> None:
        limit_s = self._settings().handshake_timeout_ms / 1000
        now = self._loop.time()
        while self._under_way:
            handshake, began_s = next(iter(self._under_way.items()))
            if now - began_s < limit_s:
                break
            self._note_failed(handshake, f"cut: not finished within {limit_s:g} s, pqbroker.handshake.timeout.ms")
            seldom.warning(
                "TLS handshake of %s cut: not finished within %g s, the limit of pqbroker.handshake.timeout.ms",
                handshake.peer_text, limit_s,
            )  # fmt: skip
            self.end(handshake)
            handshake.cut()
        self._look = self._loop.call_later(OVERDUE_LOOK_PERIOD_S, self._cut_overdue) if self._under_way else None
