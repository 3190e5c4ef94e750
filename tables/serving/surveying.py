"""Looks at tablets that keep the loop for a few milliseconds at most: those of many chunks are taken in a thread."""

import asyncio
from collections.abc import Callable
from typing import Final, TypeVar
from weakref import WeakKeyDictionary

from pqbroker.tables.serving.tablet import SortedTablet
from pqbroker.tables.sorted.picking.facts import TabletStores
from pqbroker.tables.sorted.picking.overlap import Overlap, overlaps
from pqbroker.tables.sorted.picking.survey import Survey, survey

SURVEYED_AT_ONCE: Final = 300
"""Chunks and partitions of a tablet that is surveyed in the loop's thread: about 2 ms."""
SURVEYS_PART: Final = 0.05
"""Part of the time that surveys of a tablet take in which nothing has changed."""
_T = TypeVar("_T")


class SurveyPace:
    """Times of the surveys of tablets: at each look where something has changed, else the more seldom the longer they
    take."""

    def __init__(self) -> None:
        self._next: WeakKeyDictionary[SortedTablet, tuple[int, float]] = WeakKeyDictionary()
        """Changes of the structure at the last survey, and the loop's time before which there is no other."""

    def is_due(self, tablet: SortedTablet) -> bool:
        """Return True if a tablet is to be surveyed now."""
        changes, next_s = self._next.get(tablet, (-1, 0.0))
        return changes != tablet.structure.changes or asyncio.get_running_loop().time() >= next_s

    def note(self, tablet: SortedTablet, changes: int, begun_s: float) -> None:
        """Note a survey that has ended; `begun_s`: the loop's time of its beginning."""
        now_s = asyncio.get_running_loop().time()
        self._next[tablet] = changes, now_s + (now_s - begun_s) * (1 / SURVEYS_PART - 1)


async def surveyed(tablet: SortedTablet, now_ms: int, *, is_frozen: bool = False) -> Survey:
    """Return what a tablet calls for as it is now; it may have changed when this returns."""
    facts = tablet.stores_later(is_frozen=is_frozen)
    return await beside_the_loop(tablet, lambda: survey(facts(), now_ms))


async def stores_and_overlaps(tablet: SortedTablet) -> tuple[TabletStores, tuple[Overlap, ...]]:
    """Return the facts of a tablet as it is now, and the overlap of each partition."""
    facts = tablet.stores_later()

    def look() -> tuple[TabletStores, tuple[Overlap, ...]]:
        stores = facts()
        return stores, overlaps(stores)

    return await beside_the_loop(tablet, look)


async def beside_the_loop(tablet: SortedTablet, look: Callable[[], _T]) -> _T:
    """Return what a look at a tablet's facts returns, from another thread where they are many."""
    structure = tablet.structure
    if len(structure.chunks) + len(structure.pivots) <= SURVEYED_AT_ONCE:
        return look()
    return await asyncio.to_thread(look)
