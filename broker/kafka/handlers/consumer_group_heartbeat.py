"""ConsumerGroupHeartbeat (key 68), versions 0 to 1.

Behaviour: a member joins (epoch 0), lives, and leaves (-1; -2: a static one that comes back). It says what it reads and
what it owns, and learns what it is to read: its whole assignment when it joins, asks with a full request, or that has
changed. Version 0: the broker gives a member its id, from version 1 on it has its own. The answer comes when what it
says is durable. Checks, their order and their texts are Kafka's. A client may name topics that do not exist yet.
While the feature group.version is at level 0: UNSUPPORTED_VERSION.
A member for which its group or the node has no room, in members or in bytes: GROUP_MAX_SIZE_REACHED.
A regular expression of version 1 is RE2's. It is resolved behind the answer, to the topics that the member may
describe, and again as topics come and go: the member learns of them by a later heartbeat, as in Kafka.
Left out: nothing.
"""

from collections.abc import Awaitable, Sequence
from functools import partial
from uuid import uuid4

from pqbroker.broker.ground.access import AclKind, AclOperation, AclResource, check_access, is_allowed
from pqbroker.broker.kafka.apis.answer import Answer
from pqbroker.broker.kafka.apis.api import Api
from pqbroker.broker.kafka.apis.context import Context
from pqbroker.broker.services.coordination.modern.member import TOPIC_BYTES
from pqbroker.broker.services.coordination.modern.messages import (
    JOINING,
    LEAVING,
    HeartbeatAnswer,
    MemberHeartbeat,
)
from pqbroker.broker.services.features.levels import GROUP_VERSION, level_of
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.protocol.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from pqbroker.storage.tablets.modern_group_rows import LEFT_STATIC

OWN_ID_FROM_VERSION = 1


_Answered = Answer[ConsumerGroupHeartbeatResponse]


def serve(context: Context, request: ConsumerGroupHeartbeatRequest) -> _Answered | Awaitable[_Answered]:
    if not level_of(context.node, GROUP_VERSION):
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    check_access(context, AclOperation.READ, AclResource(AclKind.GROUP, request.group_id))
    _check_count(context, request.subscribed_topic_names or ())
    for topic in request.subscribed_topic_names or ():
        if not _may_describe(context, topic):
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    _check(context, request)
    expression = request.subscribed_topic_regex
    if expression and not context.node.cell.current.coordinators.subscribes_by(request.group_id, expression):
        return _check_and_take(context, request, expression)
    return _take(context, request)


def _check_count(context: Context, topics: Sequence[str]) -> None:
    """GROUP_MAX_SIZE_REACHED for more topics than a member has room for, before any of them is looked at."""
    bytes_max = context.node.settings.member_metadata_bytes_max
    if len(topics) * TOPIC_BYTES > bytes_max:
        text = f"{len(topics)} topics of a member take more than {bytes_max} bytes (pqbroker.member.metadata.bytes.max)"
        raise KafkaError(ErrorCode.GROUP_MAX_SIZE_REACHED, text)


async def _check_and_take(context: Context, request: ConsumerGroupHeartbeatRequest, expression: str) -> _Answered:
    """INVALID_REGULAR_EXPRESSION."""
    await context.node.cell.current.coordinators.expressions.check(expression)
    return _take(context, request)


def _take(context: Context, request: ConsumerGroupHeartbeatRequest) -> _Answered:
    answer: _Answered = Answer()

    def settle(learned: HeartbeatAnswer | KafkaError) -> None:
        if isinstance(learned, KafkaError):
            answer.complete(refuse(context, request, learned.code, learned.message))
        else:
            answer.complete(_response(learned))

    coordinators = context.node.cell.current.coordinators
    coordinators.consumer_heartbeat(
        request.group_id, _said(context, request), settle, partial(_may_describe, context)
    )
    return answer


def _may_describe(context: Context, topic: str) -> bool:
    return is_allowed(context, AclOperation.DESCRIBE, AclResource(AclKind.TOPIC, topic))


def refuse(
    context: Context, request: ConsumerGroupHeartbeatRequest, code: ErrorCode, message: str
) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(error_code=code, error_message=message or None, assignment=None)


def _check(context: Context, request: ConsumerGroupHeartbeatRequest) -> None:
    """INVALID_REQUEST, UNSUPPORTED_ASSIGNOR, as Kafka checks a request before it looks for the group."""
    epoch = request.member_epoch
    needs_id = context.version >= OWN_ID_FROM_VERSION or epoch > 0 or epoch == LEAVING
    texts = {
        "MemberId": request.member_id if needs_id else None, "GroupId": request.group_id,
        "InstanceId": request.instance_id, "RackId": request.rack_id,
    }  # fmt: skip
    for name, text in texts.items():
        if text is not None and not text.strip():
            raise _invalid(f"{name} can't be empty.")
    if epoch == JOINING:
        _check_joining(request)
    elif epoch == LEFT_STATIC and request.instance_id is None:
        raise _invalid("InstanceId can't be null.")
    elif epoch < LEFT_STATIC:
        raise _invalid("MemberEpoch is invalid.")
    assignors = context.node.settings.group_consumer_assignors
    if request.server_assignor is not None and request.server_assignor not in assignors:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {request.server_assignor} is not supported. Supported assignors: {', '.join(assignors)}.",
        )


def _check_joining(request: ConsumerGroupHeartbeatRequest) -> None:
    if request.rebalance_timeout_ms == -1:
        raise _invalid("RebalanceTimeoutMs must be provided in first request.")
    if request.topic_partitions is None or request.topic_partitions:
        raise _invalid("TopicPartitions must be empty when (re-)joining.")
    if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
        raise _invalid("Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.")


def _invalid(text: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, text)


def _said(context: Context, request: ConsumerGroupHeartbeatRequest) -> MemberHeartbeat:
    topics, owned = request.subscribed_topic_names, request.topic_partitions
    return MemberHeartbeat(
        member_id=request.member_id,
        epoch=request.member_epoch,
        instance_id=request.instance_id,
        rack_id=request.rack_id,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        topics=None if topics is None else frozenset(topics),
        expression=request.subscribed_topic_regex,
        assignor=request.server_assignor,
        owned=None if owned is None else {each.topic_id: each.partitions for each in owned},
        client_id=context.client_id or "",
        client_host=context.peer.host,
        new_member_id="" if request.member_id else str(uuid4()),
    )


def _response(learned: HeartbeatAnswer) -> ConsumerGroupHeartbeatResponse:
    assigned = learned.assigned
    return ConsumerGroupHeartbeatResponse(
        member_id=learned.member_id,
        member_epoch=learned.epoch,
        heartbeat_interval_ms=learned.heartbeat_interval_ms,
        assignment=None if assigned is None else Assignment(
            topic_partitions=[
                TopicPartitions(topic_id=topic_id, partitions=list(epochs)) for topic_id, epochs in assigned.items()
            ]
        ),
    )


API = Api(
    request=ConsumerGroupHeartbeatRequest, response=ConsumerGroupHeartbeatResponse, serve=serve, refuse=refuse
)
