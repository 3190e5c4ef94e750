"""OffsetCommit (key 8), versions 2 to 10.

Behaviour: all offsets of a request become durable in one commit, and are stored as they are given: backwards, before
the start, beyond the end. Members commit in their generation; whoever is in no group commits while the group has no
members. An unknown topic or partition, or metadata over offset.metadata.max.bytes, is refused for itself; the rest is
stored. Topics go by id from version 10. retention_time_ms (to version 4) counts from the commit. The membership is
checked and the commit enqueued in the same step, so that a commit let through stands before what a later owner reads.
Left out: member epochs of KIP-848; the field is a generation.
"""

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from pqbroker.broker.apis import Api
from pqbroker.broker.context import Context
from pqbroker.broker.partitions import find_group
from pqbroker.pq.consumers import ConsumerOffset
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

if TYPE_CHECKING:
    from pqbroker.pq.offsets import Outcomes, Place

IDS_FROM_VERSION = 10
NEVER_MS = (1 << 63) - 1


def serve(context: Context, request: OffsetCommitRequest) -> OffsetCommitResponse | Awaitable[OffsetCommitResponse]:
    response = OffsetCommitResponse()
    offsets: dict[Place, ConsumerOffset | None] = {}
    slots: list[tuple[Place, OffsetCommitResponsePartition]] = []
    now_ms = context.node.clock()
    for topic in request.topics:
        answer = OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id)
        response.topics.append(answer)
        by_id = context.version >= IDS_FROM_VERSION
        unknown = None
        name = topic.name
        try:
            name = find_group(context.node.groups, topic.name, topic.topic_id, by_id=by_id).topic.name
        except KafkaError as refusal:
            unknown = refusal
        for asked in topic.partitions:
            slot = OffsetCommitResponsePartition(partition_index=asked.partition_index)
            answer.partitions.append(slot)
            if unknown is not None:
                _refuse_one(context, slot, unknown)
                continue
            place = (name, asked.partition_index)
            offsets[place] = _state(asked, now_ms, request.retention_time_ms)
            slots.append((place, slot))
    return _commit(context, request, response, offsets, slots)


def refuse(context: Context, request: OffsetCommitRequest, code: ErrorCode, message: str) -> OffsetCommitResponse:
    response = OffsetCommitResponse()
    for topic in request.topics:
        slots = [
            OffsetCommitResponsePartition(partition_index=asked.partition_index, error_code=code)
            for asked in topic.partitions
        ]
        response.topics.append(
            OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=slots)
        )
    return response


def _commit(
    context: Context,
    request: OffsetCommitRequest,
    response: OffsetCommitResponse,
    offsets: "dict[Place, ConsumerOffset | None]",
    slots: "list[tuple[Place, OffsetCommitResponsePartition]]",
) -> OffsetCommitResponse | Awaitable[OffsetCommitResponse]:
    """Check who commits, and enqueue, both in this call; the answer comes when it is durable."""
    node = context.node
    try:
        node.coordinators.check_commit(
            request.group_id, request.member_id, request.group_instance_id, request.generation_id_or_member_epoch
        )
    except KafkaError as refusal:
        for _, slot in slots:
            _refuse_one(context, slot, refusal)
        return response
    return _fill_in(context, response, slots, node.groups.commit_offsets(request.group_id, offsets))


async def _fill_in(
    context: Context,
    response: OffsetCommitResponse,
    slots: "list[tuple[Place, OffsetCommitResponsePartition]]",
    committed: "Awaitable[Outcomes]",
) -> OffsetCommitResponse:
    outcomes = await committed
    for place, slot in slots:
        if error := outcomes[place]:
            _refuse_one(context, slot, error)
    return response


def _refuse_one(context: Context, slot: OffsetCommitResponsePartition, refusal: KafkaError) -> None:
    context.node.metrics.count_error(refusal.code)
    slot.error_code = refusal.code


def _state(asked: OffsetCommitRequestPartition, now_ms: int, retention_ms: int) -> ConsumerOffset:
    return ConsumerOffset(
        asked.committed_offset,
        asked.committed_leader_epoch,
        asked.committed_metadata or "",
        now_ms,
        min(now_ms + retention_ms, NEVER_MS) if retention_ms >= 0 else -1,
    )


API = Api(
    key=8, name="OffsetCommit", version_min=2, version_max=10,
    request=OffsetCommitRequest, response=OffsetCommitResponse, serve=serve, refuse=refuse,
)  # fmt: skip
