"""Checks of passwords: milliseconds of computation each, so one thread runs them, and few wait for it.

Each that waits has a key, an address and a user: keys take turns, and share the queue by conf/shares.py. Behind a wrong
one the thread rests for as long as that computed: a flood of wrong passwords takes half a core from others, not more.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from time import monotonic, sleep, thread_time
from typing import Any, Final, NamedTuple, TypeVar

from pqbroker.conf.shares import Shares

T = TypeVar("T")
_THREAD: Final = "password-checks"


class TooManyChecks(Exception):
    """The queue has no room for the caller's share: the same password may be right a moment later."""


class CheckKey(NamedTuple):
    """Key of a caller: its address, and the known user that it names, else nothing."""

    address: str
    user: str


class _WaitingCheck(NamedTuple):
    done: "asyncio.Future[Any]"
    work: Callable[[], Any]


class PasswordChecks:
    """One thread, and the queue before it. The thread begins with the first check."""

    def __init__(self, loop: asyncio.AbstractEventLoop, checks_max: Callable[[], int]) -> None:
        self._loop = loop
        self._checks_max = checks_max
        self._queues: dict[CheckKey, deque[_WaitingCheck]] = {}
        """Checks that wait, by key; the key whose turn is next stands first."""
        self._shares = Shares[CheckKey]()
        self._thread: ThreadPoolExecutor | None = None
        self._is_running = False
        self._rested_s = 0.0
        """Time (`monotonic`) at which the thread has rested enough. Of the thread alone."""

    async def run(self, key: CheckKey, work: Callable[[], T]) -> T:
        """Return what `work` returns in the thread. TooManyChecks."""
        if not self._shares.may_take(self._checks_max(), key):
            raise TooManyChecks
        waiting = _WaitingCheck(self._loop.create_future(), work)
        self._shares.take(key)
        self._queues.setdefault(key, deque()).append(waiting)
        if not self._is_running:
            self._begin_next()
        try:
            result: T = await waiting.done
            return result
        finally:
            self._shares.give_back(key)

    def close(self) -> None:
        """End the thread behind the check that it runs."""
        if self._thread is not None:
            self._thread.shutdown(wait=False, cancel_futures=True)

    def _begin_next(self) -> None:
        waiting = self._next()
        self._is_running = waiting is not None
        if waiting is None:
            return
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, _THREAD)
        self._thread.submit(self._compute, waiting.work).add_done_callback(partial(self._hand_back, waiting))

    def _next(self) -> _WaitingCheck | None:
        """Take the first that still waits, of the key whose turn it is."""
        while self._queues:
            key = next(iter(self._queues))
            queue = self._queues.pop(key)
            waiting = queue.popleft()
            if queue:
                self._queues[key] = queue
            if not waiting.done.done():
                return waiting
        return None

    def _compute(self, work: Callable[[], T]) -> T:
        """Run a check, in the thread. One that is wrong returns what is false, or raises."""
        left_s = self._rested_s - monotonic()
        if left_s > 0:
            sleep(left_s)
        began_s, found = thread_time(), None
        try:
            found = work()
            return found
        finally:
            if not found:
                self._rested_s = monotonic() + thread_time() - began_s

    def _hand_back(self, waiting: _WaitingCheck, ran: "Future[Any]") -> None:
        """Runs in the thread. A future of asyncio's in between would cost the loop as much as the rest of a check."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._end, waiting, ran)

    def _end(self, waiting: _WaitingCheck, ran: "Future[Any]") -> None:
        if not waiting.done.done() and not ran.cancelled():
            error = ran.exception()
            if error is None:
                waiting.done.set_result(ran.result())
            else:
                waiting.done.set_exception(error)
        self._begin_next()
