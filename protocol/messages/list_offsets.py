"""ListOffsets (key 2): offsets by timestamp, and the ends of a partition."""

from pqbroker.protocol.errors import ErrorCode
from pqbroker.protocol.schema import ERROR_CODE, INT8, INT32, INT64, STRING, array, field, request, response, struct


@struct
class ListOffsetsPartition:
    partition_index: int = field(INT32)
    current_leader_epoch: int = field(INT32, "4+", default=-1)
    timestamp: int = field(INT64)


@struct
class ListOffsetsTopic:
    name: str = field(STRING)
    partitions: list[ListOffsetsPartition] = field(array(ListOffsetsPartition))


@request(2, versions="1-11", flexible="6+")
class ListOffsetsRequest:
    replica_id: int = field(INT32)
    isolation_level: int = field(INT8, "2+")
    topics: list[ListOffsetsTopic] = field(array(ListOffsetsTopic))
    timeout_ms: int = field(INT32, "10+")


@struct
class ListOffsetsPartitionResponse:
    partition_index: int = field(INT32)
    error_code: ErrorCode = field(ERROR_CODE)
    timestamp: int = field(INT64, default=-1)
    offset: int = field(INT64, default=-1)
    leader_epoch: int = field(INT32, "4+", default=-1)


@struct
class ListOffsetsTopicResponse:
    name: str = field(STRING)
    partitions: list[ListOffsetsPartitionResponse] = field(array(ListOffsetsPartitionResponse))


@response(2, versions="1-11", flexible="6+")
class ListOffsetsResponse:
    throttle_time_ms: int = field(INT32, "2+")
    topics: list[ListOffsetsTopicResponse] = field(array(ListOffsetsTopicResponse))
