"""Garbage of a deleted topic: reference counting frees it, and the collector of cycles has nothing to do."""

import asyncio
import gc
from collections import Counter

from tests.pq.rig import Node, batch, write

PARTITIONS = 100
UNEXPLAINED_MAX = 50
"""Objects, of tasks and errors: one cycle in each partition would be twice as many."""


async def test_the_partitions_of_a_deleted_topic_are_no_garbage_of_cycles() -> None:
    node = await Node().start()
    await made_and_deleted(node, 3)  # what comes with the first topic stays
    gc.collect()
    gc.disable()
    try:
        await made_and_deleted(node, PARTITIONS)
        gc.set_debug(gc.DEBUG_SAVEALL)
        found = gc.collect()
        kinds = Counter(type(each).__qualname__ for each in gc.garbage)
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
    assert found < UNEXPLAINED_MAX, kinds.most_common(20)


async def made_and_deleted(node: Node, partitions: int) -> None:
    await node.topics.create("t", partitions, {"pq.partitions.per.tablet": "1"})
    for index in range(partitions):
        await write(node.partition(index=index), batch(b"v"))
    await node.topics.delete("t")
    async with asyncio.timeout(10):
        while node.scheme.tombstones:  # noqa: ASYNC110 (they are reclaimed behind it)
            await asyncio.sleep(0)
