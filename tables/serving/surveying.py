"""Looks at tablets that keep the loop for a few milliseconds at most: those of many chunks are taken in a thread."""

import asyncio
from collections.abc import Callable
from typing import Final, TypeVar

from pqbroker.tables.serving.tablet import SortedTablet
from pqbroker.tables.sorted.picking.facts import TabletStores
from pqbroker.tables.sorted.picking.overlap import Overlap, overlaps
from pqbroker.tables.sorted.picking.survey import Survey, survey

SURVEYED_AT_ONCE: Final = 300
"""Chunks and partitions of a tablet that is surveyed in the loop's thread: about 2 ms."""
_T = TypeVar("_T")


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
