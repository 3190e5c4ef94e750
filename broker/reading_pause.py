"""A client that was told to wait is not read from until then, whether it obeys or not (KIP-219)."""

import asyncio
from collections.abc import Callable


class ReadingPause:
    """On or over; `when_over` is called at its end."""

    __slots__ = ("_loop", "_timer", "_when_over")

    def __init__(self, loop: asyncio.AbstractEventLoop, when_over: Callable[[], None]) -> None:
        self._loop = loop
        self._timer: asyncio.TimerHandle | None = None
        self._when_over = when_over

    @property
    def is_on(self) -> bool:
        return self._timer is not None

    def lengthen(self, pause_ms: int) -> None:
        """Last so long from now on, or longer where that was said before."""
        until = self._loop.time() + pause_ms / 1000
        if self._timer is None or self._timer.when() < until:
            self.cancel()
            self._timer = self._loop.call_at(until, self._end)

    def cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _end(self) -> None:
        self._timer = None
        self._when_over()
