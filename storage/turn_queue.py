"""Plans and commits of one turn of the loop: plans are made at its end, and its commits go to a store together.

A callback of the loop that runs at the end of a turn would come one turn late for what such a callback asks for; so
plans, the news of a round and the hand-over of what they commit are one call.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence

from pqbroker.storage.engine import Batch, CommitRefused, ShardLost
from pqbroker.storage.outcome import Told

Queued = tuple[Batch, Told]
Failures = Mapping[int, CommitRefused | ShardLost]
"""Errors of commits by their position; the others are durable."""


class TurnQueue:
    """Plans and commits of one shard that wait for the end of the turn. Only the loop thread calls it."""

    __slots__ = ("_commits", "_hand_over", "_is_due", "_loop", "_lost", "_plans")

    def __init__(self, loop: asyncio.AbstractEventLoop, hand_over: Callable[[list[Queued]], None]) -> None:
        self._loop = loop
        self._hand_over = hand_over
        self._plans: deque[Callable[[], None]] = deque()
        self._commits: list[Queued] = []
        self._is_due = False
        """True if `end` runs, or will in the loop's next turn."""
        self._lost: ShardLost | None = None

    def plan(self, plan: Callable[[], None]) -> None:
        """Call `plan` at the end of this turn, when all its requests have come."""
        self._plans.append(plan)
        if not self._is_due:
            self._is_due = True
            self._loop.call_soon(self.end)

    def commit(self, batch: Batch, told: Told) -> None:
        """See `Shard.submit`."""
        if self._lost is not None:
            self._loop.call_soon(told, self._lost)
            return
        self._commits.append((batch, told))
        if not self._is_due:
            self._is_due = True
            self._loop.call_soon(self.end)

    def end(self) -> None:
        """Make the plans, and hand over all commits of the turn. A plan that raises leaves the others alone."""
        self._is_due = True
        plans = self._plans
        try:
            while plans:
                plans.popleft()()
        finally:
            self._is_due = bool(plans)
            if plans:
                self._loop.call_soon(self.end)
            commits = self._commits
            if commits:
                self._commits = []
                self._hand_over(commits)

    def tell(self, commits: Sequence[Queued], failures: Failures) -> None:
        """Tell what became of a round, in order; what is committed thereupon is handed over in this call."""
        self._is_due = True
        position = -1
        try:
            for position, (_, told) in enumerate(commits):
                told(failures.get(position))
        except BaseException:  # one listener's failure is not the others'
            behind = position + 1
            rest = {number - behind: failure for number, failure in failures.items() if number >= behind}
            self._loop.call_soon(self.tell, commits[behind:], rest)
            raise
        finally:
            if self._plans or self._commits:
                self.end()
            else:
                self._is_due = False

    def lose(self, reason: ShardLost, commits: Sequence[Queued]) -> None:
        """Fail these commits, what is not handed over yet, and everything later."""
        self._lost = reason
        lost, self._commits = [*commits, *self._commits], []
        self.tell(lost, dict.fromkeys(range(len(lost)), reason))
