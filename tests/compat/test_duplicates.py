"""What a request is answered that names one thing twice: as Apache Kafka 4.3 answers it, API by API.

`PQBROKER_TESTS_BROKER=apache` asks Kafka itself, which gives no answer to AlterConfigs here; its successor says how.
"""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from typing import Any

import pytest

from pqbroker.protocol.errors import ErrorCode
from pqbroker.protocol.messages import (
    alter_configs,
    alter_partition_reassignments,
    create_partitions,
    create_topics,
    delete_groups,
    delete_records,
    delete_topics,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_topic_partitions,
    elect_leaders,
    fetch,
    find_coordinator,
    incremental_alter_configs,
    leave_group,
    list_offsets,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
)
from tests.broker.conftest import make_batch
from tests.broker.wire import Client
from tests.support.serving import is_ours

OK = 0
INVALID = ErrorCode.INVALID_REQUEST
GROUP = "named-twice"
NOT_YET = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
}


def twice(item: Any) -> list[Any]:
    return [item, item]


ROWS: dict[str, tuple[Callable[[str], Any], list[int]]] = {
    "Produce 9": (
        lambda topic: produce.ProduceRequest(
            acks=-1,
            timeout_ms=5000,
            topic_data=[
                produce.TopicProduceData(
                    name=topic,
                    partition_data=twice(produce.PartitionProduceData(index=0, records=memoryview(make_batch()))),
                )
            ],
        ),
        [OK, OK] if is_ours() else [OK],  # Kafka drops the first batch without a word; here both are stored
    ),
    "Fetch 12": (
        lambda topic: fetch.FetchRequest(
            topics=[
                fetch.FetchTopic(
                    topic=topic, partitions=twice(fetch.FetchPartition(partition=0, partition_max_bytes=1000))
                )
            ]
        ),
        [OK, OK],
    ),
    "ListOffsets 9": (
        lambda topic: list_offsets.ListOffsetsRequest(
            replica_id=-1,
            topics=[
                list_offsets.ListOffsetsTopic(
                    name=topic,
                    partitions=[
                        list_offsets.ListOffsetsPartition(partition_index=index, timestamp=-1) for index in (0, 0)
                    ],
                )
            ],
        ),
        [INVALID],
    ),
    "Metadata 9": (
        lambda topic: metadata.MetadataRequest(topics=twice(metadata.MetadataRequestTopic(name=topic))),
        [OK, OK, OK],
    ),
    "OffsetCommit 8": (
        lambda topic: offset_commit.OffsetCommitRequest(
            group_id=GROUP,
            topics=[
                offset_commit.OffsetCommitRequestTopic(
                    name=topic,
                    partitions=twice(
                        offset_commit.OffsetCommitRequestPartition(
                            partition_index=0, committed_offset=0, committed_metadata=""
                        )
                    ),
                )
            ],
        ),
        [OK, OK],
    ),
    "OffsetFetch 8": (
        lambda topic: offset_fetch.OffsetFetchRequest(
            groups=twice(
                offset_fetch.OffsetFetchRequestGroup(
                    group_id=GROUP,
                    topics=[offset_fetch.OffsetFetchRequestTopic(name=topic, partition_indexes=[0, 0])],
                )
            )
        ),
        [OK] + [OK, OK, OK] * 2,
    ),
    "FindCoordinator 4": (
        lambda _: find_coordinator.FindCoordinatorRequest(coordinator_keys=twice(GROUP)),
        [OK, OK, OK],
    ),
    "DescribeGroups 6": (
        lambda _: describe_groups.DescribeGroupsRequest(groups=twice("nobody")),
        [ErrorCode.GROUP_ID_NOT_FOUND] * 2,
    ),
    "LeaveGroup 4": (
        lambda _: leave_group.LeaveGroupRequest(
            group_id="nobody", members=twice(leave_group.MemberIdentity(member_id="m"))
        ),
        [OK, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.UNKNOWN_MEMBER_ID],
    ),
    "CreateTopics 7": (
        lambda topic: create_topics.CreateTopicsRequest(
            timeout_ms=5000,
            topics=twice(create_topics.CreatableTopic(name=f"{topic}-new", num_partitions=1, replication_factor=1)),
        ),
        [INVALID],
    ),
    "DeleteTopics 6": (
        lambda topic: delete_topics.DeleteTopicsRequest(
            timeout_ms=5000, topics=twice(delete_topics.DeleteTopicState(name=topic))
        ),
        [INVALID],
    ),
    "DeleteRecords 2": (
        lambda topic: delete_records.DeleteRecordsRequest(
            timeout_ms=5000,
            topics=[
                delete_records.DeleteRecordsTopic(
                    name=topic, partitions=twice(delete_records.DeleteRecordsPartition(partition_index=0, offset=0))
                )
            ],
        ),
        [OK],
    ),
    "OffsetForLeaderEpoch 4": (
        lambda topic: offset_for_leader_epoch.OffsetForLeaderEpochRequest(
            topics=[
                offset_for_leader_epoch.OffsetForLeaderTopic(
                    topic=topic,
                    partitions=twice(offset_for_leader_epoch.OffsetForLeaderPartition(partition=0, leader_epoch=0)),
                )
            ]
        ),
        [OK, OK],
    ),
    "DescribeConfigs 4": (
        lambda topic: describe_configs.DescribeConfigsRequest(
            resources=twice(describe_configs.DescribeConfigsResource(resource_type=2, resource_name=topic))
        ),
        [OK, OK],
    ),
    "AlterConfigs 2": (
        lambda topic: alter_configs.AlterConfigsRequest(
            resources=twice(alter_configs.AlterConfigsResource(resource_type=2, resource_name=topic))
        ),
        [INVALID, INVALID],
    ),
    "IncrementalAlterConfigs 1": (
        lambda topic: incremental_alter_configs.IncrementalAlterConfigsRequest(
            resources=twice(incremental_alter_configs.AlterConfigsResource(resource_type=2, resource_name=topic))
        ),
        [INVALID, INVALID],
    ),
    "DescribeLogDirs 4": (
        lambda topic: describe_log_dirs.DescribeLogDirsRequest(
            topics=twice(describe_log_dirs.DescribableLogDirTopic(topic=topic, partitions=[0, 0]))
        ),
        [OK, OK],
    ),
    "CreatePartitions 3": (
        lambda topic: create_partitions.CreatePartitionsRequest(
            timeout_ms=5000, topics=twice(create_partitions.CreatePartitionsTopic(name=topic, count=5))
        ),
        [INVALID],
    ),
    "DeleteGroups 2": (
        lambda _: delete_groups.DeleteGroupsRequest(groups_names=twice("nobody")),
        [ErrorCode.GROUP_ID_NOT_FOUND],
    ),
    "ElectLeaders 2": (
        lambda topic: elect_leaders.ElectLeadersRequest(
            topic_partitions=twice(elect_leaders.TopicPartitions(topic=topic, partitions=[0, 0]))
        ),
        [OK] + [ErrorCode.ELECTION_NOT_NEEDED] * 4,
    ),
    "AlterPartitionReassignments 0": (
        lambda topic: alter_partition_reassignments.AlterPartitionReassignmentsRequest(
            topics=[
                alter_partition_reassignments.ReassignableTopic(
                    name=topic, partitions=twice(alter_partition_reassignments.ReassignablePartition(partition_index=0))
                )
            ]
        ),
        [OK, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS],
    ),
    "OffsetDelete 0": (
        lambda topic: offset_delete.OffsetDeleteRequest(
            group_id=GROUP,
            topics=[
                offset_delete.OffsetDeleteRequestTopic(
                    name=topic, partitions=twice(offset_delete.OffsetDeleteRequestPartition(partition_index=0))
                )
            ],
        ),
        [OK, OK, OK],
    ),
    "DescribeProducers 0": (
        lambda topic: describe_producers.DescribeProducersRequest(
            topics=[describe_producers.TopicRequest(name=topic, partition_indexes=[0, 0])]
        ),
        [OK, OK],
    ),
    "DescribeTopicPartitions 0": (
        lambda topic: describe_topic_partitions.DescribeTopicPartitionsRequest(
            topics=twice(describe_topic_partitions.TopicRequest(name=topic))
        ),
        [OK, OK],
    ),
}
"""By API and version: a request that names something twice, and every error code of the answer, in order."""


@pytest.mark.parametrize("row", ROWS)
async def test_what_is_named_twice_is_answered_as_kafka_does(kafka: str, topic: str, row: str) -> None:
    host, _, port = kafka.rpartition(":")
    client = await Client.connect(host, int(port))
    try:
        await settled(client, topic, "FindCoordinator 4")  # has Kafka create what it keeps offsets in
        await settled(client, topic, "OffsetCommit 8")  # makes the group known
        assert await settled(client, topic, row) == ROWS[row][1]
    finally:
        await client.close()


async def settled(client: Client, topic: str, row: str) -> list[int]:
    """The codes of an answer, asked for again while Kafka has not yet loaded or announced what is named."""
    make, _ = ROWS[row]
    async with asyncio.timeout(30):
        while True:
            found = list(codes(await client.ask(make(topic), int(row.split()[1]))))
            if not NOT_YET.intersection(found):
                return found
            await asyncio.sleep(0.2)


def codes(response: Any) -> Iterator[int]:
    """Every error code at any depth, zeros too, outer before inner."""
    if isinstance(response, list):
        for each in response:
            yield from codes(each)
    elif is_dataclass(response):
        values = {field.name: getattr(response, field.name) for field in fields(response)}
        if "error_code" in values:
            yield values["error_code"]
        for value in values.values():
            yield from codes(value)
