"""The memory of flushed stores is freed in turns of the loop, and not while somebody reads them."""

import asyncio
import gc

from pqbroker.tables.serving.spent_stores import ROWS_FREED_AT_ONCE, SpentStores
from pqbroker.tables.sorted.store import RowStore
from tests.tables.serving.commit_bench import CommitBench, on_bench

TURNS = 3
ROWS = TURNS * ROWS_FREED_AT_ONCE
VERSION = bytes(9)


def filled() -> RowStore:
    store = RowStore(1, 0)
    store.apply(((b"%d" % number, VERSION) for number in range(ROWS)), 1, 1)
    return store


class Watched(dict[bytes, bytes]):
    """Keys of a store, and how many were taken out."""

    taken = 0

    def popitem(self) -> tuple[bytes, bytes]:
        Watched.taken += 1
        return super().popitem()


def watched() -> RowStore:
    store = filled()
    store._firsts = tuple(Watched(shard) for shard in store._firsts)
    Watched.taken = 0
    return store


async def test_rows_are_freed_in_several_turns_once_nobody_reads_the_store() -> None:
    spent, store = SpentStores(), watched()
    spent.add(store)
    spent.look()
    assert Watched.taken == 0
    assert sum(map(len, store.key_slices())) == ROWS, "a reader has all of them"
    del store
    gc.collect()
    taken = []
    spent.look()
    for _ in range(TURNS):
        spent.look()  # one that comes meanwhile frees no more
        taken.append(Watched.taken)
        await asyncio.sleep(0)
    assert taken == [ROWS_FREED_AT_ONCE * turn for turn in range(1, TURNS + 1)]


async def test_several_stores_are_freed_one_behind_the_other() -> None:
    spent = SpentStores()
    spent.add(watched())
    spent.add(watched())
    gc.collect()
    spent.look()
    turns = 0
    while Watched.taken < 2 * ROWS:
        turns += 1
        await asyncio.sleep(0)
    assert turns == 2 * TURNS - 1


async def test_who_adds_rows_frees_as_many_and_no_turn_frees_twice() -> None:
    spent = SpentStores()
    spent.add(watched())
    gc.collect()
    spent.look()
    spent.drop(ROWS - ROWS_FREED_AT_ONCE)
    assert (Watched.taken, spent.unread) == (ROWS, [])
    spent.add(watched())
    gc.collect()
    spent.look()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert Watched.taken == 2 * ROWS_FREED_AT_ONCE


@on_bench
async def test_a_tablet_frees_as_many_rows_as_it_takes(bench: CommitBench) -> None:
    spent = bench.tablets[0].share.spent
    spent.unread.append(watched().spent_rows())
    await bench.write(0, {1: 10, 2: 20})
    assert Watched.taken == 2
