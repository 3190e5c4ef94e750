"""Consumers of queues. A consumer is a consumer group of its name: its offsets are those that Kafka's clients see.

A registered consumer stands in a config of the queue's topic: vital ones in pq.important.groups, so that one rule
decides what is kept for them, others in pq.registered.groups.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from pqbroker.broker.ground.access import AclKind, AclOperation, AclResource, check_access
from pqbroker.broker.services.coordination.classic.states import GroupState
from pqbroker.broker.services.coordination.consumer_groups import describe_group, set_offsets
from pqbroker.broker.services.coordination.group_ids import check_group_id
from pqbroker.broker.services.queues.callers import QueuesCaller, QueuesNode
from pqbroker.broker.services.queues.finding import find_queue
from pqbroker.broker.services.queues.registrations import OTHERS, VITAL, registered
from pqbroker.broker.services.tables.finding import check_tablet
from pqbroker.broker.services.tables.readiness import check_open_tablet
from pqbroker.pq.log.consumers import ConsumerOffset
from pqbroker.pq.serving.topic import Topic
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.tables.refusals import TableError

NEVER_MS: Final = (1 << 63) - 1
"""The time at which offsets of a registered consumer expire."""
_SETTLING_TRIES: Final = 100
"""Waits of one advance for commits of its consumer that came before, at most."""


async def register(caller: QueuesCaller, queue: str, consumer: str, *, is_vital: bool) -> Topic:
    """Register a consumer with a queue, or change whether it is vital; durable when it returns. KafkaError 3, 29, 30,
    40; TableError INVALID_CONSUMER, TOO_MANY_CONSUMERS, SORTED_TABLE, STATIC_TABLE."""
    topic = find_queue(caller, AclOperation.ALTER_CONFIGS, queue)
    _check_group(caller, consumer)
    most = caller.node.settings.queue_consumers_max

    def change(texts: Mapping[str, str]) -> Mapping[str, str]:
        known = _stored(texts)
        if consumer not in known and len(known) >= most:
            text = f"the queue has {len(known)} consumers, and pqbroker.queue.consumers.max = {most}"
            raise TableError("TOO_MANY_CONSUMERS", text, "Unregister one that nobody uses, or raise the setting.")
        return _with_consumers(texts, {**known, consumer: is_vital})

    return await caller.node.cell.current.topics.reconfigure(topic.record.name, change)


async def unregister(caller: QueuesCaller, queue: str, consumer: str) -> Topic:
    """Take a consumer from a queue; its offsets stay. KafkaError as `register`; TableError NO_CONSUMER."""
    topic = find_queue(caller, AclOperation.ALTER_CONFIGS, queue)
    _check_group(caller, consumer)

    def change(texts: Mapping[str, str]) -> Mapping[str, str]:
        known = _stored(texts)
        if consumer not in known:
            raise not_registered(topic, consumer)
        return _with_consumers(texts, {name: vital for name, vital in known.items() if name != consumer})

    return await caller.node.cell.current.topics.reconfigure(topic.record.name, change)


def find_registered(caller: QueuesCaller, topic: Topic, consumer: str) -> None:
    """KafkaError GROUP_AUTHORIZATION_FAILED; TableError NO_CONSUMER for one that is not registered."""
    check_access(caller, AclOperation.READ, AclResource(AclKind.GROUP, consumer))
    if consumer not in registered(topic.config):
        raise not_registered(topic, consumer)


def not_registered(topic: Topic, consumer: str) -> TableError:
    """Return the refusal of a consumer that is not registered with a queue."""
    cure = f"Register it: `pqbroker queue register {topic.record.name} CONSUMER`, or POST /v1/queues/NAME/consumers."
    text = f"{consumer[:200]!r} is not registered as a consumer of {topic.record.name}"
    return TableError("NO_CONSUMER", text, cure)


@dataclass(frozen=True, slots=True)
class Advance:
    """The place that a consumer has read up to in one tablet. `old_offset` None: wherever it stood."""

    consumer: str
    tablet_index: int
    old_offset: int | None
    new_offset: int


class Advanced(NamedTuple):
    """The first unread row before and after; None: the consumer had no offset."""

    before: int | None
    after: int


async def advance(caller: QueuesCaller, queue: str, wanted: Advance) -> Advanced:
    """Commit how far a consumer has read, if it stands where it is said to; durable when it returns.

    TableError CONSUMER_OFFSET_CONFLICT, NO_TABLET, TABLET_NOT_OPEN; KafkaError NON_EMPTY_GROUP while members hold the
    group, and those of a commit of offsets.
    """
    topic = find_queue(caller, AclOperation.READ, queue)
    check_access(caller, AclOperation.READ, AclResource(AclKind.GROUP, wanted.consumer))
    check_group_id(wanted.consumer)
    node = caller.node
    partition = (topic.record.name, check_tablet(topic, wanted.tablet_index))
    if node.leaders.only_node(topic, (partition[1],)) is None:
        check_open_tablet(topic, topic.partitions[partition[1]])
    before = await _settled(node, wanted.consumer, partition)
    counted = node.metrics.tables
    try:
        _check_unchanged(wanted, before)
    except TableError:
        counted.offset_conflicts += 1
        raise
    state = ConsumerOffset(
        wanted.new_offset, commit_ms=node.clock(), creator=caller.holder,
        expire_ms=NEVER_MS if wanted.consumer in registered(topic.config) else -1,
    )  # fmt: skip
    # Enqueued in the turn in which the offset was looked at: nobody commits between.
    outcomes = await set_offsets(node, wanted.consumer, {partition: state})
    refusal = outcomes[partition]
    if refusal is not None:
        raise KafkaError(refusal.code, f"tablet {partition[1]} of {partition[0]}: {refusal.message}")
    counted.advances += 1
    return Advanced(before, wanted.new_offset)


async def _settled(node: QueuesNode, consumer: str, partition: tuple[str, int]) -> int | None:
    """Return the consumer's offset once no commit of it is under way. KafkaError."""
    for _ in range(_SETTLING_TRIES):
        check_no_members(node, consumer)
        offsets = node.cell.current.topics.offsets
        if not offsets.is_committing(consumer):
            stored = offsets.at(consumer, partition)
            return None if stored is None else stored.offset
        await offsets.settled(consumer)
    raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"others commit offsets of {consumer} all the time: retry")


def check_no_members(node: QueuesNode, consumer: str) -> None:
    """KafkaError NON_EMPTY_GROUP while members hold a consumer's group."""
    described = describe_group(node, consumer)
    if described is not None and described.state is not GroupState.EMPTY:
        text = f"group {consumer} has members, which commit for themselves: stop them, or let them commit"
        raise KafkaError(ErrorCode.NON_EMPTY_GROUP, text)


def _check_unchanged(wanted: Advance, stored: int | None) -> None:
    """TableError CONSUMER_OFFSET_CONFLICT. A consumer that has no offset stands at row 0."""
    if wanted.old_offset is not None and wanted.old_offset != (stored or 0):
        text = (
            f"consumer {wanted.consumer} stands at row {stored or 0} of tablet {wanted.tablet_index}, and old_offset "
            f"is {wanted.old_offset}"
        )
        cure = "Another reader was faster: read from where the consumer stands, or leave old_offset out."
        raise TableError("CONSUMER_OFFSET_CONFLICT", text, cure)


def _check_group(caller: QueuesCaller, consumer: str) -> None:
    """KafkaError GROUP_AUTHORIZATION_FAILED; TableError INVALID_CONSUMER for a name that a list of groups cannot
    hold."""
    check_access(caller, AclOperation.READ, AclResource(AclKind.GROUP, consumer))
    size_max = caller.node.settings.group_id_bytes_max
    size = len(consumer.encode(errors="surrogatepass"))
    if not 1 <= size <= size_max or not consumer.isprintable() or "," in consumer or consumer != consumer.strip():
        text = f"the consumer is named {consumer[:100]!r}"
        cure = f"Give 1 to {size_max} bytes of printable text without a comma: the id of a consumer group."
        raise TableError("INVALID_CONSUMER", text, cure)


def _stored(texts: Mapping[str, str]) -> dict[str, bool]:
    """Return what the configs of a topic list as consumers."""
    others, vital = (map(str.strip, texts.get(each, "").split(",")) for each in (OTHERS, VITAL))
    known = dict.fromkeys(others, False) | dict.fromkeys(vital, True)
    known.pop("", None)
    return known


def _with_consumers(texts: Mapping[str, str], consumers: Mapping[str, bool]) -> Mapping[str, str]:
    """Return the configs of a topic with these consumers."""
    rest = {name: text for name, text in texts.items() if name not in (VITAL, OTHERS)}
    lists = {
        VITAL: ",".join(name for name, is_vital in consumers.items() if is_vital),
        OTHERS: ",".join(name for name, is_vital in consumers.items() if not is_vital),
    }
    return {**rest, **{name: text for name, text in lists.items() if text}}
