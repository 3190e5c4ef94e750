"""Things that the APIs of transactional producers share: who may use an id, partitions by name, errors by version."""

from collections.abc import Awaitable, Iterator, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple, TypeVar

from pqbroker.broker.ground.access import AclKind, AclOperation, AclResource, check_access
from pqbroker.broker.kafka.apis.context import Context
from pqbroker.broker.services.topics.finding import find_topic
from pqbroker.broker.services.topics.partitions import find_partition
from pqbroker.broker.services.transactional_producers.producers import TransactionalProducers
from pqbroker.pq.serving.store_refusals import PRODUCER_IDS, store_refusal
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.storage.engine import CommitRefused, ShardLost
from pqbroker.storage.tablets.coordinator_rows import PartitionId

T = TypeVar("T")


def producers_of(context: Context, transactional_id: str, operation: AclOperation | None) -> TransactionalProducers:
    """Return the coordinator, for a caller who may use the id so; None: that was checked. KafkaError 15, 42, 53."""
    if operation is not None:
        check_access(context, operation, AclResource(AclKind.TRANSACTIONAL_ID, transactional_id))
    current = context.node.cell.current
    if current.cell.reading_only:
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, current.cell.reading_only)
    return current.transactional_producers


async def take_producer_id(context: Context) -> int:
    """Return a producer id that nobody has. KafkaError COORDINATOR_LOAD_IN_PROGRESS while the store gives none."""
    producer_id = context.node.producer_ids.take()
    if producer_id is not None:
        return producer_id
    try:
        return await context.node.producer_ids.take_from_next_block()
    except (CommitRefused, ShardLost) as error:
        raise store_refusal(error, PRODUCER_IDS) or error from error


FENCED_AS_EPOCH: Final = MappingProxyType({ErrorCode.PRODUCER_FENCED: ErrorCode.INVALID_PRODUCER_EPOCH})
"""Codes of the coordinator as clients know them that are older than PRODUCER_FENCED (KIP-588)."""
UNCHANGED: Final[Mapping[ErrorCode, ErrorCode]] = MappingProxyType({})


async def with_codes(codes: Mapping[ErrorCode, ErrorCode], asked: Awaitable[T]) -> T:
    """Await what the coordinator answers; a refusal has the code that clients expect of this API."""
    try:
        return await asked
    except KafkaError as refusal:
        raise KafkaError(codes.get(refusal.code, refusal.code), refusal.message) from None


class FoundPartition(NamedTuple):
    """A partition of a request; `refusal` NONE: it exists, and the caller may write to it."""

    name: str
    number: int
    partition: PartitionId | None
    refusal: ErrorCode


def find_partitions(
    context: Context, operation: AclOperation | None, name: str, indexes: list[int]
) -> Iterator[FoundPartition]:
    """Yield the partitions of a topic that a caller wants to write to. `operation` None: the cluster was asked."""
    try:
        topic = find_topic(context, operation, name)
    except KafkaError as refusal:
        for index in indexes:
            yield FoundPartition(name, index, None, refusal.code)
        return
    for index in indexes:
        try:
            find_partition(topic, index)
        except KafkaError as refusal:
            yield FoundPartition(name, index, None, refusal.code)
        else:
            yield FoundPartition(name, index, PartitionId(topic.record.topic_id, index), ErrorCode.NONE)
