"""Creating and deleting topics on behalf of a request: names, counts and configs are checked as Kafka checks them."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from pqbroker.broker.ground.other_nodes import NodeSilent
from pqbroker.broker.ground.refusals import REFUSED
from pqbroker.broker.services.commits.elsewhere import (
    WantedParts,
    await_elsewhere,
    parts_elsewhere,
    under_way_elsewhere,
)
from pqbroker.broker.services.commits.in_doubt import IN_DOUBT_CURE
from pqbroker.broker.services.leaders import cells_of
from pqbroker.broker.services.topics.callers import NamedTopics, TopicsNode
from pqbroker.broker.services.topics.directories import bundle_of
from pqbroker.broker.services.topics.partitions import unknown_topic
from pqbroker.broker.services.topics.topic_names import CLUSTER_METADATA, check_topic_name
from pqbroker.broker.services.topics.topic_schemas import check_schema
from pqbroker.conf.defaults import check_changed
from pqbroker.pq.serving.topic import unified
from pqbroker.pq.serving.topics import NewTopic
from pqbroker.pq.serving.transacted_batches import await_transactions, under_way
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.storage.ids import CellId
from pqbroker.storage.tablets.scheme_objects import SORTED_TABLE
from pqbroker.storage.uninterrupted import Uninterrupted

if TYPE_CHECKING:
    from pqbroker.pq.serving.topic import Topic
    from pqbroker.storage.tablets.scheme_state import TableRecord

log = logging.getLogger(__name__)
T = TypeVar("T")

USE_DEFAULT = -1
WEIGHT_AT_ONCE_MAX: Final = 200
"""Topics that are created or deleted by one change of the scheme, which takes a few ms on the loop; one of many
partitions or of long configs counts as several."""
PARTITIONS_PER_WEIGHT, CHARS_PER_WEIGHT = 50, 2000


def check_new_topic(node: TopicsNode, name: str, partitions: int, config: Mapping[str, str]) -> int:
    """The partition count a new topic would get; KafkaError 17, 36 or 37, TooManyPartitions, ConfigError."""
    check_new_name(node, name)
    count = node.settings.num_partitions if partitions == USE_DEFAULT else partitions
    check_partition_count(node, count, present=0)
    check_changed(config, {}, node.settings)
    check_schema(config, node.settings.table_columns_max)
    return count


def check_new_name(node: TopicsNode, name: str) -> None:
    """KafkaError INVALID_TOPIC_EXCEPTION, TOPIC_ALREADY_EXISTS, INVALID_REQUEST."""
    check_topic_name(name)
    if name == CLUSTER_METADATA:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{name} is Kafka's own topic; choose another name")
    known = node.cell.current.topics.get(name, or_static=True)
    if known is not None:
        kind = "static table" if known.record.is_static else "topic"
        raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"{kind} {name} exists")
    if node.cell.current.scheme.kind_of(name) == SORTED_TABLE:
        raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"a sorted table {name} exists, which is no topic")
    other = node.cell.current.topics.colliding(name)
    if other is not None:
        raise collision(name, other)


def collision(name: str, other: str) -> KafkaError:
    """Return the refusal of a name that metrics of Kafka's do not tell from another one."""
    return KafkaError(
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        f"topic {name} collides with topic {other}: names that differ in '.' and '_' alone are one name in metrics",
    )


def check_partition_count(node: TopicsNode, count: int, *, present: int) -> None:
    """Check that a topic of `present` partitions may have `count`: KafkaError INVALID_PARTITIONS, TooManyPartitions."""
    most = node.settings.topic_partitions_max
    if not 1 <= count <= most:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"a topic has 1 to {most} partitions, not {count}")
    node.cell.current.topics.check_room(count - present)


async def create_topic(
    node: TopicsNode, name: str, partitions: int, config: Mapping[str, str], table: "TableRecord | None" = None,
    cells: Sequence[CellId] | None = None,
) -> "Topic":
    """Create a checked topic, or table; TopicExists when another request was faster. Without a bundle of its own it has
    that of the directory that its name begins with. `cells`: that of each tablet; None: they are placed."""
    if cells is None:
        config = _inheriting(node, name, config)
    return await node.cell.current.topics.create(name, partitions, config, table, cells)


async def create_topics(node: TopicsNode, wanted: Sequence[NewTopic]) -> "list[Topic | Exception]":
    """Create checked topics of different names, as many as a change of the scheme takes by one change; return by topic
    what is served, or the exception of `REFUSED` for which nothing is."""
    found: list[Topic | Exception] = []
    for some in _portions(wanted, _weight_of):
        topics = [each._replace(config=_inheriting(node, each.name, each.config)) for each in some]
        try:
            found += await node.cell.current.topics.create_each(topics)
        except REFUSED as refusal:
            found += [refusal] * len(topics)
    return found


def _portions(wanted: Iterable[T], weight_of: Callable[[T], int]) -> Iterator[list[T]]:
    """Yield what is changed together: each step of a change of the scheme takes one turn of the loop."""
    some: list[T] = []
    weight = 0
    for each in wanted:
        own = weight_of(each)
        if some and weight + own > WEIGHT_AT_ONCE_MAX:
            yield some
            some, weight = [], 0
        some.append(each)
        weight += own
    if some:
        yield some


def _weight_of(topic: NewTopic) -> int:
    config_chars = sum(map(len, topic.config.values()))
    return 1 + topic.partitions // PARTITIONS_PER_WEIGHT + config_chars // CHARS_PER_WEIGHT


def _weight_of_known(node: TopicsNode, name: str) -> int:
    record = node.cell.current.scheme.topics.get(name)
    return 1 if record is None else 1 + record.partitions // PARTITIONS_PER_WEIGHT


def _inheriting(node: TopicsNode, name: str, config: Mapping[str, str]) -> Mapping[str, str]:
    """Return the config with the bundle of the directory that the name begins with, unless it has one of its own."""
    inherited = bundle_of(node.cell.current.scheme, name)
    return config if inherited is None or "pq.bundle" in config else {**config, "pq.bundle": inherited}


async def create_named(node: TopicsNode, names: Sequence[str]) -> Mapping[str, Exception]:
    """Create topics that Metadata names, as many as a change of the scheme takes by one change; return by name why one
    was not created. Each is created once, however many connections ask at the same time."""
    refused: dict[str, Exception] = {}
    weight = 1 + node.settings.num_partitions // PARTITIONS_PER_WEIGHT
    for some in _portions(names, lambda _: weight):
        await node.turns.breathe()
        for name, creation in _begin_creations(node, some, refused).items():
            made = (await Uninterrupted(creation))[name]
            if isinstance(made, Exception):
                refused[name] = made
    return refused


def _begin_creations(
    node: TopicsNode, names: Sequence[str], refused: dict[str, Exception]
) -> Mapping[str, asyncio.Task[NamedTopics]]:
    """Begin to create those of the topics that do not exist; return the creations to wait for by name. Those that may
    not be created are added to `refused`."""
    wanted: dict[str, NewTopic] = {}
    seen: dict[str, str] = {}
    for name in names:
        try:
            if name in node.creations or (topic := _wanted(node, name)) is None:
                continue
            if (other := seen.setdefault(unified(name), name)) != name:
                raise collision(name, other)
            wanted[name] = topic
        except REFUSED as refusal:
            refused[name] = refusal
    if wanted:
        task = node.loop.create_task(_create_wanted(node, wanted))
        node.creations.update(dict.fromkeys(wanted, task))
        task.add_done_callback(lambda _: [node.creations.pop(name) for name in wanted])
    return {name: node.creations[name] for name in names if name in node.creations}


async def _create_wanted(node: TopicsNode, wanted: Mapping[str, NewTopic]) -> NamedTopics:
    return dict(zip(wanted, await create_topics(node, list(wanted.values())), strict=True))


def _wanted(node: TopicsNode, name: str) -> NewTopic | None:
    """Return the topic that a name in Metadata creates; None: it exists. An exception of `REFUSED`."""
    topic = node.cell.current.topics.get(name, or_static=True)
    if topic is not None and not topic.record.is_static:
        return None
    if name == CLUSTER_METADATA or topic is not None or node.cell.current.scheme.kind_of(name) == SORTED_TABLE:
        raise unknown_topic()
    return NewTopic(name, check_new_topic(node, name, USE_DEFAULT, {}), {})


async def delete_topic(node: TopicsNode, name: str) -> None:
    """Delete a topic. KafkaError TOPIC_DELETION_DISABLED, REQUEST_TIMED_OUT while a transaction is under way in it."""
    for refusal in (await delete_topics(node, [name])).values():
        raise refusal


async def delete_topics(node: TopicsNode, names: Sequence[str]) -> Mapping[str, Exception]:
    """Delete topics of different names, as many as a change of the scheme takes by one change; return by name the
    exception of `REFUSED` for which one was not deleted. KafkaError TOPIC_DELETION_DISABLED."""
    if not node.settings.delete_topic_enable:
        raise KafkaError(ErrorCode.TOPIC_DELETION_DISABLED, "delete.topic.enable is false: no topic is deleted")
    refused: dict[str, Exception] = {}
    awaited: list[str] = []
    for some in _portions(names, partial(_weight_of_known, node)):
        await node.turns.breathe()
        elsewhere = await _needed_elsewhere(node, some)
        needed = [name for name in some if name in elsewhere or _is_needed(node, name)]
        awaited += needed
        refused |= await _delete(node, [name for name in some if name not in needed])
    for name in awaited:
        try:
            await _await_transactions(node, name)
        except KafkaError as refusal:
            refused[name] = refusal
        else:
            refused |= await _delete(node, [name])
    return refused


async def _delete(node: TopicsNode, names: Sequence[str]) -> Mapping[str, Exception]:
    try:
        return await node.cell.current.topics.delete_each(names)
    except REFUSED as refusal:
        return dict.fromkeys(names, refusal)


def _is_needed(node: TopicsNode, name: str) -> bool:
    """Return True if a transaction may need the topic, so that its deletion waits."""
    topic = node.cell.current.topics.get(name, or_static=True)
    return topic is not None and (
        any(map(under_way, topic.partitions)) or bool(node.cell.current.commits.why_needed(topic.record.tablets))
        or (node.others() is not None and bool(node.cell.current.commits.not_open(topic.record.tablets)))
    )


def _topics_at(node: TopicsNode, names: Sequence[str]) -> "Mapping[int, list[Topic]]":
    """Return those of the topics that have partitions at other nodes, by the number of the node."""
    found: dict[int, list[Topic]] = {}
    for name in names if node.others() is not None else ():
        topic = node.cell.current.topics.get(name, or_static=True)
        cells = set() if topic is None else cells_of(topic)
        for number in {node.leaders.other_node(cell) for cell in cells} - {None}:
            assert topic is not None
            assert number is not None
            found.setdefault(number, []).append(topic)
    return found


async def _needed_elsewhere(node: TopicsNode, names: Sequence[str]) -> set[str]:
    """Return the topics that a transaction at another node may need, so that their deletion waits; also those of a node
    that does not say."""
    others, found = node.others(), set[str]()
    for number, topics in _topics_at(node, names).items():
        assert others is not None
        try:
            needed = await under_way_elsewhere(others, number, [topic.record.topic_id for topic in topics])
        except NodeSilent:
            needed = {topic.record.topic_id for topic in topics}
        found |= {topic.record.name for topic in topics if topic.record.topic_id in needed}
    return found


async def _why_needed(node: TopicsNode, name: str) -> str:
    """Wait until no transaction at another node needs a topic; return what does after some seconds, for people; empty:
    nothing. NodeSilent."""
    others, commits = node.others(), node.cell.current.commits
    topic = node.cell.current.topics.get(name, or_static=True)
    if topic is None or others is None:
        return ""
    for number in _topics_at(node, [name]):
        if told := await await_elsewhere(others, number, topic.record.topic_id):
            return f"node {number}, {told}"
    closed = commits.not_open(topic.record.tablets)
    found = await parts_elsewhere(others, node.leaders.others, WantedParts(1, homes=closed)) if closed else ()
    return commits.why_waiting(found[0]) if found else ""


async def _await_transactions(node: TopicsNode, name: str) -> None:
    """Wait until no transaction needs a topic. KafkaError REQUEST_TIMED_OUT. Nothing keeps the topic beyond this call:
    its partitions are freed in slices."""
    topic = node.cell.current.topics.get(name, or_static=True)
    if topic is None:
        return
    if (told := await await_transactions(topic.partitions)) is not None:
        text = f"topic {name} is not deleted while a transaction needs it; {told}. Retry when that is over"
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, text)
    if needed := node.cell.current.commits.why_needed(topic.record.tablets):
        text = f"topic {name} is not deleted while a transaction needs it: {needed}. {IN_DOUBT_CURE}"
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, text)
    try:
        told = await _why_needed(node, name)
    except NodeSilent as silent:
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"topic {name} is not deleted now: {silent}. Try again") from None
    if told:
        text = f"topic {name} is not deleted while a transaction needs it: {told}. {IN_DOUBT_CURE}"
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, text)
