"""IncrementalAlterConfigs (key 44): change single settings of topics and brokers (KIP-339)."""

from pqbroker.protocol.messages.alter_configs import AlterConfigsResourceResponse
from pqbroker.protocol.schema import BOOL, INT8, INT32, STRING, array, field, request, response, struct


@struct
class AlterableConfig:
    name: str = field(STRING)
    config_operation: int = field(INT8)
    value: str | None = field(STRING, nullable="0+")


@struct
class AlterConfigsResource:
    resource_type: int = field(INT8)
    resource_name: str = field(STRING)
    configs: list[AlterableConfig] = field(array(AlterableConfig))


@request(44, versions="0-1", flexible="1+")
class IncrementalAlterConfigsRequest:
    resources: list[AlterConfigsResource] = field(array(AlterConfigsResource))
    validate_only: bool = field(BOOL)


@response(44, versions="0-1", flexible="1+")
class IncrementalAlterConfigsResponse:
    throttle_time_ms: int = field(INT32)
    responses: list[AlterConfigsResourceResponse] = field(array(AlterConfigsResourceResponse))
