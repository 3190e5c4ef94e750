"""ListGroups (key 16), versions 0 to 5.

Behaviour: every group that has, or had, members or has offsets, which is a group without a protocol type. Filters by
state (version 4) and type (version 5) are compared without regard to case; a name that no state or type has selects
nothing. Listed are those that the caller may describe.
A node that coordinates none lists none.
Left out: share groups, streams groups.
"""

from pqbroker.broker.kafka.apis.api import Api
from pqbroker.broker.kafka.apis.context import Context
from pqbroker.broker.kafka.apis.entries import each
from pqbroker.broker.services.coordination.consumer_groups import visible_groups
from pqbroker.broker.services.coordination.coordinators import GroupType
from pqbroker.protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse


async def serve(context: Context, request: ListGroupsRequest) -> ListGroupsResponse:
    if context.node.cell.current.coordinators.are_elsewhere:
        return ListGroupsResponse()
    states, types = _folded(request.states_filter), _folded(request.types_filter)
    if types.isdisjoint(GroupType) and types:
        return ListGroupsResponse()
    wanted = await context.node.turns.finish(visible_groups(context))
    if types:
        wanted = [group for group in wanted if group.type in types]
    if states:
        wanted = [group for group in wanted if group.state.lower() in states]
    return ListGroupsResponse(
        groups=each(
            wanted,
            lambda group: ListedGroup(
                group_id=group.group_id, protocol_type=group.protocol_type, group_state=group.state,
                group_type=group.type,
            ),
        )
    )


def _folded(names: list[str]) -> frozenset[str]:
    return frozenset(name.lower() for name in names)


API = Api(request=ListGroupsRequest, response=ListGroupsResponse, serve=serve, answers_at_length=True)
