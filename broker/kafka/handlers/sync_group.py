"""SyncGroup (key 14), versions 0 to 5.

Behaviour: the leader brings the assignment; all members get their parts once it is stored, and a later request is
answered at once. While members are to join again: REBALANCE_IN_PROGRESS. Version 5 has to name the group's protocol and
its type, as in Kafka. An assignment of too many bytes: UNKNOWN_SERVER_ERROR, as in Kafka.
Left out: nothing.
"""

import logging

from pqbroker.broker.ground.access import AclKind, AclOperation, AclResource, check_access
from pqbroker.broker.ground.seldom_log import SeldomLog
from pqbroker.broker.kafka.apis.answer import Answer
from pqbroker.broker.kafka.apis.api import Api
from pqbroker.broker.kafka.apis.context import Context
from pqbroker.broker.services.coordination.classic.messages import Sync, Synced
from pqbroker.broker.services.coordination.group_ids import check_group_id
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

NAMED_FROM_VERSION = 5

seldom = SeldomLog(logging.getLogger(__name__))


def serve(context: Context, request: SyncGroupRequest) -> Answer[SyncGroupResponse]:
    if context.version >= NAMED_FROM_VERSION and (request.protocol_type is None or request.protocol_name is None):
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "name the group's protocol and its type")
    check_access(context, AclOperation.READ, AclResource(AclKind.GROUP, request.group_id))
    check_group_id(request.group_id)
    answer: Answer[SyncGroupResponse] = Answer()

    def settle(synced: Synced) -> None:
        if synced.reason and synced.error == ErrorCode.UNKNOWN_SERVER_ERROR:
            seldom.warning("SyncGroup of %s is refused: %s", context.client_id, synced.reason)
        answer.complete(
            SyncGroupResponse(
                error_code=synced.error,
                protocol_type=synced.protocol_type,
                protocol_name=synced.protocol,
                assignment=synced.assignment,
            )
        )

    asked = Sync(
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        generation=request.generation_id,
        protocol_type=request.protocol_type,
        protocol=request.protocol_name,
        assignments={each.member_id: bytes(each.assignment) for each in request.assignments},
    )
    context.node.cell.current.coordinators.sync(request.group_id, asked, settle)
    return answer


API = Api(request=SyncGroupRequest, response=SyncGroupResponse, serve=serve)
