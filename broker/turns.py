"""Long work in slices, so that the event loop serves others between them. Nothing here knows what the work is.

state of long work    what happens
in its slice          goes on until the slice ends; all that begins in one turn of the loop shares one slice
waiting               each turn that follows gives a slice to one, in the order in which they began to wait
"""

import asyncio
from collections import deque
from collections.abc import Callable, Generator
from time import perf_counter
from typing import Any, TypeVar

T = TypeVar("T")

SLICE_S = 0.004
"""How long work may keep the loop before everything else has its turn."""


class Turns:
    """The turns of one event loop. `clock`: seconds."""

    __slots__ = ("_is_planned", "_loop", "_slice_end", "_waiting", "clock")

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Callable[[], float] = perf_counter) -> None:
        self._loop = loop
        self.clock = clock
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._slice_end = 0.0
        self._is_planned = False
        """Whether the slice belongs to this turn of the loop."""

    def slice_end(self) -> float:
        """Until when (by `clock`) work may go on in this turn."""
        if not self._is_planned:
            self._begin_slice()
        return self._slice_end

    async def turn(self) -> None:
        """Wait for a slice in a later turn."""
        turn: asyncio.Future[None] = self._loop.create_future()
        self._waiting.append(turn)
        self._plan()
        await turn
        self._begin_slice()

    async def breathe(self) -> None:
        """Wait for a later turn if the slice is over; to be awaited between the entries of a request."""
        if self.clock() >= self.slice_end():
            await self.turn()

    async def finish(self, work: Generator[Any, None, T]) -> T:
        """Run a generator to its end, in slices; returns what it returns."""
        try:
            while True:
                end = self.slice_end()
                next(work)
                while self.clock() < end:
                    next(work)
                await self.turn()
        except StopIteration as done:
            result: T = done.value
            return result

    def _begin_slice(self) -> None:
        self._slice_end = self.clock() + SLICE_S
        self._plan()

    def _plan(self) -> None:
        if not self._is_planned:
            self._is_planned = True
            self._loop.call_soon(self._next_turn)

    def _next_turn(self) -> None:
        self._is_planned = False
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                break
        if self._waiting:
            self._plan()
