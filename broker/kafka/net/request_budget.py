"""Request bytes in work over all connections of a node, shared by conf/shares.py, and who waits for fewer of them.

A holder's connections are read while the bytes of all are within the open part of the budget, or while its own are
within its first part and all within `bytes_max`. When they are not, none of its connections is read: else each of
thousands would bring one buffer more. They are read again together.
"""

from collections.abc import Callable
from typing import Final, Protocol
from weakref import WeakValueDictionary

from pqbroker.conf.shares import first_of, reserve_of

_FIRST_BYTES_MIN: Final = 1 << 20
"""The first part of a holder is at least this, if the reserve has so much."""


class Taker(Protocol):
    """A connection, as this file sees it."""

    def limit(self) -> None:
        """Read nothing, if the share says so."""

    def consider(self) -> None:
        """Read again, if nothing speaks against it."""


class ByteBudget:
    """Counts bytes taken; connections that must not take more stop reading, and are called back when they may."""

    __slots__ = (
        "_shares", "bytes_max", "first", "open", "taken", "waiting",
        "waiting_shares",
    )  # fmt: skip

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.open = bytes_max - reserve_of(bytes_max)
        """Bytes that may be one holder's."""
        self.first = first_of(bytes_max, _FIRST_BYTES_MIN)
        self.taken = 0
        self._shares: WeakValueDictionary[str, RequestShare] = WeakValueDictionary()
        self.waiting_shares: dict[RequestShare, None] = {}
        self.waiting: dict[Callable[[], None], None] = {}

    @property
    def is_exceeded(self) -> bool:
        return self.taken > self.bytes_max

    @property
    def is_awaited(self) -> bool:
        return bool(self.waiting or self.waiting_shares)

    def share(self, holder: str) -> "RequestShare":
        """The share of a holder, one for all its connections."""
        share = self._shares.get(holder)
        if share is None:
            share = self._shares[holder] = RequestShare(self, holder)
        return share

    def give_back(self, size: int) -> None:
        self.taken -= size
        assert self.taken >= 0
        if self.is_awaited:
            self.call_back()

    def call_when_below(self, resume: Callable[[], None]) -> None:
        """Call `resume` once, when bytes are given back and the sum is within the limit again."""
        self.waiting[resume] = None

    def forget(self, resume: Callable[[], None]) -> None:
        self.waiting.pop(resume, None)

    def call_back(self) -> None:
        """Resume the requests and connections that may continue."""
        if self.taken > self.bytes_max:
            return
        waiting, self.waiting = self.waiting, {}
        for resume in waiting:
            resume()
        for share in [share for share in self.waiting_shares if share.may_read]:
            if self.waiting_shares.pop(share, self) is None:
                share.resume()


class RequestShare:
    """The bytes of one holder's connections. Who takes bytes adds them here and to the budget's `taken`."""

    __slots__ = ("__weakref__", "_budget", "holder", "taken", "takers")

    def __init__(self, budget: ByteBudget, holder: str) -> None:
        self._budget = budget
        self.holder = holder
        self.taken = 0
        self.takers: dict[Taker, None] = {}

    @property
    def may_read(self) -> bool:
        """Return True if the holder's connections may be read."""
        budget = self._budget
        return budget.taken <= budget.open or (budget.taken <= budget.bytes_max and self.taken <= budget.first)

    def leave(self, taker: Taker) -> None:
        """A connection closes."""
        self.takers.pop(taker, None)
        if not self.takers:
            self._budget.waiting_shares.pop(self, None)

    def take(self, size: int) -> None:
        """Count more bytes, or fewer if `size` is negative: those go to other counts, so no connection is resumed."""
        self.taken += size
        self._budget.taken += size

    def give_back(self, size: int) -> None:
        budget = self._budget
        self.taken -= size
        budget.taken -= size
        assert self.taken >= 0
        if budget.waiting_shares or budget.waiting:
            budget.call_back()

    def await_room(self) -> None:
        """Have no connection of the holder read until it has room."""
        waiting = self._budget.waiting_shares
        if self not in waiting:
            waiting[self] = None
            for taker in tuple(self.takers):
                taker.limit()

    def resume(self) -> None:
        for taker in tuple(self.takers):
            taker.consider()
