"""Chunks of a sorted tablet by place: those within one partition, and Eden's (C.2)."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from pqbroker.tables.serving.open_chunk import OpenChunk
from pqbroker.tables.sorted.picking.facts import ChunkStore, PartitionChunks, partition_of
from pqbroker.tables.sorted.picking.overlap import Overlap, overlap_of


class ChunkLayout(NamedTuple):
    """The chunks by place, as of one moment; another thread may read it, since a change replaces its lists."""

    pivots: Sequence[bytes]
    end: bytes | None
    partitions: Sequence[Sequence[OpenChunk]]
    eden: Sequence[OpenChunk]
    backoffs: Mapping[bytes, int]

    def facts(self) -> tuple[tuple[PartitionChunks, ...], tuple[ChunkStore, ...]]:
        """Return the partitions as background work sees them, and Eden's chunks."""
        ends = (*self.pivots[1:], self.end)
        partitions = tuple(
            PartitionChunks(pivot, end, tuple(chunk.facts() for chunk in chunks), self.backoffs.get(pivot, 0))
            for pivot, end, chunks in zip(self.pivots, ends, self.partitions, strict=True)
        )
        return partitions, tuple(chunk.facts() for chunk in self.eden)


class Structure:
    """The chunks that a tablet has, and its partitions. What changes it is durable already."""

    def __init__(self, pivots: Sequence[bytes], end: bytes | None) -> None:
        """`pivots`: of the partitions, the tablet's own first; `end`: the next tablet's pivot."""
        self.pivots = list(pivots)
        self.end = end
        self.chunks: dict[int, OpenChunk] = {}
        """Chunks by number."""
        self.eden: list[OpenChunk] = []
        self.partitions: list[list[OpenChunk]] = [[] for _ in pivots]
        self._most: Overlap | None = None
        self.changes = 0
        """Changes so far: a survey from before the last one is out of date."""
        self.backoffs: dict[bytes, int] = {}
        """Times, in ms since 1970, before which a partition is neither split nor merged, by its pivot."""

    def change(self, added: Iterable[OpenChunk], removed: Iterable[int], pivots: Sequence[bytes] | None = None) -> None:
        """Take chunks in and out; `pivots`: those that partitions have from now on."""
        for number in removed:
            del self.chunks[number]
        self.chunks.update({chunk.number: chunk for chunk in added})
        if pivots is not None:
            self.pivots = list(pivots)
            kept = set(pivots)
            self.backoffs = {pivot: until for pivot, until in self.backoffs.items() if pivot in kept}
        self._most = None
        self.changes += 1
        self.eden, self.partitions = [], [[] for _ in self.pivots]
        for chunk in self.chunks.values():
            index = partition_of(chunk.first_key, chunk.last_key, self.pivots, self.end)
            (self.eden if index is None else self.partitions[index]).append(chunk)

    def over(self, key: bytes) -> Iterator[OpenChunk]:
        """Yield the chunks that may have a key."""
        for chunks in (self.partitions[bisect_right(self.pivots, key) - 1], self.eden):
            for chunk in chunks:
                if chunk.first_key <= key <= chunk.last_key:
                    yield chunk

    @property
    def most(self) -> Overlap:
        """Return the most chunks over one key (K.3), and the first such key; computed once after each change."""
        if self._most is None:
            self._most = overlap_of(self.chunks.values())
        return self._most

    @property
    def overlap(self) -> int:
        """Return the overlapping store count."""
        return self.most.count

    @property
    def layout(self) -> ChunkLayout:
        """Return the chunks by place as of now."""
        return ChunkLayout(self.pivots, self.end, self.partitions, self.eden, dict(self.backoffs))
