"""Bytes that long requests and all answers of a node hold, and what waits for them to become fewer.

phase of an answer    what it holds
in the making         its request, once that is taken apart, and what is encoded so far: `grow`, until `end`
written               what its client has not taken yet: `hold`, until `give_back`
Over the limit nothing grows but small answers, and one at a time that had to wait, so that what is half made comes to
its end: above `bytes_max` is at most one answer. A Fetch takes a small answer's worth of records then.
"""

import asyncio
from collections import deque
from typing import Final

SMALL_ANSWER_BYTES: Final = 64 << 10
"""An answer up to this size waits for nobody."""


class AnswerBudget:
    """Counts the bytes of answers. A holder is whatever stands for one request."""

    __slots__ = ("_favoured", "_making", "_waiting", "bytes_max", "made", "unsent")

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.made = 0
        """Bytes of what is in the making."""
        self.unsent = 0
        """Bytes written that clients have not taken."""
        self._making: dict[object, int] = {}
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._favoured: object | None = None

    @property
    def is_exceeded(self) -> bool:
        return self.made + self.unsent > self.bytes_max

    @property
    def is_short(self) -> bool:
        """Whether something waits."""
        return bool(self._waiting)

    def grow(self, holder: object, size: int) -> None:
        """A request, or the answer to it, takes `size` bytes more."""
        self._making[holder] = self._making.get(holder, 0) + size
        self.made += size

    def held(self, holder: object) -> int:
        """Bytes of a request and its answer while that is in the making."""
        return self._making.get(holder, 0)

    async def room(self, holder: object) -> None:
        """Return when the holder may grow."""
        while self.is_exceeded and self._favoured is not holder:
            if self._favoured is None and self.unsent <= self.bytes_max and holder in self._making:
                self._favoured = holder
                return
            waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(waiting)
            await waiting

    def end(self, holder: object) -> None:
        """The answer is written, or nobody waits for it any more. To be called for each holder; again does nothing."""
        self.made -= self._making.pop(holder, 0)
        if self._favoured is holder:
            self._favoured = None
        self._wake()

    def hold(self, size: int) -> None:
        self.unsent += size

    def give_back(self, size: int) -> None:
        self.unsent -= size
        assert self.unsent >= 0
        self._wake()

    def _wake(self) -> None:
        """Let those who wait look again, in their order."""
        if self._waiting and (not self.is_exceeded or self._favoured is None):
            waiting, self._waiting = self._waiting, deque()
            for each in waiting:
                if not each.done():
                    each.set_result(None)


class Untaken:
    """What one connection has written and its client has not taken; `now` is the loop's time."""

    __slots__ = ("_answers", "_since", "size")

    def __init__(self, answers: AnswerBudget) -> None:
        self._answers = answers
        self._since = 0.0
        self.size = 0

    def become(self, size: int, now: float) -> None:
        before, self.size, self._since = self.size, size, now
        if size > before:
            self._answers.hold(size - before)
        elif size < before:
            self._answers.give_back(before - size)

    def is_stalled(self, size: int, now: float, stall_s: float) -> bool:
        """Whether the client took less than a small answer in `stall_s`; `size` is what it leaves now."""
        if self.size - size >= SMALL_ANSWER_BYTES:
            self.become(size, now)
        return size > 0 and now - self._since >= stall_s
