"""Bytes that long requests and all answers of a node hold, and what waits for them to become fewer.

phase of an answer    what it holds
in the making         its request, once that is taken apart, and what is encoded so far: `grow`, until `end`
written               what its client has not taken yet: `Untaken`
The bytes are one pool, which holders of connections share by the rule of conf/shares.py: all but the reserve may be
one holder's, and from the reserve each may take its first MiB. For a holder without room nothing grows but small
answers, and one request at a time of all that had to wait, so that what is half made comes to its end: above
`bytes_max` is at most one answer, or one batch of records. A Fetch takes as much as its holder has room for, or a small
answer's worth of records.

While somebody waits, connections whose clients took no byte for `UNTAKEN_S` are cut until there is room: the largest
holder's first.
"""

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

from pqbroker.conf.shares import Shares, reserve_of

SMALL_ANSWER_BYTES: Final = 64 << 10
"""An answer up to this size waits for nobody."""
FIRST_BYTES: Final = 1 << 20
"""A holder's first part, which it may take from the reserve."""
UNTAKEN_S: Final = 1.0
"""Seconds without a byte taken after which a connection is cut for those who wait."""
UNTAKEN_LOOK_S: Final = 0.25
"""While somebody waits, connections are looked at this often."""


class Reader(Protocol):
    """A connection whose client has not taken all that it was sent."""

    def unsent(self) -> tuple[int, int]:
        """Bytes in memory that are not sent, and all bytes that are not: those in files among them."""

    def cut_for_others(self) -> None:
        """Cut the connection, which lets go what it holds."""


class AnswerBudget:
    """Counts the bytes of answers. `request` is whatever stands for one; `holder` the key of its client's shares."""

    __slots__ = (
        "_clock", "_favoured", "_first", "_look", "_looked_s", "_making", "_open", "_shares", "_untaken", "_waiting",
        "bytes_max", "free", "made", "unsent",
    )  # fmt: skip

    def __init__(self, bytes_max: int, clock: Callable[[], float]) -> None:
        """`clock`: seconds."""
        self.bytes_max = bytes_max
        self._clock = clock
        self._open = bytes_max - reserve_of(bytes_max)
        self._first = min(FIRST_BYTES, reserve_of(bytes_max))
        self.free = self._open
        """Bytes that any holder may take; negative when the reserve is in use."""
        self.made = 0
        """Bytes of what is in the making."""
        self.unsent = 0
        """Bytes written that clients have not taken."""
        self._shares = Shares[str]()
        self._making: dict[object, tuple[str, int]] = {}
        self._waiting: dict[asyncio.Future[None], str] = {}
        self._favoured: object | None = None
        self._untaken: dict[Untaken, None] = {}
        self._look: asyncio.TimerHandle | None = None
        self._looked_s = -UNTAKEN_LOOK_S

    @property
    def is_exceeded(self) -> bool:
        """Return True if only the reserve is left, or less."""
        return self.free <= 0

    def left_to(self, holder: str) -> int:
        """Bytes that a holder may take now; 0 or less: none. What is taken at once may be more than that."""
        free = self.free
        if free > 0:
            return free
        return min(self.bytes_max - self._shares.total, self._first - self._shares.of(holder))

    def grow(self, request: object, holder: str, size: int) -> None:
        """A request, or the answer to it, takes `size` bytes more."""
        _, before = self._making.get(request, (holder, 0))
        self._making[request] = (holder, before + size)
        self.made += size
        self._count(holder, size)

    def held(self, request: object) -> int:
        """Bytes of a request and its answer while that is in the making."""
        return self._making.get(request, ("", 0))[1]

    async def room(self, request: object, holder: str) -> None:
        """Return when the request may grow."""
        while self.left_to(holder) <= 0 and self._favoured is not request:
            if self._favoured is None and self.unsent <= self.bytes_max and request in self._making:
                self._favoured = request
                return
            if self._make_room(holder):
                return
            loop = asyncio.get_running_loop()
            waiting: asyncio.Future[None] = loop.create_future()
            self._waiting[waiting] = holder
            if self._look is None:
                self._look = loop.call_later(UNTAKEN_LOOK_S, self._look_again, loop)
            try:
                await waiting
            finally:
                self._waiting.pop(waiting, None)

    def end(self, request: object) -> None:
        """Give back the bytes of a request whose answer is written or not awaited any more. Must be called for each
        request; a second call does nothing."""
        holder, size = self._making.pop(request, ("", 0))
        self.made -= size
        if self._favoured is request:
            self._favoured = None
        if size:
            self._count(holder, -size)
        self._wake()

    def hold(self, untaken: "Untaken", size: int) -> None:
        """Count `size` bytes more that a client has not taken."""
        self._untaken[untaken] = None
        self.unsent += size
        self._count(untaken.holder, size)

    def give_back(self, untaken: "Untaken", size: int) -> None:
        if not untaken.size:
            self._untaken.pop(untaken, None)
        self.unsent -= size
        assert self.unsent >= 0
        self._count(untaken.holder, -size)
        self._wake()

    def look(self) -> None:
        """Notice which clients have taken something since the last look."""
        now = self._clock()
        for each in tuple(self._untaken):
            each.look(now)

    def _count(self, holder: str, size: int) -> None:
        if size > 0:
            self._shares.take(holder, size)
        elif size < 0:
            self._shares.give_back(holder, -size)
        self.free = self._open - self._shares.total

    def _make_room(self, holder: str) -> bool:
        """Cut what clients do not take until the holder may take something; False when that is not enough."""
        now, of = self._clock(), self._shares.of
        if now - self._looked_s < UNTAKEN_LOOK_S / 2:
            return False
        self._looked_s = now
        self.look()
        idle = [each for each in self._untaken if now - each.moved_s >= UNTAKEN_S]
        while idle and self.left_to(holder) <= 0:
            largest = max(idle, key=lambda each: (of(each.holder), each.size))
            idle.remove(largest)
            largest.cut()
        return self.left_to(holder) > 0

    def _look_again(self, loop: asyncio.AbstractEventLoop) -> None:
        self._look = None
        if not self._waiting:
            return
        self._make_room(min(self._waiting.values(), key=self._shares.of))
        self._look = loop.call_later(UNTAKEN_LOOK_S, self._look_again, loop)

    def _wake(self) -> None:
        """Let those who wait look again: the holders of least first, then in the order in which they began to wait."""
        if not self._waiting:
            return
        favours = self._favoured is None
        for waiting, holder in sorted(self._waiting.items(), key=lambda each: self._shares.of(each[1])):
            if not waiting.done() and (favours or self.left_to(holder) > 0):
                waiting.set_result(None)


class Untaken:
    """Bytes that one connection has written and its client has not taken; times are the loop's."""

    __slots__ = ("_answers", "_left", "_reader", "_since", "_since_left", "holder", "moved_s", "size")

    def __init__(self, answers: AnswerBudget, holder: str) -> None:
        self._answers = answers
        self._reader: Reader | None = None
        """Only while the client leaves something: a closed connection is freed at once, not by the collector."""
        self.holder = holder
        self.size = 0
        """Bytes in memory, as the node counts them."""
        self.moved_s = 0.0
        """Time when the client last took bytes or was sent more."""
        self._left = 0
        """All that it left at the last look."""
        self._since = 0.0
        self._since_left = 0
        """Bytes left at `_since`; the client has taken less than a small answer since then."""

    def begin(self, reader: Reader, now: float) -> None:
        """The client does not take what it is sent."""
        self._reader = reader
        size, self._left = reader.unsent()
        self.moved_s = self._since = now
        self._since_left = self._left
        self._become(size)

    def end(self) -> None:
        """The client has taken all, or is gone. Again does nothing."""
        self._reader = None
        self._left = self._since_left = 0
        self._become(0)

    def look(self, now: float) -> None:
        """Notice what the client has taken since the last look."""
        if self._reader is None:
            return
        size, left = self._reader.unsent()
        if left != self._left:
            self._left = left
            self.moved_s = now
            if self._since_left - left >= SMALL_ANSWER_BYTES:
                self._since, self._since_left = now, left
            self._become(size)

    def is_stalled(self, now: float, stall_s: float) -> bool:
        """Return True if the client took less than a small answer in `stall_s`, though something is left."""
        self.look(now)
        return self._left > 0 and now - self._since >= stall_s

    def cut(self) -> None:
        if self._reader is not None:
            self._reader.cut_for_others()

    def _become(self, size: int) -> None:
        before, self.size = self.size, size
        if size > before:
            self._answers.hold(self, size - before)
        elif size < before:
            self._answers.give_back(self, before - size)
