"""LeaveGroup (key 13): members leave a classic group; several from version 3 (KIP-345)."""

from pqbroker.protocol.errors import ErrorCode
from pqbroker.protocol.schema import ERROR_CODE, INT32, STRING, array, field, request, response, struct


@struct
class MemberIdentity:
    member_id: str = field(STRING)
    group_instance_id: str | None = field(STRING, nullable="0+", default=None)
    reason: str | None = field(STRING, "5+", nullable="5+", default=None)


@request(13, versions="0-5", flexible="4+")
class LeaveGroupRequest:
    group_id: str = field(STRING)
    member_id: str = field(STRING, "0-2")
    members: list[MemberIdentity] = field(array(MemberIdentity), "3+")


@struct
class MemberResponse:
    member_id: str = field(STRING)
    group_instance_id: str | None = field(STRING, nullable="0+")
    error_code: ErrorCode = field(ERROR_CODE)


@response(13, versions="0-5", flexible="4+")
class LeaveGroupResponse:
    throttle_time_ms: int = field(INT32, "1+")
    error_code: ErrorCode = field(ERROR_CODE)
    members: list[MemberResponse] = field(array(MemberResponse), "3+")
