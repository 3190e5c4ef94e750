"""A chunk that lookups read: its record, its index and blocks, which are kept in a node's budget of memory."""

import asyncio
import json
import logging
from collections import OrderedDict
from collections.abc import Iterable
from enum import StrEnum
from itertools import count
from typing import Final

from pqbroker.storage.engine import BlobCorrupt
from pqbroker.storage.kv.tablet import KeyValueTablet
from pqbroker.tables.refusals import TableError
from pqbroker.tables.serving.chunk_records import ChunkRecord
from pqbroker.tables.serving.stored_keys import chunk_data_key
from pqbroker.tables.sorted.blocks import Block
from pqbroker.tables.sorted.chunks import ChunkDamaged, ChunkIndex
from pqbroker.tables.sorted.picking.facts import ChunkStore
from pqbroker.tables.sorted.rows import show_key
from pqbroker.tables.sorted.schema import SortedSchema

INDEX_OF_CHUNK: Final = -1
"""Stands for a chunk's index among the numbers of its blocks."""
INDEX_BYTES_AT_ONCE: Final = 1 << 20
"""Bytes of an index that is decoded in the loop's thread: about a millisecond."""
_CURE: Final = (
    "Other keys are read and written as before. Stop the broker, see what `pqbroker doctor` says, and restore the"
    " directory from a copy."
)
PINNED_PART: Final = 0.8
"""Part of the memory for blocks that tables in memory have at most."""
_numbers = count()
_log = logging.getLogger(__name__)


class Preload(StrEnum):
    """State of a chunk whose table is kept in memory (`in_memory_mode`)."""

    NONE = "none"
    COMPLETED = "completed"
    FAILED = "failed"


class OpenChunk:
    """One chunk of a mounted tablet."""

    __slots__ = (
        "backoff_until_ms", "first_key", "identity", "is_busy", "is_damaged", "last_key", "number", "preload",
        "record",
    )  # fmt: skip

    def __init__(self, number: int, record: ChunkRecord) -> None:
        self.number = number
        self.record = record
        self.first_key = bytes.fromhex(record.first_key)
        self.last_key = bytes.fromhex(record.last_key)
        self.identity = next(_numbers)
        """Unique in this process: numbers are the tablet's."""
        self.is_busy = False
        self.is_damaged = False
        self.preload = Preload.NONE
        self.backoff_until_ms = 0

    def facts(self) -> ChunkStore:
        """Return what background work is picked by."""
        record = self.record
        return ChunkStore(
            self.number, record.size, record.unpacked_bytes, record.rows, record.created_ms, record.least_timestamp,
            record.greatest_timestamp, self.first_key, self.last_key, record.revision, self.is_busy, self.is_damaged,
            self.backoff_until_ms,
        )  # fmt: skip

    def damaged(self, schema: SortedSchema, cause: Exception) -> TableError:
        """Note that the chunk is unreadable, so that no merge takes it; return the refusal of its readers."""
        keys = " to ".join(json.dumps(show_key(schema, key)) for key in (self.first_key, self.last_key))
        text = f"rows with keys from {keys} are unreadable: chunk {self.number}: {cause}"
        if not self.is_damaged:
            self.is_damaged = True
            _log.error("%s; %s", text, _CURE)
        return TableError("CHUNK_DAMAGED", text, _CURE)

    async def read_index(self, kv: KeyValueTablet) -> ChunkIndex:
        """ChunkDamaged; BlobMissing, ShardLost."""
        size = self.record.index_bytes
        data = await self._read(kv, self.record.size - size, size)
        if size <= INDEX_BYTES_AT_ONCE:
            return ChunkIndex.decode(data)
        return await asyncio.to_thread(ChunkIndex.decode, data)

    async def read_block(self, kv: KeyValueTablet, index: ChunkIndex, number: int) -> Block:
        """ChunkDamaged; BlobMissing, ShardLost."""
        return index.block(number, await self.read_packed(kv, index, number))

    async def read_packed(self, kv: KeyValueTablet, index: ChunkIndex, number: int) -> bytes:
        """Return a block as it is stored. ChunkDamaged; BlobMissing, ShardLost."""
        place = index.places[number]
        return await self._read(kv, place.position, place.stored_bytes)

    async def _read(self, kv: KeyValueTablet, position: int, size: int) -> bytes:
        try:
            (buffers,) = await kv.read([(chunk_data_key(self.number), position, size)])
        except BlobCorrupt as damage:
            raise ChunkDamaged(f"chunk {self.number}: {damage}") from None
        return b"".join(buffers)


class KeptBlocks:
    """Blocks and indexes of all chunks of a node, the least recently used go first. Those that are pinned stay until
    their chunk goes; they have at most `PINNED_PART` of the memory."""

    __slots__ = ("_kept", "_pinned", "_pinned_sizes", "bytes_max", "hits", "misses", "pinned_size", "size")

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.size = 0
        self.hits = 0
        self.misses = 0
        self.pinned_size = 0
        self._kept: OrderedDict[tuple[int, int], tuple[Block | ChunkIndex, int]] = OrderedDict()
        self._pinned: dict[int, dict[int, Block | ChunkIndex | bytes]] = {}
        """Pinned items of each chunk, by its identity; bytes are a block as it is stored."""
        self._pinned_sizes: dict[int, int] = {}

    def pin(self, chunk: OpenChunk, items: dict[int, "Block | ChunkIndex | bytes"], size: int) -> bool:
        """Keep all of a chunk, `size` bytes, until it goes. False: there is no room."""
        if self.pinned_size + size > self.bytes_max * PINNED_PART or chunk.identity in self._pinned:
            return False
        self._pinned[chunk.identity] = items
        self.pinned_size += size
        self._pinned_sizes[chunk.identity] = size
        self._shrink()
        return True

    def find(self, chunk: OpenChunk, number: int) -> Block | ChunkIndex | bytes | None:
        """Return what is kept of a chunk: a block by its number, or its INDEX_OF_CHUNK; bytes: a block as stored."""
        pinned = self._pinned.get(chunk.identity)
        if pinned is not None and (item := pinned.get(number)) is not None:
            self.hits += 1
            return item
        key = chunk.identity, number
        found = self._kept.get(key)
        if found is None:
            self.misses += 1
            return None
        self.hits += 1
        self._kept.move_to_end(key)
        return found[0]

    def keep(self, chunk: OpenChunk, number: int, item: Block | ChunkIndex, size: int) -> None:
        """Keep what takes `size` bytes, unless it has no room at all."""
        key = chunk.identity, number
        if size > self.bytes_max or key in self._kept:
            return
        self._kept[key] = item, size
        self.size += size
        self._shrink()

    def forget(self, chunks: Iterable[OpenChunk]) -> None:
        """Drop what is kept of chunks that are gone: one walk through all that is kept."""
        gone = {chunk.identity: chunk for chunk in chunks}
        for key in [key for key in self._kept if key[0] in gone]:
            self.size -= self._kept.pop(key)[1]
        for chunk in gone.values():
            self.unpin(chunk)

    def unpin(self, chunk: OpenChunk) -> None:
        """Let go of what was pinned of a chunk."""
        chunk.preload = Preload.NONE
        if self._pinned.pop(chunk.identity, None) is not None:
            self.pinned_size -= self._pinned_sizes.pop(chunk.identity)

    def _shrink(self) -> None:
        while self._kept and self.size + self.pinned_size > self.bytes_max:
            _, (_, freed) = self._kept.popitem(last=False)
            self.size -= freed
