"""The store refuses a write cycle under a running broker: it fails with all that waits behind it, and leaves nothing
(semantics A.5.10)."""

import pytest

from pqbroker.pq.serving.partition_server import PartitionServer
from pqbroker.protocol.errors import ErrorCode
from pqbroker.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from pqbroker.protocol.messages.produce import PartitionProduceResponse
from pqbroker.protocol.records import batches, decode_records
from tests.broker.conftest import Node, make_batch, produce_request, until
from tests.broker.wire import Client

QUEUED = (1, 2, 3)


def partition(node: Node, index: int = 0) -> PartitionServer:
    topic = node.server.node.cell.current.topics.get("t")
    assert topic is not None
    return topic.partitions[index]


def batch(sequence: int) -> bytearray:
    return make_batch(b"value %d" % sequence, producer_id=5, producer_epoch=0, base_sequence=sequence)


async def answer(client: Client) -> PartitionProduceResponse:
    found: PartitionProduceResponse = (await client.receive()).responses[0].partition_responses[0]
    return found


async def values(client: Client) -> list[tuple[int, bytes | None]]:
    """Offsets and values of all records of partition 0."""
    wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    request = FetchRequest(max_wait_ms=0, max_bytes=1 << 20, topics=[FetchTopic(topic="t", partitions=[wanted])])
    data = memoryview((await client.ask(request, 12)).responses[0].partitions[0].records)
    found = [data[position : position + header.size_bytes] for position, header in batches(data)]
    return [(record.offset, record.value) for one in found for record in decode_records(one)]


async def refuse_three_writes(node: Node) -> list[Client]:
    """One write is stored; of three behind it the first is in flight, the others wait, and its commit is refused."""
    await node.create_topic("t", 2)
    (first, *producers) = [await node.connect() for _ in (0, *QUEUED)]
    first.send(produce_request("t", batch(0)), 9)
    assert (await answer(first)).error_code == 0
    server = partition(node)
    node.engine.faults.hold()
    for waiting, producer in enumerate(producers):
        producer.send(produce_request("t", batch(QUEUED[waiting])), 9)
        await until(lambda count=waiting: server.state.is_writing and len(server.writer.queue) == count)  # type: ignore[misc]
    node.engine.faults.refuse_next()
    first.send(produce_request("t", make_batch(b"elsewhere"), partition=1), 9)
    await until(lambda: partition(node, 1).state.is_writing)
    node.engine.faults.release()
    assert (await answer(first)).error_code == 0, "another partition's commit is its own"
    return producers


@pytest.mark.spec("A.5.10")
async def test_a_refused_cycle_fails_with_all_that_is_queued_behind_it(node: Node, client: Client) -> None:
    producers = await refuse_three_writes(node)
    for producer in producers:
        refused = await answer(producer)
        assert (refused.error_code, refused.base_offset) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
        assert "refused" in (refused.error_message or "")
    server = partition(node)
    assert (server.end_offset, len(server.writer.queue), server.writer.queue.bytes) == (1, 0, 0)
    assert [producer.last for _, producer in server.state.producers] == [0]
    assert await values(client) == [(0, b"value 0")]


@pytest.mark.spec("A.5.10")
async def test_what_was_refused_is_sent_again_and_stored_once(node: Node, client: Client) -> None:
    producers = await refuse_three_writes(node)
    for sequence, producer in zip(QUEUED, producers, strict=True):
        await answer(producer)
        producer.send(produce_request("t", batch(sequence)), 9)
        assert (await answer(producer)).base_offset == sequence
    assert await values(client) == [(number, b"value %d" % number) for number in range(4)]


@pytest.mark.spec("A.5.10")
async def test_nothing_of_what_was_refused_is_there_after_a_crash(node: Node, client: Client) -> None:
    producers = await refuse_three_writes(node)
    for producer in producers:
        await answer(producer)
    before = partition(node)
    node.engine.crash()
    await until(lambda: node.server.node.cell.current.topics.get("t") is not None and partition(node) is not before)
    assert await values(client) == [(0, b"value 0")]
    client.send(produce_request("t", batch(1)), 9)
    assert (await answer(client)).base_offset == 1
