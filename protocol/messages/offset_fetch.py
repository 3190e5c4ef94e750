"""OffsetFetch (key 9): how far groups have read; several from version 8 (KIP-709), by topic id from 10.

The topics of one group and those of each of several are the same on the wire: one struct for both.
"""

from pqbroker.protocol.errors import ErrorCode
from pqbroker.protocol.schema import (
    BOOL,
    ERROR_CODE,
    INT32,
    INT64,
    STRING,
    UUID,
    array,
    field,
    request,
    response,
    struct,
)


@struct
class OffsetFetchRequestTopic:
    name: str = field(STRING, "0-9")
    topic_id: bytes = field(UUID, "10+")
    partition_indexes: list[int] = field(array(INT32))


@struct
class OffsetFetchRequestGroup:
    group_id: str = field(STRING)
    member_id: str | None = field(STRING, "9+", nullable="9+", default=None)
    member_epoch: int = field(INT32, "9+", default=-1)
    topics: list[OffsetFetchRequestTopic] | None = field(array(OffsetFetchRequestTopic), nullable="0+")


@request(9, versions="1-10", flexible="6+")
class OffsetFetchRequest:
    group_id: str = field(STRING, "0-7")
    topics: list[OffsetFetchRequestTopic] | None = field(array(OffsetFetchRequestTopic), "0-7", nullable="2-7")
    groups: list[OffsetFetchRequestGroup] = field(array(OffsetFetchRequestGroup), "8+")
    require_stable: bool = field(BOOL, "7+")


@struct
class OffsetFetchResponsePartition:
    partition_index: int = field(INT32)
    committed_offset: int = field(INT64)
    committed_leader_epoch: int = field(INT32, "5+", default=-1)
    metadata: str | None = field(STRING, nullable="0+")
    error_code: ErrorCode = field(ERROR_CODE)


@struct
class OffsetFetchResponseTopic:
    name: str = field(STRING, "0-9")
    topic_id: bytes = field(UUID, "10+")
    partitions: list[OffsetFetchResponsePartition] = field(array(OffsetFetchResponsePartition))


@struct
class OffsetFetchResponseGroup:
    group_id: str = field(STRING)
    topics: list[OffsetFetchResponseTopic] = field(array(OffsetFetchResponseTopic))
    error_code: ErrorCode = field(ERROR_CODE)


@response(9, versions="1-10", flexible="6+")
class OffsetFetchResponse:
    throttle_time_ms: int = field(INT32, "3+")
    topics: list[OffsetFetchResponseTopic] = field(array(OffsetFetchResponseTopic), "0-7")
    error_code: ErrorCode = field(ERROR_CODE, "2-7")
    groups: list[OffsetFetchResponseGroup] = field(array(OffsetFetchResponseGroup), "8+")
