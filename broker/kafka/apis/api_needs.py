"""Rights that each Kafka API needs: Kafka's own table of operations and resources, for the APIs served here."""

from collections.abc import Mapping
from typing import Final

from pqbroker.broker.ground.access import AclOperation as Op
from pqbroker.broker.ground.needs import Need, on_cluster, on_group, on_topic, on_transactional_id

_LEFT_OUT = "others are left out"

API_NEEDS: Final[Mapping[str, tuple[Need, ...]]] = {
    "AddOffsetsToTxn": (on_transactional_id(Op.WRITE), on_group(Op.READ)),
    "AddPartitionsToTxn": (
        on_transactional_id(Op.WRITE, "up to version 3"), on_topic(Op.WRITE, "up to version 3"),
        on_cluster(Op.CLUSTER_ACTION, "from version 4, which brokers send"),
    ),
    "AlterClientQuotas": (on_cluster(Op.ALTER_CONFIGS),),
    "AlterConfigs": (
        on_topic(Op.ALTER_CONFIGS), on_group(Op.ALTER_CONFIGS),
        on_cluster(Op.ALTER_CONFIGS, "for nodes, loggers and client metrics"),
    ),
    "AlterPartitionReassignments": (on_cluster(Op.ALTER),),
    "AlterReplicaLogDirs": (on_cluster(Op.ALTER),),
    "AlterUserScramCredentials": (on_cluster(Op.ALTER),),
    "ApiVersions": (),
    "ConsumerGroupDescribe": (on_group(Op.DESCRIBE), on_topic(Op.DESCRIBE, "of the topics that its members read")),
    "ConsumerGroupHeartbeat": (
        on_group(Op.READ), on_topic(Op.DESCRIBE, "of the topics that it names; of those that its expression finds "
        "others are left out"),
    ),
    "CreateAcls": (on_cluster(Op.ALTER),),
    "CreatePartitions": (on_topic(Op.ALTER),),
    "CreateTopics": (
        on_topic(Op.CREATE, "or Create on cluster"), on_topic(Op.DESCRIBE_CONFIGS, "to see configs in the answer"),
    ),
    "DeleteAcls": (on_cluster(Op.ALTER),),
    "DeleteGroups": (on_group(Op.DELETE),),
    "DeleteRecords": (on_topic(Op.DELETE),),
    "DeleteTopics": (on_topic(Op.DELETE, "or Delete on cluster"), on_topic(Op.DESCRIBE, "likewise")),
    "DescribeAcls": (on_cluster(Op.DESCRIBE),),
    "DescribeClientQuotas": (on_cluster(Op.DESCRIBE_CONFIGS),),
    "DescribeCluster": (),
    "DescribeConfigs": (
        on_topic(Op.DESCRIBE_CONFIGS), on_group(Op.DESCRIBE_CONFIGS),
        on_cluster(Op.DESCRIBE_CONFIGS, "for nodes, loggers and client metrics"),
    ),
    "DescribeGroups": (on_group(Op.DESCRIBE),),
    "DescribeLogDirs": (on_cluster(Op.DESCRIBE),),
    "DescribeProducers": (on_topic(Op.READ),),
    "DescribeQuorum": (on_cluster(Op.DESCRIBE),),
    "DescribeTopicPartitions": (on_topic(Op.DESCRIBE),),
    "DescribeTransactions": (on_transactional_id(Op.DESCRIBE), on_topic(Op.DESCRIBE, _LEFT_OUT)),
    "DescribeUserScramCredentials": (on_cluster(Op.DESCRIBE),),
    "ElectLeaders": (on_cluster(Op.ALTER),),
    "EndTxn": (on_transactional_id(Op.WRITE),),
    "Fetch": (on_topic(Op.READ),),
    "FindCoordinator": (
        on_group(Op.DESCRIBE, "for a group"), on_transactional_id(Op.DESCRIBE, "for a transactional id"),
    ),
    "Heartbeat": (on_group(Op.READ),),
    "IncrementalAlterConfigs": (
        on_topic(Op.ALTER_CONFIGS), on_group(Op.ALTER_CONFIGS),
        on_cluster(Op.ALTER_CONFIGS, "for nodes, loggers and client metrics"),
    ),
    "InitProducerId": (
        on_transactional_id(Op.WRITE, "with a transactional id"),
        on_cluster(Op.IDEMPOTENT_WRITE, "without one; or Write on any topic"),
    ),
    "JoinGroup": (on_group(Op.READ),),
    "LeaveGroup": (on_group(Op.READ),),
    "ListConfigResources": (on_cluster(Op.DESCRIBE_CONFIGS),),
    "ListGroups": (on_group(Op.DESCRIBE, f"or Describe on cluster; {_LEFT_OUT}"),),
    "ListOffsets": (on_topic(Op.DESCRIBE),),
    "ListPartitionReassignments": (on_cluster(Op.DESCRIBE),),
    "ListTransactions": (on_transactional_id(Op.DESCRIBE, _LEFT_OUT),),
    "Metadata": (
        on_topic(Op.DESCRIBE, "of all topics others are left out"),
        on_topic(Op.CREATE, "or Create on cluster, for a topic that the request may create"),
    ),
    "OffsetCommit": (on_group(Op.READ), on_topic(Op.READ)),
    "OffsetDelete": (on_group(Op.DELETE), on_topic(Op.READ)),
    "OffsetFetch": (on_group(Op.DESCRIBE), on_topic(Op.DESCRIBE)),
    "OffsetForLeaderEpoch": (on_topic(Op.DESCRIBE, "or ClusterAction on cluster"),),
    "Produce": (on_topic(Op.WRITE), on_transactional_id(Op.WRITE, "with a transactional id")),
    "SaslAuthenticate": (),
    "SaslHandshake": (),
    "ShareGroupHeartbeat": (),
    "SyncGroup": (on_group(Op.READ),),
    "TxnOffsetCommit": (on_transactional_id(Op.WRITE), on_group(Op.READ), on_topic(Op.READ)),
    "UpdateFeatures": (on_cluster(Op.ALTER),),
    "WriteTxnMarkers": (on_cluster(Op.ALTER, "or ClusterAction on cluster"),),
}  # fmt: skip
"""Rights by API. Authorized operations, where a request asks for them, are those that the caller has."""
