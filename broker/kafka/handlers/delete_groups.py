"""DeleteGroups (key 42), versions 0 to 2.

Behaviour: forgets a group without members, and its offsets. With members: NON_EMPTY_GROUP; neither members nor offsets
ever: GROUP_ID_NOT_FOUND. One named twice is answered once, as in Kafka. What a failure leaves over can be deleted
again. The group of the empty id, which can have offsets though no members, is deleted like any other, as in Kafka.
Left out: nothing.
"""

from pqbroker.broker.ground.access import AclKind, AclOperation, AclResource, check_access
from pqbroker.broker.ground.refusals import REFUSED, translate
from pqbroker.broker.kafka.apis.api import Api
from pqbroker.broker.kafka.apis.context import Context
from pqbroker.broker.kafka.apis.entries import each
from pqbroker.broker.services.coordination.consumer_groups import delete_group
from pqbroker.protocol.errors import ErrorCode
from pqbroker.protocol.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)


async def serve(context: Context, request: DeleteGroupsRequest) -> DeleteGroupsResponse:
    response = DeleteGroupsResponse()
    for group_id in dict.fromkeys(request.groups_names):
        await context.breathe()
        code = ErrorCode.NONE
        try:
            check_access(context, AclOperation.DELETE, AclResource(AclKind.GROUP, group_id))
            await delete_group(context.node, group_id)
        except REFUSED as error:
            code, _ = translate(error)
        response.results.append(DeletableGroupResult(group_id=group_id, error_code=code))
    return response


def refuse(context: Context, request: DeleteGroupsRequest, code: ErrorCode, message: str) -> DeleteGroupsResponse:
    results = each(request.groups_names, lambda group_id: DeletableGroupResult(group_id=group_id, error_code=code))
    return DeleteGroupsResponse(results=results)


API = Api(request=DeleteGroupsRequest, response=DeleteGroupsResponse, serve=serve, refuse=refuse)
