"""Heartbeat (key 12): a member of a classic group is alive."""

from pqbroker.protocol.errors import ErrorCode
from pqbroker.protocol.schema import ERROR_CODE, INT32, STRING, field, request, response


@request(12, versions="0-4", flexible="4+")
class HeartbeatRequest:
    group_id: str = field(STRING)
    generation_id: int = field(INT32)
    member_id: str = field(STRING)
    group_instance_id: str | None = field(STRING, "3+", nullable="3+", default=None)


@response(12, versions="0-4", flexible="4+")
class HeartbeatResponse:
    throttle_time_ms: int = field(INT32, "1+")
    error_code: ErrorCode = field(ERROR_CODE)
