"""Each error code of an answer is counted once where the answer is encoded; a refused request counts as one error."""

from typing import Any

import pytest

from pqbroker.protocol.errors import ErrorCode
from pqbroker.protocol.messages.delete_groups import DeleteGroupsRequest
from pqbroker.protocol.messages.describe_quorum import DescribeQuorumRequest
from pqbroker.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from pqbroker.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from pqbroker.protocol.messages.find_coordinator import FindCoordinatorRequest
from pqbroker.protocol.messages.heartbeat import HeartbeatRequest
from pqbroker.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from pqbroker.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from pqbroker.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from pqbroker.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.broker.conftest import Node, make_batch, produce_request
from tests.broker.wire import Client

UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def two_partitions(topic: str, acks: int = -1) -> ProduceRequest:
    data = [PartitionProduceData(index=index, records=memoryview(make_batch())) for index in (0, 1)]
    return ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[TopicProduceData(name=topic, partition_data=data)])


def names(*topics: str) -> MetadataRequest:
    return MetadataRequest(
        topics=[MetadataRequestTopic(name=name) for name in topics], allow_auto_topic_creation=False
    )


FETCH = FetchRequest(
    max_wait_ms=10_000,
    min_bytes=1,
    max_bytes=100,
    session_epoch=-1,
    topics=[FetchTopic(topic="no", partitions=[FetchPartition(partition=index) for index in range(3)])],
)
LIST = ListOffsetsRequest(
    topics=[ListOffsetsTopic(name="no", partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)])]
)
COMMIT = OffsetCommitRequest(
    group_id="g",
    generation_id_or_member_epoch=-1,
    topics=[
        OffsetCommitRequestTopic(
            name="no", partitions=[OffsetCommitRequestPartition(partition_index=index) for index in range(2)]
        )
    ],
)


@pytest.mark.parametrize(
    ("request_", "version", "counts"),
    [
        (two_partitions("no"), 9, {UNKNOWN: 2}),
        (two_partitions("no", acks=7), 9,
         {ErrorCode.INVALID_REQUIRED_ACKS: 1}),
        (FETCH, 12, {UNKNOWN: 3}),
        (LIST, 7, {UNKNOWN: 1}),
        (COMMIT, 8, {UNKNOWN: 2}),
        (names("no", "a/b"), 9, {UNKNOWN: 1, ErrorCode.INVALID_TOPIC_EXCEPTION: 1}),
        (FindCoordinatorRequest(key_type=9, coordinator_keys=["a", "b"]), 4, {ErrorCode.INVALID_REQUEST: 1}),
        (HeartbeatRequest(group_id="g", member_id="m"), 4, {ErrorCode.UNKNOWN_MEMBER_ID: 1}),
        (DeleteGroupsRequest(groups_names=["a", "b"]), 2, {ErrorCode.GROUP_ID_NOT_FOUND: 2}),
        (ElectLeadersRequest(topic_partitions=[TopicPartitions(topic="t", partitions=[0, 5])]), 2,
         {ErrorCode.ELECTION_NOT_NEEDED: 1, UNKNOWN: 1}),
        (DescribeQuorumRequest(topics=[]), 2, {}),
        (names("t"), 9, {}),
    ],
)  # fmt: skip
async def test_the_codes_of_an_answer_are_counted(
    node: Node, client: Client, request_: Any, version: int, counts: dict[ErrorCode, int]
) -> None:
    await node.create_topic("t")
    await client.ask(request_, version)
    assert node.server.node.metrics.errors == counts


async def test_a_failure_that_has_no_answer_is_counted_once(node: Node, client: Client) -> None:
    client.send(two_partitions("no", acks=0), 9)
    assert await client.is_closed_by_peer()
    assert node.server.node.metrics.errors == {UNKNOWN: 1}


async def test_a_success_counts_nothing(node: Node, client: Client) -> None:
    await node.create_topic("t")
    await client.ask(produce_request("t", make_batch()), 9)
    assert node.server.node.metrics.errors == {}
