"""ListGroups (key 16), versions 0 to 5.

Behaviour: every group that has, or had, members or has offsets, which is a group without a protocol type. Filters by
state (version 4) and type (version 5) are compared without regard to case; a name that no state or type has selects
nothing.
Left out: groups other than classic ones.
"""

from pqbroker.broker.apis import Api
from pqbroker.broker.context import Context
from pqbroker.broker.groups.states import GroupState
from pqbroker.protocol.errors import ErrorCode
from pqbroker.protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse

CLASSIC = "classic"


def serve(context: Context, request: ListGroupsRequest) -> ListGroupsResponse:
    if request.types_filter and CLASSIC not in _folded(request.types_filter):
        return ListGroupsResponse()
    states = _folded(request.states_filter)
    return ListGroupsResponse(
        groups=[each for each in _all_groups(context) if not states or each.group_state.lower() in states]
    )


def refuse(context: Context, request: ListGroupsRequest, code: ErrorCode, message: str) -> ListGroupsResponse:
    return ListGroupsResponse(error_code=code)


def _all_groups(context: Context) -> list[ListedGroup]:
    found = {
        group.group_id: ListedGroup(
            group_id=group.group_id, protocol_type=group.protocol_type, group_state=group.state, group_type=CLASSIC
        )
        for group in context.node.coordinators.groups()
    }
    for group_id in context.node.groups.groups_with_offsets():
        if group_id not in found:
            found[group_id] = ListedGroup(group_id=group_id, group_state=GroupState.EMPTY, group_type=CLASSIC)
    return [found[group_id] for group_id in sorted(found)]


def _folded(names: list[str]) -> frozenset[str]:
    return frozenset(name.lower() for name in names)


API = Api(
    key=16, name="ListGroups", version_min=0, version_max=5,
    request=ListGroupsRequest, response=ListGroupsResponse, serve=serve, refuse=refuse,
)  # fmt: skip
