"""Dynamic stores that rotate: a new store becomes active, the old one is flushed (C.3, C.4). Empty ones never do.

    reason      when
    overflow    rows, bytes, values or versions reach dynamic_store_overflow_threshold of their limit
    periodic    dynamic_store_auto_flush_period and the store's splay have passed since its begin
    memory      the stores of the node, or of a table, take too much memory together: the largest first
    asked for   the tablet is unmounted or frozen
    replayed    it was passive already when the log was read
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from pqbroker.conf.sorted_attributes import DYNAMIC_STORES_MAX, SortedAttributes
from pqbroker.tables.sorted.picking.due_times import flush_due_ms
from pqbroker.tables.sorted.picking.facts import DynamicStore, TabletStores

FORCED_ROTATION_PART = 0.75
"""Part of a memory limit above which stores rotate: flushes need the rest of the time."""
TABLE_PART = 0.5
"""Part of the node's limit that the stores of one table take at most."""
_ROUNDED = 0.0005
"""Less than this is an error of multiplication: 0.07 * 100 is 7.000000000000001."""


class RotationReason(StrEnum):
    """Reasons of a rotation, as they are shown."""

    OVERFLOW = "overflow"
    PERIODIC = "periodic"
    MEMORY = "memory"
    ASKED_FOR = "asked for"
    REPLAYED = "replayed"


@dataclass(frozen=True, slots=True)
class StoreMemory:
    """Memory of one tablet's active store; no rotation makes passive ones smaller, so they do not count."""

    tablet_id: int
    table: str
    active_bytes: int
    """0: it has no active store, or an empty one."""
    can_rotate: bool = True


def rotation_reason(tablet: TabletStores, now_ms: int) -> RotationReason | None:
    """Return what has the active store rotate now; None: nothing does."""
    store, attributes = tablet.active, tablet.attributes
    if store is None or not can_rotate(tablet):
        return None
    if is_full(store, attributes, attributes.dynamic_store_overflow_threshold):
        return RotationReason.OVERFLOW
    due_ms = flush_due_ms(tablet.tablet_id, store, attributes)
    return RotationReason.PERIODIC if due_ms is not None and now_ms >= due_ms else None


def can_rotate(tablet: TabletStores) -> bool:
    """Return True if the active store has rows, and passive ones are not too many already."""
    store = tablet.active
    has_rows = store is not None and store.rows > 0
    return has_rows and tablet.attributes.enable_store_rotation and tablet.dynamic_store_count < DYNAMIC_STORES_MAX


def is_full(store: DynamicStore, attributes: SortedAttributes, part: float = 1.0) -> bool:
    """Return True if a store has reached a part of one of its limits: rows, bytes, values or versions."""
    return (  # each write asks for this, so that no dict is made of it
        store.rows + _ROUNDED >= part * attributes.max_dynamic_store_row_count
        or store.memory_bytes + _ROUNDED >= part * attributes.max_dynamic_store_pool_size
        or store.values + _ROUNDED >= part * attributes.max_dynamic_store_value_count
        or store.timestamps + _ROUNDED >= part * attributes.max_dynamic_store_timestamp_count
    )


def amounts(store: DynamicStore, attributes: SortedAttributes) -> dict[str, tuple[int, int]]:
    """Return what a store has, each with its limit."""
    return {
        "rows": (store.rows, attributes.max_dynamic_store_row_count),
        "bytes": (store.memory_bytes, attributes.max_dynamic_store_pool_size),
        "values": (store.values, attributes.max_dynamic_store_value_count),
        "versions": (store.timestamps, attributes.max_dynamic_store_timestamp_count),
    }


def is_memory_ample(used_bytes: int, limit_bytes: int) -> bool:
    """Return True if stores that take so much in a node call for no rotation, whichever tables they are of."""
    return used_bytes <= limit_bytes * FORCED_ROTATION_PART * TABLE_PART


def rotations_for_memory(tablets: Iterable[StoreMemory], limit_bytes: int) -> list[int]:
    """Return the tablets of a node whose active stores rotate now, because memory is short.

    Stores are taken from the largest on until what is left active is small enough, of the node and of each table. No
    size is too small: a node full of small stores would refuse writes otherwise.
    """
    tablets = tuple(tablets)
    active = sum(tablet.active_bytes for tablet in tablets)
    of_table: defaultdict[str, int] = defaultdict(int)
    for tablet in tablets:
        of_table[tablet.table] += tablet.active_bytes
    most = limit_bytes * FORCED_ROTATION_PART
    found = []
    for tablet in sorted(tablets, key=lambda each: (-each.active_bytes, each.tablet_id)):
        is_short = active > most or of_table[tablet.table] > most * TABLE_PART
        if is_short and tablet.can_rotate and tablet.active_bytes > 0:
            found.append(tablet.tablet_id)
            active -= tablet.active_bytes
            of_table[tablet.table] -= tablet.active_bytes
    return found
