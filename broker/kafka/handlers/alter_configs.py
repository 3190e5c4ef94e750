"""AlterConfigs (key 33), versions 0 to 2.

Behaviour: what a topic, this broker or all brokers (an empty name) are set to is replaced by what the request names;
everything else goes back to its default. Durable when the answer comes, in force from the next write on. validate_only
checks the same and changes nothing. A config that is no topic's or broker's is INVALID_CONFIG, one that a broker cannot
change while it runs INVALID_REQUEST, as is a config or resource named twice, each with a text.
Configs of groups and of client metrics subscriptions are kept and have no effect yet.
Left out: loggers, as in Kafka: INVALID_REQUEST.
"""

from pqbroker.broker.kafka.apis.api import Api
from pqbroker.broker.kafka.apis.config_answers import alter_each, refusals
from pqbroker.broker.kafka.apis.context import Context
from pqbroker.broker.services.configs.operations import Change, Operation
from pqbroker.protocol.errors import ErrorCode
from pqbroker.protocol.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse


async def serve(context: Context, request: AlterConfigsRequest) -> AlterConfigsResponse:
    changes = (
        (Change(config.name, Operation.SET, config.value) for config in asked.configs) for asked in request.resources
    )
    responses = await alter_each(
        context, request.resources, changes, replaces=True, validate_only=request.validate_only
    )
    return AlterConfigsResponse(responses=responses)


def refuse(
    context: Context, request: AlterConfigsRequest, code: ErrorCode, message: str
) -> AlterConfigsResponse:
    return AlterConfigsResponse(responses=refusals(request.resources, code, message))


API = Api(request=AlterConfigsRequest, response=AlterConfigsResponse, serve=serve, refuse=refuse)
