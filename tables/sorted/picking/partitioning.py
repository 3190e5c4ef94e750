"""Picking chunks of Eden to be merged and split by the borders of partitions, one chunk into each (C.7).

    first that applies               takes                                          at most
    forced, out of range, due        those, the oldest first (small ones wait       max_partitioning_store_count
                                     while Eden has enough of them to compact)
    min_partitioning_data_size       the largest                                    max_…_data_size, max_…_store_count
    too many chunks over a key, and  the largest                                    max_partitioning_store_count
    no compaction makes them fewer
"""

from collections.abc import Iterable, Mapping, Sequence

from pqbroker.conf.sorted_attributes import SortedAttributes
from pqbroker.tables.sorted.picking.choice import (
    Candidates,
    Choice,
    LeftOut,
    PickReason,
    by_urgency,
    candidates,
    out_of_order,
    size_order,
)
from pqbroker.tables.sorted.picking.compaction import CRITICAL_CHUNKS_MIN, is_for_partitioning
from pqbroker.tables.sorted.picking.facts import ChunkStore, TabletStores
from pqbroker.tables.sorted.picking.overlap import chunks_over


def pick_partitioning(tablet: TabletStores, critical: Mapping[int, bytes], now_ms: int) -> Choice:
    """Choose chunks of Eden. `critical`: keys that too many chunks lie over, by the partition that has them."""
    found = candidates(tablet.eden, now_ms)
    if tablet.is_eden_partitioning:
        return found.taking_none(LeftOut.BUSY)
    most = tablet.attributes.max_partitioning_store_count
    reasons = _reasons(tablet, found, now_ms)
    if reasons:
        reason, having = by_urgency(reasons, found.chunks)
        others = LeftOut.OVER_MAXIMUM if len(having) > most else LeftOut.NOT_CALLED_FOR
        return found.taking(reason, having[:most], others)
    largest = sorted(found.chunks, key=size_order, reverse=True)
    count = portion_count([chunk.compressed_bytes for chunk in largest], tablet.attributes)
    if count:
        others = LeftOut.OVER_MAXIMUM if count == most else LeftOut.SIZE
        return found.taking(PickReason.REGULAR, largest[:count], others)
    stuck = _stuck(tablet, found, critical)
    if stuck:
        return found.taking(PickReason.CRITICAL, sorted(stuck, key=size_order, reverse=True)[:most], LeftOut.SIZE)
    return found.taking_none(LeftOut.SIZE)


def portion_count(sizes: Sequence[int], attributes: SortedAttributes) -> int:
    """Return how many of the chunks one partitioning takes from the largest on; 0: their sum is too small.

    `sizes` descend. The greatest sum does not hold for the least number of chunks.
    """
    best = total = 0
    for count, size in enumerate(sizes[: attributes.max_partitioning_store_count], 1):
        total += size
        is_least = count == attributes.min_partitioning_store_count
        if (
            count >= attributes.min_partitioning_store_count
            and total >= attributes.min_partitioning_data_size
            and (total <= attributes.max_partitioning_data_size or is_least)
        ):
            best = count
    return best


def _reasons(tablet: TabletStores, found: Candidates, now_ms: int) -> dict[int, PickReason]:
    """Return the reasons of chunks that are partitioned whatever their size.

    Small ones go only where they are too few to be compacted with each other: many small chunks would leave even
    smaller ones in each partition.
    """
    small = {chunk.number for chunk in found.chunks if not is_for_partitioning(chunk, tablet.attributes)}
    waiting = small if len(small) >= tablet.attributes.min_compaction_store_count else frozenset()
    return {
        chunk.number: reason
        for chunk in found.chunks
        if chunk.number not in waiting and (reason := out_of_order(tablet, chunk, now_ms))
    }


def _stuck(tablet: TabletStores, found: Candidates, critical: Mapping[int, bytes]) -> tuple[ChunkStore, ...]:
    """Return chunks of Eden that are too many and that no compaction makes fewer: one over a key, and one below it.

    A task that is under way may help, so while there is one it is waited for.
    """
    attributes = tablet.attributes
    if not {LeftOut.BUSY, LeftOut.BACKING_OFF}.isdisjoint(found.left_out.values()):
        return ()
    is_full = len(tablet.eden) >= attributes.max_eden_stores_per_tablet
    if is_full and _small_count(found.chunks, attributes) < CRITICAL_CHUNKS_MIN:
        return found.chunks
    for index, key in critical.items():
        over = chunks_over(key, found.chunks)
        below = chunks_over(key, tablet.partitions[index].chunks)
        counts = _small_count(over, attributes), sum(not chunk.is_damaged for chunk in below)
        if over and max(counts) < CRITICAL_CHUNKS_MIN:
            return over
    return ()


def _small_count(chunks: Iterable[ChunkStore], attributes: SortedAttributes) -> int:
    return sum(not is_for_partitioning(chunk, attributes) for chunk in chunks)
