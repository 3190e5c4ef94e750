"""Times at which periodic work is due, and chunks that are forced (C.3, C.6, K.3).

Periods have a splay, so that tablets and chunks of one age do not come all at once. It is a function of their numbers:
random, yet the same at each look.
"""

from struct import Struct
from zlib import crc32

from pqbroker.conf.sorted_attributes import SortedAttributes
from pqbroker.tables.sorted.picking.facts import ChunkStore, DynamicStore

_NUMBERS = Struct(">QQ")
_CRC_MAX = (1 << 32) - 1


def splay(tablet_id: int, number: int) -> float:
    """Return a number from 0 to 1, both included, that belongs to a store of a tablet."""
    return crc32(_NUMBERS.pack(tablet_id, number)) / _CRC_MAX


def flush_due_ms(tablet_id: int, store: DynamicStore, attributes: SortedAttributes) -> float | None:
    """Return the time in milliseconds from which the store is rotated for its age; None: never."""
    period = attributes.dynamic_store_auto_flush_period
    if period is None:
        return None
    return store.begun_ms + period + attributes.dynamic_store_flush_period_splay * splay(tablet_id, store.number)


def compaction_due_ms(tablet_id: int, chunk: ChunkStore, attributes: SortedAttributes) -> float | None:
    """Return the time in milliseconds from which the chunk is compacted for its age; None: never.

    It is creation + period × (1 + r), r from 0 to the splay ratio.
    """
    period = attributes.auto_compaction_period
    if period is None:
        return None
    ratio = attributes.auto_compaction_period_splay_ratio * splay(tablet_id, chunk.number)
    return chunk.created_ms + period * (1 + ratio)


def is_due(tablet_id: int, chunk: ChunkStore, attributes: SortedAttributes, now_ms: int) -> bool:
    """Return True if the chunk's time for periodic compaction has come."""
    due_ms = compaction_due_ms(tablet_id, chunk, attributes)
    return due_ms is not None and now_ms >= due_ms


def is_forced(chunk: ChunkStore, attributes: SortedAttributes) -> bool:
    """Return True if the chunk was made before the revision that forces compaction."""
    revision = attributes.forced_compaction_revision
    return revision is not None and chunk.revision < revision
