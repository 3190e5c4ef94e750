"""Fetch, ListOffsets and DescribeProducers of a log with Kafka's transactions, and clients that read it."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as ConfluentPartition

from pqbroker.pq.log.producer_transactions import TransactionsChange
from pqbroker.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from pqbroker.protocol.messages.fetch import PartitionData
from pqbroker.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from pqbroker.protocol.primitives import Buffer
from pqbroker.storage.engine import BlobKey
from pqbroker.storage.memory import MemoryShard
from tests.broker.conftest import Node
from tests.broker.kafka.handlers.test_fetch import fetch_request, offsets, only
from tests.broker.transacted_log import P, Q, begun
from tests.broker.wire import Client
from tests.pq.rig import batch

pytestmark = pytest.mark.spec("4.25", "4.28")

COMMITTED = 1


def told(data: PartitionData) -> list[tuple[int, int]] | None:
    aborted = data.aborted_transactions
    return None if aborted is None else [(each.producer_id, each.first_offset) for each in aborted]


@pytest.mark.parametrize("version", [4, 11, 12])
async def test_a_committed_fetch_ends_at_the_last_stable_offset_and_names_what_was_aborted(
    node: Node, client: Client, version: int
) -> None:
    await begun(node)
    data = await only(client, fetch_request((0, 0), isolation_level=COMMITTED), version)
    assert (offsets(data), told(data)) == ([0, 1, 2, 3, 4, 5], [(P, 1)])
    assert (data.high_watermark, data.last_stable_offset) == (8, 6)
    behind = await only(client, fetch_request((0, 5), isolation_level=COMMITTED), version)
    assert (offsets(behind), told(behind)) == ([5], [])
    everything = await only(client, fetch_request((0, 0)), version)
    assert (offsets(everything), told(everything)) == (list(range(8)), None)
    assert everything.last_stable_offset == 6


async def test_a_committed_fetch_at_and_behind_the_last_stable_offset_is_empty(node: Node, client: Client) -> None:
    await begun(node)
    for offset in (6, 7, 8):
        data = await only(client, fetch_request((0, offset), isolation_level=COMMITTED))
        assert (data.error_code, offsets(data), told(data)) == (0, [], [])


async def test_a_lane_and_the_handler_answer_alike(node: Node, client: Client) -> None:
    await begun(node)
    request = fetch_request((0, 0), isolation_level=COMMITTED)
    answers = [await only(client, request, 12) for _ in range(3)]
    assert [(offsets(data), told(data)) for data in answers] == [([0, 1, 2, 3, 4, 5], [(P, 1)])] * 3


async def test_a_parked_fetch_wakes_when_the_last_stable_offset_moves(node: Node, client: Client) -> None:
    server = await begun(node)
    request = fetch_request((0, 6), isolation_level=COMMITTED, max_wait_ms=60_000)
    parked = asyncio.create_task(only(client, request))
    other = await node.connect()
    await only(other, fetch_request((0, 0)))
    assert not parked.done()
    await server.write(*batch(b"8"))
    await only(other, fetch_request((0, 0)))
    assert not parked.done()
    await server.end_transaction(Q, 0, 4, is_commit=True)
    assert offsets(await parked) == [6, 7, 8, 9]


async def test_what_was_aborted_is_named_also_where_a_cleaner_takes_it_out_while_it_is_read(
    start: Callable[..., Awaitable[Node]], monkeypatch: pytest.MonkeyPatch
) -> None:
    node = await start(cache_bytes=0, head_bytes=0)
    server, client = await begun(node), await node.connect()
    await server.write(*batch(bytes(20_000)))
    await server.flush()
    intact = MemoryShard.read

    async def reading(shard: MemoryShard, ranges: list[tuple[BlobKey, int, int]]) -> list[Buffer]:
        found = await intact(shard, ranges)
        server.state.transactions.apply(emptied)
        return found

    emptied = TransactionsChange()
    emptied.dropped = [4]
    monkeypatch.setattr(MemoryShard, "read", reading)
    data = await only(client, fetch_request((0, 0), isolation_level=COMMITTED))
    assert server.state.transactions.aborted is None
    assert (offsets(data), told(data)) == ([0, 1, 2, 3, 4, 5], [(P, 1)])


async def test_list_offsets_ends_at_the_last_stable_offset(node: Node, client: Client) -> None:
    await begun(node)
    for isolation, end in ((0, 8), (COMMITTED, 6)):
        asked = ListOffsetsPartition(partition_index=0, timestamp=-1)
        topics = [ListOffsetsTopic(name="t", partitions=[asked])]
        response = await client.ask(ListOffsetsRequest(isolation_level=isolation, topics=topics), 7)
        assert response.topics[0].partitions[0].offset == end


async def test_describe_producers_shows_the_open_transaction(node: Node, client: Client) -> None:
    await begun(node)
    request = DescribeProducersRequest(topics=[TopicRequest(name="t", partition_indexes=[0])])
    (shown,) = (await client.ask(request)).topics[0].partitions
    found = {each.producer_id: each for each in shown.active_producers}
    assert {key: (each.current_txn_start_offset, each.coordinator_epoch) for key, each in found.items()} == {
        P: (-1, 4), Q: (6, 4),
    }  # fmt: skip


async def consumed(node: Node, isolation: str, count: int) -> list[bytes]:
    address = f"127.0.0.1:{node.server.kafka_address.port}"
    partition = TopicPartition("t", 0)
    consumer: Any = AIOKafkaConsumer(bootstrap_servers=address, isolation_level=isolation)
    await consumer.start()
    try:
        consumer.assign([partition])
        await consumer.seek_to_beginning(partition)
        return [(await consumer.getone()).value for _ in range(count)]
    finally:
        await consumer.stop()


async def test_aiokafka_reads_what_is_committed(node: Node) -> None:
    server = await begun(node)
    assert await consumed(node, "read_committed", 2) == [b"0", b"2"]
    assert await consumed(node, "read_uncommitted", 6) == [b"0", b"1", b"2", b"3", b"6", b"7"]
    await server.end_transaction(Q, 0, 4, is_commit=False)
    assert await consumed(node, "read_committed", 3) == [b"0", b"2", b"7"]


async def test_librdkafka_reads_what_is_committed(node: Node) -> None:
    server = await begun(node)
    await server.end_transaction(Q, 0, 4, is_commit=False)
    port = node.server.kafka_address.port

    def consume() -> list[bytes | None]:
        consumer = Consumer(
            {
                "bootstrap.servers": f"127.0.0.1:{port}", "group.id": "g", "isolation.level": "read_committed",
                "enable.partition.eof": True,
            }
        )  # fmt: skip
        try:
            consumer.assign([ConfluentPartition("t", 0, 0)])
            found: list[bytes | None] = []
            while True:
                message = consumer.poll(10)
                assert message is not None
                if (error := message.error()) is not None:
                    assert error.name() == "_PARTITION_EOF", error
                    return found
                found.append(message.value())
        finally:
            consumer.close()

    assert await asyncio.to_thread(consume) == [b"0", b"2", b"7"]
