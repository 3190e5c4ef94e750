"""The memory store of a sorted tablet: versions by key, as they were logged (C.2).

It has no order: who needs one sorts once. A store is active until it rotates, then passive until its rows are in a
chunk; no row leaves it.

Keys are spread over several dicts, since one that grows moves all it has: 15 ms with 350 000 keys. Lists are apart from
the keys with one version, which are the most: Python's collector of cycles walks through a dict once a list is in it,
through all its entries, 10 to 17 ms.
"""

from bisect import bisect
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

KEY_MEMORY: Final = 205
"""Bytes that a key takes besides its own and its version's: the entry of a dict, two objects (measured)."""
VERSION_MEMORY: Final = 48
"""Bytes that each further version of a key takes besides its own."""
LIST_MEMORY: Final = 110
"""Bytes that a key with several versions takes besides these: the entry of a second dict (measured)."""
KEYS_OF_SLICE: Final = 20_000
"""Keys that are gone through before the loop's other work has its turn: a millisecond or two."""

SHARDS: Final = 16
"""Dicts of a store."""
_SLOTS: Final = 256
_SHARE_OF_SHARD: Final = [2 ** (shard / SHARDS) for shard in range(SHARDS)]
"""Shares of the keys, from one to almost twice as many: a dict grows at each doubling, and so each at another time."""
_SHARD_OF_SLOT: Final = bytes(
    bisect([sum(_SHARE_OF_SHARD[:shard]) for shard in range(SHARDS)], slot / _SLOTS * sum(_SHARE_OF_SHARD)) - 1
    for slot in range(_SLOTS)
)
_SLOT_OF_HASH: Final = _SLOTS - 1


class RowStore:
    """Rows of one store."""

    __slots__ = (
        "__weakref__", "_firsts", "_several", "begun_ms", "greatest_timestamp", "key_count", "least_timestamp",
        "list_count", "memory_bytes", "number", "passive_for", "row_count",
    )  # fmt: skip

    def __init__(self, number: int, begun_ms: int) -> None:
        """`begun_ms`: milliseconds since 1970."""
        self.number = number
        self.begun_ms = begun_ms
        self.row_count = 0
        """Versions of all keys."""
        self.key_count = 0
        self.list_count = 0
        """Keys with several versions: lists are objects that Python's collector of cycles looks at."""
        self.memory_bytes = 0
        self.least_timestamp: int | None = None
        """None: it has no row. The first row may have a greater one: a transaction's rows come after the commits of
        other keys that were given later timestamps."""
        self.greatest_timestamp = 0
        self.passive_for = ""
        """Reason why it is passive; empty: it is active."""
        self._firsts: tuple[dict[bytes, bytes], ...] = tuple({} for _ in range(SHARDS))
        """The oldest version of each key."""
        self._several: tuple[dict[bytes, list[bytes]], ...] = tuple({} for _ in range(SHARDS))
        """All versions of the keys that have several, the oldest first."""

    def apply(self, rows: Iterable[tuple[bytes, bytes]], least: int, greatest: int) -> None:
        """Add versions that are durable, each behind its key; of one key they come in the order of their timestamps.
        `least`, `greatest`: timestamps among them, which the caller knows without a look at each row."""
        firsts, several = self._firsts, self._several
        count = memory = lists = keys = 0
        for key, version in rows:
            shard = _SHARD_OF_SLOT[hash(key) & _SLOT_OF_HASH]
            first = firsts[shard].setdefault(key, version)
            memory += len(version)
            count += 1
            if first is version:
                memory += KEY_MEMORY + len(key)
                keys += 1
                continue
            memory += VERSION_MEMORY
            versions = several[shard].get(key)
            if versions is None:
                several[shard][key] = [first, version]
                memory += LIST_MEMORY
                lists += 1
            else:
                versions.append(version)
        if count:
            before_all = self.least_timestamp
            self.least_timestamp = least if before_all is None else min(before_all, least)
            self.greatest_timestamp = max(self.greatest_timestamp, greatest)
        self.row_count += count
        self.key_count += keys
        self.list_count += lists
        self.memory_bytes += memory

    @property
    def memory_blocks(self) -> int:
        """Return the number of blocks of memory that its rows take: keys, versions, and two for each list."""
        return self.row_count + self.key_count + 2 * self.list_count

    def versions(self, key: bytes) -> Sequence[bytes]:
        """Return the versions of a key, the oldest first."""
        shard = _SHARD_OF_SLOT[hash(key) & _SLOT_OF_HASH]
        first = self._firsts[shard].get(key)
        return () if first is None else self._several[shard].get(key) or (first,)

    def key_slices(self) -> Iterator[list[bytes]]:
        """Yield the keys in no order, `KEYS_OF_SLICE` at most at a time; what is added in between may be among them."""
        for shard in self._firsts:
            keys = list(shard)
            for begin in range(0, len(keys), KEYS_OF_SLICE):
                yield keys[begin : begin + KEYS_OF_SLICE]

    def spent_rows(self) -> "SpentRows":
        """Return the rows, to be dropped once nobody reads the store."""
        return SpentRows([*self._firsts, *self._several])


class SpentRows:
    """Rows of a store that nobody reads any more. To free them at once takes some 20 ms."""

    __slots__ = ("_shards",)

    def __init__(self, shards: "list[dict[bytes, bytes] | dict[bytes, list[bytes]]]") -> None:
        self._shards = shards

    def drop(self, rows: int) -> bool:
        """Free at most this many rows. Return True if some are left."""
        while self._shards and (rows > 0 or not self._shards[-1]):
            shard: dict[bytes, Any] = self._shards[-1]
            while shard and rows > 0:
                key, versions = shard.popitem()
                rows -= 1 if isinstance(versions, bytes) else len(versions)
                if rows < 0:
                    del versions[-rows:]
                    shard[key] = versions
            if not shard:
                del self._shards[-1]
        return bool(self._shards)
