"""The commit timestamps of a node: their reservation, kept ahead of the clock by a row of the scheme.

A write cycle that needs timestamps asks `prepare`. While half of the reservation is left nothing else happens; then the
next one is made behind the commits. Only the first commit after a pause, or after a jump of the clock, waits for it.

A node that has no scheme asks another one for a block of them, in each turn of the loop in which it needs some.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple, Protocol

from pqbroker.pq.log.commit_timestamps import COUNTER_VALUES, CommitTimestamps, milliseconds_of, unreserved
from pqbroker.storage.engine import CommitRefused, ShardLost
from pqbroker.storage.tablets.scheme import AskTimestamps, Scheme

RETRY_MS = 1000
"""After a reservation that failed; values that are reserved are given meanwhile."""

BLOCK_VALUES: Final = 2 * COUNTER_VALUES
"""Timestamps of one block: those of two milliseconds."""
AHEAD_MS_MAX: Final = 30_000
"""Time that timestamps may be ahead of the clock before a question for a block waits."""
_AHEAD_MS: Final = 100
"""Longest such wait of one question."""

_log = logging.getLogger(__name__)
Reserve = Callable[[int], Awaitable[None]]
"""Makes a reservation durable. CommitRefused, ShardLost."""


class Timestamps(Protocol):
    """The timestamps of one opening of a node's cells; `rule` gives them."""

    rule: CommitTimestamps

    def prepare(self, now_ms: int) -> "asyncio.Task[None] | None":
        """Return what a cycle that is planned now has to wait for; None: timestamps are ready."""


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


    async def give_block(self, clock: Callable[[], int], after: int) -> tuple[int, int]:
        """Return a block for another node, which has seen the value `after`: its first value, and the one behind its
        last. CommitRefused."""
        ahead_ms = milliseconds_of(self.rule.last) - clock() - AHEAD_MS_MAX
        if ahead_ms > 0:
            await asyncio.sleep(min(ahead_ms, _AHEAD_MS) / 1000)
        self.rule.saw(after)
        reservation = self.prepare(clock())
        if reservation is not None:
            await asyncio.wait([reservation])
        if not self.rule.has_block(BLOCK_VALUES):
            raise CommitRefused("commit timestamps are not reserved yet; try again")
        first = self.rule.give_block(clock(), BLOCK_VALUES)
        return first, first + BLOCK_VALUES


class BlockTimestamps:
    """Timestamps of a node that asks another one for them. A block serves the callbacks of its question: what is
    planned later may have begun behind a commit of another node, whose timestamp has to be smaller. Without an answer
    none is given."""

    __slots__ = ("_ask", "_asked", "_is_fresh", "_waiting", "rule")

    def __init__(self, ask: AskTimestamps) -> None:
        self._ask = ask
        self._asked: asyncio.Task[None] | None = None
        self._waiting: asyncio.Task[None] | None = None
        """The next question, until it is asked: whatever is planned meanwhile shares it."""
        self._is_fresh = False
        self.rule = CommitTimestamps()

    def prepare(self, now_ms: int) -> "asyncio.Task[None] | None":
        """Return a question that was not asked before this call; None: a block has come in this turn."""
        if self._is_fresh and self.rule.can_give:
            return None
        if self._waiting is None:
            self._waiting = asyncio.get_running_loop().create_task(self._make(self._asked))
        return self._waiting

    async def _make(self, before: "asyncio.Task[None] | None") -> None:
        if before is not None:
            await asyncio.wait([before])
        question = self._asked = self._waiting
        self._waiting = None
        assert question is not None, "this is the question"
        try:
            self.rule.take_block(*await self._ask(self.rule.last))
        except CommitRefused as cause:
            _log.warning("no commit timestamps: %s; what needs one is refused", cause)
        else:
            self._is_fresh = True
            question.add_done_callback(self._age)  # right behind those that wait for it

    def _age(self, _: "asyncio.Task[None]") -> None:
        self._is_fresh = False
        self.rule.drop_block()


class NodeTime(NamedTuple):
    """A node's clock, milliseconds since 1970, and its commit timestamps."""

    clock: Callable[[], int]
    timestamps: Timestamps


def timestamps_by(scheme: Scheme) -> Timestamps:
    """Return the timestamps of a node with this scheme, or with this copy of another one's."""
    if scheme.ask_timestamps is not None:
        return BlockTimestamps(scheme.ask_timestamps)
    return NodeTimestamps(scheme.reserve_timestamps, scheme.timestamps_reserved)


def without_scheme() -> NodeTimestamps:
    """Return timestamps that need no reservation."""

    async def reserve(reserved: int) -> None: ...

    found = NodeTimestamps(reserve, 0)
    found.rule = unreserved()
    return found
