"""ElectLeaders (key 43): elect leaders of partitions; unclean from version 1 (KIP-460)."""

from pqbroker.protocol.errors import ErrorCode
from pqbroker.protocol.schema import ERROR_CODE, INT8, INT32, STRING, array, field, request, response, struct


@struct
class TopicPartitions:
    topic: str = field(STRING)
    partitions: list[int] = field(array(INT32))


@request(43, versions="0-2", flexible="2+")
class ElectLeadersRequest:
    election_type: int = field(INT8, "1+")
    topic_partitions: list[TopicPartitions] | None = field(array(TopicPartitions), nullable="0+")
    timeout_ms: int = field(INT32, default=60000)


@struct
class PartitionResult:
    partition_id: int = field(INT32)
    error_code: ErrorCode = field(ERROR_CODE)
    error_message: str | None = field(STRING, nullable="0+")


@struct
class ReplicaElectionResult:
    topic: str = field(STRING)
    partition_result: list[PartitionResult] = field(array(PartitionResult))


@response(43, versions="0-2", flexible="2+")
class ElectLeadersResponse:
    throttle_time_ms: int = field(INT32)
    error_code: ErrorCode = field(ERROR_CODE, "1+")
    replica_election_results: list[ReplicaElectionResult] = field(array(ReplicaElectionResult))
