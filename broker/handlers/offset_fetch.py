"""OffsetFetch (key 9), versions 1 to 10.

Behaviour: waits for the commits of its groups that were there before. A group or partition that is unknown, or has no
offset, is answered with offset -1, epoch -1 and no metadata, without an error: clients ask before they ever commit.
Null topics (from version 2) mean all that the group has. Several groups from version 8; topics by id from version 10,
where an unknown id is UNKNOWN_TOPIC_ID. require_stable is taken: nothing is ever pending here without transactions.
Left out: transactions; member ids and epochs of KIP-848 (version 9), which classic groups do not look at either.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pqbroker.broker.apis import Api
from pqbroker.broker.context import Context
from pqbroker.broker.partitions import NO_TOPIC_ID
from pqbroker.pq.consumers import ConsumerOffset
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
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


@dataclass(slots=True)
class Asked:
    """One topic of one group: the partitions asked for."""

    name: str
    indexes: list[int]
    topic_id: bytes = NO_TOPIC_ID
    error_code: int = field(default=0)


async def serve(context: Context, request: OffsetFetchRequest) -> OffsetFetchResponse:
    if context.version >= GROUPS_FROM_VERSION:
        return OffsetFetchResponse(groups=[await _answer_group(context, asked) for asked in request.groups])
    found = await _offsets_of(context, request.group_id)
    if request.topics is None:
        topics = _all(context.node.groups, found)
    else:
        topics = [Asked(topic.name, topic.partition_indexes) for topic in request.topics]
    return OffsetFetchResponse(
        topics=[
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=index,
                        committed_offset=state.offset,
                        committed_leader_epoch=state.leader_epoch,
                        metadata=state.metadata,
                    )
                    for index, state in _states(topic, found)
                ],
            )
            for topic in topics
        ]
    )


def refuse(context: Context, request: OffsetFetchRequest, code: ErrorCode, message: str) -> OffsetFetchResponse:
    if context.version >= GROUPS_FROM_VERSION:
        groups = [OffsetFetchResponseGroup(group_id=asked.group_id, error_code=code) for asked in request.groups]
        return OffsetFetchResponse(groups=groups)
    if context.version >= GROUP_ERROR_FROM_VERSION:
        return OffsetFetchResponse(error_code=code)
    return OffsetFetchResponse(
        topics=[
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=index, committed_offset=-1, metadata="", error_code=code
                    )
                    for index in topic.partition_indexes
                ],
            )
            for topic in request.topics or ()
        ]
    )


async def _answer_group(context: Context, asked: OffsetFetchRequestGroup) -> OffsetFetchResponseGroup:
    try:
        found = await _offsets_of(context, asked.group_id)
    except KafkaError as refusal:
        context.node.metrics.count_error(refusal.code)
        return OffsetFetchResponseGroup(group_id=asked.group_id, error_code=refusal.code)
    groups = context.node.groups
    if asked.topics is None:
        topics = _all(groups, found)
    elif context.version >= IDS_FROM_VERSION:
        topics = [_by_id(context, topic.topic_id, topic.partition_indexes) for topic in asked.topics]
    else:
        topics = [Asked(topic.name, topic.partition_indexes) for topic in asked.topics]
    return OffsetFetchResponseGroup(
        group_id=asked.group_id,
        topics=[
            OffsetFetchResponseTopics(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetFetchResponsePartitions(
                        partition_index=index,
                        committed_offset=state.offset,
                        committed_leader_epoch=state.leader_epoch,
                        metadata=state.metadata,
                        error_code=topic.error_code,
                    )
                    for index, state in _states(topic, found)
                ],
            )
            for topic in topics
        ],
    )


async def _offsets_of(context: Context, group_id: str) -> "Mapping[Place, ConsumerOffset]":
    """The group's offsets behind the commits that are there now. KafkaError NOT_COORDINATOR."""
    await context.node.groups.settled(group_id)
    if not context.node.coordinators.is_serving:
        raise KafkaError(ErrorCode.NOT_COORDINATOR, "the broker is stopping, or its cell was lost: try again")
    return context.node.groups.offsets_of(group_id)


def _states(topic: Asked, found: "Mapping[Place, ConsumerOffset]") -> Iterable[tuple[int, ConsumerOffset]]:
    return ((index, found.get((topic.name, index), _NOTHING)) for index in topic.indexes)


def _all(groups: "PersQueueGroups", found: "Mapping[Place, ConsumerOffset]") -> list[Asked]:
    """Everything that a group has, by topic."""
    topics: dict[str, Asked] = {}
    for name, index in found:
        if name not in topics:
            group = groups.get(name)
            assert group is not None, name
            topics[name] = Asked(name, [], group.topic.topic_id)
        topics[name].indexes.append(index)
    return list(topics.values())


def _by_id(context: Context, topic_id: bytes, indexes: list[int]) -> Asked:
    group = context.node.groups.by_id(topic_id)
    if group is None:
        context.node.metrics.count_error(ErrorCode.UNKNOWN_TOPIC_ID)
        return Asked("", indexes, topic_id, ErrorCode.UNKNOWN_TOPIC_ID)
    return Asked(group.topic.name, indexes, topic_id)


API = Api(
    key=9, name="OffsetFetch", version_min=1, version_max=10,
    request=OffsetFetchRequest, response=OffsetFetchResponse, serve=serve, refuse=refuse,
)  # fmt: skip
