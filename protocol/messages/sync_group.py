"""SyncGroup (key 14): the leader hands out a classic group's assignment, every member takes its part."""

from pqbroker.protocol.errors import ErrorCode
from pqbroker.protocol.schema import BYTES, ERROR_CODE, INT32, STRING, array, field, request, response, struct


@struct
class SyncGroupRequestAssignment:
    member_id: str = field(STRING)
    assignment: bytes = field(BYTES)


@request(14, versions="0-5", flexible="4+")
class SyncGroupRequest:
    group_id: str = field(STRING)
    generation_id: int = field(INT32)
    member_id: str = field(STRING)
    group_instance_id: str | None = field(STRING, "3+", nullable="3+", default=None)
    protocol_type: str | None = field(STRING, "5+", nullable="5+", default=None)
    protocol_name: str | None = field(STRING, "5+", nullable="5+", default=None)
    assignments: list[SyncGroupRequestAssignment] = field(array(SyncGroupRequestAssignment))


@response(14, versions="0-5", flexible="4+")
class SyncGroupResponse:
    throttle_time_ms: int = field(INT32, "1+")
    error_code: ErrorCode = field(ERROR_CODE)
    protocol_type: str | None = field(STRING, "5+", nullable="5+", default=None)
    protocol_name: str | None = field(STRING, "5+", nullable="5+", default=None)
    assignment: bytes = field(BYTES)
