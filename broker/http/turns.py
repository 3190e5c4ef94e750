"""One HTTP connection or request begins in each turn of the loop: many at once must not keep others waiting."""

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial


class Turns:
    """Hands out turns of the loop in the order of the calls."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: deque[Callable[[], object]] = deque()
        self._is_taken = False

    def ask(self, begin: Callable[[], object]) -> None:
        """Call back in a turn of the loop in which nothing else begins: now, or later."""
        if self._is_taken:
            self._waiting.append(begin)
            return
        self._is_taken = True
        self._loop.call_soon(self._end)
        begin()

    async def take(self) -> None:
        """Return when it is this request's turn."""
        turn: asyncio.Future[None] = self._loop.create_future()
        self.ask(partial(_begin, turn))
        if not turn.done():
            await turn

    def _end(self) -> None:
        if not self._waiting:
            self._is_taken = False
            return
        self._waiting.popleft()()
        self._loop.call_soon(self._end)  # runs behind what has begun


def _begin(turn: "asyncio.Future[None]") -> None:
    if not turn.done():  # else the request was cancelled
        turn.set_result(None)
