"""Produce (key 0): append record batches, by topic id from version 13 (KIP-516)."""

from pqbroker.protocol.errors import ErrorCode
from pqbroker.protocol.messages.leaders import LeaderIdAndEpoch, NodeEndpoint
from pqbroker.protocol.schema import (
    ERROR_CODE,
    INT16,
    INT32,
    INT64,
    RECORDS,
    STRING,
    UUID,
    array,
    field,
    request,
    response,
    struct,
)


@struct
class PartitionProduceData:
    index: int = field(INT32)
    records: memoryview | None = field(RECORDS, nullable="0+")


@struct
class TopicProduceData:
    name: str = field(STRING, "3-12")
    topic_id: bytes = field(UUID, "13+")
    partition_data: list[PartitionProduceData] = field(array(PartitionProduceData))


@request(0, versions="3-13", flexible="9+")
class ProduceRequest:
    transactional_id: str | None = field(STRING, nullable="0+", default=None)
    acks: int = field(INT16)
    timeout_ms: int = field(INT32)
    topic_data: list[TopicProduceData] = field(array(TopicProduceData))


@struct
class BatchIndexAndErrorMessage:
    batch_index: int = field(INT32)
    batch_index_error_message: str | None = field(STRING, nullable="0+", default=None)


@struct
class PartitionProduceResponse:
    index: int = field(INT32)
    error_code: ErrorCode = field(ERROR_CODE)
    base_offset: int = field(INT64)
    log_append_time_ms: int = field(INT64, default=-1)
    log_start_offset: int = field(INT64, "5+", default=-1)
    record_errors: list[BatchIndexAndErrorMessage] = field(array(BatchIndexAndErrorMessage), "8+")
    error_message: str | None = field(STRING, "8+", nullable="8+", default=None)
    current_leader: LeaderIdAndEpoch | None = field(LeaderIdAndEpoch, "10+", tag=0)


@struct
class TopicProduceResponse:
    name: str = field(STRING, "3-12")
    topic_id: bytes = field(UUID, "13+")
    partition_responses: list[PartitionProduceResponse] = field(array(PartitionProduceResponse))


@response(0, versions="3-13", flexible="9+")
class ProduceResponse:
    responses: list[TopicProduceResponse] = field(array(TopicProduceResponse))
    throttle_time_ms: int = field(INT32)
    node_endpoints: list[NodeEndpoint] = field(array(NodeEndpoint), "10+", tag=0)
