"""Heartbeat (key 12), versions 0 to 4.

Behaviour: renews the member's session; REBALANCE_IN_PROGRESS asks it to join again, ILLEGAL_GENERATION and
UNKNOWN_MEMBER_ID say that it is out, FENCED_INSTANCE_ID that another one has its place.
Left out: nothing.
"""

from pqbroker.broker.ground.access import AclKind, AclOperation, AclResource, check_access
from pqbroker.broker.kafka.apis.api import Api
from pqbroker.broker.kafka.apis.context import Context
from pqbroker.broker.services.coordination.group_ids import check_group_id
from pqbroker.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse


def serve(context: Context, request: HeartbeatRequest) -> HeartbeatResponse:
    check_access(context, AclOperation.READ, AclResource(AclKind.GROUP, request.group_id))
    check_group_id(request.group_id)
    context.node.cell.current.coordinators.heartbeat(
        request.group_id, request.member_id, request.group_instance_id, request.generation_id
    )
    return HeartbeatResponse()


API = Api(request=HeartbeatRequest, response=HeartbeatResponse, serve=serve)
