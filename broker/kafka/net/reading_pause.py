"""A client that has to wait is not read from until then, whether it waits or not (KIP-219)."""

import asyncio
from collections.abc import Callable


class ReadingPause:
    """`is_on`: until it is over, nothing is to be read."""

    __slots__ = ("_loop", "_timer", "_until", "is_on")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._timer: asyncio.Handle | None = None
        self._until = 0.0
        """Loop time at which the timer is due. A timer of uvloop that is due at once does not know it (see its
        `call_at`)."""
        self.is_on = False

    def lengthen(self, pause_ms: int, when_over: Callable[[], None]) -> None:
        """Pause for `pause_ms` from now on, unless a longer pause is on; then call `when_over`."""
        until = self._loop.time() + pause_ms / 1000
        if self._timer is None or self._until < until:
            self.cancel()
            self._until = until
            self._timer = self._loop.call_at(until, self._end, when_over)
            self.is_on = True

    def cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self.is_on = False

    def _end(self, when_over: Callable[[], None]) -> None:
        self._timer = None
        self.is_on = False
        when_over()
