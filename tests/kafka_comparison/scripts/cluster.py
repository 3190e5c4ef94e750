"""The cluster and its administration: partitions, replicas, directories, quorum, users, quotas, access."""

from pqbroker.broker.kafka import left_out
from pqbroker.broker.kafka.handlers import (
    alter_partition_reassignments,
    alter_replica_log_dirs,
    api_versions,
    create_partitions,
    describe_cluster,
    describe_log_dirs,
    describe_producers,
    describe_quorum,
    describe_topic_partitions,
    elect_leaders,
    list_transactions,
)
from pqbroker.protocol.messages import describe_producers as producers
from pqbroker.protocol.messages import describe_topic_partitions as partitions
from pqbroker.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from pqbroker.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from pqbroker.protocol.messages.api_versions import ApiVersionsRequest
from pqbroker.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from pqbroker.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from pqbroker.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from pqbroker.protocol.messages.describe_acls import DescribeAclsRequest
from pqbroker.protocol.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest
from pqbroker.protocol.messages.describe_cluster import DescribeClusterRequest
from pqbroker.protocol.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from pqbroker.protocol.messages.describe_quorum import AskedPartition, AskedTopic, DescribeQuorumRequest
from pqbroker.protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest, UserName
from pqbroker.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from pqbroker.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from pqbroker.protocol.messages.list_transactions import ListTransactionsRequest
from pqbroker.protocol.messages.sasl_handshake import SaslHandshakeRequest
from tests.kafka_comparison.shapes import script, varied
from tests.kafka_comparison.side import SHARED, Side, batch

LEFT_OUT = {api.name: api for api in left_out.APIS_LEFT_OUT}


@varied(api_versions.API)
def a_client(side: Side) -> ApiVersionsRequest:
    return ApiVersionsRequest(client_software_name="compared", client_software_version="1.0")


@varied(LEFT_OUT["SaslHandshake"])
def a_mechanism(side: Side) -> SaslHandshakeRequest:
    return SaslHandshakeRequest(mechanism="PLAIN")


@varied(describe_cluster.API)
def the_cluster(side: Side) -> DescribeClusterRequest:
    return DescribeClusterRequest(endpoint_type=1)


@varied(create_partitions.API, fixed=("topics.name",))
def more_partitions(side: Side) -> CreatePartitionsRequest:
    topic = CreatePartitionsTopic(name=side.topic(), count=2, assignments=[CreatePartitionsAssignment(broker_ids=[1])])
    return CreatePartitionsRequest(topics=[topic], timeout_ms=5000)


@script(create_partitions.API)
def partitions_to_create(side: Side) -> None:
    topic = side.topic(2)
    for count in (-1, 0, 1, 2, 3, 2**31 - 1):
        asked = CreatePartitionsTopic(name=topic, count=count, assignments=None)
        side.compare(CreatePartitionsRequest(topics=[asked], timeout_ms=5000), str(count))
        side.settle()
    for label, name in {"unknown": "nobody", "empty": "", "odd": "a b"}.items():
        asked = CreatePartitionsTopic(name=name, count=3, assignments=None)
        side.compare(CreatePartitionsRequest(topics=[asked], timeout_ms=5000), label)


@varied(elect_leaders.API, fixed=("topic_partitions",))
def a_leader(side: Side) -> ElectLeadersRequest:
    return ElectLeadersRequest(topic_partitions=None, timeout_ms=2000)


@script(elect_leaders.API)
def leaders(side: Side) -> None:
    for kind in range(3 if side.version else 1):
        for topic, indexes in ((SHARED, [0, 1]), (SHARED, [7, -1]), ("nobody", [0]), ("", [0]), (SHARED, [])):
            asked = [TopicPartitions(topic=topic, partitions=indexes)]
            request = ElectLeadersRequest(election_type=kind, topic_partitions=asked, timeout_ms=2000)
            side.compare(request, f"{kind} {topic} {indexes}")
    side.compare(ElectLeadersRequest(topic_partitions=[], timeout_ms=2000), "none")


@varied(alter_partition_reassignments.API)
def a_reassignment(side: Side) -> AlterPartitionReassignmentsRequest:
    partition = ReassignablePartition(partition_index=0, replicas=[1])
    topic = ReassignableTopic(name=side.topic(), partitions=[partition])
    return AlterPartitionReassignmentsRequest(timeout_ms=2000, topics=[topic])


@varied(LEFT_OUT["ListPartitionReassignments"])
def reassignments(side: Side) -> ListPartitionReassignmentsRequest:
    topic = ListPartitionReassignmentsTopics(name=SHARED, partition_indexes=[0, 7])
    return ListPartitionReassignmentsRequest(timeout_ms=2000, topics=[topic])


@varied(describe_log_dirs.API)
def directories(side: Side) -> DescribeLogDirsRequest:
    return DescribeLogDirsRequest(topics=[DescribableLogDirTopic(topic=SHARED, partitions=[0, 7])])


@varied(alter_replica_log_dirs.API)
def a_directory(side: Side) -> AlterReplicaLogDirsRequest:
    path = side.ask(DescribeLogDirsRequest(topics=[])).results[0].log_dir
    topics = [AlterReplicaLogDirTopic(name=SHARED, partitions=[0, 7])]
    return AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=path, topics=topics)])


@varied(describe_quorum.API)
def a_quorum(side: Side) -> DescribeQuorumRequest:
    topic = AskedTopic(topic_name="__cluster_metadata", partitions=[AskedPartition(partition_index=0)])
    return DescribeQuorumRequest(topics=[topic])


@varied(describe_producers.API)
def producers_of_a_partition(side: Side) -> producers.DescribeProducersRequest:
    topic = side.topic()
    side.write(topic, batch(producer_id=5, producer_epoch=2, base_sequence=4))
    asked = [producers.TopicRequest(name=topic, partition_indexes=[0, 7])]
    return producers.DescribeProducersRequest(topics=asked)


@varied(describe_topic_partitions.API)
def partitions_of_a_topic(side: Side) -> partitions.DescribeTopicPartitionsRequest:
    cursor = partitions.Cursor(topic_name=SHARED, partition_index=1)
    topics = [partitions.TopicRequest(name=SHARED)]
    return partitions.DescribeTopicPartitionsRequest(topics=topics, response_partition_limit=2000, cursor=cursor)


@script(describe_topic_partitions.API)
def pages_of_partitions(side: Side) -> None:
    for limit in (1, 2, 3, 0, -1):
        for cursor in (None, partitions.Cursor(topic_name=SHARED, partition_index=1),
                       partitions.Cursor(topic_name="a", partition_index=0),
                       partitions.Cursor(topic_name="zzz", partition_index=0)):  # fmt: skip
            names = [SHARED, "nobody", "a b", SHARED]
            asked = partitions.DescribeTopicPartitionsRequest(
                topics=[partitions.TopicRequest(name=name) for name in names],
                response_partition_limit=limit, cursor=cursor,
            )  # fmt: skip
            side.compare(asked, f"{limit} {cursor and cursor.topic_name}")


@varied(LEFT_OUT["DescribeClientQuotas"])
def a_quota(side: Side) -> DescribeClientQuotasRequest:
    return DescribeClientQuotasRequest(components=[ComponentData(entity_type="user", match_type=0, match="u")])


@varied(LEFT_OUT["DescribeUserScramCredentials"])
def a_user(side: Side) -> DescribeUserScramCredentialsRequest:
    return DescribeUserScramCredentialsRequest(users=[UserName(name="u")])


@varied(list_transactions.API)
def transactions(side: Side) -> ListTransactionsRequest:
    return ListTransactionsRequest(state_filters=["Ongoing"], producer_id_filters=[5_000_000])


@varied(LEFT_OUT["DescribeAcls"])
def rules(side: Side) -> DescribeAclsRequest:
    return DescribeAclsRequest(resource_type_filter=2, pattern_type_filter=1, operation=1, permission_type=1)


@varied(LEFT_OUT["CreateAcls"])
def a_rule(side: Side) -> CreateAclsRequest:
    rule = AclCreation(
        resource_type=2, resource_name="t", resource_pattern_type=3, principal="User:u", host="*", operation=3,
        permission_type=3,
    )  # fmt: skip
    return CreateAclsRequest(creations=[rule])


@varied(LEFT_OUT["DeleteAcls"])
def rules_to_delete(side: Side) -> DeleteAclsRequest:
    asked = DeleteAclsFilter(resource_type_filter=2, pattern_type_filter=1, operation=1, permission_type=1)
    return DeleteAclsRequest(filters=[asked])


