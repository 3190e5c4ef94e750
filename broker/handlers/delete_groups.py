"""DeleteGroups (key 42), versions 0 to 2.

Behaviour: forgets a group without members, and its offsets. With members: NON_EMPTY_GROUP; neither members nor offsets
ever: GROUP_ID_NOT_FOUND. What a failure leaves over can be deleted again.
Left out: nothing.
"""

from collections.abc import Awaitable

from pqbroker.broker.apis import Api
from pqbroker.broker.context import Context
from pqbroker.broker.group_ids import check_group_id
from pqbroker.broker.refusals import REFUSED, translate
from pqbroker.protocol.errors import ErrorCode
from pqbroker.protocol.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)


async def serve(context: Context, request: DeleteGroupsRequest) -> DeleteGroupsResponse:
    response = DeleteGroupsResponse()
    for group_id in request.groups_names:
        code = ErrorCode.NONE
        try:
            await _delete(context, group_id)
        except REFUSED as error:
            code, _ = translate(error)
            context.node.metrics.count_error(code)
        response.results.append(DeletableGroupResult(group_id=group_id, error_code=code))
    return response


def refuse(context: Context, request: DeleteGroupsRequest, code: ErrorCode, message: str) -> DeleteGroupsResponse:
    results = [DeletableGroupResult(group_id=group_id, error_code=code) for group_id in request.groups_names]
    return DeleteGroupsResponse(results=results)


async def _delete(context: Context, group_id: str) -> None:
    check_group_id(group_id)
    node = context.node
    await node.groups.settled(group_id)
    offsets = node.groups.offsets_of(group_id)
    forgotten: Awaitable[None] | None = None
    if node.coordinators.describe(group_id) is not None or not offsets:
        forgotten = node.coordinators.delete(group_id)
    # Enqueued before anybody else has a turn: whoever joins and commits from now on is another group.
    deleted = node.groups.commit_offsets(group_id, dict.fromkeys(offsets))
    if forgotten is not None:
        await forgotten
    for refusal in (await deleted).values():
        if refusal is not None and refusal.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise refusal


API = Api(
    key=42, name="DeleteGroups", version_min=0, version_max=2,
    request=DeleteGroupsRequest, response=DeleteGroupsResponse, serve=serve, refuse=refuse,
)  # fmt: skip
