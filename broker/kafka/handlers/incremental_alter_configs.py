"""IncrementalAlterConfigs (key 44), versions 0 to 1.

Behaviour: single configs of topics, of this broker or of all brokers (an empty name) are set, deleted (back to the
default), or a list appended to or subtracted from; durable when the answer comes, in force from the next write on. All
changes of one resource are made, or none. validate_only checks the same and changes nothing. A config that is no
topic's or broker's is INVALID_CONFIG, one that a broker cannot change while it runs INVALID_REQUEST, as is a config or
resource named twice, each with a text.
Levels of this broker's loggers last until it ends; configs of groups and of client metrics subscriptions are kept and
have no effect yet.
Left out: nothing.
"""

from pqbroker.broker.kafka.apis.api import Api
from pqbroker.broker.kafka.apis.config_answers import alter_each, refusals
from pqbroker.broker.kafka.apis.context import Context
from pqbroker.broker.services.configs.operations import Change
from pqbroker.protocol.errors import ErrorCode
from pqbroker.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)


async def serve(context: Context, request: IncrementalAlterConfigsRequest) -> IncrementalAlterConfigsResponse:
    changes = (
        (Change(config.name, config.config_operation, config.value) for config in asked.configs)
        for asked in request.resources
    )
    responses = await alter_each(
        context, request.resources, changes, replaces=False, validate_only=request.validate_only
    )
    return IncrementalAlterConfigsResponse(responses=responses)


def refuse(
    context: Context, request: IncrementalAlterConfigsRequest, code: ErrorCode, message: str
) -> IncrementalAlterConfigsResponse:
    return IncrementalAlterConfigsResponse(responses=refusals(request.resources, code, message))


API = Api(request=IncrementalAlterConfigsRequest, response=IncrementalAlterConfigsResponse, serve=serve, refuse=refuse)
