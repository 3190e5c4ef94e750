"""Exchanges over several classes of topics: members get back what they had, while the loads stay what they are.

A member takes one that it has lost, from another, which takes from a third in its turn, until the chain comes back to
the first. Once on its way it may go from a giver over to a member that has one less: these two exchange their loads. A
taker that gets back what it had is a gain, a giver that gives what it had a loss; an exchange is made if it gains more
than it loses.
"""

from collections import deque
from collections.abc import Generator
from typing import Final, NamedTuple

from pqbroker.broker.services.coordination.assigning.chains import VISITS_MAX, ShareMove
from pqbroker.broker.services.coordination.assigning.topic_classes import Pause, TopicClass

_LOSS_MAX: Final = 1
"""Losses above gains that a chain may have on its way."""


class _State(NamedTuple):
    """A member that gives, or has gone over, and so takes next."""

    place: int
    loss: int
    """Losses without gains up to it."""
    is_over: bool
    """True once the chain has gone over to a member with one less."""


class _Step(NamedTuple):
    of: TopicClass | None
    """The class that the state's member gives; None if the chain goes over to it."""
    before: _State | None
    """The taker; None if it is the member that gets back what it has lost."""


class Exchanges:
    """The search for exchanges, shortest first."""

    def __init__(self, classes: list[TopicClass], classes_of: list[list[TopicClass]], loads: list[int]) -> None:
        self._classes = classes
        self._loads = loads
        self._classes_of = classes_of
        self._visits_left = VISITS_MAX

    def make_all(self) -> Generator[None]:
        """Make exchanges until there are none, or none can gain."""
        while (yield from self._may_gain()):
            if not (yield from self._make_for_each()):
                break

    def _may_gain(self) -> Generator[None, None, bool]:
        """Return False if the moves are as few as these loads allow, in any order of members."""
        had, lost = [0] * len(self._loads), 0
        pause = Pause()
        for of in self._classes:
            for place, before in of.had.items():
                had[place] += before
                lost += max(0, before - of.shares.get(place, 0))
            if pause.is_due(len(of.had)):
                yield
        least = sum(max(0, before - load) for before, load in zip(sorted(had), sorted(self._loads), strict=True))
        return lost > least

    def _make_for_each(self) -> Generator[None, None, bool]:
        """Make exchanges for every member that loses something. Return True if there was one."""
        has_moved = False
        pause = Pause()
        for of in self._classes:
            for place in of.held:
                if pause.is_due(1):
                    yield
                has_moved |= yield from self._give_back(place, of)
        return has_moved

    def _give_back(self, place: int, of: TopicClass) -> Generator[None, None, bool]:
        """Give a member back what it has lost of a class. Return True if something moved."""
        has_moved = False
        while of.surplus(place) < 0 and self._visits_left > 0:
            if not self._try((yield from self._search(place, of))):
                break
            has_moved = True
        return has_moved

    def _try(self, links: list[ShareMove]) -> bool:
        """Make the moves. If they gain nothing, because they use a share twice, take them back; return False."""
        gained = 0
        for link in links:
            gained += (link.of.surplus(link.taker) < 0) - (link.of.surplus(link.giver) <= 0)
            link.of.move(link.giver, link.taker, self._loads)
        if gained > 0 and all(link.of.shares[link.giver] >= 0 for link in links):
            return True
        for link in links:
            link.of.move(link.taker, link.giver, self._loads)
        return False

    def _search(self, place: int, lost: TopicClass) -> Generator[None, None, list[ShareMove]]:
        """Search for an exchange in which the member gets back one of the class."""
        found = _Ways(place)
        waiting: deque[tuple[_State | None, list[TopicClass]]] = deque([(None, [lost])])
        while waiting:
            taker, classes = waiting.popleft()
            for of in classes:
                yield
                givers = self._givers(of, found, taker)
                last = next((giver for giver in givers if self._may_end(giver, place)), None)
                if last is not None:
                    return found.links(last)
                givers += [over for giver in givers for over in self._over(giver, found)]
                waiting.extend((state, self._classes_of[state.place]) for state in givers)
        return []

    def _givers(self, of: TopicClass, found: "_Ways", taker: _State | None) -> list[_State]:
        """Return who can give one of the class to the taker, and has not been reached so before."""
        if taker is None:
            loss, is_over = -1, False
        else:
            loss, is_over = taker.loss - (of.surplus(taker.place) < 0), taker.is_over
        if not found.is_first((id(of), loss, is_over)):
            return []
        self._visits_left -= len(of.subscribers)
        givers = []
        for giver in filter(of.shares.get, of.subscribers):
            state = _State(giver, max(loss + (of.surplus(giver) <= 0), -1), is_over)
            if state.loss <= _LOSS_MAX and found.reach(state, _Step(of, taker)):
                givers.append(state)
        return givers

    def _over(self, giver: _State, found: "_Ways") -> list[_State]:
        """Return the members to which a chain may go over from a giver, once for each load and loss."""
        load = self._loads[giver.place] - 1
        if giver.is_over or not found.is_first((load, giver.loss)):
            return []
        self._visits_left -= len(self._loads)
        states = [_State(place, giver.loss, is_over=True) for place, its in enumerate(self._loads) if its == load]
        return [state for state in states if found.reach(state, _Step(None, giver))]

    def _may_end(self, giver: _State, place: int) -> bool:
        if giver.loss >= 0:
            return False
        return giver.place == place or (not giver.is_over and self._loads[giver.place] - self._loads[place] == 1)


class _Ways:
    """Memory of one search: the states that it has reached, and how."""

    def __init__(self, place: int) -> None:
        self._place = place
        self._steps: dict[_State, _Step] = {}
        self._seen: set[tuple[int, ...]] = set()

    def is_first(self, what: tuple[int, ...]) -> bool:
        """Return True the first time."""
        is_first = what not in self._seen
        self._seen.add(what)
        return is_first

    def reach(self, state: _State, step: _Step) -> bool:
        """Note how a state was reached, the first time; return True then."""
        return self._steps.setdefault(state, step) is step

    def links(self, last: _State) -> list[ShareMove]:
        """Return the moves of the chain that ends with a giver."""
        links = []
        state: _State | None = last
        while state is not None:
            of, before = self._steps[state]
            if of is not None:
                links.append(ShareMove(of, state.place, self._place if before is None else before.place))
            state = before
        return links
