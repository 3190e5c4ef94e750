"""An event loop whose time is a number: it stands still while anything runs, then jumps to what is due next.

No thread, no socket and no clock: what runs on it runs the same way every time. Work for threads is done on the loop.
A run has tens of thousands of handles, so what asyncio does for each is done here with fewer calls, in the same order.
"""

import asyncio
import heapq
from asyncio import events
from collections import deque
from collections.abc import Callable
from contextvars import Context, copy_context
from typing import Any

TURNS_MAX = 20_000
"""So many turns of the loop may pass at one moment."""
LATE_S = 1e-6
"""Timers fire a little late, as anywhere: what is due at a millisecond finds that millisecond begun."""
CANCELLED_MIN = 100
"""Timers, cancelled ones among them, from which on those are taken out where they are more than half."""


class Stuck(Exception):
    """Everybody waits and nothing is due: whoever was to wake them has forgotten it. Or somebody never waits."""


class VirtualHandle(events.Handle):
    """A call that is due."""

    __slots__ = ()

    def __init__(
        self, callback: Any, args: Any, loop: asyncio.AbstractEventLoop, context: Context | None = None
    ) -> None:
        self._context = copy_context() if context is None else context
        self._loop = loop
        self._callback = callback
        self._args = args
        self._cancelled = False
        self._repr = self._source_traceback = None


class VirtualTimer(events.TimerHandle):
    """A call that is due at a time."""

    __slots__ = ()

    def __init__(
        self, when: float, callback: Any, args: Any, loop: asyncio.AbstractEventLoop, context: Context | None = None
    ) -> None:
        VirtualHandle.__init__(self, callback, args, loop, context)  # type: ignore[arg-type]
        self._when = when
        self._scheduled = False

    def __lt__(self, other: events.TimerHandle) -> bool:
        return self._when < other._when  # type: ignore[attr-defined, no-any-return]


class VirtualLoop(asyncio.BaseEventLoop):
    """`thread_seconds` says how long each piece of a thread's work takes; `defects` takes what nobody handled."""

    handle_type: type[events.Handle] = VirtualHandle
    timer_type: type[events.TimerHandle] = VirtualTimer
    get_debug = staticmethod(bool)
    _closed: bool
    _ready: deque[Any]
    _scheduled: list[Any]
    _stopping: bool
    _timer_cancelled_count: int

    def __init__(self, thread_seconds: Callable[[], float] = float, defects: list[str] | None = None) -> None:
        super().__init__()
        self._now = 0.0
        self._turns = 0
        self._thread_seconds = thread_seconds
        self.defects = [] if defects is None else defects
        self.set_exception_handler(self._note)

    def time(self) -> float:
        return self._now

    @property
    def timers(self) -> list[asyncio.TimerHandle]:
        """What is due some time, and was not taken back."""
        return [timer for timer in self._scheduled if not timer.cancelled()]

    def call_soon(  # type: ignore[override]
        self, callback: Any, *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        if self._closed:
            raise RuntimeError("Event loop is closed")
        handle = self.handle_type(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Any, *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Any, *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        if self._closed:
            raise RuntimeError("Event loop is closed")
        timer = self.timer_type(when, callback, args, self, context)
        heapq.heappush(self._scheduled, timer)
        timer._scheduled = True  # type: ignore[attr-defined]
        return timer

    def _run_once(self) -> None:
        """Run what is due; where nothing is, it is later. In the order of `BaseEventLoop`."""
        self._drop_cancelled()
        ready, scheduled = self._ready, self._scheduled
        self._pass_time()
        end = self._now + self._clock_resolution  # type: ignore[attr-defined]
        while scheduled and scheduled[0]._when < end:
            timer = heapq.heappop(scheduled)
            timer._scheduled = False
            ready.append(timer)
        for _ in range(len(ready)):
            handle = ready.popleft()
            if not handle._cancelled:
                handle._run()

    def _drop_cancelled(self) -> None:
        scheduled = self._scheduled
        if len(scheduled) > CANCELLED_MIN and self._timer_cancelled_count / len(scheduled) > 0.5:
            for timer in scheduled:
                timer._scheduled = not timer._cancelled
            self._scheduled = [timer for timer in scheduled if timer._scheduled]
            heapq.heapify(self._scheduled)
            self._timer_cancelled_count = 0
            return
        while scheduled and scheduled[0]._cancelled:
            self._timer_cancelled_count -= 1
            heapq.heappop(scheduled)._scheduled = False

    def _pass_time(self) -> None:
        """Have it be the time of what is due next. Stuck."""
        wait_s = 0.0
        if not self._ready and not self._stopping:
            if not self._scheduled:
                raise Stuck(f"nothing is due after {self._now:.3f} s")
            wait_s = max(0.0, self._scheduled[0]._when - self._now)
        self._turns = self._turns + 1 if wait_s == 0 else 0
        if self._turns > TURNS_MAX:
            raise Stuck(f"somebody spins at {self._now:.3f} s")
        if wait_s > 0:
            self._now += wait_s + LATE_S

    def run_in_executor(  # type: ignore[override]
        self, executor: object, func: Callable[..., Any], *args: Any
    ) -> "asyncio.Future[Any]":
        future = self.create_future()
        self.call_later(self._thread_seconds(), self._perform, future, func, args)
        return future

    def _perform(self, future: "asyncio.Future[Any]", func: Callable[..., Any], args: tuple[Any, ...]) -> None:
        if future.cancelled():
            return
        try:
            future.set_result(func(*args))
        except BaseException as error:  # what a thread raises, whoever waits for it gets
            if isinstance(error, KeyboardInterrupt | SystemExit):
                raise
            future.set_exception(error)

    def _note(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Failures that somebody was told of, and had no use for, are no defects; callbacks that fail are."""
        error = context.get("exception")
        if "handle" in context or isinstance(error, AssertionError):
            self.defects.append(f"{context['message']}: {error!r}")

    def _write_to_self(self) -> None:
        """Nobody sleeps in a selector, so nobody need be woken."""
