"""ListPartitionReassignments (key 46), versions 0 to 0.

Behaviour: nothing is ever being moved, so the list is empty.
Left out: replicas and moves between nodes.
"""

from pqbroker.broker.ground.access import AclOperation, check_access
from pqbroker.broker.kafka.apis.api import Api
from pqbroker.broker.kafka.apis.context import Context
from pqbroker.protocol.errors import ErrorCode
from pqbroker.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)


def serve(context: Context, request: ListPartitionReassignmentsRequest) -> ListPartitionReassignmentsResponse:
    check_access(context, AclOperation.DESCRIBE)
    return ListPartitionReassignmentsResponse(error_message=None)


def refuse(
    context: Context, request: ListPartitionReassignmentsRequest, code: ErrorCode, message: str
) -> ListPartitionReassignmentsResponse:
    return ListPartitionReassignmentsResponse(error_code=code, error_message=message)


API = Api(
    key=46, name="ListPartitionReassignments", version_min=0, version_max=0,
    request=ListPartitionReassignmentsRequest, response=ListPartitionReassignmentsResponse,
    serve=serve, refuse=refuse,
)  # fmt: skip
