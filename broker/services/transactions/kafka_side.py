"""The Kafka side of a transaction over tables: a producer whose records it commits, and offsets of consumer groups."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pqbroker.broker.ground.access import AclKind, AclOperation, AclResource, check_access
from pqbroker.broker.services.commits.open_transactions import OpenTransaction, TakenAlong
from pqbroker.broker.services.topics.finding import find_topic
from pqbroker.broker.services.transactional_producers.ending import as_committed
from pqbroker.broker.services.transactional_producers.joined_commit import JoinedCommit, JoinedProducer
from pqbroker.broker.services.transactional_producers.listing import partitions_by_topic
from pqbroker.broker.services.transactional_producers.producers import not_found
from pqbroker.broker.services.transactional_producers.rules import Claim, JoinedEnd, claim_after
from pqbroker.broker.services.transactions.callers import TransactionsCaller
from pqbroker.pq.serving.offsets import TopicPartition
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.storage.tablets.coordinator_rows import PartitionId, PendingOffset
from pqbroker.tables.refusals import TableError


class GivenOffset(NamedTuple):
    """An offset that a group commits with a transaction: the first one that it has not read. `place`: its name in
    refusals."""

    group_id: str
    topic: str
    partition: int
    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    place: str = "the offset"


def take_along(caller: TransactionsCaller, transactional_id: str) -> TakenAlong:
    """Return the producer of a transactional id as it is now. KafkaError 15, 16, 53, TRANSACTIONAL_ID_NOT_FOUND."""
    check_access(caller, AclOperation.WRITE, AclResource(AclKind.TRANSACTIONAL_ID, transactional_id))
    image = caller.node.cell.current.transactional_producers.find(transactional_id)
    if image is None:
        raise not_found(transactional_id)
    return TakenAlong(transactional_id, *claim_after(image))


def topics_of(caller: TransactionsCaller, producer: TakenAlong) -> set[str]:
    """Return the topics that a producer's transaction has written to. KafkaError 15, 16."""
    opened = caller.node.cell.current
    image = opened.transactional_producers.find(producer.transactional_id)
    return set() if image is None else set(partitions_by_topic(opened.topics, image))


def joined_commit(
    caller: TransactionsCaller, one: OpenTransaction, given: Sequence[GivenOffset], holder: str
) -> JoinedCommit | None:
    """Return the Kafka side of a commit; None: it has none. KafkaError; TableError INVALID_OFFSET."""
    if not given and one.producer is None:
        return None
    producer = None
    if one.producer is not None:
        name, producer_id, epoch = one.producer
        check_access(caller, AclOperation.WRITE, AclResource(AclKind.TRANSACTIONAL_ID, name))
        producer = JoinedProducer(name, Claim(producer_id, epoch))
    by_group: dict[str, dict[TopicPartition, PendingOffset]] = {}
    for each in given:
        offsets = by_group.setdefault(each.group_id, {})
        place = (each.topic, each.partition)
        if each.offset < 0 or place in offsets:
            is_double = place in offsets
            what = f"is given twice for group {each.group_id!r}" if is_double else f"has the offset {each.offset}"
            raise TableError("INVALID_OFFSET", f"{each.place} {what}", "Give one offset a partition, 0 or more.")
        topic = find_topic(caller, AclOperation.READ, each.topic)
        offsets[place] = PendingOffset(
            each.group_id, PartitionId(topic.record.topic_id, each.partition), each.offset, each.leader_epoch,
            each.metadata, caller.node.clock(), holder,
        )  # fmt: skip
    pending = [one for group_id, some in by_group.items() for one in _checked(caller, group_id, some)]
    joined = JoinedEnd(tuple(pending), one.started_ms, holder)
    return JoinedCommit(one.number, one.digest, producer, joined)


def _checked(
    caller: TransactionsCaller, group_id: str, some: Mapping[TopicPartition, PendingOffset]
) -> Sequence[PendingOffset]:
    """Return offsets of a group that their partitions would take now, later than those that are stored. KafkaError."""
    check_access(caller, AclOperation.READ, AclResource(AclKind.GROUP, group_id))
    opened = caller.node.cell.current
    if not group_id:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID, "a group id is not empty")
    opened.coordinators.check_transactional_commit(group_id, "", None, -1)
    changes = opened.topics.offsets.begin(group_id)
    for place, pending in some.items():
        changes.add(place, as_committed(pending))
    changes.give_up()
    for refusal in changes.outcomes.values():
        if refusal is not None:
            raise refusal
    found = []
    for place, pending in some.items():
        stored = opened.topics.offsets.at(group_id, place)
        later_ms = pending.commit_ms if stored is None else max(pending.commit_ms, stored.commit_ms + 1)
        found.append(pending._replace(commit_ms=later_ms))
    return found
