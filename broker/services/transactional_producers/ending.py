"""The end of a transaction whose decision is durable: a marker in each of its partitions, and the offsets it committed.

The markers and offsets of a try are asked for in one turn of the loop, so that those of one cell share a commit; where
they are many, some in each of several turns. A partition that does not run now gets its marker when it does; a topic
that was deleted is left out. All of it may be written twice: a crash before the end is stored has it written again.
"""

import asyncio
import logging
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pqbroker.pq.log.consumers import ConsumerOffset
from pqbroker.pq.serving.offsets import Outcomes, TopicPartition
from pqbroker.pq.serving.partition_server import PartitionServer
from pqbroker.pq.serving.topics import Topics
from pqbroker.protocol.control_records import EndMarker
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.storage.engine import CommitRefused, ShardLost
from pqbroker.storage.outcome import Outcome
from pqbroker.storage.tablets.coordinator_rows import (
    PartitionId,
    PendingOffset,
    TransactionalIdState,
    TransactionalImage,
)

RETRY_FIRST_S: Final = 0.05
RETRY_MOST_S: Final = 1.0
MARKED_AT_ONCE: Final = 25
"""Markers of one transaction that are planned in one turn of the loop: to plan and store one takes about 0.1 ms."""
OFFSETS_AT_ONCE: Final = 500
"""Offsets of one transaction that are compared with those stored, and planned, in one turn of the loop."""
_FENCED: Final = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED})
"""Refusals of a partition that has met a later epoch of the producer, or of its coordinator: nothing of it is open."""

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Left:
    """Everything of a transaction whose end is not durable yet."""

    partitions: set[PartitionId]
    offsets: Sequence[PendingOffset]
    why: str = ""
    """Cause that kept the last try from ending all of it."""


async def write_end(topics: Topics, image: TransactionalImage, coordinator_epoch: int) -> None:
    """Write a transaction's markers and offsets; return when all are durable."""
    left = _Left(set(image.partitions), image.offsets)
    pause_s, is_reported = RETRY_FIRST_S, False
    while True:
        await _try(topics, image, coordinator_epoch, left)
        if not left.partitions and not left.offsets:
            return
        if not is_reported:
            log.warning("the end of the transaction of %r waits: %s", image.transactional_id, left.why)
            is_reported = True
        await asyncio.sleep(pause_s)
        pause_s = min(2 * pause_s, RETRY_MOST_S)


async def _try(topics: Topics, image: TransactionalImage, coordinator_epoch: int, left: _Left) -> None:
    """Ask for all that is left, and wait for the outcomes: for what is not much in one turn of the loop."""
    first, later = left.offsets[:OFFSETS_AT_ONCE], left.offsets[OFFSETS_AT_ONCE:]
    commits = await _begin_commits(topics, first)
    markers: dict[PartitionId, Outcome[int] | None] = {}
    for number, partition in enumerate(sorted(left.partitions), 1):
        markers[partition] = _begin_marker(topics, image, coordinator_epoch, partition)
        if number % MARKED_AT_ONCE == 0:
            await asyncio.sleep(0)
    for partition, marker in markers.items():
        if await _is_written(partition, marker, left):
            left.partitions.discard(partition)
    refused = await _refused_offsets(commits, left)
    for start in range(0, len(later), OFFSETS_AT_ONCE):
        commits = await _begin_commits(topics, later[start : start + OFFSETS_AT_ONCE])
        refused += await _refused_offsets(commits, left)
    left.offsets = refused


def find_server(topics: Topics, partition: PartitionId) -> PartitionServer | None:
    """Return the partition; None: its topic was deleted."""
    topic = topics.by_id(partition.topic_id)
    if topic is None or partition.partition_index >= len(topic.partitions):
        return None
    return topic.partitions[partition.partition_index]


def _begin_marker(
    topics: Topics, image: TransactionalImage, coordinator_epoch: int, partition: PartitionId
) -> Outcome[int] | None:
    """Ask for the marker in one partition; None: the topic was deleted."""
    server = find_server(topics, partition)
    if server is None:
        return None
    return end_in(topics, server, marker_of(image, coordinator_epoch))


def end_in(topics: Topics, server: PartitionServer, marker: EndMarker) -> Outcome[int]:
    """Have a marker written to a partition, here or at the node that runs it, as `PartitionServer.end_transaction`."""
    known = topics.offsets.ways.get(server)
    if known is not None:
        return known.way.end_transaction(known.partition, marker)
    try:
        return server.end_transaction(
            marker.producer_id, marker.epoch, marker.coordinator_epoch, is_commit=marker.is_commit
        )
    except KafkaError as refusal:
        return Outcome.failed(refusal.with_traceback(None))


def marker_of(image: TransactionalImage, coordinator_epoch: int) -> EndMarker:
    """Return the marker that ends a decided transaction in each of its partitions."""
    is_commit = image.state is TransactionalIdState.PREPARE_COMMIT
    return EndMarker(image.producer_id, image.epoch, coordinator_epoch, is_commit)


def log_left_behind(partition: PartitionId, refusal: KafkaError) -> None:
    """Log that a partition knows a later epoch than a marker has: nothing of the transaction is open there."""
    log.warning("partition %d has left this transaction behind: %s", partition.partition_index, refusal)


async def _is_written(partition: PartitionId, marker: Outcome[int] | None, left: _Left) -> bool:
    """Return True if nothing is left to write to the partition."""
    if marker is None:
        return True
    try:
        await marker
    except KafkaError as refusal:
        if refusal.code in _FENCED:
            log_left_behind(partition, refusal)
            return True
        left.why = f"partition {partition.partition_index}: {refusal}"
        return False
    except (CommitRefused, ShardLost) as lost:
        left.why = f"partition {partition.partition_index}: {lost}"
        return False
    return True


@dataclass(frozen=True, slots=True)
class _AskedOffsets:
    """Offsets of one group that were asked for, the places of those that count, and what becomes of them."""

    pending: Sequence[PendingOffset]
    places: Mapping[PartitionId, TopicPartition]
    outcomes: Awaitable[Outcomes] | KafkaError


async def _begin_commits(topics: Topics, offsets: Iterable[PendingOffset]) -> Sequence[_AskedOffsets]:
    """Ask for offsets, in one turn of the loop, once their groups commit nothing: what was asked for before us must not
    land behind us."""
    by_group: dict[str, list[PendingOffset]] = {}
    for each in offsets:
        by_group.setdefault(each.group_id, []).append(each)
    while busy := next(filter(topics.offsets.is_committing, by_group), None):
        await topics.offsets.settled(busy)
    return [_begin_commit(topics, group_id, pending) for group_id, pending in by_group.items()]


def _begin_commit(topics: Topics, group_id: str, pending: Sequence[PendingOffset]) -> _AskedOffsets:
    """Ask for a group's offsets: those that no later commit has taken the place of."""
    try:
        coming = coming_offsets(topics, group_id, pending)
    except KafkaError as refusal:
        return _AskedOffsets(pending, {}, refusal.with_traceback(None))
    places = {partition: place for partition, (place, _) in coming.items()}
    return _AskedOffsets(pending, places, topics.offsets.commit(group_id, dict(coming.values())))


def coming_offsets(
    topics: Topics, group_id: str, pending: Iterable[PendingOffset]
) -> dict[PartitionId, tuple[TopicPartition, ConsumerOffset]]:
    """Return the offsets of a group that no later commit has taken the place of, and their places. KafkaError while
    some are not known."""
    coming: dict[PartitionId, tuple[TopicPartition, ConsumerOffset]] = {}
    for each in pending:
        topic = topics.by_id(each.partition.topic_id)
        if topic is None:
            continue
        place = (topic.record.name, each.partition.partition_index)
        stored = topics.offsets.at(group_id, place)
        before = coming.get(each.partition)
        latest_ms = max(-1 if stored is None else stored.commit_ms, -1 if before is None else before[1].commit_ms)
        if latest_ms < each.commit_ms or (stored is None and before is None):
            coming[each.partition] = place, as_committed(each)
    return coming


def as_committed(pending: PendingOffset) -> ConsumerOffset:
    """Return the offset as its group's partition stores it."""
    return ConsumerOffset(
        pending.offset, pending.leader_epoch, pending.metadata, pending.commit_ms, creator=pending.creator
    )


async def _refused_offsets(commits: Iterable[_AskedOffsets], left: _Left) -> list[PendingOffset]:
    """Return the offsets that are to be committed again."""
    kept: list[PendingOffset] = []
    for commit in commits:
        if isinstance(commit.outcomes, KafkaError):
            left.why = str(commit.outcomes)
            kept += commit.pending
            continue
        refused = set[TopicPartition]()
        for place, refusal in (await commit.outcomes).items():
            if refusal is not None and refusal.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                left.why = f"offset in {place[0]} {place[1]}: {refusal}"
                refused.add(place)
        kept += [each for each in commit.pending if commit.places.get(each.partition) in refused]
    return kept
