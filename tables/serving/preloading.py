"""Chunks of tables that are kept in memory (`in_memory_mode`): read whole, and pinned among the node's kept blocks.

    none --looked at by background work--> read and pinned --> completed; no room, unreadable --> failed

A chunk that failed is read from disk as any other, and is tried again with the tablet's next mount.
"""

from pqbroker.storage.engine import BlobMissing, ShardLost
from pqbroker.storage.kv.commands import KeyMissing
from pqbroker.tables.serving.open_chunk import INDEX_OF_CHUNK, OpenChunk, Preload
from pqbroker.tables.serving.tablet import SortedTablet
from pqbroker.tables.sorted.blocks import Block
from pqbroker.tables.sorted.chunks import ChunkDamaged, ChunkIndex

MODE_NONE = "none"
COMPRESSED = "compressed"


def next_chunk(tablet: SortedTablet) -> OpenChunk | None:
    """Return a chunk that is to be read into memory; None: there is none."""
    if tablet.config.attributes.in_memory_mode == MODE_NONE:
        return None
    chunks = tablet.structure.chunks.values()
    return next((chunk for chunk in chunks if chunk.preload is Preload.NONE and not chunk.is_damaged), None)


def let_go(tablet: SortedTablet) -> None:
    """Unpin the chunks of a tablet that is not kept in memory any more."""
    for chunk in tablet.structure.chunks.values():
        if chunk.preload is not Preload.NONE:
            tablet.share.kept.unpin(chunk)


async def preload(tablet: SortedTablet, chunk: OpenChunk) -> None:
    """Read a chunk and pin it. The tablet may have another mode by then, so its chunks are looked through again."""
    is_packed = tablet.config.attributes.in_memory_mode == COMPRESSED
    kv, kept = tablet.kv, tablet.share.kept
    try:
        index = await chunk.read_index(kv)
        items: dict[int, Block | ChunkIndex | bytes] = {INDEX_OF_CHUNK: index}
        size = chunk.record.index_bytes
        for number, place in enumerate(index.places):
            if is_packed:
                items[number] = await chunk.read_packed(kv, index, number)
                size += place.stored_bytes
            else:
                items[number] = await chunk.read_block(kv, index, number)
                size += place.unpacked_bytes
            if size > kept.bytes_max:
                break
        is_there = tablet.structure.chunks.get(chunk.number) is chunk
        chunk.preload = Preload.COMPLETED if is_there and kept.pin(chunk, items, size) else Preload.FAILED
    except (BlobMissing, ChunkDamaged, KeyMissing):
        chunk.preload = Preload.FAILED
    except ShardLost:
        return
    finally:
        tablet.structure.settled_mode = None
