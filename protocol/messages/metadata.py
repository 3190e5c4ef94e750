"""Metadata (key 3): brokers, topics and partitions; by topic id from version 12 (KIP-516)."""

from pqbroker.protocol.errors import ErrorCode
from pqbroker.protocol.schema import (
    BOOL,
    ERROR_CODE,
    INT32,
    INT32_MIN,
    STRING,
    UUID,
    array,
    field,
    request,
    response,
    struct,
)


@struct
class MetadataRequestTopic:
    topic_id: bytes = field(UUID, "10+")
    name: str | None = field(STRING, nullable="10+")


@request(3, versions="0-13", flexible="9+")
class MetadataRequest:
    topics: list[MetadataRequestTopic] | None = field(array(MetadataRequestTopic), nullable="1+")
    allow_auto_topic_creation: bool = field(BOOL, "4+", default=True)
    include_cluster_authorized_operations: bool = field(BOOL, "8-10")
    include_topic_authorized_operations: bool = field(BOOL, "8+")


@struct
class MetadataResponseBroker:
    node_id: int = field(INT32)
    host: str = field(STRING)
    port: int = field(INT32)
    rack: str | None = field(STRING, "1+", nullable="1+", default=None)


@struct
class MetadataResponsePartition:
    error_code: ErrorCode = field(ERROR_CODE)
    partition_index: int = field(INT32)
    leader_id: int = field(INT32)
    leader_epoch: int = field(INT32, "7+", default=-1)
    replica_nodes: list[int] = field(array(INT32))
    isr_nodes: list[int] = field(array(INT32))
    offline_replicas: list[int] = field(array(INT32), "5+")


@struct
class MetadataResponseTopic:
    error_code: ErrorCode = field(ERROR_CODE)
    name: str | None = field(STRING, nullable="12+")
    topic_id: bytes = field(UUID, "10+")
    is_internal: bool = field(BOOL, "1+")
    partitions: list[MetadataResponsePartition] = field(array(MetadataResponsePartition))
    topic_authorized_operations: int = field(INT32, "8+", default=INT32_MIN)


@response(3, versions="0-13", flexible="9+")
class MetadataResponse:
    throttle_time_ms: int = field(INT32, "3+")
    brokers: list[MetadataResponseBroker] = field(array(MetadataResponseBroker))
    cluster_id: str | None = field(STRING, "2+", nullable="2+", default=None)
    controller_id: int = field(INT32, "1+", default=-1)
    topics: list[MetadataResponseTopic] = field(array(MetadataResponseTopic))
    cluster_authorized_operations: int = field(INT32, "8-10", default=INT32_MIN)
    error_code: ErrorCode = field(ERROR_CODE, "13+")
