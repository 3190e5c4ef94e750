"""Lookups in a mounted tablet, of keys and of ranges of keys: in the stores in memory, and in the blocks of each chunk
that may have them."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple

from pqbroker.storage.engine import BlobMissing, CommitRefused
from pqbroker.storage.kv.changing_values import see_deletions
from pqbroker.storage.kv.commands import KeyMissing
from pqbroker.storage.kv.tablet import KeyValueTablet
from pqbroker.tables.refusals import TableError
from pqbroker.tables.serving.open_chunk import INDEX_OF_CHUNK, KeptBlocks, OpenChunk
from pqbroker.tables.serving.structure import Structure
from pqbroker.tables.sorted.blocks import Block
from pqbroker.tables.sorted.chunks import ChunkDamaged, ChunkIndex
from pqbroker.tables.sorted.packed_rows import ABSENT, KIND_AT, Kind, timestamp_of
from pqbroker.tables.sorted.picking.overlap import overlapping_store_count
from pqbroker.tables.sorted.schema import SortedSchema
from pqbroker.tables.sorted.store import RowStore
from pqbroker.tables.sorted.versions import Version, seen

_Pinned = dict[tuple[int, int], Block | ChunkIndex]
"""Blocks and indexes that one lookup has read: they may be no longer kept meanwhile."""


FOUND_KEYS_MAX: Final = 10_000
"""Keys of a range that is looked up, those of deleted rows included."""
READ_BYTES_MAX: Final = 64 << 20
"""Unpacked bytes of the blocks that the lookup of a range reads."""
_CHUNK_LOST = (BlobMissing, ChunkDamaged, KeyMissing)
"""Errors of a chunk that is damaged, or was merged with others or moved meanwhile."""
_MERGED_FIRST: Final = (
    "Wait for compaction (`pqbroker table inside` shows it; enable_compaction_and_partitioning switches it on), or "
    "raise the attribute and remount. SQL reads any number of chunks."
)
_ROWS_AT_ONCE = 200
"""Rows of a block, or keys in memory, that are gone through before the loop's other work has its turn."""


class RangeTooLarge(Exception):
    """A range has too many keys or bytes to be looked up; the text says of what, and how many there may be."""


class ChunkReplaced(Exception):
    """A chunk of the range was merged with others, or moved, meanwhile: look again."""


class StoredRows(NamedTuple):
    """All that a tablet has rows in, as of now."""

    schema: SortedSchema
    stores: Sequence[RowStore]
    """Stores in memory, the newest first."""
    structure: Structure
    kv: KeyValueTablet
    kept: KeptBlocks
    fan_in_max: int
    """Chunks over one key that are read at most."""


class Lookup:
    """Lookups of one request in one tablet, at one timestamp."""

    def __init__(self, rows_now: Callable[[], StoredRows], timestamp: int) -> None:
        self._rows_now = rows_now
        self._timestamp = timestamp
        self._pinned: _Pinned = {}
        self._rows = rows_now()
        """The rows that are looked in, until some of them are elsewhere."""

    async def find(self, key: bytes) -> Sequence[Any] | None:
        """Return the values of the row; None: there is none. TableError CHUNK_DAMAGED, READ_FAN_IN_EXCEEDED;
        ShardLost."""
        versions = self._in_memory(key)
        base = versions[-1].timestamp if versions and _is_whole(versions[-1]) else -1
        chunks = [chunk for chunk in self._rows.structure.over(key) if self._may_matter(chunk, base)]
        self._check_fan_in(len(chunks))
        for chunk in chunks:
            try:
                versions += await self._in_chunk(chunk, key)
            except _CHUNK_LOST as damage:
                if await self._is_replaced(chunk):
                    self._rows = self._rows_now()
                    return await self.find(key)  # its rows are elsewhere
                raise chunk.damaged(self._rows.schema, damage) from None
        if chunks:
            versions.sort(key=_newest_first)
        return seen(versions, self._timestamp, range(len(self._rows.schema.values)))

    async def newest_in(self, chunk: OpenChunk, key: bytes) -> int:
        """Return the timestamp of the newest version that a chunk has of a key; 0: it has none. TableError
        CHUNK_DAMAGED; ChunkReplaced, ShardLost."""
        try:
            versions = await self._in_chunk(chunk, key)
        except _CHUNK_LOST as damage:
            if await self._is_replaced(chunk):
                raise ChunkReplaced from None
            raise chunk.damaged(self._rows.schema, damage) from None
        return max((version.timestamp for version in versions), default=0)

    async def find_range(self, first: bytes, end: bytes | None) -> list[tuple[bytes, Sequence[Any]]]:
        """Return the rows of the keys from `first` to before `end` (None: to the last one), each behind its key, in
        order. RangeTooLarge; TableError CHUNK_DAMAGED, READ_FAN_IN_EXCEEDED; ChunkReplaced, ShardLost."""
        chunks = [
            chunk
            for chunk in self._rows.structure.chunks.values()
            if first <= chunk.last_key
            and (end is None or chunk.first_key < end)
            and chunk.record.least_timestamp <= self._timestamp
        ]
        self._check_fan_in(overlapping_store_count(chunks))
        found: dict[bytes, list[Version]] = {}
        for store in self._rows.stores:
            for keys in store.key_slices():
                found.update((key, []) for key in keys if first <= key and (end is None or key < end))
                _check_keys(found)
                await asyncio.sleep(0)
        for number, key in enumerate(found):
            if number % _ROWS_AT_ONCE == _ROWS_AT_ONCE - 1:
                await asyncio.sleep(0)
            found[key] += self._in_memory(key)
        read_bytes = 0
        for chunk in chunks:
            try:
                read_bytes += await self._add_chunk(chunk, (first, end), found, READ_BYTES_MAX - read_bytes)
            except _CHUNK_LOST as damage:
                if await self._is_replaced(chunk):
                    raise ChunkReplaced from None
                raise chunk.damaged(self._rows.schema, damage) from None
        rows: list[tuple[bytes, Sequence[Any]]] = []
        columns = range(len(self._rows.schema.values))
        for number, key in enumerate(sorted(found)):
            if number % _ROWS_AT_ONCE == _ROWS_AT_ONCE - 1:
                await asyncio.sleep(0)
            values = seen(sorted(found[key], key=_newest_first), self._timestamp, columns)
            if values is not None:
                rows.append((key, values))
        return rows

    def _check_fan_in(self, chunks: int) -> None:
        """Check the chunks over one key that are to be read. TableError READ_FAN_IN_EXCEEDED."""
        limit = self._rows.fan_in_max
        if chunks > limit:
            text = f"Read fan-in limit exceeded: {chunks} chunks over one key, and max_read_fan_in is {limit}"
            raise TableError("READ_FAN_IN_EXCEEDED", text, _MERGED_FIRST)

    async def _is_replaced(self, chunk: OpenChunk) -> bool:
        """Return True if the tablet has no such chunk any more where it was looked for. ShardLost."""
        now = self._rows_now()
        if now.kv is self._rows.kv:
            with suppress(CommitRefused):
                await see_deletions(self._rows.kv)
            now = self._rows_now()
        return now.kv is not self._rows.kv or now.structure.chunks.get(chunk.number) is not chunk

    async def _add_chunk(
        self, chunk: OpenChunk, bounds: tuple[bytes, bytes | None], found: dict[bytes, list[Version]], bytes_max: int
    ) -> int:
        """Add the versions that a chunk has of a range of keys; return the unpacked bytes that were read.
        RangeTooLarge; ChunkDamaged, BlobMissing, KeyMissing."""
        index = await self._index(chunk)
        read_bytes = 0
        for number in index.blocks_of_range(*bounds):
            read_bytes += index.places[number].unpacked_bytes
            if read_bytes > bytes_max:
                raise RangeTooLarge(f"more than {READ_BYTES_MAX} bytes of rows")
            block = await self._block(chunk, index, number)
            await self._add_block(block, index, bounds, found)
        return read_bytes

    async def _add_block(
        self, block: Block, index: ChunkIndex, bounds: tuple[bytes, bytes | None], found: dict[bytes, list[Version]]
    ) -> None:
        """Add the versions that a block has of a range of keys. RangeTooLarge."""
        first, end = bounds
        for row in range(block.find(first), block.rows if end is None else block.find(end)):
            if row % _ROWS_AT_ONCE == _ROWS_AT_ONCE - 1:
                _check_keys(found)
                await asyncio.sleep(0)
            version = self._version(block, index, row)
            if version.timestamp <= self._timestamp:
                found.setdefault(block.key(row), []).append(version)
        _check_keys(found)

    def _in_memory(self, key: bytes) -> list[Version]:
        """Return versions of the stores, the newest first, down to one that hides all before it."""
        found: list[Version] = []
        for store in self._rows.stores:
            for packed in reversed(store.versions(key)):
                timestamp = timestamp_of(packed)
                if timestamp > self._timestamp:
                    continue
                if packed[KIND_AT] == Kind.DELETE:
                    found.append(Version(timestamp, None))
                    return found
                found.append(Version(timestamp, self._rows.schema.form.values(packed)))
                if packed[KIND_AT] == Kind.WRITE:
                    return found
        return found

    def _may_matter(self, chunk: OpenChunk, base: int) -> bool:
        return chunk.record.least_timestamp <= self._timestamp and chunk.record.greatest_timestamp > base

    async def _in_chunk(self, chunk: OpenChunk, key: bytes) -> list[Version]:
        index = await self._index(chunk)
        if not index.may_have(key):
            return []
        found: list[Version] = []
        for number in index.blocks_of(key):
            block = await self._block(chunk, index, number)
            rows = block.rows_of(key)
            found += [self._version(block, index, row) for row in rows]
            if rows.stop < block.rows:
                break
        return found

    def _version(self, block: Block, index: ChunkIndex, row: int) -> Version:
        """Return a version with a value for each column of the table, which may have more than the chunk."""
        version = block.version(row, len(self._rows.schema.keys))
        lacking = len(self._rows.schema.values) - len(index.facts.value_columns)
        if lacking and version.values is not None:
            return Version(version.timestamp, [*version.values, *[ABSENT] * lacking])
        return version

    async def _index(self, chunk: OpenChunk) -> ChunkIndex:
        found = self._find(chunk, INDEX_OF_CHUNK)
        if isinstance(found, ChunkIndex):
            return found
        index = await chunk.read_index(self._rows.kv)
        self._keep(chunk, INDEX_OF_CHUNK, index, chunk.record.index_bytes)
        return index

    async def _block(self, chunk: OpenChunk, index: ChunkIndex, number: int) -> Block:
        found = self._find(chunk, number)
        if isinstance(found, Block):
            return found
        if isinstance(found, bytes):
            block = index.block(number, found)
        else:
            block = await chunk.read_block(self._rows.kv, index, number)
        self._keep(chunk, number, block, index.places[number].unpacked_bytes)
        return block

    def _find(self, chunk: OpenChunk, number: int) -> Block | ChunkIndex | bytes | None:
        return self._pinned.get((chunk.identity, number)) or self._rows.kept.find(chunk, number)

    def _keep(self, chunk: OpenChunk, number: int, item: Block | ChunkIndex, size: int) -> None:
        self._pinned[chunk.identity, number] = item
        self._rows.kept.keep(chunk, number, item, size)


def _check_keys(found: dict[bytes, list[Version]]) -> None:
    if len(found) > FOUND_KEYS_MAX:
        raise RangeTooLarge(f"more than {FOUND_KEYS_MAX} keys, those of rows that were deleted included")


def _is_whole(version: Version) -> bool:
    return version.values is None or ABSENT not in version.values


def _newest_first(version: Version) -> int:
    return -version.timestamp
