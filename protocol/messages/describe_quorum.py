"""DescribeQuorum (key 55): who leads and follows the log of the cluster's metadata (KIP-595, KIP-836, KIP-853)."""

from pqbroker.protocol.errors import ErrorCode
from pqbroker.protocol.schema import (
    ERROR_CODE,
    INT32,
    INT64,
    STRING,
    UINT16,
    UUID,
    array,
    field,
    request,
    response,
    struct,
)


@struct
class AskedPartition:
    partition_index: int = field(INT32)


@struct
class AskedTopic:
    topic_name: str = field(STRING)
    partitions: list[AskedPartition] = field(array(AskedPartition))


@request(55, versions="0-2", flexible="0+")
class DescribeQuorumRequest:
    topics: list[AskedTopic] = field(array(AskedTopic))


@struct
class ReplicaState:
    replica_id: int = field(INT32)
    replica_directory_id: bytes = field(UUID, "2+")
    log_end_offset: int = field(INT64)
    last_fetch_timestamp: int = field(INT64, "1+", default=-1)
    last_caught_up_timestamp: int = field(INT64, "1+", default=-1)


@struct
class PartitionData:
    partition_index: int = field(INT32)
    error_code: ErrorCode = field(ERROR_CODE)
    error_message: str | None = field(STRING, "2+", nullable="2+")
    leader_id: int = field(INT32)
    leader_epoch: int = field(INT32)
    high_watermark: int = field(INT64)
    current_voters: list[ReplicaState] = field(array(ReplicaState))
    observers: list[ReplicaState] = field(array(ReplicaState))


@struct
class TopicData:
    topic_name: str = field(STRING)
    partitions: list[PartitionData] = field(array(PartitionData))


@struct
class Listener:
    name: str = field(STRING)
    host: str = field(STRING)
    port: int = field(UINT16)


@struct
class Node:
    node_id: int = field(INT32)
    listeners: list[Listener] = field(array(Listener))


@response(55, versions="0-2", flexible="0+")
class DescribeQuorumResponse:
    error_code: ErrorCode = field(ERROR_CODE)
    error_message: str | None = field(STRING, "2+", nullable="2+")
    topics: list[TopicData] = field(array(TopicData))
    nodes: list[Node] = field(array(Node), "2+")
