"""DescribeProducers (key 61): idempotent and transactional producers that partitions remember (KIP-664)."""

from pqbroker.protocol.errors import ErrorCode
from pqbroker.protocol.schema import ERROR_CODE, INT32, INT64, STRING, array, field, request, response, struct


@struct
class TopicRequest:
    name: str = field(STRING)
    partition_indexes: list[int] = field(array(INT32))


@request(61, versions="0", flexible="0+")
class DescribeProducersRequest:
    topics: list[TopicRequest] = field(array(TopicRequest))


@struct
class ProducerState:
    producer_id: int = field(INT64)
    producer_epoch: int = field(INT32)
    last_sequence: int = field(INT32, default=-1)
    last_timestamp: int = field(INT64, default=-1)
    coordinator_epoch: int = field(INT32)
    current_txn_start_offset: int = field(INT64, default=-1)


@struct
class PartitionResponse:
    partition_index: int = field(INT32)
    error_code: ErrorCode = field(ERROR_CODE)
    error_message: str | None = field(STRING, nullable="0+", default=None)
    active_producers: list[ProducerState] = field(array(ProducerState))


@struct
class TopicResponse:
    name: str = field(STRING)
    partitions: list[PartitionResponse] = field(array(PartitionResponse))


@response(61, versions="0", flexible="0+")
class DescribeProducersResponse:
    throttle_time_ms: int = field(INT32)
    topics: list[TopicResponse] = field(array(TopicResponse))
