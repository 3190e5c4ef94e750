"""Memory of requests that are still arriving, over all connections of a node: who may begin, and who has to go.

States of a frame that has not arrived whole (`protocol/frames.py` holds its bytes):
    small      up to 64 KiB of it are held; stands in the budget `pqbroker.reserved.bytes`
    claiming   it is larger, and waits for its memory; its connection is not read meanwhile. The holder of least is
               next, then the order of claims counts
    large      it has its memory, counted as its bytes arrive; stands in the budget `pqbroker.unfinished.bytes.max`

Larger requests leave `pqbroker.reserved.bytes` of `pqbroker.inflight.bytes.max` to those up to 64 KiB, so that these
are always read. The budgets are shared by conf/shares.py. When a holder's part is full, a connection closes: the one
that has made no progress for longest, if that is `pqbroker.unfinished.stall.ms`, else the last that began: of the
largest holder, where it has several. Progress is a request begun, or 2 MiB of it. So a slow request that makes progress
stays beside any number of requests that stop.
"""

import asyncio
from typing import Final, Protocol

from pqbroker.broker.kafka.net.request_budget import ByteBudget, RequestShare
from pqbroker.conf.broker import BrokerSettings
from pqbroker.conf.shares import Shares, first_of, reserve_of
from pqbroker.protocol.frames import HELD_STEP_BYTES, receive_buffer

FIRST_LARGE_BYTES: Final = 4 << 20
"""A holder's first part of the budget of large requests, if the reserve has so much."""


class Receiver(Protocol):
    """A connection, as this file sees it."""

    @property
    def share(self) -> RequestShare:
        """Return the share of its holder: its bytes."""

    def give_up(self) -> None:
        """Close: the unfinished request has to make room. It is not counted any more."""

    def begin_claimed(self) -> None:
        """Continue with the request that waited for memory."""


class _Unfinished:
    """The unfinished requests that share one budget."""

    def __init__(self, bytes_max: int, stall_s: float, loop: asyncio.AbstractEventLoop) -> None:
        self.bytes_max = bytes_max
        self.shares = Shares[str]()
        self.bytes = 0
        self.held: dict[Receiver, int] = {}
        """Bytes of each, in the order they began."""
        self._moved: dict[Receiver, tuple[float, int]] = {}
        """Loop time at which each last moved, and the bytes that it held then; the longest ago stands first."""
        self._stall_s = stall_s
        self._loop = loop

    def begin(self, receiver: Receiver, held: int) -> None:
        """Count one that has room."""
        self.held[receiver] = held
        self._moved[receiver] = (self._loop.time(), held)
        self._count(receiver, held)

    def hold(self, receiver: Receiver, held: int) -> None:
        before = self.held.get(receiver)
        if before is None:
            self.begin(receiver, held)
        else:
            self.held[receiver] = held
            if held - self._moved[receiver][1] >= HELD_STEP_BYTES:
                del self._moved[receiver]
                self._moved[receiver] = (self._loop.time(), held)
            self._count(receiver, held - before)
        while self._is_over(receiver) and len(self.held) > 1:
            self._give_up(self._stalled() or self._last())

    def touch(self, receiver: Receiver) -> None:
        """Note that a receiver has moved, or could not: it was not read."""
        if receiver in self.held:
            _, held = self._moved.pop(receiver)
            self._moved[receiver] = (self._loop.time(), held)

    def end(self, receiver: Receiver) -> int:
        """Count it no more, but for the node: returns the bytes that still stand in the budget of all."""
        held = self.held.pop(receiver, None)
        if held is None:
            return 0
        del self._moved[receiver]
        self.bytes -= held
        self.shares.give_back(receiver.share.holder, held)
        return held

    def release(self, receiver: Receiver) -> None:
        receiver.share.give_back(self.end(receiver))

    def give_up_stalled(self) -> bool:
        """Close one that does not move; False when there is none."""
        stalled = self._stalled()
        if stalled is None:
            return False
        self._give_up(stalled)
        return True

    def stalls_at(self) -> float:
        """Return when the first of them has not moved for too long, unless it moves before (loop time)."""
        oldest = next(iter(self._moved.values()), None)
        return (self._loop.time() if oldest is None else oldest[0]) + self._stall_s

    def _count(self, receiver: Receiver, size: int) -> None:
        self.bytes += size
        self.shares.take(receiver.share.holder, size)
        receiver.share.take(size)

    def _is_over(self, receiver: Receiver) -> bool:
        """Return True if there is more than may be, now that a receiver's holder has taken something."""
        return not self.shares.may_take(self.bytes_max, receiver.share.holder, 0)

    def _last(self) -> Receiver:
        """The one that began last, of the largest holder where it has several."""
        largest = self.shares.largest()
        found: dict[str, Receiver] = {}
        for receiver in reversed(self.held):
            holder = receiver.share.holder
            if holder in largest and found.setdefault(holder, receiver) is not receiver:
                return found[holder]
        return next(reversed(self.held))

    def _stalled(self) -> Receiver | None:
        if self._loop.time() < self.stalls_at():
            return None
        return next(iter(self._moved), None)

    def _give_up(self, receiver: Receiver) -> None:
        self.release(receiver)
        receiver.give_up()


class Receiving:
    """The receiving side that the connections of a node share. Whole requests are counted in `budget` alone."""

    def __init__(
        self, settings: BrokerSettings, loop: asyncio.AbstractEventLoop, frame_bytes_max: int = 0
    ) -> None:
        """`frame_bytes_max`: 0 for that of the settings."""
        self.frame_bytes_max = frame_bytes_max or settings.socket_request_max_bytes
        self.buffer = receive_buffer()
        self.budget = ByteBudget(settings.node_bytes_max)
        reserved = min(settings.reserved_bytes, settings.node_bytes_max // 4)
        unfinished = min(settings.unfinished_bytes_max, settings.node_bytes_max // 2)
        self._large_bytes_max = min(settings.node_bytes_max - reserved, self.budget.open)
        self._first_bytes_max = settings.node_bytes_max - reserve_of(settings.node_bytes_max) // 2
        self._first_large = first_of(unfinished, FIRST_LARGE_BYTES)
        self._stall_s = settings.unfinished_stall_ms / 1000
        self._loop = loop
        self._small = _Unfinished(reserved, self._stall_s, loop)
        self._large = _Unfinished(unfinished, self._stall_s, loop)
        self._claims: dict[str, dict[Receiver, int]] = {}
        """Sizes of the requests that wait for their memory, by holder, in the order they came."""
        self._look: asyncio.TimerHandle | None = None

    @property
    def unfinished_bytes(self) -> int:
        return self._small.bytes + self._large.bytes

    @property
    def is_short(self) -> bool:
        """Whole requests take more than half: one that could wait for long should not."""
        return 2 * (self.budget.taken - self.unfinished_bytes) > self.budget.bytes_max

    @property
    def is_at_rest(self) -> bool:
        """Return True if nothing is held, and nobody waits."""
        budget, small, large = self.budget, self._small, self._large
        return not (budget.taken or budget.is_awaited or small.held or large.held or self._claims or self._look)

    def hold(self, receiver: Receiver, held: int, *, is_new: bool) -> None:
        """`held` bytes of an unfinished request are in memory now, which may have begun just now.

        It may be given up in this call.
        """
        if receiver in self._large.held:
            self._large.hold(receiver, held)
            return
        if is_new:
            self._small.release(receiver)
        self._small.hold(receiver, held)

    def claim(self, receiver: Receiver, size: int) -> bool:
        """Claim memory for a large request. True: it begins now; if not, `begin_claimed` is called when it may.

        From then on its first 2 MiB count as held.
        """
        holder = receiver.share.holder
        if holder not in self._claims and self._is_next(holder) and self._has_room(receiver, size):
            self._begin(receiver, size)
            return True
        self._claims.setdefault(holder, {})[receiver] = size
        self._await_room()
        return False

    def touch(self, receiver: Receiver) -> None:
        """Note that a receiver's connection is read again: it could not move."""
        self._small.touch(receiver)
        self._large.touch(receiver)

    def finish(self, receiver: Receiver) -> int:
        """End a request that is whole: return the bytes that it held, which stay in the budget as the caller's."""
        return (self._large if receiver in self._large.held else self._small).end(receiver)

    def release(self, receiver: Receiver) -> None:
        """Release a receiver's bytes and claim: its connection closes."""
        self._small.release(receiver)
        self._large.release(receiver)
        if self._claims and self._forget_claim(receiver) and not self._claims:
            self._await_nothing()

    def _forget_claim(self, receiver: Receiver) -> bool:
        """False: it has none."""
        holder = receiver.share.holder
        claims = self._claims.get(holder, {})
        if claims.pop(receiver, None) is None:
            return False
        if not claims:
            del self._claims[holder]
        return True

    def _is_next(self, holder: str) -> bool:
        """Return True if every holder whose requests wait has more than this one."""
        of = self._large.shares.of
        return all(of(holder) < of(other) for other in self._claims)

    def _has_room(self, receiver: Receiver, size: int) -> bool:
        while True:
            taken, large, share = self.budget.taken, self._large, receiver.share
            is_fair = large.shares.may_take(large.bytes_max, share.holder, size, first=self._first_large)
            is_first = share.taken + size <= self.budget.first
            if is_fair and taken + size <= (self._first_bytes_max if is_first else self._large_bytes_max):
                return True
            if not large.held and taken <= self._large_bytes_max:
                return True  # alone even a request that is larger than the budget passes
            if not large.give_up_stalled():
                return False

    def _begin(self, receiver: Receiver, size: int) -> None:
        if receiver in self._small.held:
            self._small.release(receiver)
        self._large.begin(receiver, min(size, HELD_STEP_BYTES))

    def _admit(self) -> None:
        """Room may be there: by bytes given back, or since somebody does not move."""
        while self._claims:
            receiver, size = next(iter(self._claims[min(self._claims, key=self._large.shares.of)].items()))
            if not self._has_room(receiver, size):
                self._await_room()
                return
            self._forget_claim(receiver)
            self._begin(receiver, size)
            receiver.begin_claimed()
        self._await_nothing()

    def _await_room(self) -> None:
        self.budget.call_when_below(self._admit)
        if self._look is None:
            self._look = self._loop.call_at(self._large.stalls_at(), self._look_again)

    def _look_again(self) -> None:
        self._look = None
        self._admit()

    def _await_nothing(self) -> None:
        self.budget.forget(self._admit)
        if self._look is not None:
            self._look.cancel()
            self._look = None
