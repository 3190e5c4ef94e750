"""Places of HTTP connections, and the bytes held for them. No I/O: time and `abort` are given.

    arrived   its request was read, nobody works on it yet    work() -> working
    working   the broker works on its request                 wait() -> slow
    slow      it sends a request, or takes an answer          work() -> working, rest() -> idle
    idle      kept open between two requests                  wait() -> slow

A connection that is slow or idle waits for its client, so it can be closed to make room for another one: the idle ones
first, of each kind the one that has waited longest. Those that the broker works for are not closed, so the last eighth
of the places is for addresses that have few: one address alone cannot have all.
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from enum import Enum, auto

from pqbroker.conf.shares import Shares, first_of


class State(Enum):
    """The states of a connection's place."""

    ARRIVED = auto()
    WORKING = auto()
    SLOW = auto()
    IDLE = auto()


class Place:
    """One connection's place. `abort` closes the connection at once, without sending what it still has to."""

    __slots__ = ("_room", "abort", "held_bytes", "holder", "state", "when_left")

    def __init__(self, room: "Room", abort: Callable[[], None], state: State, holder: str) -> None:
        self._room = room
        self.abort = abort
        self.holder = holder
        """The key of its client (`holder_of`)."""
        self.held_bytes = 0
        """Bytes of its request's body and of its answer that are in memory."""
        self.state = state
        self.when_left: Callable[[], None] | None = None
        """Called when the connection is closed."""

    @property
    def is_reserved(self) -> bool:
        """Return True if the place is for one request only."""
        return self._room.is_reserved

    def work(self) -> None:
        self._room.put(self, State.WORKING)

    def wait(self) -> None:
        self._room.put(self, State.SLOW)

    def rest(self) -> None:
        """Nothing is held for it until its next request."""
        self._room.bytes.release(self)
        self._room.put(self, State.IDLE)

    def hear(self) -> None:
        """Data came: an idle connection begins its next request."""
        if self.state is State.IDLE:
            self.wait()

    def hold(self, size: int) -> bool:
        """Count bytes for it; False when the node holds too many that cannot be let go."""
        return self._room.bytes.hold(self, size)

    def let_go(self) -> None:
        """The client has read a piece of its answer: the broker works on the next."""
        self._room.bytes.release(self)
        self.work()

    def leave(self) -> None:
        """The connection is closed. May be called again."""
        if self.when_left is not None:
            self.when_left()
        self._room.bytes.release(self)
        self._room.take_out(self)


class HeldBytes:
    """Bytes of bodies and answers that all connections together have in memory."""

    def __init__(self, bytes_max: Callable[[], int]) -> None:
        self._bytes_max = bytes_max
        self.rooms: Sequence[Room] = ()
        """Whose slow connections are closed when there are too many bytes."""
        self.total = 0

    def hold(self, place: Place, size: int) -> bool:
        """Count bytes for a place, closing slow connections that hold some where needed."""
        while self.total + size > self._bytes_max():
            slow = (one for room in self.rooms for one in room.slow() if one.held_bytes and one is not place)
            victim = next(slow, None)
            if victim is None:
                return False
            victim.leave()
            victim.abort()
        self.total += size
        place.held_bytes += size
        return True

    def release(self, place: Place) -> None:
        self.total -= place.held_bytes
        place.held_bytes = 0


class Room:
    """Places of at most `count_max` connections. `clock`: seconds. `is_reserved`: each is closed after one request."""

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
        self._places: dict[State, OrderedDict[Place, float]] = {state: OrderedDict() for state in State}
        """By state, each with the time since when, the earliest first."""
        self._shares = Shares[str]()
        self.bytes = held
        self.is_reserved = is_reserved

    def __len__(self) -> int:
        return sum(map(len, self._places.values()))

    def enter(self, abort: Callable[[], None], state: State, holder: str) -> Place | None:
        """A place for a connection of a holder, or None while every place that it may have is taken by one that the
        broker works for."""
        while not self._shares.may_take(most := self._count_max(), holder):
            has_few = self._shares.of(holder) < first_of(most)
            waiting = (one for each in (State.IDLE, State.SLOW) for one in self._places[each])
            victim = next((one for one in waiting if has_few or one.holder == holder), None)
            if victim is None:
                return None
            victim.leave()
            victim.abort()
            if victim.holder == holder and len(self) < most:
                break  # one of its own for another
        place = Place(self, abort, state, holder)
        self._places[state][place] = self._clock()
        self._shares.take(holder)
        return place

    def slow(self) -> Sequence[Place]:
        """Connections that send a request or take an answer, the slowest first."""
        return tuple(self._places[State.SLOW])

    def put(self, place: Place, state: State) -> None:
        """Change the place's state, unless the connection was closed."""
        if self._places[place.state].pop(place, None) is not None:
            place.state = state
            self._places[state][place] = self._clock()

    def take_out(self, place: Place) -> None:
        if self._places[place.state].pop(place, None) is not None:
            self._shares.give_back(place.holder)

    def close_overdue(self, slow_s: float, idle_s: float) -> None:
        """Close connections that have waited longer for their client than is allowed."""
        now_s = self._clock()
        for state, most_s in ((State.ARRIVED, slow_s), (State.SLOW, slow_s), (State.IDLE, idle_s)):
            for place, since_s in tuple(self._places[state].items()):
                if since_s + most_s > now_s:
                    break
                place.leave()
                place.abort()
