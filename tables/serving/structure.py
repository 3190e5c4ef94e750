"""Chunks of a sorted tablet by place: those within one partition, and Eden's (C.2)."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from operator import attrgetter
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
        self.settled_mode: str | None = None
        """The mode (`in_memory_mode`) that all chunks are kept by; None: they are to be looked through."""
        self.backoffs: dict[bytes, int] = {}
        """Times, in ms since 1970, before which a partition is neither split nor merged, by its pivot."""

    def change(self, added: Iterable[OpenChunk], removed: Iterable[int], pivots: Sequence[bytes] | None = None) -> None:
        """Take chunks in and out; `pivots`: those that partitions have from now on."""
        gone = [self.chunks.pop(number) for number in removed]
        new = {chunk.number: chunk for chunk in added}
        self.chunks.update(new)
        self._leave(gone)
        self._enter([*new.values()] if pivots is None else [*new.values(), *self._divide(pivots)])
        self._most = None
        self.settled_mode = None
        self.changes += 1

    def _leave(self, gone: Sequence[OpenChunk]) -> None:
        """Take chunks out of their places. Lists are replaced, here as below: another thread may read the old ones."""
        numbers = {chunk.number for chunk in gone}
        self.partitions = list(self.partitions)
        for index in {self._place(chunk) for chunk in gone}:
            self._set(index, [chunk for chunk in self._at(index) if chunk.number not in numbers])

    def _divide(self, pivots: Sequence[bytes]) -> list[OpenChunk]:
        """Have other partitions; return the chunks that are to be placed again: those of Eden, and of the partitions
        that are no more. The others are not looked at, for a tablet may have ten thousand."""
        before = dict(zip(self._spans(), self.partitions, strict=True))
        self.pivots = list(pivots)
        kept = set(pivots)
        self.backoffs = {pivot: until for pivot, until in self.backoffs.items() if pivot in kept}
        self.partitions = [before.pop(span, []) for span in self._spans()]
        unplaced = [*self.eden, *chain.from_iterable(before.values())]
        self.eden = []
        return unplaced

    def _spans(self) -> Iterator[tuple[bytes, bytes | None]]:
        return zip(self.pivots, (*self.pivots[1:], self.end), strict=True)

    def _enter(self, chunks: Iterable[OpenChunk]) -> None:
        """Put chunks in their places, each list in the order of their numbers."""
        found: defaultdict[int | None, list[OpenChunk]] = defaultdict(list)
        for chunk in chunks:
            found[self._place(chunk)].append(chunk)
        for index, some in found.items():
            self._set(index, sorted([*self._at(index), *some], key=attrgetter("number")))

    def _place(self, chunk: OpenChunk) -> int | None:
        """Return the index of the partition that a chunk is in; None: it is Eden's."""
        return partition_of(chunk.first_key, chunk.last_key, self.pivots, self.end)

    def _at(self, index: int | None) -> Sequence[OpenChunk]:
        return self.eden if index is None else self.partitions[index]

    def _set(self, index: int | None, chunks: list[OpenChunk]) -> None:
        if index is None:
            self.eden = chunks
        else:
            self.partitions[index] = chunks

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
