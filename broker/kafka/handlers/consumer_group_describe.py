"""ConsumerGroupDescribe (key 69), versions 0 to 1.

Behaviour: state, epochs, assignor and members of groups of the consumer protocol, each member with what it has (and has
not let go of yet) and what it is to have. A group of another protocol, or none, is GROUP_ID_NOT_FOUND, after which
clients ask DescribeGroups. Where the caller may not describe a topic that a member has, the group is
TOPIC_AUTHORIZATION_FAILED without its members. From version 1 on each member has its protocol: 0 classic, 1 consumer.
Topics that are gone are left out. What is named twice is answered twice.
Left out: nothing.
"""

from collections.abc import Iterable, Mapping

from pqbroker.broker.ground.access import AclKind, AclOperation, AclResource, check_access, is_allowed
from pqbroker.broker.kafka.apis.api import Api
from pqbroker.broker.kafka.apis.authorized_operations import authorized_operations
from pqbroker.broker.kafka.apis.context import Context
from pqbroker.broker.kafka.apis.entries import each
from pqbroker.broker.services.coordination.modern.group import ModernGroup
from pqbroker.broker.services.coordination.modern.member import ModernMember
from pqbroker.broker.services.coordination.modern.targets import chosen_assignor
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.protocol.messages.consumer_group_describe import (
    Assignment,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
    Member,
    TopicPartitions,
)

CLASSIC_MEMBER, CONSUMER_MEMBER = 0, 1


def serve(context: Context, request: ConsumerGroupDescribeRequest) -> ConsumerGroupDescribeResponse:
    def answer(group_id: str) -> DescribedGroup:
        group = _answer(context, group_id)
        if request.include_authorized_operations and not group.error_code:
            group.authorized_operations = authorized_operations(context, AclResource(AclKind.GROUP, group_id))
        return group

    return ConsumerGroupDescribeResponse(groups=each(request.group_ids, answer))


def refuse(
    context: Context, request: ConsumerGroupDescribeRequest, code: ErrorCode, message: str
) -> ConsumerGroupDescribeResponse:
    groups = each(request.group_ids, lambda group_id: _failed(group_id, code, message))
    return ConsumerGroupDescribeResponse(groups=groups)


def _answer(context: Context, group_id: str) -> DescribedGroup:
    try:
        check_access(context, AclOperation.DESCRIBE, AclResource(AclKind.GROUP, group_id))
        if not group_id:
            return _failed(group_id, ErrorCode.INVALID_GROUP_ID, None)
        return _describe(context, group_id)
    except KafkaError as refusal:
        return _failed(group_id, refusal.code, refusal.message or None)


def _describe(context: Context, group_id: str) -> DescribedGroup:
    current = context.node.cell.current
    group = current.coordinators.modern_group(group_id)
    if group is None:
        is_known = current.coordinators.state(group_id) is not None or current.topics.offsets.knows(group_id)
        text = f"Group {group_id} is not a consumer group." if is_known else f"Group {group_id} not found."
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, text)
    named = _checked_topics(context, group)
    return DescribedGroup(
        error_message=None,
        group_id=group_id,
        group_state=group.state,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=chosen_assignor(group, current.coordinators.assignors).name,
        members=each(list(group.members.values()), lambda member: _member(named, member)),
    )


def _checked_topics(context: Context, group: ModernGroup) -> Mapping[bytes, str]:
    """Return the names of the topics that members have or will have, by id. KafkaError TOPIC_AUTHORIZATION_FAILED."""
    ids = set[bytes]()
    for member in group.members.values():
        ids.update(member.current.assigned, member.current.revoking, member.target)
    topics = context.node.cell.current.topics
    names = {topic_id: topic.record.name for topic_id in ids if (topic := topics.by_id(topic_id)) is not None}
    for name in names.values():
        if not is_allowed(context, AclOperation.DESCRIBE, AclResource(AclKind.TOPIC, name)):
            text = "The group has described topic(s) that the client is not authorized to describe."
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, text)
    return names


def _member(named: Mapping[bytes, str], member: ModernMember) -> Member:
    said, current = member.subscription, member.current
    held: dict[bytes, list[int]] = {topic_id: list(epochs) for topic_id, epochs in current.assigned.items()}
    for topic_id, epochs in current.revoking.items():
        held.setdefault(topic_id, []).extend(epochs)
    return Member(
        member_id=member.member_id,
        instance_id=said.instance_id,
        rack_id=said.rack_id,
        member_epoch=current.epoch,
        client_id=said.client_id,
        client_host=f"/{said.client_host}",  # as Java writes an address
        subscribed_topic_names=sorted(said.topics),
        subscribed_topic_regex=said.expression,
        assignment=_assignment(named, held),
        target_assignment=_assignment(named, member.target),
        member_type=CONSUMER_MEMBER if said.classic is None else CLASSIC_MEMBER,
    )


def _assignment(named: Mapping[bytes, str], partitions: Mapping[bytes, Iterable[int]]) -> Assignment:
    """Return partitions of the topics that are named; a member that is shown later may have been given others."""
    return Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic_id, topic_name=named[topic_id], partitions=list(indexes))
            for topic_id, indexes in partitions.items()
            if topic_id in named
        ]
    )


def _failed(group_id: str, code: ErrorCode, message: str | None) -> DescribedGroup:
    return DescribedGroup(error_code=code, error_message=message, group_id=group_id)


API = Api(
    request=ConsumerGroupDescribeRequest, response=ConsumerGroupDescribeResponse, serve=serve, refuse=refuse,
    answers_at_length=True,
)  # fmt: skip
