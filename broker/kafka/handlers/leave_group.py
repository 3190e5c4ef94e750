"""LeaveGroup (key 13), versions 0 to 5.

Behaviour: those who leave are gone at once, and the others share what they had. Several from version 3, each with its
own result, in one rebalance; a static member may be named by its instance alone, which is how administrators remove it.
What is named twice is answered twice, as in Kafka.
Left out: nothing. The reason of version 5 is not kept.
"""

from pqbroker.broker.ground.access import AclKind, AclOperation, AclResource, check_access
from pqbroker.broker.kafka.apis.api import Api
from pqbroker.broker.kafka.apis.context import Context
from pqbroker.broker.services.coordination.classic.messages import Leaver
from pqbroker.broker.services.coordination.group_ids import check_group_id
from pqbroker.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse

SEVERAL_MEMBERS_FROM_VERSION = 3
LEAVE_AT_ONCE = 500
"""Members that leave in one step, before others have their turn; a larger group rebalances once all the same."""


async def serve(context: Context, request: LeaveGroupRequest) -> LeaveGroupResponse:
    check_access(context, AclOperation.READ, AclResource(AclKind.GROUP, request.group_id))
    check_group_id(request.group_id)
    if context.version < SEVERAL_MEMBERS_FROM_VERSION:
        (code,) = context.node.cell.current.coordinators.leave(request.group_id, [Leaver(request.member_id, None)])
        return LeaveGroupResponse(error_code=code)
    members: list[MemberResponse] = []
    for first in range(0, len(request.members), LEAVE_AT_ONCE):
        await context.breathe()
        some = request.members[first : first + LEAVE_AT_ONCE]
        leavers = [Leaver(member.member_id, member.group_instance_id) for member in some]
        codes = context.node.cell.current.coordinators.leave(request.group_id, leavers)
        members += [
            MemberResponse(member_id=leaver.member_id, group_instance_id=leaver.instance_id, error_code=code)
            for leaver, code in zip(leavers, codes, strict=True)
        ]
    return LeaveGroupResponse(members=members)


API = Api(request=LeaveGroupRequest, response=LeaveGroupResponse, serve=serve)
