"""FindCoordinator (key 10), versions 0 to 6.

Behaviour: COORDINATOR_NOT_AVAILABLE, which is retriable, for every key asked for.
Left out: coordinators, since this broker serves no groups and transactions yet. It is served all the same because
librdkafka takes a broker without this API for one that cannot store lz4, and then sends uncompressed what it was
told to compress (rdkafka_feature.c).
"""

from pqbroker.broker.apis import Api
from pqbroker.broker.context import Context
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

BATCHED_FROM_VERSION = 4
NO_NODE = -1


def serve(context: Context, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "this broker serves no groups and transactions yet")


def refuse(
    context: Context, request: FindCoordinatorRequest, code: ErrorCode, message: str
) -> FindCoordinatorResponse:
    if context.version < BATCHED_FROM_VERSION:
        return FindCoordinatorResponse(error_code=code, error_message=message, node_id=NO_NODE, port=NO_NODE)
    answers = [
        Coordinator(key=key, node_id=NO_NODE, port=NO_NODE, error_code=code, error_message=message)
        for key in request.coordinator_keys
    ]
    return FindCoordinatorResponse(coordinators=answers)


API = Api(
    key=10, name="FindCoordinator", version_min=0, version_max=6,
    request=FindCoordinatorRequest, response=FindCoordinatorResponse, serve=serve, refuse=refuse,
)  # fmt: skip
