"""Requests of many elements, which leave the straight road: their order, their answers, their ends."""

import asyncio
from typing import Any

import pytest

from pqbroker.broker.kafka.handlers.fetch import PARTITION_BYTES
from pqbroker.broker.kafka.net.dispatch import ELEMENT_BYTES, SHORT_ELEMENTS_MAX
from pqbroker.protocol.errors import ErrorCode
from pqbroker.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from pqbroker.protocol.messages.describe_groups import DescribeGroupsRequest
from pqbroker.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from pqbroker.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from pqbroker.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from pqbroker.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.broker.conftest import Node, make_batch, produce_request, until
from tests.broker.wire import Client, request_frame

MANY = SHORT_ELEMENTS_MAX + 100


def many_batches(acks: int = -1) -> ProduceRequest:
    data = PartitionProduceData(index=0, records=memoryview(make_batch(b"v")))
    topic = TopicProduceData(name="t", partition_data=[data] * MANY)
    return ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[topic])


def end_offset(node: Node) -> int:
    topic = node.server.node.cell.current.topics.get("t")
    assert topic is not None
    return topic.partitions[0].end_offset


async def test_a_produce_behind_a_long_one_is_behind_it_in_the_log(node: Node, client: Client) -> None:
    await node.create_topic("t")
    client.send(many_batches(), 9)
    client.send(produce_request("t", make_batch(b"last")), 9)
    long = await client.receive()
    assert [data.base_offset for data in long.responses[0].partition_responses] == list(range(MANY))
    assert (await client.receive()).responses[0].partition_responses[0].base_offset == MANY


async def test_a_long_produce_without_answer_is_stored_though_its_connection_closes(node: Node) -> None:
    await node.create_topic("t")
    client = await node.connect()
    client.send(many_batches(acks=0), 9)
    await client.close()
    await until(lambda: end_offset(node) == MANY)


@pytest.mark.parametrize("version", [4, 12])
async def test_a_fetch_of_many_partitions_answers_each(node: Node, client: Client, version: int) -> None:
    await node.create_topic("t", partitions=2)
    await node.produce("t", b"a", partition=1)
    partitions = [FetchPartition(partition=index, partition_max_bytes=1000) for index in range(MANY)]
    answer = await client.ask(FetchRequest(topics=[FetchTopic(topic="t", partitions=partitions)]), version)
    found = answer.responses[0].partitions
    assert [each.partition_index for each in found] == list(range(MANY))
    assert [each.error_code for each in found] == [0, 0] + [3] * (MANY - 2)
    assert (len(found[0].records), len(found[1].records) > 0) == (0, True)


async def test_the_answer_to_a_long_fetch_counts_while_it_is_made(node: Node, client: Client) -> None:
    partitions = [FetchPartition(partition=index, partition_max_bytes=1000) for index in range(10 * MANY)]
    fetching = asyncio.create_task(client.ask(FetchRequest(topics=[FetchTopic(topic="t", partitions=partitions)]), 12))
    made = [0]
    while not fetching.done():
        made.append(node.server.node.answers.made or made[-1])
        await asyncio.sleep(0)
    assert len((await fetching).responses[0].partitions) == len(partitions)
    assert made[-1] >= len(partitions) * (ELEMENT_BYTES + PARTITION_BYTES)


async def test_a_long_fetch_waits_and_a_request_behind_it_hurries_it(node: Node, client: Client) -> None:
    await node.create_topic("t", partitions=MANY)
    partitions = [FetchPartition(partition=index, partition_max_bytes=1000) for index in range(MANY)]
    fetch = FetchRequest(max_wait_ms=60_000, min_bytes=1, topics=[FetchTopic(topic="t", partitions=partitions)])
    client.send(fetch, 12)
    client.send(MetadataRequest(topics=[]))
    assert len((await client.receive()).responses[0].partitions) == MANY
    await client.receive()


async def test_a_long_commit_is_one_commit(node: Node, client: Client) -> None:
    await node.create_topic("t")
    partitions = [
        OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="")
        for offset in range(MANY)
    ]
    asked = OffsetCommitRequest(group_id="g", topics=[OffsetCommitRequestTopic(name="t", partitions=partitions)])
    answer = await client.ask(asked, 8)
    assert [each.error_code for each in answer.topics[0].partitions] == [0] * MANY
    assert [state.offset for state in node.server.node.cell.current.topics.offsets.of("g").values()] == [MANY - 1]


async def test_a_long_commit_of_no_member_is_refused_for_each_partition(node: Node, client: Client) -> None:
    await node.create_topic("t", partitions=MANY)
    partitions = [OffsetCommitRequestPartition(partition_index=index, committed_offset=1) for index in range(MANY)]
    request = OffsetCommitRequest(
        group_id="g", generation_id_or_member_epoch=3, member_id="nobody",
        topics=[OffsetCommitRequestTopic(name="t", partitions=partitions)],
    )  # fmt: skip
    answer = await client.ask(request, 8)
    assert {each.error_code for each in answer.topics[0].partitions} == {ErrorCode.ILLEGAL_GENERATION}
    topics = node.server.node.cell.current.topics
    assert topics.offsets.groups() == []


async def test_a_long_request_of_a_broken_form_closes_the_connection(node: Node, client: Client) -> None:
    frame = bytearray(request_frame(DescribeGroupsRequest(groups=["group"] * MANY), 0))
    frame[-7:-5] = b"\x7f\xff"
    client.send_bytes(bytes(frame))
    assert await client.is_closed_by_peer()
    assert node.server.node.metrics.protocol_errors == 1


async def test_what_long_requests_hold_is_given_back(node: Node, client: Client) -> None:
    await client.ask(DescribeGroupsRequest(groups=["g"] * MANY), 6)
    unknown = [MetadataRequestTopic(name=f"t{number}") for number in range(MANY)]
    await client.ask(MetadataRequest(topics=unknown, allow_auto_topic_creation=False), 12)
    leaving = await node.connect()
    leaving.send(DescribeGroupsRequest(groups=["g"] * 5_000), 6)
    await until(lambda: node.server.node.answers.made > 0)
    leaving.abort()
    await until(lambda: node.server.node.answers.made == 0)
    assert node.server.node.answers.unsent == 0


async def test_the_configs_of_many_topics_are_told_once_they_are_created(node: Node, client: Client) -> None:
    topics: list[Any] = [CreatableTopic(name=f"t{n}", num_partitions=1, replication_factor=1) for n in range(MANY)]
    answer = await client.ask(CreateTopicsRequest(topics=topics, validate_only=True), 7)
    assert {(topic.error_code, len(topic.configs)) for topic in answer.topics} == {(0, len(answer.topics[0].configs))}
    assert len(answer.topics) == MANY


async def test_a_long_produce_over_the_quota_pauses_its_connection(node: Node, client: Client) -> None:
    await node.create_topic("t", pq_write_speed_bytes=str(len(make_batch(b"v")) * MANY))
    client.send(many_batches(), 9)
    client.send(many_batches(), 9)
    pause_ms = [await client.receive() for _ in range(2)][1].throttle_time_ms
    answered = asyncio.get_running_loop().time()
    await client.ask(MetadataRequest(topics=None))
    assert 1000 * (asyncio.get_running_loop().time() - answered) > pause_ms / 2 > 100
