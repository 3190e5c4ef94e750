"""A queue of requests of which a limited number runs at once: those who wait are served holder by holder.

    none      begin -> running while its holder may have one more, and none of its others waits; else waiting
    none      begin, and no more may wait -> none: QueueFull
    waiting   its turn comes -> running
    waiting   its time is over, or its client has gone -> none
    running   end -> none; then the next holder, in turn, that may have one more runs the first that waits of it
With a reserve an eighth of the places, at least one where there are two, is for holders that have none: one that fills
its share with long requests keeps nobody else waiting. The same holds of places to wait, where these are limited.
"""

import asyncio
from collections import OrderedDict, deque

from pqbroker.conf.shares import Shares, reserve_of


class QueueFull(Exception):
    """No place to wait is left, or none for this holder."""


class HolderQueue:
    """Requests that run, as many as the last `begin` allowed, and those that wait. A smaller number ends none."""

    __slots__ = ("_has_reserve", "_most", "_shares", "_waiting")

    def __init__(self, *, has_reserve: bool) -> None:
        self._has_reserve = has_reserve
        self._most = 0
        self._shares = Shares[str]()
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()

    @property
    def running(self) -> int:
        return self._shares.total

    @property
    def waiting(self) -> int:
        return sum(map(len, self._waiting.values()))

    async def begin(self, holder: str, most: int, waiting_max: int | None = None) -> None:
        """Return when a request of the holder (`holder_of`) may run, `most` at once; to be followed by `end`. QueueFull
        where it would have to wait behind `waiting_max` others."""
        self._most = most
        if holder not in self._waiting and self._may_run(holder):
            self._shares.take(holder)
            return
        waiting_of_holder = len(self._waiting.get(holder, ()))
        if waiting_max is not None and not self._has_place(waiting_max, self.waiting, waiting_of_holder):
            raise QueueFull
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(holder, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.end(holder)  # it was given its turn, and has gone
            else:
                self._forget(holder, turn)
            raise

    def end(self, holder: str) -> None:
        self._shares.give_back(holder)
        while (following := next(filter(self._may_run, self._waiting), None)) is not None:
            turns = self._waiting.pop(following)
            turn = turns.popleft()
            if turns:
                self._waiting[following] = turns
            if not turn.done():
                self._shares.take(following)
                turn.set_result(None)

    def _may_run(self, holder: str) -> bool:
        return self._has_place(self._most, self._shares.total, self._shares.of(holder))

    def _has_place(self, most: int, total: int, held: int) -> bool:
        reserve = max(reserve_of(most), min(most - 1, 1)) if self._has_reserve else 0
        return total + 1 <= most - reserve or (total + 1 <= most and not held)

    def _forget(self, holder: str, turn: "asyncio.Future[None]") -> None:
        turns = self._waiting.get(holder, deque())
        if turn in turns:  # else it was passed over
            turns.remove(turn)
            if not turns:
                del self._waiting[holder]
