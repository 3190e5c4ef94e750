"""APIs of what this broker leaves out: one table says how each is answered.

An answer tells a client at once what is missing, in the words that Kafka has for a feature that is off or unused.
Where the API itself is missing, many clients wait for long and name no cause.

ShareGroupHeartbeat (key 76), versions 1 to 1.
Behaviour: UNSUPPORTED_VERSION, as Kafka answers where the feature `share.version` is off. A share consumer takes it as
final; where the API is missing, it waits for ever without an error.
Left out: share groups (KIP-932).

ListPartitionReassignments (key 46), versions 0 to 0.
Behaviour: an empty list, since nothing is ever being moved.
Left out: replicas and moves between nodes.
"""

from collections.abc import Callable
from typing import Any, Final

from pqbroker.broker.ground.access import AclOperation, check_access
from pqbroker.broker.kafka.apis.api import Api
from pqbroker.broker.kafka.apis.context import Context
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from pqbroker.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse


def _left_out(
    messages: tuple[type, type],
    answer: Callable[[Any], Any],
    operation: AclOperation | None = None,
    refuse: Callable[[Context, Any, ErrorCode, str], Any] | None = None,
) -> Api:
    """Declare an API that answers a request, to those who may do `operation`, by what it says alone."""

    def serve(context: Context, request: Any) -> Any:
        if operation is not None:
            check_access(context, operation)
        return answer(request)

    return Api(request=messages[0], response=messages[1], serve=serve, refuse=refuse)


def _always(code: ErrorCode, text: str) -> Callable[[object], None]:
    """Return an answer that is one error, whatever the request says."""

    def answer(_: object) -> None:
        raise KafkaError(code, text)

    return answer




APIS_LEFT_OUT: Final[tuple[Api, ...]] = (
    _left_out(
        (ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse),
        _always(
            ErrorCode.UNSUPPORTED_VERSION, "this broker does not serve share groups; consume with a consumer group"
        ),
    ),
    _left_out(
        (ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse),
        lambda _: ListPartitionReassignmentsResponse(error_message=None), AclOperation.DESCRIBE,
    ),
)  # fmt: skip
