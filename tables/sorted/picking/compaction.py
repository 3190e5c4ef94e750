"""Picking chunks of one partition, or of Eden, to be compacted into one (C.5, C.6, K.3).

    first that applies               takes                                          at most
    mode `partition`, one is due     all, once no other task reads one              all
    forced, out of range, due        those, the oldest first                        max_compaction_store_count
    too many chunks over a key       the smallest over it, two at least             max_compaction_store_count
    else                             the most that fit by size, min_… at least      max_compaction_store_count
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from pqbroker.conf.sorted_attributes import PARTITION, SortedAttributes
from pqbroker.tables.sorted.picking.choice import (
    Candidates,
    Choice,
    LeftOut,
    PickReason,
    age_order,
    by_urgency,
    candidates,
    out_of_order,
    size_order,
)
from pqbroker.tables.sorted.picking.due_times import is_due
from pqbroker.tables.sorted.picking.facts import ChunkStore, PartitionChunks, TabletStores
from pqbroker.tables.sorted.picking.overlap import chunks_over

CRITICAL_CHUNKS_MIN = 2
"""Fewer chunks would not become fewer."""


def pick_in_partition(
    tablet: TabletStores, partition: PartitionChunks, critical_key: bytes | None, now_ms: int
) -> Choice:
    """Choose chunks of a partition. `critical_key`: a key of it that too many chunks lie over; None: it has none."""
    found = candidates(partition.chunks, now_ms)
    over = () if critical_key is None else chunks_over(critical_key, found.chunks)
    return _pick(tablet, found, over, now_ms)


def pick_in_eden(
    tablet: TabletStores, critical: Mapping[int, bytes], now_ms: int, elsewhere: Collection[int] = ()
) -> Choice:
    """Choose chunks of Eden. `critical`: keys that too many chunks lie over, by the partition that has them;
    `elsewhere`: chunks that partitioning was given.

    Chunks of at least min_partitioning_data_size are for partitioning alone.
    """
    attributes = tablet.attributes
    small = (chunk for chunk in tablet.eden if not is_for_partitioning(chunk, attributes))
    found = candidates(small, now_ms, elsewhere)
    over = max((chunks_over(key, found.chunks) for key in critical.values()), key=len, default=())
    if len(tablet.eden) >= attributes.max_eden_stores_per_tablet:
        over = found.chunks
    choice = _pick(tablet, found, over, now_ms)
    large = (chunk for chunk in tablet.eden if is_for_partitioning(chunk, attributes))
    others = candidates(large, now_ms, elsewhere).taking_none(LeftOut.LARGE)
    return replace(choice, left_out={**choice.left_out, **others.left_out})


def is_for_partitioning(chunk: ChunkStore, attributes: SortedAttributes) -> bool:
    """Return True if a chunk of Eden is large enough to be partitioned alone."""
    return chunk.compressed_bytes >= attributes.min_partitioning_data_size


def size_window(sizes: Sequence[int], attributes: SortedAttributes) -> range:
    """Return the place of the most chunks that fit to each other, the leftmost among equals; empty where none do.

    `sizes` ascend. A window begins anywhere; a next chunk fits while the sum with it is at most the base, or while it
    is at most `ratio` times the sum before it.
    """
    best = range(0)
    for start in range(len(sizes)):
        if len(sizes) - start <= len(best):
            break
        end = _window_end(sizes, start, attributes)
        if end - start > len(best):
            best = range(start, end)
    return best if len(best) >= attributes.min_compaction_store_count else range(0)


def _window_end(sizes: Sequence[int], start: int, attributes: SortedAttributes) -> int:
    total = sizes[start]
    last = min(len(sizes), start + attributes.max_compaction_store_count)
    for index in range(start + 1, last):
        size = sizes[index]
        if total + size > attributes.compaction_data_size_base and size > attributes.compaction_data_size_ratio * total:
            return index
        total += size
    return last


def _pick(tablet: TabletStores, found: Candidates, over: tuple[ChunkStore, ...], now_ms: int) -> Choice:
    """Choose by the first reason that applies; `over`: candidates over a key that too many chunks lie over."""
    attributes, most = tablet.attributes, tablet.attributes.max_compaction_store_count
    is_whole = attributes.periodic_compaction_mode == PARTITION
    if is_whole and any(is_due(tablet.tablet_id, chunk, attributes, now_ms) for chunk in found.chunks):
        is_complete = {LeftOut.BUSY, LeftOut.BACKING_OFF}.isdisjoint(found.left_out.values())
        if is_complete:
            inputs = sorted(found.chunks, key=age_order)
            return found.taking(PickReason.WHOLE_PARTITION, inputs, LeftOut.NOT_CALLED_FOR)
        if len(over) < CRITICAL_CHUNKS_MIN:
            return found.taking_none(LeftOut.WAITING)
    reasons = {chunk.number: reason for chunk in found.chunks if (reason := out_of_order(tablet, chunk, now_ms))}
    if is_whole:
        reasons = {number: reason for number, reason in reasons.items() if reason is not PickReason.PERIODIC}
    if reasons:
        reason, having = by_urgency(reasons, found.chunks)
        return found.taking(reason, having[:most], _rest(len(having) > most, LeftOut.NOT_CALLED_FOR))
    if len(over) >= CRITICAL_CHUNKS_MIN:
        inputs = sorted(over, key=size_order)[:most]
        return found.taking(PickReason.CRITICAL, inputs, _rest(len(over) > most, LeftOut.NOT_CALLED_FOR))
    return _pick_by_size(attributes, found)


def _pick_by_size(attributes: SortedAttributes, found: Candidates) -> Choice:
    ordered = sorted(found.chunks, key=size_order)
    window = size_window([chunk.compressed_bytes for chunk in ordered], attributes)
    if not window:
        return found.taking_none(LeftOut.SIZE)
    is_full = len(window) == attributes.max_compaction_store_count
    inputs = ordered[window.start : window.stop]
    return found.taking(PickReason.REGULAR, inputs, _rest(is_full, LeftOut.SIZE))


def _rest(is_full: bool, otherwise: LeftOut) -> LeftOut:
    return LeftOut.OVER_MAXIMUM if is_full else otherwise
