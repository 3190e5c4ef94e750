"""JoinGroup (key 11), versions 0 to 9.

Behaviour: parks until the rebalance is over; other requests of the connection wait meanwhile. From version 4 a dynamic
member without an id gets one with MEMBER_ID_REQUIRED and joins with it (KIP-394); from version 5 a static member
(KIP-345) takes over its place, and from 9 the answer has it skip the assignment when the group stays stable (KIP-814).
The leader gets the list of members, the others an empty one. A connection that closes removes nobody: the session does.
A member for which its group or the node has no room, in members or in bytes: GROUP_MAX_SIZE_REACHED. A member
that waits while its group becomes one of KIP-848 joins that one (Apache Kafka answers REBALANCE_IN_PROGRESS, which some
clients report to their users).
Left out: nothing.
"""

import logging
from collections.abc import Awaitable, Sequence

from pqbroker.broker.ground.access import AclKind, AclOperation, AclResource, check_access
from pqbroker.broker.ground.seldom_log import SeldomLog
from pqbroker.broker.kafka.apis.answer import Answer
from pqbroker.broker.kafka.apis.api import Api
from pqbroker.broker.kafka.apis.context import Context
from pqbroker.broker.services.coordination.classic.messages import Join, Joined
from pqbroker.broker.services.coordination.coordinators import new_member_id
from pqbroker.broker.services.coordination.group_ids import check_group_id
from pqbroker.protocol.errors import ErrorCode
from pqbroker.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    JoinGroupResponseMember,
)
from pqbroker.storage.tablets.coordinator_rows import MemberProtocol

seldom = SeldomLog(logging.getLogger(__name__))

KNOWN_ID_FROM_VERSION = 4
PROTOCOL_TYPE_FROM_VERSION = 7
SKIPPED_ASSIGNMENT_FROM_VERSION = 9


def serve(
    context: Context, request: JoinGroupRequest
) -> Answer[JoinGroupResponse] | Awaitable[Answer[JoinGroupResponse]]:
    check_access(context, AclOperation.READ, AclResource(AclKind.GROUP, request.group_id))
    check_group_id(request.group_id)
    if context.is_long:
        return _join_in_slices(context, request)
    return _join(context, request, [_protocol(each) for each in request.protocols])


async def _join_in_slices(context: Context, request: JoinGroupRequest) -> Answer[JoinGroupResponse]:
    """Join with turns for others between the protocols."""
    protocols = []
    for each in request.protocols:
        await context.breathe()
        protocols.append(_protocol(each))
    return _join(context, request, protocols)


def _protocol(asked: JoinGroupRequestProtocol) -> MemberProtocol:
    return MemberProtocol(asked.name, bytes(asked.metadata))


def _join(
    context: Context, request: JoinGroupRequest, protocols: Sequence[MemberProtocol]
) -> Answer[JoinGroupResponse]:
    answer: Answer[JoinGroupResponse] = Answer()

    def settle(joined: Joined) -> None:
        _tell(context, joined.error, joined.reason)
        answer.complete(_response(context, joined))

    context.node.cell.current.coordinators.join(request.group_id, _joining(context, request, protocols), settle)
    return answer


def refuse(context: Context, request: JoinGroupRequest, code: ErrorCode, message: str) -> JoinGroupResponse:
    _tell(context, code, message)
    return _response(context, Joined(code, request.member_id))


def _tell(context: Context, code: ErrorCode, reason: str) -> None:
    """The answer has no place for the reason."""
    if code == ErrorCode.GROUP_MAX_SIZE_REACHED:
        seldom.warning("JoinGroup of %s is refused: %s", context.client_id, reason)


def _joining(context: Context, request: JoinGroupRequest, protocols: Sequence[MemberProtocol]) -> Join:
    instance_id = request.group_instance_id
    return Join(
        member_id=request.member_id,
        instance_id=instance_id,
        protocol_type=request.protocol_type,
        protocols=tuple(protocols),
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=request.rebalance_timeout_ms if context.version else request.session_timeout_ms,
        new_member_id=new_member_id(context.client_id, instance_id),
        client_id=context.client_id or "",
        client_host=context.peer.host,
        requires_known_id=context.version >= KNOWN_ID_FROM_VERSION,
        can_skip_assignment=context.version >= SKIPPED_ASSIGNMENT_FROM_VERSION,
    )


def _response(context: Context, joined: Joined) -> JoinGroupResponse:
    without_protocol = None if context.version >= PROTOCOL_TYPE_FROM_VERSION else ""
    return JoinGroupResponse(
        error_code=joined.error,
        generation_id=joined.generation,
        protocol_type=joined.protocol_type,
        protocol_name=joined.protocol if joined.protocol is not None else without_protocol,
        leader=joined.leader,
        skip_assignment=joined.skips_assignment,
        member_id=joined.member_id,
        members=[
            JoinGroupResponseMember(
                member_id=member.member_id, group_instance_id=member.instance_id, metadata=member.metadata
            )
            for member in joined.members
        ],
    )


API = Api(request=JoinGroupRequest, response=JoinGroupResponse, serve=serve, refuse=refuse)
