"""Creating, growing and deleting topics on behalf of a request: the scheme's refusals become Kafka's."""

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

from pqbroker.broker.partitions import needs_keys, unknown_topic
from pqbroker.broker.topic_names import CLUSTER_METADATA, check_topic_name, colliding_name
from pqbroker.conf.declare import ConfigError
from pqbroker.conf.defaults import check_changed
from pqbroker.conf.topic import NO_COMPACTION
from pqbroker.pq.partition_limit import TooManyPartitions
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.storage.lasting import Lasting
from pqbroker.storage.scheme import PartitionsNotGrown, PartitionsRefused, TopicExists, TopicUnknown

if TYPE_CHECKING:
    from pqbroker.broker.context import Node
    from pqbroker.pq.group import Group

log = logging.getLogger(__name__)

USE_DEFAULT = -1


def check_new_topic(node: "Node", name: str, partitions: int, config: Mapping[str, str]) -> int:
    """The partition count a new topic would get; KafkaError 17, 36, 37 or 40 when it cannot be."""
    check_new_name(node, name)
    count = node.settings.num_partitions if partitions == USE_DEFAULT else partitions
    check_partition_count(node, count, present=0)
    try:
        check_changed(config, {}, node.settings)
    except ConfigError as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from None
    return count


def check_new_name(node: "Node", name: str) -> None:
    """KafkaError INVALID_TOPIC_EXCEPTION, TOPIC_ALREADY_EXISTS, INVALID_REQUEST."""
    check_topic_name(name)
    if name == CLUSTER_METADATA:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{name} is Kafka's own topic; choose another name")
    if node.groups.get(name) is not None:
        raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {name} exists")
    other = colliding_name(name, node.groups.names())
    if other is not None:
        raise KafkaError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"topic {name} collides with topic {other}: names that differ in '.' and '_' alone are one name in metrics",
        )


def check_partition_count(node: "Node", count: int, *, present: int) -> None:
    """Whether a topic of `present` partitions may have `count`: KafkaError INVALID_PARTITIONS, POLICY_VIOLATION."""
    most = node.settings.topic_partitions_max
    if not 1 <= count <= most:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"a topic has 1 to {most} partitions, not {count}")
    try:
        node.groups.check_room(count - present)
    except TooManyPartitions as error:
        raise _refused(error) from None


async def create_topic(node: "Node", name: str, partitions: int, config: Mapping[str, str]) -> "Group":
    """Create a checked topic; KafkaError TOPIC_ALREADY_EXISTS when somebody was faster."""
    try:
        group = await node.groups.create(name, partitions, config)
    except TopicExists:
        raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {name} exists") from None
    except PartitionsRefused as error:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, str(error)) from None
    except TooManyPartitions as error:
        raise _refused(error) from None
    if needs_keys(group):
        tell_no_compaction(name)
    return group


def tell_no_compaction(name: str) -> None:
    """A topic has become one that Kafka would compact."""
    log.warning("topic %s: cleanup.policy: %s", name, NO_COMPACTION)


async def find_or_create_topic(node: "Node", name: str) -> "Group":
    """What Metadata names is created once, however many connections ask at the same time."""
    group = node.groups.get(name)
    if group is not None:
        return group
    if name == CLUSTER_METADATA:
        raise unknown_topic()
    creation = node.creations.get(name)
    if creation is None:
        count = check_new_topic(node, name, USE_DEFAULT, {})
        creation = node.creations[name] = node.loop.create_task(create_topic(node, name, count, {}))
        creation.add_done_callback(lambda _: node.creations.pop(name))
    return await Lasting(creation)


async def grow_topic(node: "Node", name: str, count: int) -> None:
    try:
        await node.groups.grow(name, count)
    except TopicUnknown:
        raise unknown_topic() from None
    except (PartitionsNotGrown, PartitionsRefused) as error:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, str(error)) from None
    except TooManyPartitions as error:
        raise _refused(error) from None


async def delete_topic(node: "Node", name: str) -> None:
    if not node.settings.delete_topic_enable:
        raise KafkaError(ErrorCode.TOPIC_DELETION_DISABLED, "delete.topic.enable is false: no topic is deleted")
    try:
        await node.groups.delete(name)
    except TopicUnknown:
        raise unknown_topic() from None


def _refused(error: TooManyPartitions) -> KafkaError:
    """Kafka's code for what an administrator's limits forbid; every client takes it as final."""
    return KafkaError(ErrorCode.POLICY_VIOLATION, str(error))
