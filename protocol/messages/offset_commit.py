"""OffsetCommit (key 8): store how far a group has read; by topic id from version 10 (KIP-848)."""

from pqbroker.protocol.errors import ErrorCode
from pqbroker.protocol.schema import ERROR_CODE, INT32, INT64, STRING, UUID, array, field, request, response, struct


@struct
class OffsetCommitRequestPartition:
    partition_index: int = field(INT32)
    committed_offset: int = field(INT64)
    committed_leader_epoch: int = field(INT32, "6+", default=-1)
    commit_timestamp: int = field(INT64, "1", default=-1)
    committed_metadata: str | None = field(STRING, nullable="0+")


@struct
class OffsetCommitRequestTopic:
    name: str = field(STRING, "0-9")
    topic_id: bytes = field(UUID, "10+")
    partitions: list[OffsetCommitRequestPartition] = field(array(OffsetCommitRequestPartition))


@request(8, versions="2-10", flexible="8+")
class OffsetCommitRequest:
    group_id: str = field(STRING)
    generation_id_or_member_epoch: int = field(INT32, default=-1)
    member_id: str = field(STRING)
    group_instance_id: str | None = field(STRING, "7+", nullable="7+", default=None)
    retention_time_ms: int = field(INT64, "2-4", default=-1)
    topics: list[OffsetCommitRequestTopic] = field(array(OffsetCommitRequestTopic))


@struct
class OffsetCommitResponsePartition:
    partition_index: int = field(INT32)
    error_code: ErrorCode = field(ERROR_CODE)


@struct
class OffsetCommitResponseTopic:
    name: str = field(STRING, "0-9")
    topic_id: bytes = field(UUID, "10+")
    partitions: list[OffsetCommitResponsePartition] = field(array(OffsetCommitResponsePartition))


@response(8, versions="2-10", flexible="8+")
class OffsetCommitResponse:
    throttle_time_ms: int = field(INT32, "3+")
    topics: list[OffsetCommitResponseTopic] = field(array(OffsetCommitResponseTopic))
