"""Facts about the stores of a sorted tablet, by which its background work is picked (C.2): those of one moment.

A chunk belongs to the partition that all its keys lie in, or else to Eden, which has the range of the tablet. Keys are
encoded (`tables/sorted/keys.py`), so ranges compare bytes.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pqbroker.conf.sorted_attributes import SortedAttributes


@dataclass(frozen=True, slots=True)
class ChunkStore:
    """One chunk."""

    number: int
    compressed_bytes: int
    uncompressed_bytes: int
    rows: int
    """Versions of keys."""
    created_ms: int
    """Milliseconds since 1970."""
    least_timestamp: int
    greatest_timestamp: int
    first_key: bytes
    last_key: bytes
    """Keys of its first and last row, both in it."""
    revision: int
    """Revision of the table when it was made."""
    is_busy: bool = False
    """A task reads it."""
    is_damaged: bool = False
    """Some of it is unreadable: no task takes it."""
    backoff_until_ms: int = 0
    """Time before which no task takes it, because its last one failed."""

    def covers(self, key: bytes) -> bool:
        """Return True if the key lies between its first and last one."""
        return self.first_key <= key <= self.last_key

    def touches(self, pivot: bytes, end: bytes | None) -> bool:
        """Return True if it may have keys from `pivot` to before `end` (None: to the last one)."""
        return self.last_key >= pivot and (end is None or self.first_key < end)

    def lies_within(self, pivot: bytes, end: bytes | None) -> bool:
        """Return True if it has no other keys than those."""
        return self.first_key >= pivot and (end is None or self.last_key < end)


@dataclass(frozen=True, slots=True)
class DynamicStore:
    """One store in memory, active or passive."""

    number: int
    rows: int
    memory_bytes: int
    least_timestamp: int | None
    """None: it has no row."""
    begun_ms: int
    """Milliseconds since 1970."""
    values: int = 0
    timestamps: int = 0


@dataclass(frozen=True, slots=True)
class PartitionChunks:
    """One partition: a range of keys, and the chunks that lie within it."""

    pivot: bytes
    end: bytes | None
    """Pivot of the next partition, or the end of the tablet; None: it has no end."""
    chunks: tuple[ChunkStore, ...] = ()
    backoff_until_ms: int = 0
    """Time before which it is neither split nor merged."""

    @property
    def compressed_bytes(self) -> int:
        return sum(chunk.compressed_bytes for chunk in self.chunks)

    @property
    def is_busy(self) -> bool:
        """Return True if a task reads one of its chunks."""
        return any(chunk.is_busy for chunk in self.chunks)


@dataclass(frozen=True, slots=True)
class TabletStores:
    """All stores of a tablet."""

    tablet_id: int
    attributes: SortedAttributes
    """Attributes in force in this tablet."""
    partitions: tuple[PartitionChunks, ...]
    """One at least, from left to right without gaps."""
    eden: tuple[ChunkStore, ...] = ()
    active: DynamicStore | None = None
    """None: the tablet is frozen, or on its way."""
    passive: tuple[DynamicStore, ...] = ()
    barrier: int = 0
    """Timestamp that each later commit is above, and that no open query reads below."""
    is_eden_partitioning: bool = False

    @property
    def pivot(self) -> bytes:
        return self.partitions[0].pivot

    @property
    def end(self) -> bytes | None:
        return self.partitions[-1].end

    @property
    def eden_bytes(self) -> int:
        """Return Eden's compressed bytes."""
        return sum(chunk.compressed_bytes for chunk in self.eden)

    @property
    def chunk_count(self) -> int:
        return len(self.eden) + sum(len(partition.chunks) for partition in self.partitions)

    @property
    def dynamic_store_count(self) -> int:
        return (self.active is not None) + len(self.passive)

    def chunks(self) -> Iterator[ChunkStore]:
        """Yield all chunks, those of Eden first."""
        yield from self.eden
        for partition in self.partitions:
            yield from partition.chunks

    def dynamic_stores(self) -> Iterator[DynamicStore]:
        if self.active is not None:
            yield self.active
        yield from self.passive


def partition_of(first_key: bytes, last_key: bytes, pivots: Sequence[bytes], end: bytes | None) -> int | None:
    """Return the index of the partition that a chunk with these keys belongs to; None: it belongs to Eden.

    `pivots` are those of the tablet's partitions in order, `end` is the tablet's.
    """
    index = bisect_right(pivots, first_key) - 1
    if index < 0 or (end is not None and last_key >= end):
        return None
    return index if bisect_right(pivots, last_key) - 1 == index else None
