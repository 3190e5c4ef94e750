"""Attacks that were seen to take gigabytes or minutes for kilobytes of request."""

from collections.abc import Callable
from typing import Any

from pqbroker.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from pqbroker.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from pqbroker.protocol.messages.delete_topics import DeleteTopicsRequest
from pqbroker.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from pqbroker.protocol.messages.describe_groups import DescribeGroupsRequest
from pqbroker.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from pqbroker.protocol.messages.find_coordinator import FindCoordinatorRequest
from pqbroker.protocol.messages.incremental_alter_configs import AlterConfigsResource, IncrementalAlterConfigsRequest
from pqbroker.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from pqbroker.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from pqbroker.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from pqbroker.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from pqbroker.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
)
from pqbroker.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.broker.conftest import make_batch
from tests.broker.wire import request_frame
from tests.support.attacked import Attacked

MANY = 32_000
"""Just below pqbroker.request.elements.max."""
PARTITIONS = 2500
TOPIC = 2
BROKER = 4


def configs_of_the_broker(count: int) -> DescribeConfigsRequest:
    resource = DescribeConfigsResource(resource_type=BROKER, resource_name="1")
    return DescribeConfigsRequest(resources=[resource] * count, include_synonyms=True, include_documentation=True)


def unknown_partitions(count: int) -> FetchRequest:
    partitions = [FetchPartition(partition=index) for index in range(count)]
    return FetchRequest(max_wait_ms=500, topics=[FetchTopic(topic="t", partitions=partitions)])


def offsets_by_time(count: int) -> ListOffsetsRequest:
    partitions = [ListOffsetsPartition(partition_index=index, timestamp=1) for index in range(count)]
    return ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=partitions)])


def deleted_records(count: int) -> DeleteRecordsRequest:
    partitions = [DeleteRecordsPartition(partition_index=index, offset=0) for index in range(count)]
    return DeleteRecordsRequest(timeout_ms=1000, topics=[DeleteRecordsTopic(name="t", partitions=partitions)])


def fetched_offsets(count: int) -> OffsetFetchRequest:
    topic = OffsetFetchRequestTopic(name="t", partition_indexes=list(range(100)))
    return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=[topic])] * (count // 102))


def committed_offsets(count: int) -> OffsetCommitRequest:
    partitions = [
        OffsetCommitRequestPartition(partition_index=index % PARTITIONS, committed_offset=1, committed_metadata="")
        for index in range(count)
    ]
    return OffsetCommitRequest(group_id="g", topics=[OffsetCommitRequestTopic(name="t", partitions=partitions)])


def produced(count: int) -> ProduceRequest:
    records = memoryview(make_batch(b"v"))
    data = [PartitionProduceData(index=index, records=records) for index in range(count)]
    return ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[TopicProduceData(name="t", partition_data=data)])


def described(count: int) -> MetadataRequest:
    return MetadataRequest(topics=[MetadataRequestTopic(name="t")] * count)


def offsets_of_one(count: int) -> ListOffsetsRequest:
    partitions = [ListOffsetsPartition(partition_index=0, timestamp=-1)] * count
    return ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=partitions)])


def deleted_topics(count: int) -> DeleteTopicsRequest:
    return DeleteTopicsRequest(timeout_ms=1000, topic_names=["none"] * count)


def joined(count: int) -> JoinGroupRequest:
    protocols = [JoinGroupRequestProtocol(name="range", metadata=b"m")] * count
    return JoinGroupRequest(group_id="g", session_timeout_ms=10_000, protocol_type="consumer", protocols=protocols)


def altered(count: int) -> IncrementalAlterConfigsRequest:
    resource = AlterConfigsResource(resource_type=TOPIC, resource_name="none", configs=[])
    return IncrementalAlterConfigsRequest(resources=[resource] * count)


def topics(count: int) -> CreateTopicsRequest:
    asked = [CreatableTopic(name=f"x{index}", num_partitions=20_000, replication_factor=1) for index in range(count)]
    return CreateTopicsRequest(timeout_ms=1000, topics=asked)


ATTACKS: dict[str, tuple[Callable[[int], Any], int, int]] = {
    "DescribeConfigs of the broker": (configs_of_the_broker, 490, 4),
    "Metadata of a long topic": (described, 400, 12),
    "ListOffsets by time": (offsets_by_time, MANY, 9),
    "DeleteRecords": (deleted_records, MANY, 2),
    "OffsetFetch": (fetched_offsets, MANY, 8),
    "OffsetCommit": (committed_offsets, MANY, 8),
    "DescribeGroups": (lambda count: DescribeGroupsRequest(groups=["g" * 100] * count), MANY, 6),
    "FindCoordinator": (lambda count: FindCoordinatorRequest(coordinator_keys=["g"] * count), MANY, 6),
    "Fetch of unknown partitions": (unknown_partitions, MANY, 12),
    "Produce": (produced, 4000, 9),
    "ListOffsets of one partition": (offsets_of_one, MANY, 9),
    "DeleteTopics": (deleted_topics, MANY, 5),
    "JoinGroup of many protocols": (joined, MANY, 3),
    "IncrementalAlterConfigs": (altered, MANY, 1),
    "CreateTopics": (topics, 50, 7),
}
"""What is asked, how many times, and in which version."""


def launch(node: Attacked, name: str) -> int:
    """Carry out an attack; returns the size of the answer. The broker has a topic `t` of `PARTITIONS`."""
    make, count, version = ATTACKS[name]
    with node.connect() as caller:
        caller.socket.sendall(request_frame(make(count), version))
        return caller.skip()
