"""CreateAcls (key 30): add access rules (KIP-140)."""

from pqbroker.protocol.errors import ErrorCode
from pqbroker.protocol.schema import ERROR_CODE, INT8, INT32, STRING, array, field, request, response, struct


@struct
class AclCreation:
    resource_type: int = field(INT8)
    resource_name: str = field(STRING)
    resource_pattern_type: int = field(INT8, default=3)
    principal: str = field(STRING)
    host: str = field(STRING)
    operation: int = field(INT8)
    permission_type: int = field(INT8)


@request(30, versions="1-3", flexible="2+")
class CreateAclsRequest:
    creations: list[AclCreation] = field(array(AclCreation))


@struct
class AclCreationResult:
    error_code: ErrorCode = field(ERROR_CODE)
    error_message: str | None = field(STRING, nullable="0+")


@response(30, versions="1-3", flexible="2+")
class CreateAclsResponse:
    throttle_time_ms: int = field(INT32)
    results: list[AclCreationResult] = field(array(AclCreationResult))
