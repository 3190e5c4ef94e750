"""Turns of the event loop: long work has slices of it, and of what comes in floods one thing begins in each.

state of long work    what happens
in its slice          continues until the slice ends; all that begins in one turn of the loop shares one slice
waiting               each turn that follows goes to one, in the order in which they began to wait
What begins alone (`begin`, `alone`: HTTP requests) waits in the same queue, unless it is the first of its turn.
Calls by the thousand (`call_soon`: Fetches that one commit wakes) have a queue and slices of their own.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Generator
from functools import partial
from time import perf_counter
from typing import Any, TypeVar

T = TypeVar("T")

SLICE_S = 0.004
"""Seconds that work may keep the loop before everything else has its turn."""


class Turns:
    """The turns of one event loop. `clock`: seconds."""

    __slots__ = ("_calls", "_is_calling", "_is_planned", "_is_taken", "_loop", "_slice_end", "_waiting", "clock")

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Callable[[], float] = perf_counter) -> None:
        self._loop = loop
        self.clock = clock
        self._waiting: deque[Callable[[], bool]] = deque()
        """Each is given a turn; False when nobody needs it any more."""
        self._calls: deque[Callable[[], object]] = deque()
        self._is_calling = False
        """True if a turn is planned for calls."""
        self._slice_end = 0.0
        self._is_planned = False
        """True if the slice belongs to this turn of the loop."""
        self._is_taken = False
        """True if something has begun alone in this turn."""

    def slice_end(self) -> float:
        """Return until when (by `clock`) work may continue in this turn."""
        if not self._is_planned:
            self._begin_slice()
        return self._slice_end

    async def turn(self) -> None:
        """Wait for a slice in a later turn."""
        turn: asyncio.Future[None] = self._loop.create_future()
        self._waiting.append(partial(_give, turn))
        self._plan()
        await turn
        self._begin_slice()

    def begin(self, start: Callable[[], object]) -> None:
        """Call `start` in a turn in which nothing else begins alone: now, or later."""
        if self._is_taken or self._waiting:
            self._waiting.append(partial(self._begin, start))
            self._plan()
        else:
            self._begin(start)

    async def alone(self) -> None:
        """Return in a turn in which nothing else begins alone."""
        if not self._is_taken and not self._waiting:
            self._is_taken = True
            self._begin_slice()
            return
        turn: asyncio.Future[None] = self._loop.create_future()
        self.begin(partial(_give, turn))
        await turn

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

    def call_soon(self, call: Callable[[], object]) -> None:
        """Call in the next turn of the loop; what a slice has no time for in the turns that follow, in order."""
        self._calls.append(call)
        if not self._is_calling:
            self._is_calling = True
            self._loop.call_soon(self._call)

    def _call(self) -> None:
        calls, end = self._calls, self.clock() + SLICE_S
        try:
            for _ in range(len(calls)):
                calls.popleft()()
                if self.clock() >= end:
                    break
        finally:
            self._is_calling = bool(calls)
            if calls:
                self._loop.call_soon(self._call)

    def _begin_slice(self) -> None:
        self._slice_end = self.clock() + SLICE_S
        self._plan()

    def _plan(self) -> None:
        if not self._is_planned:
            self._is_planned = True
            self._loop.call_soon(self._next_turn)

    def _next_turn(self) -> None:
        self._is_planned = False
        self._is_taken = False
        while self._waiting:
            if self._waiting.popleft()():
                break
        if self._waiting:
            self._plan()

    def _begin(self, start: Callable[[], object]) -> bool:
        self._is_taken = True
        self._begin_slice()
        return start() is not False


def _give(turn: "asyncio.Future[None]") -> bool:
    """False: the waiting task was cancelled."""
    if turn.done():
        return False
    turn.set_result(None)
    return True
