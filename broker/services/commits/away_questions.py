"""Questions to other nodes about what commits have left, asked beside the looks of `finishing.py`: a look never waits
for another node, and a later one takes the answer."""

import asyncio
from collections.abc import Callable, Coroutine, Hashable, Mapping
from typing import Any, Final

from pqbroker.broker.services.commits.away import AwayNodes, HomeState, HomeWord, PreparedEnds
from pqbroker.pq.transactions.stored_forms import ParticipantId, PreparedHead
from pqbroker.storage.engine import CommitRefused

QUESTIONS_MAX: Final = 100
"""Questions that are under way, or whose answers were not taken yet; what is over it is asked in a later look."""
_UNKNOWN: Final = HomeWord(HomeState.UNKNOWN)


class AwayQuestions:
    """The questions of one opening of the cells. `nodes` None: there is no other node. `wake`: called when an answer
    came by which something can be ended."""

    def __init__(self, nodes: AwayNodes | None, wake: Callable[[], None]) -> None:
        self._nodes = nodes
        self._wake = wake
        self._tasks: dict[Hashable, asyncio.Task[Any]] = {}

    def stop(self) -> None:
        for task in self._tasks.values():
            task.cancel()
        self._tasks.clear()

    def word_of(self, head: PreparedHead) -> HomeWord:
        """Return what the home of prepared rows says; unknown until it has answered."""
        if self._nodes is None:
            return _UNKNOWN
        found: HomeWord | None = self._taken(head, self._ask, self._nodes, head)
        return found or _UNKNOWN

    def are_ended(self, ends: PreparedEnds) -> bool:
        """Return True once all rows elsewhere are ended."""
        if self._nodes is None:
            return False
        found: Mapping[ParticipantId, str] | None = self._taken(ends, self._end, self._nodes, ends)
        return found is not None and not found

    def _taken(self, key: Hashable, ask: Callable[..., Coroutine[Any, Any, Any]], *asked: Any) -> Any:
        """Return the answer to a question, which nobody gets again; None: there is none yet, so it is asked."""
        task = self._tasks.get(key)
        if task is None:
            if len(self._tasks) < QUESTIONS_MAX:
                self._tasks[key] = asyncio.get_running_loop().create_task(ask(*asked))
            return None
        if not task.done():
            return None
        del self._tasks[key]
        return task.result()

    async def _ask(self, nodes: AwayNodes, head: PreparedHead) -> HomeWord:
        try:
            word = await nodes.word_of([head.home], head.transaction)
        except CommitRefused:
            return _UNKNOWN
        if word.state in (HomeState.COMMITTED, HomeState.NEVER):
            self._wake()
        return word

    async def _end(self, nodes: AwayNodes, ends: PreparedEnds) -> Mapping[ParticipantId, str]:
        left = await nodes.finish(ends)
        if not left:
            self._wake()
        return left
