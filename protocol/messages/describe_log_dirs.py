"""DescribeLogDirs (key 35): where partitions lie and how large they are (KIP-113)."""

from pqbroker.protocol.errors import ErrorCode
from pqbroker.protocol.schema import BOOL, ERROR_CODE, INT32, INT64, STRING, array, field, request, response, struct


@struct
class DescribableLogDirTopic:
    topic: str = field(STRING)
    partitions: list[int] = field(array(INT32))


@request(35, versions="1-5", flexible="2+")
class DescribeLogDirsRequest:
    topics: list[DescribableLogDirTopic] | None = field(array(DescribableLogDirTopic), nullable="0+")


@struct
class DescribeLogDirsPartition:
    partition_index: int = field(INT32)
    partition_size: int = field(INT64)
    offset_lag: int = field(INT64)
    is_future_key: bool = field(BOOL)


@struct
class DescribeLogDirsTopic:
    name: str = field(STRING)
    partitions: list[DescribeLogDirsPartition] = field(array(DescribeLogDirsPartition))


@struct
class DescribeLogDirsResult:
    error_code: ErrorCode = field(ERROR_CODE)
    log_dir: str = field(STRING)
    topics: list[DescribeLogDirsTopic] = field(array(DescribeLogDirsTopic))
    total_bytes: int = field(INT64, "4+", default=-1)
    usable_bytes: int = field(INT64, "4+", default=-1)
    is_cordoned: bool = field(BOOL, "5+")


@response(35, versions="1-5", flexible="2+")
class DescribeLogDirsResponse:
    throttle_time_ms: int = field(INT32)
    error_code: ErrorCode = field(ERROR_CODE, "3+")
    results: list[DescribeLogDirsResult] = field(array(DescribeLogDirsResult))
