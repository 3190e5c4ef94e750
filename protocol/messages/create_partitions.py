"""CreatePartitions (key 37): grow topics."""

from pqbroker.protocol.errors import ErrorCode
from pqbroker.protocol.schema import BOOL, ERROR_CODE, INT32, STRING, array, field, request, response, struct


@struct
class CreatePartitionsAssignment:
    broker_ids: list[int] = field(array(INT32))


@struct
class CreatePartitionsTopic:
    name: str = field(STRING)
    count: int = field(INT32)
    assignments: list[CreatePartitionsAssignment] | None = field(array(CreatePartitionsAssignment), nullable="0+")


@request(37, versions="0-3", flexible="2+")
class CreatePartitionsRequest:
    topics: list[CreatePartitionsTopic] = field(array(CreatePartitionsTopic))
    timeout_ms: int = field(INT32)
    validate_only: bool = field(BOOL)


@struct
class CreatePartitionsTopicResult:
    name: str = field(STRING)
    error_code: ErrorCode = field(ERROR_CODE)
    error_message: str | None = field(STRING, nullable="0+", default=None)


@response(37, versions="0-3", flexible="2+")
class CreatePartitionsResponse:
    throttle_time_ms: int = field(INT32)
    results: list[CreatePartitionsTopicResult] = field(array(CreatePartitionsTopicResult))
