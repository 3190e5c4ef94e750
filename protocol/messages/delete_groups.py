"""DeleteGroups (key 42): delete groups without members (KIP-229)."""

from pqbroker.protocol.errors import ErrorCode
from pqbroker.protocol.schema import ERROR_CODE, INT32, STRING, array, field, request, response, struct


@request(42, versions="0-2", flexible="2+")
class DeleteGroupsRequest:
    groups_names: list[str] = field(array(STRING))


@struct
class DeletableGroupResult:
    group_id: str = field(STRING)
    error_code: ErrorCode = field(ERROR_CODE)


@response(42, versions="0-2", flexible="2+")
class DeleteGroupsResponse:
    throttle_time_ms: int = field(INT32)
    results: list[DeletableGroupResult] = field(array(DeletableGroupResult))
