"""DescribeGroups (key 15): state and members of classic groups."""

from pqbroker.protocol.errors import ErrorCode
from pqbroker.protocol.schema import (
    BOOL,
    BYTES,
    ERROR_CODE,
    INT32,
    INT32_MIN,
    STRING,
    array,
    field,
    request,
    response,
    struct,
)


@request(15, versions="0-6", flexible="5+")
class DescribeGroupsRequest:
    groups: list[str] = field(array(STRING))
    include_authorized_operations: bool = field(BOOL, "3+")


@struct
class DescribedGroupMember:
    member_id: str = field(STRING)
    group_instance_id: str | None = field(STRING, "4+", nullable="4+", default=None)
    client_id: str = field(STRING)
    client_host: str = field(STRING)
    member_metadata: bytes = field(BYTES)
    member_assignment: bytes = field(BYTES)


@struct
class DescribedGroup:
    error_code: ErrorCode = field(ERROR_CODE)
    error_message: str | None = field(STRING, "6+", nullable="6+", default=None)
    group_id: str = field(STRING)
    group_state: str = field(STRING)
    protocol_type: str = field(STRING)
    protocol_data: str = field(STRING)
    members: list[DescribedGroupMember] = field(array(DescribedGroupMember))
    authorized_operations: int = field(INT32, "3+", default=INT32_MIN)


@response(15, versions="0-6", flexible="5+")
class DescribeGroupsResponse:
    throttle_time_ms: int = field(INT32, "1+")
    groups: list[DescribedGroup] = field(array(DescribedGroup))
