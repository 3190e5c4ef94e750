"""OffsetCommit (key 8), versions 2 to 10.

Behaviour: the offsets of a request become durable in one commit, or in several where they are more than 500, one behind
the other; they are stored as they are given: backwards, before the start, beyond the end. Members commit in their
generation; a client in no group commits while the group has no members. An unknown topic or partition, or metadata over
offset.metadata.max.bytes, is refused for itself; the rest is stored. Topics go by id from version 10. retention_time_ms
(to version 4) counts from the commit. The membership is checked and the commit enqueued in the same step, so that a
commit let through stands before what a later owner reads.
Where a partition moves between nodes of the broker the commit is held for a moment (`held_commits.py`).
What is named twice is answered twice and stored as it was named last, as in Kafka.
In a group of the consumer protocol a member commits in its epoch, from version 9 on; or in an earlier one for
partitions that it has had since (KIP-1251), else the whole is STALE_MEMBER_EPOCH.
Left out: nothing.
"""

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from pqbroker.broker.ground.access import AclKind, AclOperation, AclResource, check_access
from pqbroker.broker.kafka.apis.api import Api
from pqbroker.broker.kafka.apis.context import Context
from pqbroker.broker.kafka.apis.entries import each
from pqbroker.broker.services.coordination.modern.commits import check_commit
from pqbroker.broker.services.topics.finding import find_topic
from pqbroker.pq.log.consumers import ConsumerOffset
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

if TYPE_CHECKING:
    from pqbroker.pq.serving.held_commits import HeldCommits, Offsets
    from pqbroker.pq.serving.offsets import Outcomes, TopicPartition

IDS_FROM_VERSION = 10
NO_GROUP_FROM_VERSION = 9
"""Earlier versions say ILLEGAL_GENERATION of a group that does not exist, as in Kafka."""
NEVER_MS = (1 << 63) - 1


def serve(context: Context, request: OffsetCommitRequest) -> OffsetCommitResponse | Awaitable[OffsetCommitResponse]:
    check_access(context, AclOperation.READ, AclResource(AclKind.GROUP, request.group_id))
    commit = _Commit(context, request)
    if context.is_long:
        return commit.serve_in_slices()
    for topic in request.topics:
        commit.begin(topic)
        for asked in topic.partitions:
            commit.add(asked)
    return commit.enqueue()


def refuse(context: Context, request: OffsetCommitRequest, code: ErrorCode, message: str) -> OffsetCommitResponse:
    return OffsetCommitResponse(
        topics=each(
            request.topics,
            lambda topic: OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=each(
                    topic.partitions,
                    lambda asked: OffsetCommitResponsePartition(partition_index=asked.partition_index, error_code=code),
                ),
            ),
        )
    )


class _Commit:
    """One OffsetCommit in work. What is named twice is stored as it was named last, and answered twice, as in Kafka."""

    __slots__ = ("_answer", "_context", "_name", "_now_ms", "_offsets", "_request", "_response", "_slots", "_unknown")

    def __init__(self, context: Context, request: OffsetCommitRequest) -> None:
        self._context = context
        self._request = request
        self._response = OffsetCommitResponse()
        self._offsets: dict[TopicPartition, ConsumerOffset | None] = {}
        self._slots: list[tuple[TopicPartition, OffsetCommitResponsePartition]] = []
        self._now_ms = context.node.clock()

    async def serve_in_slices(self) -> OffsetCommitResponse:
        """Serve with turns for others between topics and partitions, while they are planned too; the commit itself is
        one."""
        for topic in self._request.topics:
            await self._context.breathe()
            self.begin(topic)
            for asked in topic.partitions:
                await self._context.breathe()
                self.add(asked)
        offsets = self._context.node.cell.current.topics.offsets
        async with offsets.held.held(self._request.group_id, self._offsets):
            changes = offsets.begin(self._request.group_id)
            try:
                for topic_partition, state in self._offsets.items():
                    await self._context.breathe()
                    changes.add(topic_partition, state)
                self._check()
            except KafkaError as refusal:
                changes.give_up()
                return self._refused(refusal)
            except BaseException:
                changes.give_up()
                raise
            enqueued = offsets.enqueue(changes)
        return await self._fill_in(enqueued)

    def begin(self, topic: OffsetCommitRequestTopic) -> None:
        self._answer = OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id)
        self._response.topics.append(self._answer)
        self._name = topic.name
        self._unknown: KafkaError | None = None
        by_id = self._context.version >= IDS_FROM_VERSION
        try:
            found = find_topic(self._context, AclOperation.READ, topic.name, topic.topic_id if by_id else None)
        except KafkaError as refusal:
            self._unknown = refusal.with_traceback(None)  # else this holds the frames, and they this
        else:
            self._name = found.record.name

    def add(self, asked: OffsetCommitRequestPartition) -> None:
        """A partition of the topic begun last."""
        slot = OffsetCommitResponsePartition(partition_index=asked.partition_index)
        self._answer.partitions.append(slot)
        if self._unknown is not None:
            slot.error_code = self._unknown.code
            return
        topic_partition = (self._name, asked.partition_index)
        holder = self._context.peer.holder
        self._offsets[topic_partition] = _state(asked, self._now_ms, self._request.retention_time_ms, holder)
        self._slots.append((topic_partition, slot))

    def enqueue(self) -> OffsetCommitResponse | Awaitable[OffsetCommitResponse]:
        """Check who commits, and enqueue, both in this call; the answer comes when it is durable."""
        held = self._context.node.cell.current.topics.offsets.held
        if held.is_used:
            return self._commit_in_order(held)
        try:
            enqueued = self._checked(self._offsets)
        except KafkaError as refusal:
            return self._refused(refusal)
        return self._fill_in(enqueued)

    async def _commit_in_order(self, held: "HeldCommits") -> OffsetCommitResponse:
        """Do as `enqueue`, where other nodes of the broker have partitions."""
        try:
            return self._filled(await held.commit(self._request.group_id, self._offsets, self._checked))
        except KafkaError as refusal:
            return self._refused(refusal)

    def _checked(self, offsets: "Offsets") -> "Awaitable[Outcomes]":
        """Check who commits these, and enqueue them. KafkaError."""
        self._check()
        return self._context.node.cell.current.topics.offsets.commit(self._request.group_id, offsets)

    def _check(self) -> None:
        """KafkaError unless the group lets this client commit now; the commit is enqueued in the same call."""
        request = self._request
        current = self._context.node.cell.current
        group = current.coordinators.modern_group(request.group_id)
        if group is None:
            current.coordinators.check_commit(
                request.group_id, request.member_id, request.group_instance_id, request.generation_id_or_member_epoch,
                has_offsets=current.topics.offsets.knows,
            )
            return
        epoch = request.generation_id_or_member_epoch
        fence = check_commit(group, request.member_id, epoch, self._context.version)
        if fence is not None:
            fence.check((current.topics.id_of(name), index) for name, index in self._offsets)

    def _refused(self, refusal: KafkaError) -> OffsetCommitResponse:
        code = refusal.code
        if code is ErrorCode.GROUP_ID_NOT_FOUND and self._context.version < NO_GROUP_FROM_VERSION:
            code = ErrorCode.ILLEGAL_GENERATION
        for _, slot in self._slots:
            slot.error_code = code
        return self._response

    async def _fill_in(self, committed: "Awaitable[Outcomes]") -> OffsetCommitResponse:
        outcomes = await committed
        if not self._context.is_long:
            return self._filled(outcomes)
        for topic_partition, slot in self._slots:
            await self._context.breathe()
            if error := outcomes[topic_partition]:
                slot.error_code = error.code
        return self._response

    def _filled(self, outcomes: "Outcomes") -> OffsetCommitResponse:
        for topic_partition, slot in self._slots:
            if error := outcomes[topic_partition]:
                slot.error_code = error.code
        return self._response


def _state(asked: OffsetCommitRequestPartition, now_ms: int, retention_ms: int, holder: str) -> ConsumerOffset:
    return ConsumerOffset(
        asked.committed_offset,
        asked.committed_leader_epoch,
        asked.committed_metadata or "",
        now_ms,
        min(now_ms + retention_ms, NEVER_MS) if retention_ms >= 0 else -1,
        creator=holder,
    )


API = Api(request=OffsetCommitRequest, response=OffsetCommitResponse, serve=serve, refuse=refuse)
