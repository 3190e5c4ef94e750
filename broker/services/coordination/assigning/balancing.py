"""Shares of members in the classes of topics: dealt out to the least loaded, then moved until they are level.

A move from a member to another with at least two partitions less is a gain. Moves within one class come first and do
nearly all; chains over several classes do what is left.
"""

from collections.abc import Generator
from heapq import heapify, heappop, heappush
from typing import Final

from pqbroker.broker.services.coordination.assigning.chains import Chains, classes_by_member
from pqbroker.broker.services.coordination.assigning.exchanges import Exchanges
from pqbroker.broker.services.coordination.assigning.topic_classes import Pause, TopicClass

BALANCING_ROUNDS_MAX: Final = 16
"""Passes over all classes, as in Kafka."""


def deal(classes: list[TopicClass], loads: list[int]) -> Generator[None]:
    """Give each class's partitions that nobody has to its least loaded subscribers."""
    pause = Pause()
    for of in classes:
        heap = [(loads[place], place) for place in of.subscribers]
        heapify(heap)
        for _ in range(of.partition_count - sum(of.shares.values())):
            load, place = heappop(heap)
            of.shares[place] = of.shares.get(place, 0) + 1
            loads[place] = load + 1
            heappush(heap, (load + 1, place))
            if pause.is_due(1):
                yield
        yield


def balance(classes: list[TopicClass], loads: list[int]) -> Generator[None]:
    """Move shares to less loaded members."""
    several = [of for of in classes if len(of.subscribers) > 1]
    for _ in range(BALANCING_ROUNDS_MAX):
        moved = 0
        for of in several:
            moved += yield from _level(of, loads)
        if not moved or len(several) == 1:
            break
    if len(several) > 1:
        classes_of = yield from classes_by_member(several, len(loads))
        yield from Chains(classes_of, loads).follow_all()
        yield from Exchanges(several, classes_of, loads).make_all()


def _level(of: TopicClass, loads: list[int]) -> Generator[None, None, int]:
    """Move shares of one class from the most loaded that has one to the least loaded. Return their number."""
    takers = [(loads[place], place) for place in of.subscribers]
    givers = [(-loads[place], -place) for place in of.subscribers if of.shares.get(place)]
    heapify(takers)
    heapify(givers)
    yield
    pause = Pause()
    moved = 0
    while givers and -givers[0][0] - takers[0][0] > 1:
        giver, taker = -heappop(givers)[1], heappop(takers)[1]
        of.move(giver, taker, loads)
        moved += 1
        if of.shares[giver]:
            heappush(givers, (-loads[giver], -giver))
        heappush(takers, (loads[taker], taker))
        if pause.is_due(1):
            yield
    return moved
