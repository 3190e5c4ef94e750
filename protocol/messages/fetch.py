"""Fetch (key 1): read record batches, as sessions from version 7 (KIP-227), by topic id from 13 (KIP-516)."""

from collections.abc import Sequence, Sized

from pqbroker.protocol.errors import ErrorCode
from pqbroker.protocol.messages.leaders import LeaderIdAndEpoch, NodeEndpoint
from pqbroker.protocol.schema import (
    ERROR_CODE,
    INT8,
    INT32,
    INT32_MAX,
    INT64,
    INT64_MAX,
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
class ReplicaState:
    replica_id: int = field(INT32, default=-1)
    replica_epoch: int = field(INT64, default=-1)


@struct
class FetchPartition:
    partition: int = field(INT32)
    current_leader_epoch: int = field(INT32, "9+", default=-1)
    fetch_offset: int = field(INT64)
    last_fetched_epoch: int = field(INT32, "12+", default=-1)
    log_start_offset: int = field(INT64, "5+", default=-1)
    partition_max_bytes: int = field(INT32)
    replica_directory_id: bytes = field(UUID, "17+", tag=0)
    high_watermark: int = field(INT64, "18+", tag=1, default=INT64_MAX)


@struct
class FetchTopic:
    topic: str = field(STRING, "4-12")
    topic_id: bytes = field(UUID, "13+")
    partitions: list[FetchPartition] = field(array(FetchPartition))


@struct
class ForgottenTopic:
    topic: str = field(STRING, "7-12")
    topic_id: bytes = field(UUID, "13+")
    partitions: list[int] = field(array(INT32))


@request(1, versions="4-18", flexible="12+")
class FetchRequest:
    cluster_id: str | None = field(STRING, "12+", nullable="12+", tag=0, default=None)
    replica_id: int = field(INT32, "4-14", default=-1)
    replica_state: ReplicaState | None = field(ReplicaState, "15+", tag=1)
    max_wait_ms: int = field(INT32)
    min_bytes: int = field(INT32)
    max_bytes: int = field(INT32, default=INT32_MAX)
    isolation_level: int = field(INT8)
    session_id: int = field(INT32, "7+")
    session_epoch: int = field(INT32, "7+", default=-1)
    topics: list[FetchTopic] = field(array(FetchTopic))
    forgotten_topics_data: list[ForgottenTopic] = field(array(ForgottenTopic), "7+")
    rack_id: str = field(STRING, "11+")


@struct
class EpochEndOffset:
    epoch: int = field(INT32, default=-1)
    end_offset: int = field(INT64, default=-1)


@struct
class SnapshotId:
    end_offset: int = field(INT64, default=-1)
    epoch: int = field(INT32, default=-1)


@struct
class AbortedTransaction:
    producer_id: int = field(INT64)
    first_offset: int = field(INT64)


@struct
class PartitionData:
    partition_index: int = field(INT32)
    error_code: ErrorCode = field(ERROR_CODE)
    high_watermark: int = field(INT64)
    last_stable_offset: int = field(INT64, default=-1)
    log_start_offset: int = field(INT64, "5+", default=-1)
    diverging_epoch: EpochEndOffset | None = field(EpochEndOffset, "12+", tag=0)
    current_leader: LeaderIdAndEpoch | None = field(LeaderIdAndEpoch, "12+", tag=1)
    snapshot_id: SnapshotId | None = field(SnapshotId, "12+", tag=2)
    aborted_transactions: list[AbortedTransaction] | None = field(array(AbortedTransaction), nullable="0+")
    preferred_read_replica: int = field(INT32, "11+", default=-1)
    records: Sequence[Sized] | memoryview | None = field(RECORDS, nullable="0+")
    """Parts in order when the answer is encoded, which needs only their sizes."""


@struct
class FetchableTopicResponse:
    topic: str = field(STRING, "4-12")
    topic_id: bytes = field(UUID, "13+")
    partitions: list[PartitionData] = field(array(PartitionData))


@response(1, versions="4-18", flexible="12+")
class FetchResponse:
    throttle_time_ms: int = field(INT32)
    error_code: ErrorCode = field(ERROR_CODE, "7+")
    session_id: int = field(INT32, "7+")
    responses: list[FetchableTopicResponse] = field(array(FetchableTopicResponse))
    node_endpoints: list[NodeEndpoint] = field(array(NodeEndpoint), "16+", tag=0)
