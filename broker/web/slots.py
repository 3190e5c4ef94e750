"""Slots of HTTP connections, and the bytes held for them. No I/O: time and `abort` are given.

    arrived   its request was read, nobody works on it yet    work() -> working
    working   the broker works on its request                 wait() -> slow
    slow      it sends a request, or takes an answer          work() -> working, rest() -> idle
    idle      kept open between two requests                  wait() -> slow

A connection that is slow or idle waits for its client, so it can be closed to make room for another one: the idle ones
first, of each kind the one that has waited longest. Those that the broker works for are not closed, so the last eighth
of the slots is for addresses that have few: one address alone cannot have all.
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from enum import IntEnum, auto

from pqbroker.broker.ground.access import ANONYMOUS
from pqbroker.conf.shares import Shares, first_of


class State(IntEnum):
    """The states of a connection's slot. They are numbers since slots are looked up by them with each request: the hash
    of a plain Enum is a call of Python's."""

    ARRIVED = auto()
    WORKING = auto()
    SLOW = auto()
    IDLE = auto()


class Slot:
    """One connection's slot. `abort` closes the connection at once, without sending what it still has to."""

    __slots__ = ("_slots", "abort", "held_bytes", "holder", "principal", "state", "when_left")

    def __init__(self, slots: "Slots", abort: Callable[[], None], state: State, holder: str) -> None:
        self._slots = slots
        self.abort = abort
        self.holder = holder
        """The key of its client (`holder_of`)."""
        self.principal = ANONYMOUS
        """The sender of the request that is served."""
        self.held_bytes = 0
        """Bytes of its request's body and of its answer that are in memory."""
        self.state = state
        self.when_left: Callable[[], None] | None = None
        """Called when the connection is closed."""

    @property
    def is_reserved(self) -> bool:
        """Return True if the slot is for one request only."""
        return self._slots.is_reserved

    def work(self) -> None:
        self._slots.put(self, State.WORKING)

    def wait(self) -> None:
        self._slots.put(self, State.SLOW)

    def rest(self) -> None:
        """Hold nothing for the connection until its next request."""
        self._slots.bytes.release(self)
        self._slots.put(self, State.IDLE)

    def hear(self) -> None:
        """Data came: an idle connection begins its next request."""
        if self.state is State.IDLE:
            self.wait()

    def hold(self, size: int) -> bool:
        """Count bytes for it; False when the node holds too many that cannot be let go."""
        return self._slots.bytes.hold(self, size)

    def let_go(self) -> None:
        """The client has read a piece of its answer: the broker works on the next."""
        self._slots.bytes.release(self)
        self.work()

    def leave(self) -> None:
        """The connection is closed. May be called again."""
        if self.when_left is not None:
            self.when_left()
        self._slots.bytes.release(self)
        self._slots.take_out(self)


class HeldBytes:
    """Bytes of bodies and answers that all connections together have in memory."""

    def __init__(self, bytes_max: Callable[[], int]) -> None:
        self._bytes_max = bytes_max
        self.counted: Sequence[Slots] = ()
        """Slots whose slow connections are closed when there are too many bytes."""
        self.total = 0

    def hold(self, slot: Slot, size: int) -> bool:
        """Count bytes for a slot, closing slow connections that hold some where needed."""
        while self.total + size > self._bytes_max():
            slow = (one for slots in self.counted for one in slots.slow() if one.held_bytes and one is not slot)
            victim = next(slow, None)
            if victim is None:
                return False
            victim.leave()
            victim.abort()
        self.total += size
        slot.held_bytes += size
        return True

    def release(self, slot: Slot) -> None:
        self.total -= slot.held_bytes
        slot.held_bytes = 0


class Slots:
    """Slots of at most `count_max` connections. `clock`: seconds. `is_reserved`: each is closed after one request."""

    def __init__(
        self,
        clock: Callable[[], float],
        held: HeldBytes,
        count_max: Callable[[], int],
        *,
        is_reserved: bool = False,
    ) -> None:
        self._clock = clock
        self._count_max = count_max
        self._slots: dict[State, OrderedDict[Slot, float]] = {state: OrderedDict() for state in State}
        """Slots by state, each with the time when it came to that state, earliest first."""
        self._shares = Shares[str]()
        self.bytes = held
        self.is_reserved = is_reserved

    def __len__(self) -> int:
        return sum(map(len, self._slots.values()))

    def enter(self, abort: Callable[[], None], state: State, holder: str) -> Slot | None:
        """Return a slot for a connection of a holder; None if the broker works for every slot that it might have."""
        while not self._shares.may_take(most := self._count_max(), holder):
            has_few = self._shares.of(holder) < first_of(most)
            waiting = (one for each in (State.IDLE, State.SLOW) for one in self._slots[each])
            victim = next((one for one in waiting if has_few or one.holder == holder), None)
            if victim is None:
                return None
            victim.leave()
            victim.abort()
            if victim.holder == holder and len(self) < most:
                break  # one of its own for another
        slot = Slot(self, abort, state, holder)
        self._slots[state][slot] = self._clock()
        self._shares.take(holder)
        return slot

    def slow(self) -> Sequence[Slot]:
        """Connections that send a request or take an answer, the slowest first."""
        return tuple(self._slots[State.SLOW])

    def put(self, slot: Slot, state: State) -> None:
        """Change the slot's state, unless the connection was closed."""
        if self._slots[slot.state].pop(slot, None) is not None:
            slot.state = state
            self._slots[state][slot] = self._clock()

    def take_out(self, slot: Slot) -> None:
        if self._slots[slot.state].pop(slot, None) is not None:
            self._shares.give_back(slot.holder)

    def close_overdue(self, slow_s: float, idle_s: float) -> None:
        """Close connections that have waited longer for their client than is allowed."""
        now_s = self._clock()
        for state, most_s in ((State.ARRIVED, slow_s), (State.SLOW, slow_s), (State.IDLE, idle_s)):
            for slot, since_s in tuple(self._slots[state].items()):
                if since_s + most_s > now_s:
                    break
                slot.leave()
                slot.abort()
