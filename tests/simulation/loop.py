"""An event loop whose time is a number: it stands still while anything runs, then jumps to what is due next.

No thread, no socket and no clock: what runs on it runs the same way every time. Work for threads is done on the loop.
"""

import asyncio
from collections.abc import Callable
from typing import Any

TURNS_MAX = 20_000
"""So many turns of the loop may pass at one moment."""
LATE_S = 1e-6
"""Timers fire a little late, as anywhere: what is due at a millisecond finds that millisecond begun."""


class Stuck(Exception):
    """Everybody waits and nothing is due: whoever was to wake them has forgotten it. Or somebody never waits."""


class VirtualLoop(asyncio.BaseEventLoop):
    """`thread_seconds` says how long each piece of a thread's work takes."""

    def __init__(self, thread_seconds: Callable[[], float] = float) -> None:
        super().__init__()
        self._now = 0.0
        self._turns = 0
        self._thread_seconds = thread_seconds
        self._selector = self
        self.defects: list[str] = []
        """Exceptions that nobody handled, as texts."""
        self.set_exception_handler(self._note)

    def time(self) -> float:
        return self._now

    @property
    def timers(self) -> list[asyncio.TimerHandle]:
        """What is due some time, and was not taken back."""
        return [timer for timer in self._scheduled if not timer.cancelled()]  # type: ignore[attr-defined]

    def select(self, timeout: float | None) -> list[Any]:
        """As a selector without files: waiting makes it later."""
        if timeout is None:
            raise Stuck(f"nothing is due after {self._now:.3f} s")
        self._turns = self._turns + 1 if timeout == 0 else 0
        if self._turns > TURNS_MAX:
            raise Stuck(f"somebody spins at {self._now:.3f} s")
        if timeout > 0:
            self._now += timeout + LATE_S
        return []

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

    def _process_events(self, events: list[Any]) -> None:
        assert not events

    def _write_to_self(self) -> None:
        """Nobody sleeps in a selector, so nobody need be woken."""
