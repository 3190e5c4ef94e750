"""Requests that take memory or time to decode: few at once, and those who wait are served address by address.

a request comes               it begins while there is room and nobody waits, else it waits behind its address's others
one ends, or has gone         the next address, in turn, begins the first that waits of it
"""

import asyncio
from collections import OrderedDict, deque
from types import TracebackType


class Looks:
    """Requests that have begun, at most `count`, and those that wait to begin."""

    __slots__ = ("_free", "_waiting")

    def __init__(self, count: int) -> None:
        self._free = count
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()

    def of(self, holder: str) -> "Look":
        """Return what a request of a holder (`holder_of`) enters with `async with`, as often as it wants."""
        return Look(self, holder)

    async def begin(self, holder: str) -> None:
        """Return when a request of the holder may begin; to be followed by `end`."""
        if self._free > 0 and not self._waiting:
            self._free -= 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(holder, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.end()  # it was given its turn, and has gone
            raise

    def end(self) -> None:
        self._free += 1
        while self._waiting and self._free > 0:
            holder, turns = self._waiting.popitem(last=False)
            turn = turns.popleft()
            if turns:
                self._waiting[holder] = turns
            if not turn.done():
                self._free -= 1
                turn.set_result(None)


class Look:
    """One request's part in `Looks`."""

    __slots__ = ("_holder", "_looks")

    def __init__(self, looks: Looks, holder: str) -> None:
        self._looks = looks
        self._holder = holder

    async def __aenter__(self) -> None:
        await self._looks.begin(self._holder)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._looks.end()
