"""A look at the memory of a node's stores: the largest rotate where it is short; where it is used up, writes are
refused."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Final

from pqbroker.tables.refusals import TableError
from pqbroker.tables.serving.share import SortedShare
from pqbroker.tables.serving.tablet import SortedTablet
from pqbroker.tables.sorted.picking.rotation import (
    RotationReason,
    StoreMemory,
    is_memory_ample,
    rotations_for_memory,
)
from pqbroker.tables.sorted.write_refusals import memory_refusal

TABLETS_COUNTED_AT_ONCE: Final = 500
"""Tablets whose stores are counted before the loop's other work has its turn: about a millisecond."""


async def look_at_memory(share: SortedShare, tablets: Sequence[SortedTablet]) -> None:
    """Count the memory of the stores of these tablets, which serve, and act on it."""
    held: list[tuple[SortedTablet, int]] = []
    lists = blocks = 0
    for number, tablet in enumerate(tablets):
        if number % TABLETS_COUNTED_AT_ONCE == TABLETS_COUNTED_AT_ONCE - 1:
            await asyncio.sleep(0)
        size = tablet.memory_bytes
        if size:
            held.append((tablet, size))
            lists += sum(store.list_count for store in tablet.stores)
            blocks += sum(store.memory_blocks for store in tablet.stores)
    used, limit = sum(size for _, size in held), share.settings.stores_bytes_max
    share.stores_bytes, share.stores_lists, share.stores_blocks = used, lists, blocks
    refusals: dict[str, TableError | None] = {}
    of_others = None
    if not is_memory_ample(used, limit):
        _rotate(share, [tablet for tablet, _ in held if tablet.is_serving], limit)
        of_table: Counter[str] = Counter()
        for tablet, size in held:
            of_table[tablet.config.table] += size
        refusals = {table: memory_refusal(used, size, limit) for table, size in of_table.items()}
        of_others = memory_refusal(used, 0, limit)
    for tablet in tablets:
        tablet.memory_refusal = refusals.get(tablet.config.table, of_others)


def _rotate(share: SortedShare, tablets: Sequence[SortedTablet], limit: int) -> None:
    """Rotate the largest stores, those that memory is too short for."""
    memory = [
        StoreMemory(
            tablet.config.tablet_id, tablet.config.table,
            tablet.active.memory_bytes if tablet.active.row_count else 0,
            tablet.config.attributes.enable_store_rotation,
        )
        for tablet in tablets
    ]  # fmt: skip
    chosen = set(rotations_for_memory(memory, limit))
    for tablet in tablets:
        if tablet.config.tablet_id in chosen:
            tablet.rotate(RotationReason.MEMORY)
            share.look_soon()
