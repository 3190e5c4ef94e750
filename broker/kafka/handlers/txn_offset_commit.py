"""TxnOffsetCommit (key 28), versions 0 to 5.

Behaviour: offsets of a group wait in the producer's transaction, durable before the answer; they count once it commits,
unless the group commits others meanwhile. From version 3 a member commits in its generation, whatever the state of its
group; a client that names no member may always. The group was added before (AddOffsetsToTxn), else INVALID_TXN_STATE,
in version 4 TRANSACTION_ABORTABLE; from version 5 (KIP-890) it is added here. An unknown topic or partition, or
metadata over offset.metadata.max.bytes, is refused for itself; the rest is taken. Of what is named twice the last is
taken.
In a group of the consumer protocol the generation is a member's epoch, as in OffsetCommit; a stale one is
ILLEGAL_GENERATION.
Left out: topics by id (version 6, which Kafka has not released).
"""

from collections.abc import Mapping
from itertools import islice

from pqbroker.broker.ground.access import AclKind, AclOperation, AclResource, check_access
from pqbroker.broker.kafka.apis.api import Api
from pqbroker.broker.kafka.apis.context import Context
from pqbroker.broker.kafka.apis.entries import each
from pqbroker.broker.kafka.apis.transactional_requests import FENCED_AS_EPOCH, producers_of, with_codes
from pqbroker.broker.services.coordination.modern.commits import check_transactional_commit
from pqbroker.broker.services.topics.finding import find_topic
from pqbroker.broker.services.transactional_producers.ending import as_committed
from pqbroker.broker.services.transactional_producers.rules import Addition, Claim
from pqbroker.pq.serving.offsets import TopicPartition
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from pqbroker.storage.tablets.coordinator_rows import PartitionId, PendingOffset

ADDS_GROUPS_FROM_VERSION = 5
_CODES = {**FENCED_AS_EPOCH, ErrorCode.POLICY_VIOLATION: ErrorCode.INVALID_COMMIT_OFFSET_SIZE}
"""Codes that clients expect here, for those of the coordinator."""
_CODES_BEFORE_GROUPS = {**_CODES, ErrorCode.CONCURRENT_TRANSACTIONS: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
_CODES_WITH_ABORTABLE = {**_CODES_BEFORE_GROUPS, ErrorCode.INVALID_TXN_STATE: ErrorCode.TRANSACTION_ABORTABLE}
_ABORTABLE_FROM_VERSION = 4
CHECKED_AT_ONCE = 100
"""Offsets that are planned at their partitions, and given up, between two looks at the time."""


async def serve(context: Context, request: TxnOffsetCommitRequest) -> TxnOffsetCommitResponse:
    producers = producers_of(context, request.transactional_id, AclOperation.WRITE)
    check_access(context, AclOperation.READ, AclResource(AclKind.GROUP, request.group_id))
    if not request.transactional_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a transactional id is not empty")
    coordinators = context.node.cell.current.coordinators
    coordinators.check_transactional_commit(
        request.group_id, request.member_id, request.group_instance_id, request.generation_id
    )
    commit = _PendingCommit(context, request.group_id)
    for topic in request.topics:
        await context.breathe()
        await commit.take(topic)
    offsets = await commit.checked()
    _check_epoch(context, request)
    if offsets:
        bumps = context.version >= ADDS_GROUPS_FROM_VERSION
        addition = Addition(groups=frozenset({request.group_id}), offsets=offsets)
        claim = Claim(request.producer_id, request.producer_epoch)
        adding = producers.add_offsets(request.transactional_id, claim, addition, bumps_epochs=bumps)
        await with_codes(_codes(context.version), adding)
    return commit.response


def refuse(
    context: Context, request: TxnOffsetCommitRequest, code: ErrorCode, message: str
) -> TxnOffsetCommitResponse:
    return TxnOffsetCommitResponse(
        topics=each(
            request.topics,
            lambda topic: TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=each(
                    topic.partitions,
                    lambda asked: TxnOffsetCommitResponsePartition(
                        partition_index=asked.partition_index, error_code=code
                    ),
                ),
            ),
        )
    )


def _check_epoch(context: Context, request: TxnOffsetCommitRequest) -> None:
    """Check that a member of a group of KIP-848 may commit in its epoch. KafkaError UNKNOWN_MEMBER_ID,
    ILLEGAL_GENERATION."""
    current = context.node.cell.current
    group = current.coordinators.modern_group(request.group_id)
    if group is None:
        return
    epoch, instance_id = request.generation_id, request.group_instance_id
    try:
        fence = check_transactional_commit(group, request.member_id, instance_id, epoch)
        if fence is not None:
            fence.check(
                (current.topics.id_of(topic.name), asked.partition_index)
                for topic in request.topics
                for asked in topic.partitions
            )
    except KafkaError as refusal:
        if refusal.code is not ErrorCode.STALE_MEMBER_EPOCH:
            raise
        raise KafkaError(ErrorCode.ILLEGAL_GENERATION, refusal.message) from None


def _codes(version: int) -> Mapping[ErrorCode, ErrorCode]:
    if version >= ADDS_GROUPS_FROM_VERSION:
        return _CODES
    return _CODES_WITH_ABORTABLE if version >= _ABORTABLE_FROM_VERSION else _CODES_BEFORE_GROUPS


class _PendingCommit:
    """One TxnOffsetCommit in work: its offsets, and an answer for each."""

    def __init__(self, context: Context, group_id: str) -> None:
        self._context = context
        self._group_id = group_id
        self._now_ms = context.node.clock()
        self._pending: dict[TopicPartition, PendingOffset] = {}
        self._slots: list[tuple[TopicPartition, TxnOffsetCommitResponsePartition]] = []
        self.response = TxnOffsetCommitResponse()

    async def take(self, topic: TxnOffsetCommitRequestTopic) -> None:
        """Take a topic's offsets in."""
        answer = TxnOffsetCommitResponseTopic(name=topic.name)
        self.response.topics.append(answer)
        try:
            topic_id = find_topic(self._context, AclOperation.READ, topic.name).record.topic_id
            code = ErrorCode.NONE
        except KafkaError as refusal:
            topic_id, code = b"", refusal.code
        for asked in topic.partitions:
            await self._context.breathe()
            slot = TxnOffsetCommitResponsePartition(partition_index=asked.partition_index, error_code=code)
            answer.partitions.append(slot)
            if not code:
                place = (topic.name, asked.partition_index)
                self._slots.append((place, slot))
                self._pending[place] = self._offset(PartitionId(topic_id, asked.partition_index), asked)

    async def checked(self) -> tuple[PendingOffset, ...]:
        """Return the offsets that their partitions would take now; the others are answered. Nothing is stored there."""
        refusals: dict[TopicPartition, KafkaError | None] = {}
        waiting = iter(self._pending.items())
        while some := tuple(islice(waiting, CHECKED_AT_ONCE)):
            await self._context.breathe()
            changes = self._context.node.cell.current.topics.offsets.begin(self._group_id)
            for place, pending in some:
                changes.add(place, as_committed(pending))
            changes.give_up()
            refusals |= changes.outcomes
        for place, slot in self._slots:
            refusal = refusals.get(place)
            if refusal is not None:
                slot.error_code = refusal.code
        taken: list[PendingOffset] = []
        for place, pending in self._pending.items():
            await self._context.breathe()
            if place not in refusals:
                taken.append(self._behind_stored(place, pending))
        return tuple(taken)

    def _offset(self, partition: PartitionId, asked: TxnOffsetCommitRequestPartition) -> PendingOffset:
        return PendingOffset(
            self._group_id, partition, asked.committed_offset, asked.committed_leader_epoch,
            asked.committed_metadata or "", self._now_ms, self._context.peer.holder,
        )  # fmt: skip

    def _behind_stored(self, place: TopicPartition, pending: PendingOffset) -> PendingOffset:
        """Give the offset a time later than the stored one: the one with the later time counts at the end."""
        stored = self._context.node.cell.current.topics.offsets.at(self._group_id, place)
        if stored is None or stored.commit_ms < pending.commit_ms:
            return pending
        return pending._replace(commit_ms=stored.commit_ms + 1)


API = Api(request=TxnOffsetCommitRequest, response=TxnOffsetCommitResponse, serve=serve, refuse=refuse)
