"""AlterConfigs (key 33), versions 0 to 2.

Behaviour: what a topic is set to is replaced by what the request names; everything else goes back to its default.
Durable when the answer comes, in force from the next write on. validate_only checks the same and changes nothing. A
config that is no topic's is INVALID_CONFIG, a config or resource named twice INVALID_REQUEST, each with a text.
Left out: brokers. Their settings are read at start and refused here with INVALID_REQUEST, as Kafka refuses those that
it cannot change while it runs. Loggers and every other resource type are INVALID_REQUEST.
"""

from pqbroker.broker.apis import Api
from pqbroker.broker.config_changes import Change, Operation, alter, check_once, named_twice
from pqbroker.broker.context import Context
from pqbroker.broker.refusals import REFUSED, translate
from pqbroker.protocol.errors import ErrorCode
from pqbroker.protocol.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)


async def serve(context: Context, request: AlterConfigsRequest) -> AlterConfigsResponse:
    response = refuse(context, request, ErrorCode.NONE, "")
    twice = check_once((asked.resource_type, asked.resource_name) for asked in request.resources)
    for asked, answer in zip(request.resources, response.responses, strict=True):
        resource = (asked.resource_type, asked.resource_name)
        changes = [Change(config.name, Operation.SET, config.value) for config in asked.configs]
        try:
            if resource in twice:
                raise named_twice(resource)
            await alter(context.node, resource, changes, replaces=True, validate_only=request.validate_only)
        except REFUSED as error:
            code, answer.error_message = translate(error)
            answer.error_code = code
            context.node.metrics.count_error(code)
    return response


def refuse(
    context: Context, request: AlterConfigsRequest, code: ErrorCode, message: str
) -> AlterConfigsResponse:
    return AlterConfigsResponse(
        responses=[
            AlterConfigsResourceResponse(
                error_code=code,
                error_message=message or None,
                resource_type=asked.resource_type,
                resource_name=asked.resource_name,
            )
            for asked in request.resources
        ]
    )


API = Api(
    key=33, name="AlterConfigs", version_min=0, version_max=2,
    request=AlterConfigsRequest, response=AlterConfigsResponse, serve=serve, refuse=refuse,
)  # fmt: skip
