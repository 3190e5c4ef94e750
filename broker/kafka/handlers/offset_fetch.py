"""OffsetFetch (key 9), versions 1 to 10.

Behaviour: waits for the commits of its groups that were there before. A group or partition that is unknown, or has no
offset, is answered with offset -1, epoch -1 and no metadata, without an error: clients ask before they ever commit.
Null topics (from version 2) mean all that the group has. Several groups from version 8; topics by id from version 10,
where an unknown id is UNKNOWN_TOPIC_ID. With require_stable (version 7) a partition with an offset in a transaction
that is not over is UNSTABLE_OFFSET_COMMIT.
What passes, such as a coordinator that is loading, is the error of each partition beside that of the group: aiokafka
looks at no other one, takes an answer without partitions for no offsets, and would read from the start again.
What is named twice is answered twice, as in Kafka. A partition whose rows are damaged is CORRUPT_MESSAGE.
In a group of the consumer protocol a member may say who it is (version 9), and is refused for an epoch that is not its
own: UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH. Classic groups do not look at either.
Left out: nothing.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pqbroker.broker.ground.access import AclKind, AclOperation, AclResource, check_access
from pqbroker.broker.kafka.apis.api import Api
from pqbroker.broker.kafka.apis.context import Context
from pqbroker.broker.kafka.apis.entries import each
from pqbroker.broker.services.coordination.modern.commits import check_read
from pqbroker.broker.services.topics.finding import find_topic
from pqbroker.broker.services.topics.partitions import NO_TOPIC_ID
from pqbroker.pq.log.consumers import ConsumerOffset
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from pqbroker.storage.tablets.coordinator_rows import PartitionId

if TYPE_CHECKING:
    from pqbroker.pq.serving.topic import Topic

GROUPS_FROM_VERSION = 8
IDS_FROM_VERSION = 10
GROUP_ERROR_FROM_VERSION = 2
_NOTHING = ConsumerOffset(-1)
_UNREADABLE = ConsumerOffset(-1)
"""Stands for the offset in a partition whose rows are damaged; an answer without one would send consumers to the
start."""
_UNSTABLE = ConsumerOffset(-1)
"""Stands for the offset in a partition where a transaction may bring another one."""


@dataclass(slots=True)
class Asked:
    """One topic of one group: the partitions asked for. `topic` None: it is unknown, or refused with `error_code`."""

    name: str
    indexes: list[int]
    topic_id: bytes = NO_TOPIC_ID
    topic: "Topic | None" = None
    error_code: ErrorCode = ErrorCode.NONE


_PASSING = frozenset(
    (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR)
)
Find = Callable[[Asked, int], ConsumerOffset]


async def serve(context: Context, request: OffsetFetchRequest) -> OffsetFetchResponse:
    if context.version < GROUPS_FROM_VERSION:
        check_access(context, AclOperation.DESCRIBE, AclResource(AclKind.GROUP, request.group_id))
        await context.node.cell.current.topics.offsets.settled(request.group_id)
        every = await _all(context, request.group_id) if request.topics is None else []
        find = _finder(context, request.group_id, request)
        return OffsetFetchResponse(topics=_topics(context, find, request.topics, every))
    found: dict[str, list[Asked] | KafkaError] = {}
    for group in request.groups:
        await context.breathe()
        await context.node.cell.current.topics.offsets.settled(group.group_id)
        if group.topics is None and group.group_id not in found:
            found[group.group_id] = await _all_or_refusal(context, group.group_id)
    return OffsetFetchResponse(
        groups=each(
            request.groups,
            lambda asked: _answer_group(context, request, asked, found[asked.group_id] if asked.topics is None else []),
        )
    )


def refuse(context: Context, request: OffsetFetchRequest, code: ErrorCode, message: str) -> OffsetFetchResponse:
    if context.version >= GROUPS_FROM_VERSION:
        return OffsetFetchResponse(
            groups=each(
                request.groups, lambda asked: OffsetFetchResponseGroup(group_id=asked.group_id, error_code=code)
            )
        )
    has_group_error = context.version >= GROUP_ERROR_FROM_VERSION
    if has_group_error and code not in _PASSING:
        return OffsetFetchResponse(error_code=code)
    topics = [Asked(topic.name, topic.partition_indexes, error_code=code) for topic in request.topics or ()]
    answer = OffsetFetchResponse(topics=each(topics, lambda topic: _topic(topic, lambda *_: _NOTHING)))
    if has_group_error:
        answer.error_code = code
    return answer


def _answer_group(
    context: Context, request: OffsetFetchRequest, asked: OffsetFetchRequestGroup, every: list[Asked] | KafkaError
) -> OffsetFetchResponseGroup:
    """`every`: all that the group has, where all is asked for."""
    if isinstance(every, KafkaError):
        return OffsetFetchResponseGroup(group_id=asked.group_id, error_code=every.code)
    try:
        check_access(context, AclOperation.DESCRIBE, AclResource(AclKind.GROUP, asked.group_id))
        if asked.member_id is not None or asked.member_epoch >= 0:
            _check_member(context, asked)
        topics = _topics(context, _finder(context, asked.group_id, request), asked.topics, every)
    except KafkaError as refusal:
        return OffsetFetchResponseGroup(group_id=asked.group_id, error_code=refusal.code)
    return OffsetFetchResponseGroup(group_id=asked.group_id, topics=topics)


def _check_member(context: Context, asked: OffsetFetchRequestGroup) -> None:
    """Check the epoch of a member of a group of KIP-848. KafkaError UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH."""
    _check_serving(context)
    group = context.node.cell.current.coordinators.modern_group(asked.group_id)
    if group is not None:
        check_read(group, asked.member_id, asked.member_epoch)


def _topics(
    context: Context, find: Find, asked: list[OffsetFetchRequestTopic] | None, every: list[Asked]
) -> list[OffsetFetchResponseTopic]:
    """Return the topics asked for, all that the group has where that is None."""
    _check_serving(context)
    if asked is None:
        return each(every, lambda topic: _topic(topic, find))
    return each(asked, lambda topic: _topic(_by_name_or_id(context, topic), find))


def _topic(topic: Asked, find: Find) -> OffsetFetchResponseTopic:
    def answer(index: int) -> OffsetFetchResponsePartition:
        state = find(topic, index)
        return OffsetFetchResponsePartition(
            partition_index=index,
            committed_offset=state.offset,
            committed_leader_epoch=state.leader_epoch,
            metadata=state.metadata,
            error_code=_error(state) or topic.error_code,
        )

    return OffsetFetchResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=each(topic.indexes, answer))


def _error(state: ConsumerOffset) -> ErrorCode:
    if state is _UNREADABLE:
        return ErrorCode.CORRUPT_MESSAGE
    return ErrorCode.UNSTABLE_OFFSET_COMMIT if state is _UNSTABLE else ErrorCode.NONE


def _check_serving(context: Context) -> None:
    current = context.node.cell.current
    if current.cell.reading_only:
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, current.cell.reading_only)
    if not current.coordinators.is_serving:
        raise KafkaError(ErrorCode.NOT_COORDINATOR, "the broker is stopping, or its cell was lost: try again")


def _finder(context: Context, group_id: str, request: OffsetFetchRequest) -> Find:
    """Return a function that finds the offset of a group in a partition, -1 where it has none."""
    topics = context.node.cell.current.topics
    producers = context.node.cell.current.transactional_producers
    may_be_unstable = request.require_stable and producers.has_pending_offsets

    def find(asked: Asked, index: int) -> ConsumerOffset:
        if asked.topic is None:
            return _NOTHING
        partitions = asked.topic.partitions
        if 0 <= index < len(partitions) and partitions[index].state.unreadable:
            return _UNREADABLE
        if may_be_unstable and producers.is_unstable(group_id, PartitionId(asked.topic.record.topic_id, index)):
            return _UNSTABLE
        return topics.offsets.at(group_id, (asked.name, index)) or _NOTHING

    return find


async def _all_or_refusal(context: Context, group_id: str) -> list[Asked] | KafkaError:
    try:
        check_access(context, AclOperation.DESCRIBE, AclResource(AclKind.GROUP, group_id))
        return await _all(context, group_id)
    except KafkaError as refusal:
        return refusal.with_traceback(None)


async def _all(context: Context, group_id: str) -> list[Asked]:
    """Everything that a group has, by topic, with turns for others between partitions. KafkaError."""
    _check_serving(context)
    topics: dict[str, Asked] = {}
    for (name, index), _ in context.node.cell.current.topics.offsets.each_of(group_id):
        await context.breathe()
        if name not in topics:
            topics[name] = _named(context, name, [])
        topics[name].indexes.append(index)
    return [asked for asked in topics.values() if asked.topic is not None]


def _by_name_or_id(context: Context, asked: OffsetFetchRequestTopic) -> Asked:
    if context.version < IDS_FROM_VERSION:
        return _named(context, asked.name, asked.partition_indexes)
    try:
        topic = find_topic(context, AclOperation.DESCRIBE, None, asked.topic_id)
    except KafkaError as refusal:
        return Asked("", asked.partition_indexes, asked.topic_id, error_code=refusal.code)
    return Asked(topic.record.name, asked.partition_indexes, asked.topic_id, topic)


def _named(context: Context, name: str, indexes: list[int]) -> Asked:
    """An unknown name is no error: nothing is stored for it."""
    try:
        topic = find_topic(context, AclOperation.DESCRIBE, name)
    except KafkaError as refusal:
        is_unknown = refusal.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return Asked(name, indexes, error_code=ErrorCode.NONE if is_unknown else refusal.code)
    return Asked(name, indexes, topic.record.topic_id, topic)


API = Api(request=OffsetFetchRequest, response=OffsetFetchResponse, serve=serve, refuse=refuse, answers_at_length=True)
