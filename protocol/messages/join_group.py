"""JoinGroup (key 11): become a member of a classic group; static members from version 5 (KIP-345)."""

from pqbroker.protocol.errors import ErrorCode
from pqbroker.protocol.schema import BOOL, BYTES, ERROR_CODE, INT32, STRING, array, field, request, response, struct


@struct
class JoinGroupRequestProtocol:
    name: str = field(STRING)
    metadata: bytes = field(BYTES)


@request(11, versions="0-9", flexible="6+")
class JoinGroupRequest:
    group_id: str = field(STRING)
    session_timeout_ms: int = field(INT32)
    rebalance_timeout_ms: int = field(INT32, "1+", default=-1)
    member_id: str = field(STRING)
    group_instance_id: str | None = field(STRING, "5+", nullable="5+", default=None)
    protocol_type: str = field(STRING)
    protocols: list[JoinGroupRequestProtocol] = field(array(JoinGroupRequestProtocol))
    reason: str | None = field(STRING, "8+", nullable="8+", default=None)


@struct
class JoinGroupResponseMember:
    member_id: str = field(STRING)
    group_instance_id: str | None = field(STRING, "5+", nullable="5+", default=None)
    metadata: bytes = field(BYTES)


@response(11, versions="0-9", flexible="6+")
class JoinGroupResponse:
    throttle_time_ms: int = field(INT32, "2+")
    error_code: ErrorCode = field(ERROR_CODE)
    generation_id: int = field(INT32, default=-1)
    protocol_type: str | None = field(STRING, "7+", nullable="7+", default=None)
    protocol_name: str | None = field(STRING, nullable="7+")
    leader: str = field(STRING)
    skip_assignment: bool = field(BOOL, "9+")
    member_id: str = field(STRING)
    members: list[JoinGroupResponseMember] = field(array(JoinGroupResponseMember))
