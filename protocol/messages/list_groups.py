"""ListGroups (key 16): every group of a broker, by state from version 4 (KIP-518) and type from 5 (KIP-848)."""

from pqbroker.protocol.errors import ErrorCode
from pqbroker.protocol.schema import ERROR_CODE, INT32, STRING, array, field, request, response, struct


@request(16, versions="0-5", flexible="3+")
class ListGroupsRequest:
    states_filter: list[str] = field(array(STRING), "4+")
    types_filter: list[str] = field(array(STRING), "5+")


@struct
class ListedGroup:
    group_id: str = field(STRING)
    protocol_type: str = field(STRING)
    group_state: str = field(STRING, "4+")
    group_type: str = field(STRING, "5+")


@response(16, versions="0-5", flexible="3+")
class ListGroupsResponse:
    throttle_time_ms: int = field(INT32, "1+")
    error_code: ErrorCode = field(ERROR_CODE)
    groups: list[ListedGroup] = field(array(ListedGroup))
