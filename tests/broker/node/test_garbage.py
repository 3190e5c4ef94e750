"""What a request took is free once it is answered, refused or not, without a pass of the collector."""

import asyncio
import gc
from collections.abc import Iterator
from typing import Any

import pytest

from pqbroker.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from pqbroker.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tests.broker.conftest import Node, make_batch, produce_request, until
from tests.broker.wire import Client

LONG = 600


@pytest.fixture
def kept_garbage() -> Iterator[None]:
    """The collector works when asked alone, and keeps what it finds."""
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    yield
    gc.set_debug(0)
    gc.garbage.clear()
    gc.enable()


def commit(topic: str, partition: int) -> OffsetCommitRequest:
    asked = OffsetCommitRequestPartition(partition_index=partition, committed_offset=1, committed_metadata="")
    return OffsetCommitRequest(group_id="g", topics=[OffsetCommitRequestTopic(name=topic, partitions=[asked])])


def fetch(topic: str, offset: int) -> FetchRequest:
    asked = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1000)
    return FetchRequest(max_wait_ms=0, topics=[FetchTopic(topic=topic, partitions=[asked])])


@pytest.mark.parametrize(
    ("asked", "version"),
    [
        (commit("t", 0), 8),
        (commit("t", 7), 8),
        (commit("none", 0), 8),
        (fetch("t", 0), 12),
        (fetch("t", 9), 12),
        (fetch("none", 0), 12),
        (produce_request("t", make_batch(b"v")), 9),
        (produce_request("t", make_batch(b"v"), partition=7), 9),
        (produce_request("none", make_batch(b"v")), 9),
    ],
)
@pytest.mark.usefixtures("kept_garbage")
async def test_an_answered_request_leaves_no_garbage(node: Node, client: Client, asked: Any, version: int) -> None:
    await node.create_topic("t")
    await client.ask(asked, version)
    await asyncio.sleep(0)
    gc.collect()
    left = {type(each).__name__ for each in gc.garbage if type(each).__module__.startswith("pqbroker.protocol")}
    assert not left


@pytest.mark.usefixtures("kept_garbage")
async def test_a_long_fetch_that_parked_leaves_no_garbage(node: Node, client: Client) -> None:
    await node.create_topic("t", LONG)
    topic = node.server.node.cell.current.topics.get("t")
    assert topic is not None
    asked = [FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1000) for index in range(LONG)]
    request = FetchRequest(max_wait_ms=60_000, min_bytes=1, topics=[FetchTopic(topic="t", partitions=asked)])
    client.send(request, 12)
    await until(lambda: sum(len(each.watchers) for each in topic.partitions) == LONG)
    await node.produce("t", b"v")
    assert (await client.receive()).responses[0].partitions[0].records
    await until(lambda: sum(len(each.watchers) for each in topic.partitions) == 0)
    for _ in range(10):
        await asyncio.sleep(0)
    gc.collect()
    left = {type(each).__name__ for each in gc.garbage if type(each).__module__.startswith("pqbroker")}
    assert not left
