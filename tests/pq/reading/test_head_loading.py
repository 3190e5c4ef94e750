"""The head's content comes into memory once for all who wait, and is dropped when nobody loads it."""

import errno

import pytest

from pqbroker.pq.log.head import Head
from pqbroker.pq.log.keys import data_range
from pqbroker.pq.reading.head_loading import HeadLoader
from pqbroker.pq.serving.partition_server import PartitionServer
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.storage.engine import Buffer, ShardLost
from pqbroker.storage.kv.commands import DeleteRange
from pqbroker.storage.kv.tablet import KeyValueTablet
from pqbroker.storage.memory import MemoryShard
from tests.pq.rig import MIB, Node, batch, write


class Ended(list[bool]):
    """True for each load at whose end the content was in memory."""

    def __init__(self, head: Head) -> None:
        self._head = head

    def note(self) -> None:
        self.append(self._head.is_warm)


async def cold(node: Node) -> tuple[PartitionServer, HeadLoader, Ended]:
    """A partition after a restart, a loader of its head, and whether content was there at the end of each load."""
    partition = await node.topic()
    await write(partition, batch(b"a"), batch(b"b" * 70_000))
    await node.restart()
    partition = node.partition()
    return partition, HeadLoader(partition.state, kv_of(node)), Ended(partition.state.head)


def kv_of(node: Node) -> KeyValueTablet:
    topic = node.topics.get("t")
    assert topic is not None
    (tablet,) = topic.tablets.values()
    return tablet.kv


async def test_all_who_wait_share_one_load_during_which_nothing_is_dropped() -> None:
    partition, loader, ended = await cold(await Node().start())
    load = loader.load(ended.note)
    assert loader.load(ended.note) is load
    assert not loader.drop()
    await load
    assert (partition.state.head.is_warm, ended) == (True, [True])
    assert loader.drop()
    assert not partition.state.head.is_warm
    await loader.load(ended.note)
    assert ended == [True, True]


async def test_a_blob_that_is_gone_ends_the_load_without_a_failure() -> None:
    node = await Node().start()
    partition, loader, ended = await cold(node)
    lo, hi = data_range(partition.index)
    await kv_of(node).execute((DeleteRange(lo, True, hi, False),))
    await loader.load(ended.note)
    assert ended == [False]


async def test_a_lost_store_fails_the_load_and_the_next_one_is_new() -> None:
    node = await Node().start()
    _, loader, ended = await cold(node)
    load = loader.load(ended.note)
    node.engine.crash()
    with pytest.raises(ShardLost):
        await load
    assert ended == [False]
    assert loader.load(ended.note) is not load


async def test_a_head_that_cannot_be_read_now_fails_what_waits_and_is_read_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    node = await Node().start()
    await write(await node.topic(), batch(b"a" * 70_000))
    await node.restart()
    partition = node.partition()

    async def no_file_is_left(shard: MemoryShard, ranges: object) -> list[Buffer]:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(MemoryShard, "read", no_file_is_left)
        with pytest.raises(KafkaError) as refusal:
            await partition.write(*batch(size=7 * MIB))
    assert refusal.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert not partition.is_lost
    assert [written.base_offset for written in await write(partition, batch(size=7 * MIB))] == [1]
