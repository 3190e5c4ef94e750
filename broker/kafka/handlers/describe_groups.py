"""DescribeGroups (key 15), versions 0 to 6.

Behaviour: state, members with their host, subscription and assignment; the protocol and what depends on it only while
the group is stable. A group that only has offsets is Empty. An unknown group is Dead, without an error before version 6
and with GROUP_ID_NOT_FOUND from then on (KIP-1043); so is a group of the consumer protocol, for which clients ask
ConsumerGroupDescribe. A group whose coordinator is being restarted is refused alone.
Authorized operations, where asked for, are in every answer without an error.
What is named twice is answered twice, as in Kafka.
Left out: nothing.
"""

from pqbroker.broker.ground.access import AclKind, AclOperation, AclResource, check_access
from pqbroker.broker.kafka.apis.api import Api
from pqbroker.broker.kafka.apis.authorized_operations import authorized_operations
from pqbroker.broker.kafka.apis.context import Context
from pqbroker.broker.kafka.apis.entries import each
from pqbroker.broker.services.coordination.classic.states import GroupState
from pqbroker.broker.services.coordination.consumer_groups import describe_group
from pqbroker.broker.services.coordination.coordinators import GroupType
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from pqbroker.storage.tablets.coordinator_rows import MemberImage

UNKNOWN_IS_AN_ERROR_FROM_VERSION = 6


def serve(context: Context, request: DescribeGroupsRequest) -> DescribeGroupsResponse:
    def answer(group_id: str) -> DescribedGroup:
        group = _answer(context, group_id)
        if request.include_authorized_operations and not group.error_code:
            group.authorized_operations = authorized_operations(context, AclResource(AclKind.GROUP, group_id))
        return group

    return DescribeGroupsResponse(groups=each(request.groups, answer))


def refuse(context: Context, request: DescribeGroupsRequest, code: ErrorCode, message: str) -> DescribeGroupsResponse:
    return DescribeGroupsResponse(groups=each(request.groups, lambda group_id: _failed(group_id, code, message)))


def _answer(context: Context, group_id: str) -> DescribedGroup:
    try:
        check_access(context, AclOperation.DESCRIBE, AclResource(AclKind.GROUP, group_id))
        return _describe(context, group_id)
    except KafkaError as refusal:
        return _failed(group_id, refusal.code, refusal.message)


def _describe(context: Context, group_id: str) -> DescribedGroup:
    found = describe_group(context.node, group_id)
    if found is None:
        if context.version < UNKNOWN_IS_AN_ERROR_FROM_VERSION:
            return DescribedGroup(group_id=group_id, group_state=GroupState.DEAD)
        return _failed(group_id, ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
    if found.type is not GroupType.CLASSIC:
        if context.version < UNKNOWN_IS_AN_ERROR_FROM_VERSION:
            return DescribedGroup(group_id=group_id, group_state=GroupState.DEAD)
        return _failed(group_id, ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a classic group.")
    is_stable = found.state is GroupState.STABLE
    image = found.image
    return DescribedGroup(
        group_id=group_id,
        group_state=found.state,
        protocol_type=image.protocol_type or "",
        protocol_data=(image.protocol or "") if is_stable else "",
        members=each(image.members, lambda member: _member(member, image.protocol, is_stable=is_stable)),
    )


def _member(member: MemberImage, protocol: str | None, *, is_stable: bool) -> DescribedGroupMember:
    return DescribedGroupMember(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=f"/{member.client_host}",  # as Java writes an address
        member_metadata=member.metadata(protocol) if is_stable else b"",
        member_assignment=member.assignment if is_stable else b"",
    )


def _failed(group_id: str, code: ErrorCode, message: str) -> DescribedGroup:
    state = "" if code is ErrorCode.GROUP_AUTHORIZATION_FAILED else GroupState.DEAD
    return DescribedGroup(error_code=code, error_message=message, group_id=group_id, group_state=state)


API = Api(
    request=DescribeGroupsRequest, response=DescribeGroupsResponse, serve=serve, refuse=refuse,
    answers_at_length=True,
)  # fmt: skip
