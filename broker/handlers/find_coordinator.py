"""FindCoordinator (key 10), versions 0 to 6.

Behaviour: this node, at the address of the connection that asks; several keys at once from version 4. While the cell
is lost a group's coordinator is COORDINATOR_NOT_AVAILABLE, so that clients wait before they ask again. A transactional
id has this node too, whose InitProducerId then refuses it for good: every client takes that for final, while an error
here makes most of them ask again for ever.
What is named twice is answered twice, as in Kafka.
Left out: coordinators of transactions.
"""

from dataclasses import replace

from pqbroker.broker.apis import Api
from pqbroker.broker.context import Context
from pqbroker.broker.entries import each
from pqbroker.protocol.errors import ErrorCode
from pqbroker.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

BATCHED_FROM_VERSION = 4
GROUP = 0
TRANSACTION = 1
NO_NODE = -1


def serve(context: Context, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    if request.key_type not in (GROUP, TRANSACTION):
        return refuse(context, request, ErrorCode.INVALID_REQUEST, f"coordinator type {request.key_type} is unknown")
    if request.key_type == GROUP and not context.node.coordinators.is_serving:
        return refuse(context, request, ErrorCode.COORDINATOR_NOT_AVAILABLE, "the broker stops or starts anew: retry")
    host, port = context.address
    return _response(context, request, Coordinator(node_id=context.node.settings.node_id, host=host, port=port))


def refuse(
    context: Context, request: FindCoordinatorRequest, code: ErrorCode, message: str
) -> FindCoordinatorResponse:
    context.node.metrics.count_error(code)
    none = Coordinator(node_id=NO_NODE, port=NO_NODE, error_code=code, error_message=message)
    return _response(context, request, none)


def _response(context: Context, request: FindCoordinatorRequest, found: Coordinator) -> FindCoordinatorResponse:
    """The same for every key asked for."""
    if context.version < BATCHED_FROM_VERSION:
        return FindCoordinatorResponse(
            error_code=found.error_code,
            error_message=found.error_message,
            node_id=found.node_id,
            host=found.host,
            port=found.port,
        )
    return FindCoordinatorResponse(coordinators=each(request.coordinator_keys, lambda key: replace(found, key=key)))


API = Api(
    key=10, name="FindCoordinator", version_min=0, version_max=6,
    request=FindCoordinatorRequest, response=FindCoordinatorResponse, serve=serve, refuse=refuse,
)  # fmt: skip
