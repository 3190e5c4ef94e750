"""Every API asks one place whether the caller may do what it does, and answers with the code of what was refused."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pytest

from pqbroker.broker.ground.access import ANONYMOUS, CLUSTER, AclKind, AclOperation, AclResource, Principal
from pqbroker.broker.kafka.apis.context import Context, Peer
from pqbroker.broker.kafka.net.dispatch import Dispatcher
from pqbroker.broker.kafka.served import APIS
from pqbroker.broker.services.configs.changes import Resource
from pqbroker.broker.services.coordination.consumer_groups import visible_groups
from pqbroker.broker.services.topics.finding import every_topic
from pqbroker.conf.addresses import Address
from pqbroker.pq.log.consumers import ConsumerOffset
from pqbroker.protocol.errors import ErrorCode
from pqbroker.protocol.messages import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    alter_configs,
    alter_partition_reassignments,
    alter_replica_log_dirs,
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
    write_txn_markers,
)
from tests.broker.conftest import Node, make_batch, produce_request, until
from tests.broker.wire import BY_REQUEST, error_codes, read_response, request_frame

Op = AclOperation
TOPIC = AclResource(AclKind.TOPIC, "t")
GROUP = AclResource(AclKind.GROUP, "g")
TRANSACTIONAL_ID = AclResource(AclKind.TRANSACTIONAL_ID, "x")
CODES = {
    TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
OPEN = {"ApiVersions", "DescribeCluster"}
"""What Kafka answers everybody."""
FILTERED = {"ListGroups", "ListTransactions"}
"""APIs whose answers leave out whatever the caller may not see."""
REFUSED_TO_ALL = {"ConsumerGroupHeartbeat", "SaslHandshake", "ShareGroupHeartbeat"}
"""What is not served, whoever asks; Kafka says so before it looks at who it is."""


class Refusal:
    """Allows everything but one operation on one resource; without one, nothing."""

    def __init__(self, operation: AclOperation | None = None, resource: AclResource = TOPIC) -> None:
        self._refused = (operation, resource)
        self.asked: set[Principal] = set()

    def allows(self, principal: Principal, operation: AclOperation, resource: AclResource) -> bool:
        self.asked.add(principal)
        return self._refused[0] is not None and (operation, resource) != self._refused


@dataclass(frozen=True, slots=True)
class Case:
    """A request that does one thing, made for the topic `t` of an id; and what it needs."""

    api: str
    operation: AclOperation
    resource: AclResource
    make: Callable[[bytes], Any]
    version: int | None = None

    def __str__(self) -> str:
        return f"{self.api} v{self.version}: {self.operation.name} on {self.resource}"


def transactional(_: bytes) -> produce.ProduceRequest:
    return replace(produce_request("t", make_batch()), transactional_id="x")


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
    partitions = [offset_for_leader_epoch.OffsetForLeaderPartition(partition=0, leader_epoch=1)]
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
        v3_and_below_transactional_id="x", v3_and_below_topics=topics,
        transactions=[add_partitions_to_txn.AddPartitionsToTxnTransaction(transactional_id="x", topics=topics)],
    )  # fmt: skip


def pending(_: bytes) -> txn_offset_commit.TxnOffsetCommitRequest:
    partitions = [txn_offset_commit.TxnOffsetCommitRequestPartition(partition_index=0, committed_metadata="")]
    topics = [txn_offset_commit.TxnOffsetCommitRequestTopic(name="t", partitions=partitions)]
    return txn_offset_commit.TxnOffsetCommitRequest(transactional_id="x", group_id="g", topics=topics)


def group_added(_: bytes) -> add_offsets_to_txn.AddOffsetsToTxnRequest:
    return add_offsets_to_txn.AddOffsetsToTxnRequest(transactional_id="x", group_id="g")


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
    Case("EndTxn", Op.WRITE, TRANSACTIONAL_ID, lambda _: end_txn.EndTxnRequest(transactional_id="x")),
    Case("TxnOffsetCommit", Op.WRITE, TRANSACTIONAL_ID, pending),
    Case("TxnOffsetCommit", Op.READ, GROUP, pending),
    Case("TxnOffsetCommit", Op.READ, TOPIC, pending),
    Case(
        "DescribeTransactions", Op.DESCRIBE, TRANSACTIONAL_ID,
        lambda _: describe_transactions.DescribeTransactionsRequest(transactional_ids=["x"]),
    ),
    Case("WriteTxnMarkers", Op.CLUSTER_ACTION, CLUSTER, marked),
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
    Case("SyncGroup", Op.READ, GROUP, lambda _: sync_group.SyncGroupRequest(group_id="g")),
    Case("DescribeGroups", Op.DESCRIBE, GROUP, lambda _: describe_groups.DescribeGroupsRequest(groups=["g"])),
    Case("DeleteGroups", Op.DELETE, GROUP, lambda _: delete_groups.DeleteGroupsRequest(groups_names=["g"])),
    Case("OffsetDelete", Op.DELETE, GROUP, forgotten),
    Case("OffsetDelete", Op.READ, TOPIC, forgotten),
    Case("CreateTopics", Op.DESCRIBE_CONFIGS, TOPIC, created),
    Case(
        "DeleteTopics", Op.DELETE, TOPIC,
        lambda _: delete_topics.DeleteTopicsRequest(topics=[delete_topics.DeleteTopicState(name="t")]),
    ),
    Case("DeleteRecords", Op.DELETE, TOPIC, trimmed),
    Case(
        "InitProducerId", Op.WRITE, TRANSACTIONAL_ID,
        lambda _: init_producer_id.InitProducerIdRequest(transactional_id="x"),
    ),
    Case("OffsetForLeaderEpoch", Op.DESCRIBE, TOPIC, epochs),
    Case(
        "DescribeAcls", Op.DESCRIBE, CLUSTER,
        lambda _: describe_acls.DescribeAclsRequest(
            resource_type_filter=1, resource_name_filter=None, principal_filter=None, host_filter=None
        ),
    ),
    Case(
        "CreateAcls", Op.ALTER, CLUSTER,
        lambda _: create_acls.CreateAclsRequest(creations=[create_acls.AclCreation()]),
    ),
    Case(
        "DeleteAcls", Op.ALTER, CLUSTER,
        lambda _: delete_acls.DeleteAclsRequest(
            filters=[
                delete_acls.DeleteAclsFilter(resource_name_filter=None, principal_filter=None, host_filter=None)
            ]
        ),
    ),
    Case("DescribeConfigs", Op.DESCRIBE_CONFIGS, TOPIC, lambda _: described(Resource.TOPIC, "t")),
    Case("DescribeConfigs", Op.DESCRIBE_CONFIGS, CLUSTER, lambda _: described(Resource.BROKER, "1")),
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


def guarded_by(node: Node, access: Refusal | None) -> Context:
    guarded = replace(node.server.node, access=access)
    return Context(guarded, Peer(guarded, Address("127.0.0.1", 9092)), 9, None)


async def answer_of(node: Node, access: Refusal | None, request: Any, version: int | None = None) -> Any:
    """What the node's dispatcher answers under such an access check."""
    context, api = guarded_by(node, access), BY_REQUEST[type(request)]
    version = api.version_max if version is None else version
    frame = memoryview(request_frame(request, version))[4:]
    exchange = Dispatcher(context.node, APIS).begin(context.peer, frame)
    await until(lambda: exchange.is_done)
    output: Any = exchange.output
    return read_response(api, version, b"".join(map(bytes, output))[4:])[1]


def codes_of(answer: Any) -> set[ErrorCode]:
    """Every code in an answer, that of configs which are left out too."""
    left_out = {getattr(topic, "topic_config_error_code", ErrorCode.NONE) for topic in getattr(answer, "topics", ())}
    return {*error_codes(answer), *left_out} - {ErrorCode.NONE}


def test_every_api_is_checked_or_named() -> None:
    named = OPEN | FILTERED | REFUSED_TO_ALL
    assert {case.api for case in CASES} | {"InitProducerId"} | named == {api.name for api in APIS}
    assert {case.api for case in CASES} & named == set()


@pytest.mark.parametrize("case", CASES, ids=str)
async def test_what_is_refused_has_the_code_of_its_resource(node: Node, case: Case) -> None:
    request = case.make(await node.create_topic("t"))
    if case.api == "CreateTopics":
        request.topics[0].name = "u"
        case = replace(case, resource=AclResource(AclKind.TOPIC, "u"))
    if case.api == "OffsetDelete":
        await has_offsets(node, "g")
    access = Refusal(case.operation, case.resource)
    expected = CODES.get(case.resource, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    assert codes_of(await answer_of(node, access, request, case.version)) == {expected}
    assert access.asked == {ANONYMOUS}


@pytest.mark.parametrize("case", CASES, ids=str)
async def test_who_may_do_nothing_is_refused_everything(node: Node, case: Case) -> None:
    request = case.make(await node.create_topic("t"))
    codes = codes_of(await answer_of(node, Refusal(), request, case.version))
    assert codes
    assert codes <= set(CODES.values())


@pytest.mark.parametrize("case", CASES, ids=str)
async def test_what_another_operation_is_refused_for_is_allowed(node: Node, case: Case) -> None:
    request = case.make(await node.create_topic("t"))
    another = Op.CREATE if case.operation is Op.CLUSTER_ACTION else Op.CLUSTER_ACTION
    access = Refusal(another, case.resource)
    assert codes_of(await answer_of(node, access, request, case.version)).isdisjoint(CODES.values())


async def has_offsets(node: Node, *groups: str) -> None:
    for group in groups:
        outcomes = await node.server.node.cell.current.topics.offsets.commit(group, {("t", 0): ConsumerOffset(0)})
        assert outcomes == {("t", 0): None}


async def test_a_name_that_no_topic_has_is_refused_alike(node: Node) -> None:
    request = metadata.MetadataRequest(
        topics=[metadata.MetadataRequestTopic(name="t")], allow_auto_topic_creation=True
    )
    assert codes_of(await answer_of(node, Refusal(Op.DESCRIBE), request, 9)) == {CODES[TOPIC]}
    assert node.server.node.cell.current.topics.get("t") is None


@pytest.mark.parametrize("api", ["CreateTopics", "Metadata"])
@pytest.mark.parametrize("resource", [TOPIC, CLUSTER])
async def test_a_topic_is_created_by_a_right_on_the_cluster_or_on_its_name(
    node: Node, api: str, resource: AclResource
) -> None:
    request: Any = created(b"") if api == "CreateTopics" else metadata.MetadataRequest(
        topics=[metadata.MetadataRequestTopic(name="t")], allow_auto_topic_creation=True
    )  # fmt: skip
    assert codes_of(await answer_of(node, Refusal(Op.CREATE, resource), request)) == set()


async def test_a_topic_is_not_created_without_a_right_on_either(node: Node) -> None:
    class NoCreation(Refusal):
        def allows(self, principal: Principal, operation: AclOperation, resource: AclResource) -> bool:
            return operation is not Op.CREATE

    request = metadata.MetadataRequest(
        topics=[metadata.MetadataRequestTopic(name="t")], allow_auto_topic_creation=True
    )
    assert codes_of(await answer_of(node, NoCreation(), request)) == {CODES[TOPIC]}
    assert codes_of(await answer_of(node, NoCreation(), created(b""))) == {CODES[TOPIC]}


async def test_a_producer_id_takes_a_right_on_the_cluster_or_on_some_topic(node: Node) -> None:
    request = init_producer_id.InitProducerIdRequest(transactional_id=None)
    access = Refusal(Op.IDEMPOTENT_WRITE, CLUSTER)
    assert codes_of(await answer_of(node, access, request)) == {CODES[CLUSTER]}
    await node.create_topic("t")
    assert codes_of(await answer_of(node, access, request)) == set()


async def test_a_list_of_topics_has_those_alone_that_the_caller_may_see(node: Node) -> None:
    await node.create_topic("t")
    await node.create_topic("u")
    context = guarded_by(node, Refusal(Op.DESCRIBE))
    assert [topic.record.name for topic in every_topic(context, Op.DESCRIBE)] == ["u"]
    assert [topic.record.name for topic in every_topic(context, Op.READ)] == ["t", "u"]
    assert [topic.record.name for topic in every_topic(context, Op.READ, ["u", "no"])] == ["u"]


async def test_a_list_of_groups_has_those_alone_that_the_caller_may_see(node: Node) -> None:
    class OnlyOne(Refusal):
        def allows(self, principal: Principal, operation: AclOperation, resource: AclResource) -> bool:
            return resource == GROUP

    await node.create_topic("t")
    await has_offsets(node, "f", "g")
    assert await seen_groups(guarded_by(node, OnlyOne())) == ["g"]
    assert await seen_groups(guarded_by(node, Refusal(Op.DESCRIBE, GROUP))) == ["f", "g"]


async def seen_groups(context: Context) -> list[str]:
    return [group.group_id for group in await context.node.turns.finish(visible_groups(context))]


async def test_authorized_operations_are_those_that_are_allowed(node: Node) -> None:
    await node.create_topic("t")
    request = metadata.MetadataRequest(
        topics=[metadata.MetadataRequestTopic(name="t")], include_topic_authorized_operations=True
    )
    every = (await answer_of(node, None, request, 9)).topics[0].topic_authorized_operations
    some = (await answer_of(node, Refusal(Op.WRITE), request, 9)).topics[0].topic_authorized_operations
    assert every - some == 1 << Op.WRITE


def test_a_principal_is_written_as_kafka_writes_it() -> None:
    assert str(ANONYMOUS) == "User:ANONYMOUS"
