"""Overlapping store count: chunks over one key, those of Eden included, dynamic stores not (C.2, K.3).

It bounds what a lookup reads. It is counted exactly, by keys: chunks of a partition that do not overlap count as one.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from pqbroker.tables.sorted.picking.facts import ChunkStore, TabletStores


class SpanOfKeys(Protocol):
    """A chunk, by its first and its last key."""

    @property
    def first_key(self) -> bytes: ...
    @property
    def last_key(self) -> bytes: ...


@dataclass(frozen=True, slots=True)
class Overlap:
    """The most chunks over one key of a range, and the first key with that many over it."""

    count: int
    key: bytes


def overlaps(tablet: TabletStores) -> tuple[Overlap, ...]:
    """Return the overlap of each partition, the chunks of Eden included."""
    firsts = sorted(chunk.first_key for chunk in tablet.chunks())
    lasts = sorted(chunk.last_key for chunk in tablet.chunks())

    def covering(key: bytes) -> int:
        return bisect_right(firsts, key) - bisect_left(lasts, key)

    found = []
    for partition in tablet.partitions:
        begin = bisect_left(firsts, partition.pivot)
        end = len(firsts) if partition.end is None else bisect_left(firsts, partition.end)
        key = max((partition.pivot, *firsts[begin:end]), key=covering)
        found.append(Overlap(covering(key), key))
    return tuple(found)


def overlap_of(chunks: Iterable[SpanOfKeys]) -> Overlap:
    """Return the most of these chunks over one key, and the first such key; 0 over the empty key without chunks."""
    firsts, lasts = [], []
    for chunk in chunks:
        firsts.append(chunk.first_key)
        lasts.append(chunk.last_key)
    firsts.sort()
    lasts.sort()
    most, key, ended = 0, b"", 0
    for begun, first in enumerate(firsts, 1):
        while lasts[ended] < first:
            ended += 1
        if begun - ended > most:
            most, key = begun - ended, first
    return Overlap(most, key)


def overlapping_store_count(chunks: Iterable[SpanOfKeys]) -> int:
    """Return the most of these chunks over one key; 0 without chunks."""
    return overlap_of(chunks).count


def chunks_over(key: bytes, chunks: Iterable[ChunkStore]) -> tuple[ChunkStore, ...]:
    """Return the chunks that may have the key."""
    return tuple(chunk for chunk in chunks if chunk.covers(key))


def critical_keys(tablet: TabletStores, found: tuple[Overlap, ...]) -> dict[int, bytes]:
    """Return the index of each critical partition, in which compaction ignores sizes, with the key that too many chunks
    lie over."""
    limit = tablet.attributes.critical_overlap
    return {index: overlap.key for index, overlap in enumerate(found) if overlap.count >= limit}
