"""Starts of partitions whose values are in damaged blobs: the partition is refused, and others are served."""

from array import array
from collections.abc import Sequence

import pytest

from pqbroker.pq.log.keys import facts_range
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.storage.engine import BlobCorrupt, BlobKey
from pqbroker.storage.memory import MemoryShard
from tests.pq.rig import Node, batch, table_that_keeps_facts

ROWS = 5000
"""Rows whose facts are no row of a KV tablet any more, but a blob."""


async def test_damaged_facts_of_rows_refuse_their_partition_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node()
    await node.start()
    await node.topic(partitions=2, config={"pq.partitions.per.tablet": "1"}, table=table_that_keeps_facts(2))
    weights = array("I", range(1, ROWS + 1))
    for index in range(2):
        await node.partition(index=index).write(*batch(*[b"%d" % number for number in range(ROWS)]), weights)
    ((_, facts),) = node.partition().transactions.kv.keys(*facts_range(0))
    assert not facts.is_inline
    spoiled = {*facts.blobs()}
    read = MemoryShard.read

    async def damaged(shard: MemoryShard, ranges: Sequence[tuple[BlobKey, int, int]]) -> object:
        for blob, _, _ in ranges:
            if blob in spoiled:
                raise BlobCorrupt(blob, 0, "a test")
        return await read(shard, ranges)

    monkeypatch.setattr(MemoryShard, "read", damaged)
    await node.restart()
    with pytest.raises(KafkaError) as refusal:
        await node.partition(index=0).write(*batch(b"more"))
    assert refusal.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert (await node.partition(index=1).write(*batch(b"more"))).base_offset == ROWS
