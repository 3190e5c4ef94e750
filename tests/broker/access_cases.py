"""A request for each API that access is checked in, and the operation and resource that it needs.

All are about the topic `t`, the group `g` and the transactional id `x`.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from pqbroker.broker.ground.access import CLUSTER, AclKind, AclOperation, AclResource
from pqbroker.broker.services.configs.changes import Resource
from pqbroker.protocol.messages import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    alter_client_quotas,
    alter_configs,
    alter_partition_reassignments,
    alter_replica_log_dirs,
    alter_user_scram_credentials,
    consumer_group_describe,
    consumer_group_heartbeat,
    create_acls,
    create_partitions,
    create_topics,
    delete_acls,
    delete_groups,
    delete_records,
    delete_topics,
    describe_acls,
    describe_client_quotas,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_quorum,
    describe_topic_partitions,
    describe_transactions,
    describe_user_scram_credentials,
    elect_leaders,
    end_txn,
    fetch,
    find_coordinator,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    leave_group,
    list_config_resources,
    list_offsets,
    list_partition_reassignments,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    sync_group,
    txn_offset_commit,
    update_features,
    write_txn_markers,
)
from pqbroker.protocol.records import TRANSACTIONAL
from tests.broker.conftest import make_batch, produce_request

Op = AclOperation
TOPIC = AclResource(AclKind.TOPIC, "t")
GROUP = AclResource(AclKind.GROUP, "g")
TRANSACTIONAL_ID = AclResource(AclKind.TRANSACTIONAL_ID, "x")


@dataclass(frozen=True, slots=True)
class Case:
    """A request that does one thing, made for the topic `t` of an id; and what it needs."""

    api: str
    operation: AclOperation
    resource: AclResource
    make: Callable[[bytes], Any]
    version: int | None = None
    or_else: AclOperation | None = None
    """Another operation that is enough, on this resource or on the cluster."""

    def __str__(self) -> str:
        return f"{self.api} v{self.version}: {self.operation.name} on {self.resource}"


def transactional(_: bytes) -> produce.ProduceRequest:
    batch = make_batch(attributes=TRANSACTIONAL, producer_id=999, producer_epoch=0, base_sequence=0)
    return replace(produce_request("t", batch), transactional_id="x")


def fetched(topic: fetch.FetchTopic) -> fetch.FetchRequest:
    topic.partitions = [fetch.FetchPartition(partition=0)]
    return fetch.FetchRequest(max_wait_ms=0, max_bytes=100, session_epoch=-1, topics=[topic])


def offsets(topic: offset_fetch.OffsetFetchRequestTopic) -> offset_fetch.OffsetFetchRequest:
    topic.partition_indexes = [0]
    return offset_fetch.OffsetFetchRequest(groups=[offset_fetch.OffsetFetchRequestGroup(group_id="g", topics=[topic])])


def committed(topic: offset_commit.OffsetCommitRequestTopic) -> offset_commit.OffsetCommitRequest:
    topic.partitions = [offset_commit.OffsetCommitRequestPartition(partition_index=0, committed_metadata="")]
    return offset_commit.OffsetCommitRequest(group_id="g", topics=[topic])


def described(kind: Resource, name: str) -> describe_configs.DescribeConfigsRequest:
    resource = describe_configs.DescribeConfigsResource(resource_type=kind, resource_name=name)
    return describe_configs.DescribeConfigsRequest(resources=[resource])


def replaced(kind: Resource, name: str) -> alter_configs.AlterConfigsRequest:
    resource = alter_configs.AlterConfigsResource(resource_type=kind, resource_name=name)
    return alter_configs.AlterConfigsRequest(resources=[resource], validate_only=True)


def changed(kind: Resource, name: str) -> incremental_alter_configs.IncrementalAlterConfigsRequest:
    resource = incremental_alter_configs.AlterConfigsResource(resource_type=kind, resource_name=name)
    return incremental_alter_configs.IncrementalAlterConfigsRequest(resources=[resource], validate_only=True)


def trimmed(_: bytes) -> delete_records.DeleteRecordsRequest:
    partitions = [delete_records.DeleteRecordsPartition(partition_index=0, offset=0)]
    topics = [delete_records.DeleteRecordsTopic(name="t", partitions=partitions)]
    return delete_records.DeleteRecordsRequest(topics=topics)


def listed(_: bytes) -> list_offsets.ListOffsetsRequest:
    partitions = [list_offsets.ListOffsetsPartition(partition_index=0, timestamp=-1)]
    return list_offsets.ListOffsetsRequest(topics=[list_offsets.ListOffsetsTopic(name="t", partitions=partitions)])


def epochs(_: bytes) -> offset_for_leader_epoch.OffsetForLeaderEpochRequest:
    partitions = [offset_for_leader_epoch.OffsetForLeaderPartition(partition=0, leader_epoch=1000)]
    topics = [offset_for_leader_epoch.OffsetForLeaderTopic(topic="t", partitions=partitions)]
    return offset_for_leader_epoch.OffsetForLeaderEpochRequest(topics=topics)


def forgotten(_: bytes) -> offset_delete.OffsetDeleteRequest:
    partitions = [offset_delete.OffsetDeleteRequestPartition(partition_index=0)]
    topics = [offset_delete.OffsetDeleteRequestTopic(name="t", partitions=partitions)]
    return offset_delete.OffsetDeleteRequest(group_id="g", topics=topics)


def moved(_: bytes) -> alter_replica_log_dirs.AlterReplicaLogDirsRequest:
    topics = [alter_replica_log_dirs.AlterReplicaLogDirTopic(name="t", partitions=[0])]
    directories = [alter_replica_log_dirs.AlterReplicaLogDir(path="/nowhere", topics=topics)]
    return alter_replica_log_dirs.AlterReplicaLogDirsRequest(dirs=directories)


def elected(_: bytes) -> elect_leaders.ElectLeadersRequest:
    return elect_leaders.ElectLeadersRequest(
        topic_partitions=[elect_leaders.TopicPartitions(topic="t", partitions=[0])]
    )


def coordinator(kind: int, key: str, _: bytes) -> find_coordinator.FindCoordinatorRequest:
    return find_coordinator.FindCoordinatorRequest(key=key, key_type=kind, coordinator_keys=[key])


def joined(_: bytes) -> join_group.JoinGroupRequest:
    protocols = [join_group.JoinGroupRequestProtocol(name="range", metadata=b"")]
    return join_group.JoinGroupRequest(
        group_id="g", session_timeout_ms=10_000, protocol_type="consumer", protocols=protocols
    )


def created(_: bytes) -> create_topics.CreateTopicsRequest:
    topics = [create_topics.CreatableTopic(name="t", num_partitions=1, replication_factor=1)]
    return create_topics.CreateTopicsRequest(topics=topics, validate_only=True)


def added(_: bytes) -> add_partitions_to_txn.AddPartitionsToTxnRequest:
    topics = [add_partitions_to_txn.AddPartitionsToTxnTopic(name="t", partitions=[0])]
    return add_partitions_to_txn.AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="x", v3_and_below_producer_id=999, v3_and_below_topics=topics,
        transactions=[add_partitions_to_txn.AddPartitionsToTxnTransaction(
            transactional_id="x", producer_id=999, topics=topics
        )],
    )  # fmt: skip


def reading(_: bytes) -> consumer_group_heartbeat.ConsumerGroupHeartbeatRequest:
    return consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(
        group_id="g", member_id="m", member_epoch=0, rebalance_timeout_ms=1000, subscribed_topic_names=["t"],
        topic_partitions=[],
    )  # fmt: skip


def pending(_: bytes) -> txn_offset_commit.TxnOffsetCommitRequest:
    partitions = [txn_offset_commit.TxnOffsetCommitRequestPartition(partition_index=0, committed_metadata="")]
    topics = [txn_offset_commit.TxnOffsetCommitRequestTopic(name="t", partitions=partitions)]
    return txn_offset_commit.TxnOffsetCommitRequest(transactional_id="x", producer_id=999, group_id="g", topics=topics)


def group_added(_: bytes) -> add_offsets_to_txn.AddOffsetsToTxnRequest:
    return add_offsets_to_txn.AddOffsetsToTxnRequest(transactional_id="x", producer_id=999, group_id="g")


def marked(_: bytes) -> write_txn_markers.WriteTxnMarkersRequest:
    topics = [write_txn_markers.WritableTxnMarkerTopic(name="t", partition_indexes=[0])]
    marker = write_txn_markers.WritableTxnMarker(producer_id=999, topics=topics)
    return write_txn_markers.WriteTxnMarkersRequest(markers=[marker])


CASES = [
    Case("AddPartitionsToTxn", Op.WRITE, TRANSACTIONAL_ID, added, 3),
    Case("AddPartitionsToTxn", Op.WRITE, TOPIC, added, 3),
    Case("AddPartitionsToTxn", Op.CLUSTER_ACTION, CLUSTER, added, 5),
    Case("AddOffsetsToTxn", Op.WRITE, TRANSACTIONAL_ID, group_added),
    Case("AddOffsetsToTxn", Op.READ, GROUP, group_added),
    Case("EndTxn", Op.WRITE, TRANSACTIONAL_ID, lambda _: end_txn.EndTxnRequest(transactional_id="x", producer_id=999)),
    Case("TxnOffsetCommit", Op.WRITE, TRANSACTIONAL_ID, pending),
    Case("TxnOffsetCommit", Op.READ, GROUP, pending),
    Case("TxnOffsetCommit", Op.READ, TOPIC, pending),
    Case(
        "DescribeTransactions", Op.DESCRIBE, TRANSACTIONAL_ID,
        lambda _: describe_transactions.DescribeTransactionsRequest(transactional_ids=["x"]),
    ),
    Case("WriteTxnMarkers", Op.CLUSTER_ACTION, CLUSTER, marked, or_else=Op.ALTER),
    Case("Produce", Op.WRITE, TOPIC, lambda _: produce_request("t", make_batch()), 9),
    Case("Produce", Op.WRITE, TRANSACTIONAL_ID, transactional, 9),
    Case("Fetch", Op.READ, TOPIC, lambda _: fetched(fetch.FetchTopic(topic="t")), 12),
    Case("Fetch", Op.READ, TOPIC, lambda topic_id: fetched(fetch.FetchTopic(topic_id=topic_id)), 13),
    Case("ListOffsets", Op.DESCRIBE, TOPIC, listed, 7),
    Case(
        "Metadata", Op.DESCRIBE, TOPIC,
        lambda _: metadata.MetadataRequest(topics=[metadata.MetadataRequestTopic(name="t")]), 9,
    ),
    Case(
        "OffsetCommit", Op.READ, TOPIC, lambda _: committed(offset_commit.OffsetCommitRequestTopic(name="t")), 9
    ),
    Case(
        "OffsetCommit", Op.READ, GROUP, lambda _: committed(offset_commit.OffsetCommitRequestTopic(name="t")), 9
    ),
    Case(
        "OffsetFetch", Op.DESCRIBE, TOPIC,
        lambda topic_id: offsets(offset_fetch.OffsetFetchRequestTopic(topic_id=topic_id)), 10,
    ),
    Case(
        "OffsetFetch", Op.DESCRIBE, GROUP, lambda _: offsets(offset_fetch.OffsetFetchRequestTopic(name="t")), 9
    ),
    Case("OffsetFetch", Op.DESCRIBE, GROUP, lambda _: offset_fetch.OffsetFetchRequest(group_id="g", topics=None), 7),
    *(
        Case(
            "FindCoordinator", Op.DESCRIBE, resource, partial(coordinator, kind, resource.name), version,
        )
        for kind, resource in enumerate((GROUP, TRANSACTIONAL_ID))
        for version in (3, 4)
    ),
    Case("JoinGroup", Op.READ, GROUP, joined),
    Case("Heartbeat", Op.READ, GROUP, lambda _: heartbeat.HeartbeatRequest(group_id="g")),
    Case("LeaveGroup", Op.READ, GROUP, lambda _: leave_group.LeaveGroupRequest(group_id="g")),
    Case("SyncGroup", Op.READ, GROUP, lambda _: sync_group.SyncGroupRequest(
        group_id="g", protocol_type="consumer", protocol_name="range"
    )),
    Case("DescribeGroups", Op.DESCRIBE, GROUP, lambda _: describe_groups.DescribeGroupsRequest(groups=["g"])),
    Case("DeleteGroups", Op.DELETE, GROUP, lambda _: delete_groups.DeleteGroupsRequest(groups_names=["g"])),
    Case("OffsetDelete", Op.DELETE, GROUP, forgotten),
    Case(
        "ConsumerGroupDescribe", Op.DESCRIBE, GROUP,
        lambda _: consumer_group_describe.ConsumerGroupDescribeRequest(group_ids=["g"]),
    ),
    Case("ConsumerGroupHeartbeat", Op.READ, GROUP, reading),
    Case("ConsumerGroupHeartbeat", Op.DESCRIBE, TOPIC, reading),
    Case(
        "AlterUserScramCredentials", Op.ALTER, CLUSTER,
        lambda _: alter_user_scram_credentials.AlterUserScramCredentialsRequest(
            deletions=[alter_user_scram_credentials.ScramCredentialDeletion(name="u", mechanism=1)], upsertions=[]
        ),
    ),
    Case("UpdateFeatures", Op.ALTER, CLUSTER, lambda _: update_features.UpdateFeaturesRequest(feature_updates=[])),
    Case("OffsetDelete", Op.READ, TOPIC, forgotten),
    Case("CreateTopics", Op.DESCRIBE_CONFIGS, TOPIC, created),
    Case(
        "DeleteTopics", Op.DELETE, TOPIC,
        lambda _: delete_topics.DeleteTopicsRequest(topics=[delete_topics.DeleteTopicState(name="t")]),
        or_else=Op.DELETE,
    ),
    Case("DeleteRecords", Op.DELETE, TOPIC, trimmed),
    Case(
        "InitProducerId", Op.WRITE, TRANSACTIONAL_ID,
        lambda _: init_producer_id.InitProducerIdRequest(transactional_id="x"),
    ),
    Case("OffsetForLeaderEpoch", Op.DESCRIBE, TOPIC, epochs, or_else=Op.CLUSTER_ACTION),
    Case(
        "DescribeAcls", Op.DESCRIBE, CLUSTER,
        lambda _: describe_acls.DescribeAclsRequest(
            resource_type_filter=1, resource_name_filter="none", pattern_type_filter=1, principal_filter=None,
            host_filter=None, operation=1, permission_type=1,
        ),
    ),
    Case(
        "CreateAcls", Op.ALTER, CLUSTER,
        lambda _: create_acls.CreateAclsRequest(creations=[create_acls.AclCreation(
            resource_type=2, resource_name="other", principal="User:other", host="10.0.0.1", operation=3,
            permission_type=3,
        )]),
    ),
    Case(
        "DeleteAcls", Op.ALTER, CLUSTER,
        lambda _: delete_acls.DeleteAclsRequest(
            filters=[
                delete_acls.DeleteAclsFilter(
                    resource_type_filter=1, resource_name_filter="none", pattern_type_filter=1, principal_filter=None,
                    host_filter=None, operation=1, permission_type=1,
                )
            ]
        ),
    ),
    Case("DescribeConfigs", Op.DESCRIBE_CONFIGS, TOPIC, lambda _: described(Resource.TOPIC, "t")),
    Case("DescribeConfigs", Op.DESCRIBE_CONFIGS, CLUSTER, lambda _: described(Resource.BROKER, "1")),
    Case("DescribeConfigs", Op.DESCRIBE_CONFIGS, GROUP, lambda _: described(Resource.GROUP, "g")),
    Case("AlterConfigs", Op.ALTER_CONFIGS, GROUP, lambda _: replaced(Resource.GROUP, "g")),
    Case("IncrementalAlterConfigs", Op.ALTER_CONFIGS, GROUP, lambda _: changed(Resource.GROUP, "g")),
    Case("AlterConfigs", Op.ALTER_CONFIGS, TOPIC, lambda _: replaced(Resource.TOPIC, "t")),
    Case("AlterConfigs", Op.ALTER_CONFIGS, CLUSTER, lambda _: replaced(Resource.BROKER, "1")),
    Case("IncrementalAlterConfigs", Op.ALTER_CONFIGS, TOPIC, lambda _: changed(Resource.TOPIC, "t")),
    Case("IncrementalAlterConfigs", Op.ALTER_CONFIGS, CLUSTER, lambda _: changed(Resource.BROKER, "1")),
    Case(
        "ListConfigResources", Op.DESCRIBE_CONFIGS, CLUSTER,
        lambda _: list_config_resources.ListConfigResourcesRequest(),
    ),
    Case("AlterReplicaLogDirs", Op.ALTER, CLUSTER, moved),
    Case("DescribeLogDirs", Op.DESCRIBE, CLUSTER, lambda _: describe_log_dirs.DescribeLogDirsRequest(topics=None)),
    Case(
        "CreatePartitions", Op.ALTER, TOPIC,
        lambda _: create_partitions.CreatePartitionsRequest(
            topics=[create_partitions.CreatePartitionsTopic(name="t", count=2, assignments=None)]
        ),
    ),
    Case("ElectLeaders", Op.ALTER, CLUSTER, elected),
    Case(
        "AlterPartitionReassignments", Op.ALTER, CLUSTER,
        lambda _: alter_partition_reassignments.AlterPartitionReassignmentsRequest(),
    ),
    Case(
        "ListPartitionReassignments", Op.DESCRIBE, CLUSTER,
        lambda _: list_partition_reassignments.ListPartitionReassignmentsRequest(topics=None),
    ),
    Case(
        "DescribeClientQuotas", Op.DESCRIBE_CONFIGS, CLUSTER,
        lambda _: describe_client_quotas.DescribeClientQuotasRequest(),
    ),
    Case(
        "AlterClientQuotas", Op.ALTER_CONFIGS, CLUSTER,
        lambda _: alter_client_quotas.AlterClientQuotasRequest(
            entries=[alter_client_quotas.EntryData(
                entity=[alter_client_quotas.EntityData(entity_type="user", entity_name="other")],
                ops=[alter_client_quotas.OpData(key="producer_byte_rate", value=1.0, remove=True)],
            )],
        ),
    ),
    Case(
        "DescribeUserScramCredentials", Op.DESCRIBE, CLUSTER,
        lambda _: describe_user_scram_credentials.DescribeUserScramCredentialsRequest(users=None),
    ),
    Case("DescribeQuorum", Op.DESCRIBE, CLUSTER, lambda _: describe_quorum.DescribeQuorumRequest()),
    Case(
        "DescribeProducers", Op.READ, TOPIC,
        lambda _: describe_producers.DescribeProducersRequest(
            topics=[describe_producers.TopicRequest(name="t", partition_indexes=[0])]
        ),
    ),
    Case(
        "DescribeTopicPartitions", Op.DESCRIBE, TOPIC,
        lambda _: describe_topic_partitions.DescribeTopicPartitionsRequest(
            topics=[describe_topic_partitions.TopicRequest(name="t")]
        ),
    ),
]  # fmt: skip
