"""Stores of tablets for tests: short ways to say them, and naive readings of them."""

from collections.abc import Iterable, Sequence
from typing import Any

from pqbroker.conf.sorted_attributes import sorted_in_force
from pqbroker.pq.log.commit_timestamps import timestamp_of
from pqbroker.tables.sorted.picking.facts import ChunkStore, DynamicStore, PartitionChunks, TabletStores

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
NOW = 1_800_000_000_000
DAY = 86_400_000
KEYS_END = 1 << 16
FAR_BARRIER = 1 << 63


def key(number: int) -> bytes:
    """Return a key that sorts as its number."""
    return number.to_bytes(4, "big")


def chunk(number: int, size: float = MIB, keys: tuple[int, int] = (0, KEYS_END - 1), **facts: Any) -> ChunkStore:
    """Return a chunk of NOW over all keys that are used, unless something else is said."""
    known: dict[str, Any] = {
        "compressed_bytes": int(size), "uncompressed_bytes": int(2 * size), "rows": max(1, int(size) // 100),
        "created_ms": NOW, "least_timestamp": timestamp_of(NOW), "greatest_timestamp": timestamp_of(NOW),
        "first_key": key(keys[0]), "last_key": key(keys[1]), "revision": number,
    }  # fmt: skip
    return ChunkStore(number, **{**known, **facts})


def chunks(*sizes: float, first: int = 1) -> tuple[ChunkStore, ...]:
    """Return chunks of these sizes, numbered from the left."""
    return tuple(chunk(number, size) for number, size in enumerate(sizes, first))


def tablet(
    *partitions: Iterable[ChunkStore], eden: Iterable[ChunkStore] = (), facts: dict[str, Any] | None = None, **set_: Any
) -> TabletStores:
    """Return a tablet with partitions of equal ranges; `set_` are attributes."""
    count = max(1, len(partitions))
    pivots = [b"", *(key(KEYS_END * index // count) for index in range(1, count))]
    ends: list[bytes | None] = [*pivots[1:], None]
    held = [tuple(each) for each in partitions] or [()]
    made = tuple(PartitionChunks(*each) for each in zip(pivots, ends, held, strict=True))
    known: dict[str, Any] = {"barrier": FAR_BARRIER, **(facts or {})}
    return TabletStores(7, sorted_in_force(set_), made, tuple(eden), **known)


def store(number: int = 1, rows: int = 1, size: int = 100, **facts: Any) -> DynamicStore:
    known: dict[str, Any] = {"least_timestamp": timestamp_of(NOW) if rows else None, "begun_ms": NOW}
    return DynamicStore(number, rows, size, **{**known, **facts})


def numbers(held: Iterable[ChunkStore]) -> list[int]:
    return [each.number for each in held]


def sizes_in_mib(held: Sequence[ChunkStore]) -> list[float]:
    return [each.compressed_bytes / MIB for each in held]
