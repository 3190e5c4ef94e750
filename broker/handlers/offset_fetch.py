"""OffsetFetch (key 9), versions 1 to 10.

Behaviour: waits for the commits of its groups that were there before. A group or partition that is unknown, or has no
offset, is answered with offset -1, epoch -1 and no metadata, without an error: clients ask before they ever commit.
Null topics (from version 2) mean all that the group has. Several groups from version 8; topics by id from version 10,
where an unknown id is UNKNOWN_TOPIC_ID. require_stable is taken: nothing is ever pending here without transactions.
What is named twice is answered twice, as in Kafka. A partition whose rows are damaged is CORRUPT_MESSAGE.
Left out: transactions; member ids and epochs of KIP-848 (version 9), which classic groups do not look at either.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pqbroker.broker.apis import Api
from pqbroker.broker.context import Context
from pqbroker.broker.entries import each
from pqbroker.broker.partitions import NO_TOPIC_ID
from pqbroker.pq.consumers import ConsumerOffset
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

if TYPE_CHECKING:
    from pqbroker.pq.group import PersQueueGroups
    from pqbroker.pq.offsets import Place

GROUPS_FROM_VERSION = 8
IDS_FROM_VERSION = 10
GROUP_ERROR_FROM_VERSION = 2
_NOTHING = ConsumerOffset(-1)
_UNREADABLE = ConsumerOffset(-1)
"""Of a partition whose rows are damaged: nobody knows; no offset at all would send its consumers to the start."""


@dataclass(slots=True)
class Asked:
    """One topic of one group: the partitions asked for."""

    name: str
    indexes: list[int]
    topic_id: bytes = NO_TOPIC_ID
    error_code: int = field(default=0)


async def serve(context: Context, request: OffsetFetchRequest) -> OffsetFetchResponse:
    if context.version < GROUPS_FROM_VERSION:
        await context.node.groups.settled(request.group_id)
        return _answer_one(context, request)
    for group_id in dict.fromkeys(asked.group_id for asked in request.groups):
        await context.breathe()
        await context.node.groups.settled(group_id)
    return OffsetFetchResponse(groups=each(request.groups, lambda asked: _answer_group(context, asked)))


def refuse(context: Context, request: OffsetFetchRequest, code: ErrorCode, message: str) -> OffsetFetchResponse:
    if context.version >= GROUPS_FROM_VERSION:
        return OffsetFetchResponse(
            groups=each(
                request.groups, lambda asked: OffsetFetchResponseGroup(group_id=asked.group_id, error_code=code)
            )
        )
    if context.version >= GROUP_ERROR_FROM_VERSION:
        return OffsetFetchResponse(error_code=code)
    nothing = ConsumerOffset(-1)
    topics = [Asked(topic.name, topic.partition_indexes, error_code=code) for topic in request.topics or ()]
    return OffsetFetchResponse(topics=each(topics, lambda topic: _topic(topic, lambda _: nothing)))


def _answer_one(context: Context, request: OffsetFetchRequest) -> OffsetFetchResponse:
    _check_serving(context)
    if request.topics is None:
        topics = _all(context.node.groups, request.group_id)
    else:
        topics = [Asked(topic.name, topic.partition_indexes) for topic in request.topics]
    find = _finder(context, request.group_id)
    return OffsetFetchResponse(topics=each(topics, lambda topic: _topic(topic, find)))


def _topic(topic: Asked, find: "Callable[[Place], ConsumerOffset]") -> OffsetFetchResponseTopic:
    def answer(index: int) -> OffsetFetchResponsePartition:
        state = find((topic.name, index))
        return OffsetFetchResponsePartition(
            partition_index=index,
            committed_offset=state.offset,
            committed_leader_epoch=state.leader_epoch,
            metadata=state.metadata,
            error_code=ErrorCode.CORRUPT_MESSAGE if state is _UNREADABLE else topic.error_code,
        )

    return OffsetFetchResponseTopic(name=topic.name, partitions=each(topic.indexes, answer))


def _answer_group(context: Context, asked: OffsetFetchRequestGroup) -> OffsetFetchResponseGroup:
    groups = context.node.groups
    try:
        _check_serving(context)
        every = _all(groups, asked.group_id) if asked.topics is None else []
    except KafkaError as refusal:
        context.node.metrics.count_error(refusal.code)
        return OffsetFetchResponseGroup(group_id=asked.group_id, error_code=refusal.code)
    find = _finder(context, asked.group_id)
    return OffsetFetchResponseGroup(
        group_id=asked.group_id,
        topics=each(every, lambda topic: _group_topic(topic, find))
        if asked.topics is None
        else each(asked.topics, lambda topic: _group_topic(_by_name_or_id(context, topic), find)),
    )


def _group_topic(topic: Asked, find: "Callable[[Place], ConsumerOffset]") -> OffsetFetchResponseTopics:
    def answer(index: int) -> OffsetFetchResponsePartitions:
        state = find((topic.name, index))
        return OffsetFetchResponsePartitions(
            partition_index=index,
            committed_offset=state.offset,
            committed_leader_epoch=state.leader_epoch,
            metadata=state.metadata,
            error_code=ErrorCode.CORRUPT_MESSAGE if state is _UNREADABLE else topic.error_code,
        )

    return OffsetFetchResponseTopics(name=topic.name, topic_id=topic.topic_id, partitions=each(topic.indexes, answer))


def _check_serving(context: Context) -> None:
    if not context.node.coordinators.is_serving:
        raise KafkaError(ErrorCode.NOT_COORDINATOR, "the broker is stopping, or its cell was lost: try again")


def _finder(context: Context, group_id: str) -> "Callable[[Place], ConsumerOffset]":
    """What a group has at a place, -1 where it has nothing."""
    groups = context.node.groups

    def find(place: "Place") -> ConsumerOffset:
        group = groups.get(place[0])
        if group is not None and 0 <= place[1] < len(group.partitions) and group.partitions[place[1]].unreadable:
            context.node.metrics.count_error(ErrorCode.CORRUPT_MESSAGE)
            return _UNREADABLE
        return groups.offset_of(group_id, place) or _NOTHING

    return find


def _all(groups: "PersQueueGroups", group_id: str) -> list[Asked]:
    """Everything that a group has, by topic."""
    topics: dict[str, Asked] = {}
    for name, index in groups.offsets_of(group_id):
        if name not in topics:
            group = groups.get(name)
            assert group is not None, name
            topics[name] = Asked(name, [], group.topic.topic_id)
        topics[name].indexes.append(index)
    return list(topics.values())


def _by_name_or_id(context: Context, topic: OffsetFetchRequestTopics) -> Asked:
    if context.version < IDS_FROM_VERSION:
        return Asked(topic.name, topic.partition_indexes)
    group = context.node.groups.by_id(topic.topic_id)
    if group is None:
        context.node.metrics.count_error(ErrorCode.UNKNOWN_TOPIC_ID)
        return Asked("", topic.partition_indexes, topic.topic_id, ErrorCode.UNKNOWN_TOPIC_ID)
    return Asked(group.topic.name, topic.partition_indexes, topic.topic_id)


API = Api(
    key=9, name="OffsetFetch", version_min=1, version_max=10,
    request=OffsetFetchRequest, response=OffsetFetchResponse, serve=serve, refuse=refuse,
    answers_at_length=True,
)  # fmt: skip
