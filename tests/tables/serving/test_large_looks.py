"""Looks of background work at many tablets or chunks: in slices, and none where nothing has changed."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from pqbroker.storage.counters import KeyValueCounters
from pqbroker.tables.serving.background import Background
from pqbroker.tables.serving.share import SortedShare
from pqbroker.tables.serving.store_memory import TABLETS_COUNTED_AT_ONCE
from pqbroker.tables.serving.structure import Structure
from pqbroker.tables.sorted.store import RowStore
from tests.tables.serving.commit_bench import SETTINGS

LIMIT = SETTINGS.stores_bytes_max


class Tablet:
    """A tablet as the looks see it; `counted`: how often memory of any was asked for in this turn of the loop."""

    counted = 0
    is_serving = True
    is_held = False
    passive = ()

    def __init__(self, tablet_id: int, table: str = "t") -> None:
        attributes = SimpleNamespace(in_memory_mode="none", enable_store_rotation=True)
        self.config = SimpleNamespace(tablet_id=tablet_id, table=table, attributes=attributes)
        self.active = RowStore(1, 0)
        self.stores = [self.active]
        self.structure = Structure([b""], None)
        self.memory_refusal: Any = "stale"
        self.write_block = None
        self.is_idle = True
        self.takes_tasks = True
        self.rotated = 0

    @property
    def memory_bytes(self) -> int:
        Tablet.counted += 1
        return self.active.memory_bytes

    def rotate(self, reason: Any) -> None:
        self.rotated += 1


class Walked(dict[int, Any]):
    """Chunks, and how often all of them were looked through."""

    walks = 0

    def values(self) -> Any:
        Walked.walks += 1
        return super().values()


def background(tablets: list[Tablet]) -> Background:
    time: Any = SimpleNamespace(clock=lambda: 0)
    share = SortedShare(time, SETTINGS, KeyValueCounters())
    return Background(share, lambda: [(cast("Any", tablet), False) for tablet in tablets])


async def test_stores_of_ten_thousand_tablets_are_counted_in_several_turns() -> None:
    found = background([Tablet(number) for number in range(10_000)])
    looking, most, total = asyncio.create_task(found._look()), 0, 0
    Tablet.counted = 0
    while not looking.done():
        await asyncio.sleep(0)
        most, total, Tablet.counted = max(most, Tablet.counted), total + Tablet.counted, 0
    looking.result()
    assert total == 10_000
    assert most <= TABLETS_COUNTED_AT_ONCE


async def test_the_largest_store_rotates_and_tables_without_rows_are_refused_as_the_node_is() -> None:
    full, other, empty = Tablet(1), Tablet(2, "u"), Tablet(3, "v")
    full.active.row_count, full.active.memory_bytes = 1, LIMIT // 2
    other.active.row_count, other.active.memory_bytes = 1, LIMIT // 8
    found = background([full, other, empty])
    await found._look()
    assert [tablet.rotated for tablet in (full, other, empty)] == [1, 0, 0]
    assert "Table is out of tablet memory" in full.memory_refusal.message
    assert (other.memory_refusal, empty.memory_refusal) == (None, None)
    other.active.memory_bytes = LIMIT // 2
    await found._look()
    assert "Node is out of tablet memory" in empty.memory_refusal.message
    full.active.memory_bytes = other.active.memory_bytes = 0
    await found._look()
    assert (full.memory_refusal, empty.memory_refusal) == (None, None)


async def test_chunks_are_not_looked_through_again_until_they_or_the_mode_change() -> None:
    """They are ten thousand in a tablet, and tablets are many."""
    tablet = Tablet(1)
    tablet.structure.chunks = Walked()
    found = background([tablet])
    walks = []
    for change in (None, None, "chunks", None, "mode", None):
        if change == "chunks":
            tablet.structure.change((), ())
        if change == "mode":
            tablet.config.attributes.in_memory_mode = "compressed"
        Walked.walks = 0
        await found._look()
        walks.append(Walked.walks)
    assert walks == [1, 0, 1, 0, 1, 0]
