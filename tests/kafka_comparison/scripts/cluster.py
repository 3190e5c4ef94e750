"""The cluster and its administration: partitions, replicas, directories, quorum, users, quotas, access."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pqbroker.broker.kafka import left_out
from pqbroker.broker.kafka.handlers import (
    alter_client_quotas,
    alter_partition_reassignments,
    alter_replica_log_dirs,
    alter_user_scram_credentials,
    api_versions,
    create_acls,
    create_partitions,
    delete_acls,
    describe_acls,
    describe_client_quotas,
    describe_cluster,
    describe_log_dirs,
    describe_producers,
    describe_quorum,
    describe_topic_partitions,
    describe_user_scram_credentials,
    elect_leaders,
    list_transactions,
    sasl_authenticate,
    sasl_handshake,
    update_features,
)
from pqbroker.protocol.messages import describe_producers as producers
from pqbroker.protocol.messages import describe_topic_partitions as partitions
from pqbroker.protocol.messages.alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryData, OpData
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
from pqbroker.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
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
from pqbroker.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from pqbroker.protocol.messages.sasl_handshake import SaslHandshakeRequest
from pqbroker.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tests.kafka_comparison.shapes import script, varied
from tests.kafka_comparison.side import SHARED, Side, batch
from tests.support.sasl import credential

LEFT_OUT = {api.name: api for api in left_out.APIS_LEFT_OUT}


@varied(api_versions.API)
def a_client(side: Side) -> ApiVersionsRequest:
    return ApiVersionsRequest(client_software_name="compared", client_software_version="1.0")


@varied(sasl_handshake.API)
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


@varied(alter_client_quotas.API, fixed=("entries.entity.entity_name", "entries.entity.entity_type"))
def a_new_quota(side: Side) -> AlterClientQuotasRequest:
    return _altered("user", "compared-user")


@script(alter_client_quotas.API)
def quotas_to_alter(side: Side) -> None:
    for entity in ("user", "client-id", "ip", "topic", ""):
        for name in ("compared", "", "10.0.0.1", "no host"):
            side.compare(_altered(entity, name), f"{entity} {name}")
    values = {"nan": float("nan"), "infinity": float("inf"), "fraction": 1.5, "zero": 0.0, "negative": -1.0}
    for label, value in values.items():
        for key in ("producer_byte_rate", "request_percentage", "controller_mutation_rate", "connection_creation_rate"):
            side.compare(_altered("user", "compared", key, value), f"{key} {label}")
    side.compare(_altered("ip", "10.0.0.1", "connection_creation_rate", 5.0), "an address")
    side.compare(_altered("ip", "10.0.0.1", "connection_creation_rate", None), "an address no more")
    side.compare(_altered("user", "nobody", "producer_byte_rate", None), "nothing to remove")
    several = _altered("user", "compared")
    several.entries[0].entity.append(EntityData(entity_type="ip", entity_name="10.0.0.1"))
    side.compare(several, "a user and an address")
    several = _altered("user", "compared")
    several.entries += _altered("user", "compared").entries
    side.compare(several, "an entity twice")
    several = _altered("user", "compared")
    several.entries[0].ops += _altered("user", "compared").entries[0].ops
    side.compare(several, "a key twice")
    for entry in ("user", "client-id"):
        for key in ("producer_byte_rate", "request_percentage", "controller_mutation_rate"):
            for name in ("compared", "10.0.0.1", "no host", "compared-user"):
                side.ask(_altered(entry, name, key, None))


def _altered(
    entity: str, name: str, key: str = "producer_byte_rate", value: float | None = 1e9
) -> AlterClientQuotasRequest:
    op = OpData(key=key, value=value or 0.0, remove=value is None)
    parts = [EntityData(entity_type=entity, entity_name=name)]
    return AlterClientQuotasRequest(entries=[EntryData(entity=parts, ops=[op])])


@varied(describe_client_quotas.API)
def a_quota(side: Side) -> DescribeClientQuotasRequest:
    return DescribeClientQuotasRequest(components=[ComponentData(entity_type="user", match_type=0, match="u")])


@varied(describe_user_scram_credentials.API, fixed=("users",))
def a_user(side: Side) -> DescribeUserScramCredentialsRequest:
    return DescribeUserScramCredentialsRequest(users=[UserName(name="u")])


@varied(sasl_authenticate.API)
def a_token(side: Side) -> SaslAuthenticateRequest:
    return SaslAuthenticateRequest(auth_bytes=b"\0u\0p")


@varied(alter_user_scram_credentials.API)
def a_password(side: Side) -> AlterUserScramCredentialsRequest:
    return AlterUserScramCredentialsRequest(
        deletions=[ScramCredentialDeletion(name="nobody", mechanism=1)],
        upsertions=[credential("compared", "secret", "SCRAM-SHA-256")],
    )


@script(alter_user_scram_credentials.API)
def passwords(side: Side) -> None:
    def compare(request: Any, label: str) -> None:
        """Compare without users of other cases, and without their order, which is that of a hash in Kafka."""
        answer = side.connection().ask(request, side.version)
        found = (result for result in answer.results if len(result.user) < 2 or result.user == "nobody")
        answer.results = sorted(found, key=lambda result: result.user)
        side.keep(answer, label)

    def alter(label: str, *upsertions: ScramCredentialUpsertion, deletions: Sequence[tuple[str, int]] = ()) -> None:
        removed = [ScramCredentialDeletion(name=name, mechanism=mechanism) for name, mechanism in deletions]
        asked = AlterUserScramCredentialsRequest(deletions=removed, upsertions=list(upsertions))
        compare(asked, label)
        side.settle()

    alter("new", credential("a", "x"), credential("b", "x", "SCRAM-SHA-512", 16_384))
    alter("two of one user", credential("c", "x"), credential("c", "x", "SCRAM-SHA-512"))
    gone = [ScramCredentialDeletion(name="c", mechanism=mechanism) for mechanism in (1, 2)]
    side.ask(AlterUserScramCredentialsRequest(deletions=gone))
    alter("the same twice", credential("d", "x"), credential("d", "y"))
    alter("set and removed", credential("a", "y"), deletions=[("a", 1)])
    alter("iterations", credential("e", "x", iterations=4095), credential("f", "x", iterations=16_385))
    alter("no name", credential("", "x"))
    for mechanism in (0, 3, 127, -1):
        wrong = replace(credential("g", "x"), mechanism=mechanism)
        alter(f"mechanism {mechanism}", wrong, deletions=[("h", mechanism)])
    compare(DescribeUserScramCredentialsRequest(users=None), "all")
    alter("removed", deletions=[("a", 1), ("b", 1), ("b", 2)])
    named = [UserName(name=name) for name in ("a", "b", "a", "nobody", "")]
    compare(DescribeUserScramCredentialsRequest(users=named), "named")
    alter("empty")


@varied(list_transactions.API)
def transactions(side: Side) -> ListTransactionsRequest:
    return ListTransactionsRequest(state_filters=["Ongoing"], producer_id_filters=[5_000_000])


@script(update_features.API)
def levels_of_features(side: Side) -> None:
    """The last update leaves the level as it was: other cases look at it."""
    def ask(*updates: tuple[str, int, int], label: str = "", dry: bool = False) -> None:
        keys = [
            FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind) for name, level, kind in updates
        ]
        side.compare(UpdateFeaturesRequest(feature_updates=keys, validate_only=dry), label or str(updates))

    name = "transaction.version"
    for level in (2, 1, 0, 3, -1):
        for kind in (2, 3, 1, 0, 4):
            ask((name, level, kind))
    ask((name, 2, 1), label="dry", dry=True)
    ask((name, 1, 1), (name, 0, 2), label="twice")
    ask((name, 1, 1), ("no.such", 1, 1), label="one is wrong")
    ask()
    for other in ("no.such", "", "metadata.version"):
        for level in (0, 7, 29, 30, 31):
            for kind in (1, 2, 3):
                ask((other, level, kind))
    ask((name, 2, 1), label="at last")


@varied(describe_acls.API)
def rules(side: Side) -> DescribeAclsRequest:
    return DescribeAclsRequest(resource_type_filter=2, pattern_type_filter=1, operation=1, permission_type=1)


@varied(create_acls.API)
def a_rule(side: Side) -> CreateAclsRequest:
    rule = AclCreation(
        resource_type=2, resource_name="t", resource_pattern_type=3, principal="User:u", host="*", operation=3,
        permission_type=3,
    )  # fmt: skip
    return CreateAclsRequest(creations=[rule])


@varied(delete_acls.API)
def rules_to_delete(side: Side) -> DeleteAclsRequest:
    asked = DeleteAclsFilter(resource_type_filter=2, pattern_type_filter=1, operation=1, permission_type=1)
    return DeleteAclsRequest(filters=[asked])


