"""The commit timestamps of a node: their reservation, kept ahead of the clock by a row of the scheme.

A write cycle that needs timestamps asks `prepare`. While half of the reservation is left nothing else happens; then the
next one is made behind the commits. Only the first commit after a pause, or after a jump of the clock, waits for it.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from pqbroker.pq.log.commit_timestamps import CommitTimestamps, unreserved
from pqbroker.storage.engine import CommitRefused, ShardLost

RETRY_MS = 1000
"""After a reservation that failed; values that are reserved are given meanwhile."""

_log = logging.getLogger(__name__)
Reserve = Callable[[int], Awaitable[None]]
"""Makes a reservation durable. CommitRefused, ShardLost."""


class NodeTimestamps:
    """The timestamps of one opening of the node's cells; `rule` gives them."""

    __slots__ = ("_reserve", "_retry_ms", "_task", "rule")

    def __init__(self, reserve: Reserve, reserved: int) -> None:
        """`reserved`: what is durable; all that was given before lies below."""
        self._reserve = reserve
        self._task: asyncio.Task[None] | None = None
        self._retry_ms = -RETRY_MS
        self.rule = CommitTimestamps(reserved)

    def prepare(self, now_ms: int) -> "asyncio.Task[None] | None":
        """Return what a cycle that is planned now has to wait for: a reservation; None: timestamps are ready."""
        wanted = self.rule.wanted(now_ms)
        if wanted is None:
            return None
        if self._task is None:
            if self.rule.can_give and abs(now_ms - self._retry_ms) < RETRY_MS:
                return None
            self._task = asyncio.get_running_loop().create_task(self._make(wanted, now_ms))
        return None if self.rule.is_reserved(now_ms) else self._task

    async def _make(self, wanted: int, now_ms: int) -> None:
        try:
            await self._reserve(wanted)
            self.rule.take_reservation(wanted)
        except (CommitRefused, ShardLost) as cause:
            self._retry_ms = now_ms
            _log.warning("commit timestamps are not reserved: %s; commits go on while earlier ones are left", cause)
        finally:
            self._task = None


class NodeTime(NamedTuple):
    """A node's clock, milliseconds since 1970, and its commit timestamps."""

    clock: Callable[[], int]
    timestamps: NodeTimestamps


def without_scheme() -> NodeTimestamps:
    """Return timestamps that need no reservation."""

    async def reserve(reserved: int) -> None: ...

    found = NodeTimestamps(reserve, 0)
    found.rule = unreserved()
    return found
