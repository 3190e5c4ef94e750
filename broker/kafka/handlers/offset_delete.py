"""OffsetDelete (key 47), versions 0 to 0.

Behaviour: forgets a group's offsets of partitions, in one commit. A topic that the group's members read is refused with
GROUP_SUBSCRIBED_TO_TOPIC, and everything with NON_EMPTY_GROUP when its members do not say what they read. A group that
has neither members nor offsets is GROUP_ID_NOT_FOUND. A partition without an offset is deleted with success.
What is named twice is answered twice, as in Kafka.
Left out: nothing.
"""

from typing import TYPE_CHECKING

from pqbroker.broker.ground.access import AclKind, AclOperation, AclResource, check_access
from pqbroker.broker.kafka.apis.api import Api
from pqbroker.broker.kafka.apis.context import Context
from pqbroker.broker.services.coordination.consumer_groups import describe_group
from pqbroker.broker.services.coordination.group_ids import check_group_id
from pqbroker.broker.services.topics.finding import find_topic
from pqbroker.broker.services.topics.partitions import find_partition
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from pqbroker.storage.tablets.coordinator_rows import PartitionId

if TYPE_CHECKING:
    from pqbroker.pq.serving.offsets import Outcomes, TopicPartition


async def serve(context: Context, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
    check_access(context, AclOperation.DELETE, AclResource(AclKind.GROUP, request.group_id))
    check_group_id(request.group_id)
    await context.node.cell.current.topics.offsets.settled(request.group_id)
    subscribed = _subscribed(context, request.group_id)
    response = OffsetDeleteResponse()
    slots: list[tuple[TopicPartition, OffsetDeleteResponsePartition]] = []
    for topic in request.topics:
        await context.breathe()
        answer = OffsetDeleteResponseTopic(name=topic.name)
        response.topics.append(answer)
        for asked in topic.partitions:
            await context.breathe()
            slot = OffsetDeleteResponsePartition(partition_index=asked.partition_index)
            answer.partitions.append(slot)
            slot.error_code = _check(context, (topic.name, asked.partition_index), subscribed)
            if not slot.error_code:
                slots.append(((topic.name, asked.partition_index), slot))
    outcomes = await _delete(context, request.group_id, [each for each, _ in slots])
    for topic_partition, slot in slots:
        if error := outcomes[topic_partition]:
            slot.error_code = error.code
    return response


def _check(context: Context, topic_partition: "TopicPartition", subscribed: frozenset[str]) -> ErrorCode:
    """Return why a group that reads the topics `subscribed` keeps its offset there, or NONE."""
    topic, index = topic_partition
    try:
        find_partition(find_topic(context, AclOperation.READ, topic), index)
    except KafkaError as refusal:
        return refusal.code
    return ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if topic in subscribed else ErrorCode.NONE


async def _delete(context: Context, group_id: str, partitions: list["TopicPartition"]) -> "Outcomes":
    """Delete the offsets, planned with turns for others between them."""
    topics, ids = context.node.cell.current.topics, set[PartitionId]()
    offsets = topics.offsets
    changes = offsets.begin(group_id)
    try:
        for name, index in dict.fromkeys(partitions):
            await context.breathe()
            changes.add((name, index), None)
            topic = topics.get(name)
            if topic is not None:
                ids.add(PartitionId(topic.record.topic_id, index))
    except BaseException:
        changes.give_up()
        raise
    deleted = offsets.enqueue(changes)
    await context.node.cell.current.transactional_producers.drop_offsets(group_id, frozenset(ids))
    return await deleted


def _subscribed(context: Context, group_id: str) -> frozenset[str]:
    """Topics that the group's members read. KafkaError GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP, NOT_COORDINATOR."""
    node = context.node
    if describe_group(node, group_id) is None:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {group_id}")
    subscribed = node.cell.current.coordinators.subscribed_topics(group_id)
    if subscribed is None:
        raise KafkaError(ErrorCode.NON_EMPTY_GROUP, f"group {group_id} has members that do not say what they read")
    return subscribed


API = Api(request=OffsetDeleteRequest, response=OffsetDeleteResponse, serve=serve)
