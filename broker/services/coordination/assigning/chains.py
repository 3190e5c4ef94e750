"""Chains of moves over several classes of topics: a member takes from another, which takes from a third in its turn.

They make the sum of the squares of all loads as small as it can be. Kafka has no chains: it ends with members of 9, 10
and 11 where these find 10, 10 and 10.
"""

from collections import deque
from collections.abc import Container, Generator, Iterable
from typing import Final, NamedTuple

from pqbroker.broker.services.coordination.assigning.topic_classes import Pause, TopicClass

VISITS_MAX: Final = 500_000
"""Members that a search looks at, at most: about half a second in slices. Above, the result is nearly as good."""


class ShareMove(NamedTuple):
    """One move."""

    of: TopicClass
    giver: int
    taker: int


class _Found(NamedTuple):
    chain: list[ShareMove]
    """Empty if there is none."""
    reached: Iterable[int]


def classes_by_member(
    classes: list[TopicClass], members: int
) -> Generator[None, None, list[list[TopicClass]]]:
    """Find the classes of each member's topics, by its place."""
    classes_of: list[list[TopicClass]] = [[] for _ in range(members)]
    pause = Pause()
    for of in classes:
        for place in of.subscribers:
            classes_of[place].append(of)
        if pause.is_due(len(of.subscribers)):
            yield
    return classes_of


class Chains:
    """The search, shortest chains first, backwards from the member that is to have one more."""

    def __init__(self, classes_of: list[list[TopicClass]], loads: list[int]) -> None:
        self._loads = loads
        self._classes_of = classes_of
        self._visits_left = VISITS_MAX

    def follow_all(self) -> Generator[None]:
        """Follow chains until there are none."""
        yield
        while (yield from self._follow_to_each()):
            pass

    def _follow_to_each(self) -> Generator[None, None, bool]:
        """Follow chains to every member, the least loaded first. Return True if something moved."""
        has_moved = False
        done: set[int] = set()
        for place in sorted(range(len(self._loads)), key=self._loads.__getitem__):
            while place not in done and self._visits_left > 0:
                found = yield from self._search(place)
                for of, giver, taker in found.chain:
                    of.move(giver, taker, self._loads)
                has_moved |= bool(found.chain)
                done.update(self._hopeless(place, found))
        return has_moved

    def _hopeless(self, place: int, found: _Found) -> list[int]:
        """Return the members to which no chain leads, if none leads to this one: others that give to it, and have as
        much, can be given nothing that it could not."""
        if found.chain:
            return []
        return [place, *(other for other in found.reached if self._loads[other] >= self._loads[place])]

    def _search(self, place: int) -> Generator[None, None, _Found]:
        """Search for a chain to the member, from one that has at least two more."""
        reached: dict[int, ShareMove] = {}
        seen: set[int] = set()
        waiting = deque([place])
        pause = Pause()
        while waiting:
            taker = waiting.popleft()
            if pause.is_due(len(self._classes_of[taker])):
                yield
            for of in [of for of in self._classes_of[taker] if id(of) not in seen]:
                seen.add(id(of))
                yield
                givers = self._givers(of, reached, place)
                reached.update((giver, ShareMove(of, giver, taker)) for giver in givers)
                most = max(givers, key=self._loads.__getitem__, default=place)
                if self._loads[most] - self._loads[place] > 1:
                    return _Found(_chain(most, place, reached), reached)
                waiting.extend(givers)
        return _Found([], reached)

    def _givers(self, of: TopicClass, reached: Container[int], place: int) -> list[int]:
        self._visits_left -= len(of.subscribers)
        return [giver for giver, share in of.shares.items() if share and giver not in reached and giver != place]


def _chain(giver: int, place: int, reached: dict[int, ShareMove]) -> list[ShareMove]:
    links = [reached[giver]]
    while links[-1].taker != place:
        links.append(reached[links[-1].taker])
    return links
