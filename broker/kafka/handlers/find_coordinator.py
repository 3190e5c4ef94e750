"""FindCoordinator (key 10), versions 0 to 6.

Behaviour: this node, at the address of the connection that asks, for a group or a transactional id; several keys at
once from version 4. While the cell is lost, or open for reading only, it is COORDINATOR_NOT_AVAILABLE, so that clients
wait before they ask again.
What is named twice is answered twice, as in Kafka.
Left out: share groups.
"""

from dataclasses import replace

from pqbroker.broker.ground.access import AclKind, AclOperation, AclResource, check_access
from pqbroker.broker.kafka.apis.api import Api
from pqbroker.broker.kafka.apis.context import Context
from pqbroker.broker.kafka.apis.entries import each
from pqbroker.broker.services.leaders import NO_NODE
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

SEVERAL_KEYS_FROM_VERSION = 4
GROUP = 0
TRANSACTION = 1


def serve(context: Context, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    if request.key_type not in (GROUP, TRANSACTION):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"coordinator type {request.key_type} is unknown")
    coordinators = context.node.cell.current.coordinators
    if not coordinators.is_serving:
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, coordinators.why_not)
    if context.version < SEVERAL_KEYS_FROM_VERSION:
        _check(context, request, request.key)
        return _single(_coordinator(context, request.key))

    def answer(key: str) -> Coordinator:
        try:
            _check(context, request, key)
        except KafkaError as refusal:
            return replace(_none(refusal.code, refusal.message), key=key)
        return _coordinator(context, key)

    return FindCoordinatorResponse(coordinators=each(request.coordinator_keys, answer))


def refuse(
    context: Context, request: FindCoordinatorRequest, code: ErrorCode, message: str
) -> FindCoordinatorResponse:
    none = _none(code, message)
    if context.version < SEVERAL_KEYS_FROM_VERSION:
        return _single(none)
    return FindCoordinatorResponse(coordinators=each(request.coordinator_keys, lambda key: replace(none, key=key)))


def _check(context: Context, request: FindCoordinatorRequest, key: str) -> None:
    kind = AclKind.GROUP if request.key_type == GROUP else AclKind.TRANSACTIONAL_ID
    check_access(context, AclOperation.DESCRIBE, AclResource(kind, key))


def _coordinator(context: Context, key: str) -> Coordinator:
    node_id = context.node.leaders.of_group(key)
    host, port = context.address_of(node_id)
    return Coordinator(key=key, node_id=node_id, host=host, port=port)


def _none(code: ErrorCode, message: str) -> Coordinator:
    return Coordinator(node_id=NO_NODE, port=NO_NODE, error_code=code, error_message=message)


def _single(found: Coordinator) -> FindCoordinatorResponse:
    """The answer of the versions that ask for one key."""
    return FindCoordinatorResponse(
        error_code=found.error_code,
        error_message=found.error_message,
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )


API = Api(request=FindCoordinatorRequest, response=FindCoordinatorResponse, serve=serve, refuse=refuse)
