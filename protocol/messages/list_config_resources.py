"""ListConfigResources (key 74): what has settings, by type from version 1 (KIP-1142)."""

from pqbroker.protocol.errors import ErrorCode
from pqbroker.protocol.schema import ERROR_CODE, INT8, INT32, STRING, array, field, request, response, struct


@request(74, versions="0-1", flexible="0+")
class ListConfigResourcesRequest:
    resource_types: list[int] = field(array(INT8), "1+")


@struct
class ConfigResource:
    resource_name: str = field(STRING)
    resource_type: int = field(INT8, "1+", default=16)


@response(74, versions="0-1", flexible="0+")
class ListConfigResourcesResponse:
    throttle_time_ms: int = field(INT32)
    error_code: ErrorCode = field(ERROR_CODE)
    config_resources: list[ConfigResource] = field(array(ConfigResource))
