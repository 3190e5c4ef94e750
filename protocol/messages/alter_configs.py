"""AlterConfigs (key 33): set all settings of topics and brokers at once (KIP-133)."""

from pqbroker.protocol.errors import ErrorCode
from pqbroker.protocol.schema import BOOL, ERROR_CODE, INT8, INT32, STRING, array, field, request, response, struct


@struct
class AlterableConfig:
    name: str = field(STRING)
    value: str | None = field(STRING, nullable="0+")


@struct
class AlterConfigsResource:
    resource_type: int = field(INT8)
    resource_name: str = field(STRING)
    configs: list[AlterableConfig] = field(array(AlterableConfig))


@request(33, versions="0-2", flexible="2+")
class AlterConfigsRequest:
    resources: list[AlterConfigsResource] = field(array(AlterConfigsResource))
    validate_only: bool = field(BOOL)


@struct
class AlterConfigsResourceResponse:
    error_code: ErrorCode = field(ERROR_CODE)
    error_message: str | None = field(STRING, nullable="0+")
    resource_type: int = field(INT8)
    resource_name: str = field(STRING)


@response(33, versions="0-2", flexible="2+")
class AlterConfigsResponse:
    throttle_time_ms: int = field(INT32)
    responses: list[AlterConfigsResourceResponse] = field(array(AlterConfigsResourceResponse))
