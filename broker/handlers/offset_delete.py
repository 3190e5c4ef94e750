"""OffsetDelete (key 47), versions 0 to 0.

Behaviour: forgets a group's offsets of partitions, in one commit. A topic that the group's members read is refused with
GROUP_SUBSCRIBED_TO_TOPIC, and everything with NON_EMPTY_GROUP when its members do not say what they read. A group that
has neither members nor offsets is GROUP_ID_NOT_FOUND. A partition without an offset is deleted with success.
What is named twice is answered twice, as in Kafka.
Left out: nothing.
"""

from typing import TYPE_CHECKING

from pqbroker.broker.apis import Api
from pqbroker.broker.consumer_groups import describe_group
from pqbroker.broker.context import Context
from pqbroker.broker.partitions import NO_TOPIC_ID, find_group, find_partition
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

if TYPE_CHECKING:
    from pqbroker.pq.offsets import Place


async def serve(context: Context, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
    await context.node.groups.settled(request.group_id)
    node = context.node
    subscribed = _subscribed(context, request.group_id)
    response = OffsetDeleteResponse()
    slots: list[tuple[Place, OffsetDeleteResponsePartition]] = []
    for topic in request.topics:
        answer = OffsetDeleteResponseTopic(name=topic.name)
        response.topics.append(answer)
        for asked in topic.partitions:
            await context.breathe()
            slot = OffsetDeleteResponsePartition(partition_index=asked.partition_index)
            answer.partitions.append(slot)
            try:
                find_partition(find_group(node.groups, topic.name, NO_TOPIC_ID, by_id=False), asked.partition_index)
                if topic.name in subscribed:
                    text = f"members of {request.group_id} read {topic.name}"
                    raise KafkaError(ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, text)
            except KafkaError as refusal:
                _refuse_one(context, slot, refusal)
                continue
            slots.append(((topic.name, asked.partition_index), slot))
    outcomes = await node.groups.commit_offsets(request.group_id, dict.fromkeys(place for place, _ in slots))
    for place, slot in slots:
        if error := outcomes[place]:
            _refuse_one(context, slot, error)
    return response


def refuse(context: Context, request: OffsetDeleteRequest, code: ErrorCode, message: str) -> OffsetDeleteResponse:
    return OffsetDeleteResponse(error_code=code)


def _subscribed(context: Context, group_id: str) -> frozenset[str]:
    """Topics that the group's members read. KafkaError GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP, NOT_COORDINATOR."""
    node = context.node
    if describe_group(node, group_id) is None:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {group_id}")
    subscribed = node.coordinators.subscribed_topics(group_id)
    if subscribed is None:
        raise KafkaError(ErrorCode.NON_EMPTY_GROUP, f"group {group_id} has members that do not say what they read")
    return subscribed


def _refuse_one(context: Context, slot: OffsetDeleteResponsePartition, refusal: KafkaError) -> None:
    context.node.metrics.count_error(refusal.code)
    slot.error_code = refusal.code


API = Api(
    key=47, name="OffsetDelete", version_min=0, version_max=0,
    request=OffsetDeleteRequest, response=OffsetDeleteResponse, serve=serve, refuse=refuse,
)  # fmt: skip
