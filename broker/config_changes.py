"""Changing what topics and brokers are set to, one resource of a request at a time (AlterConfigs and its successor)."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum
from typing import TYPE_CHECKING, Any, NamedTuple

from pqbroker.broker.partitions import unknown_topic
from pqbroker.broker.topic_names import check_topic_name
from pqbroker.conf.broker import BrokerSettings
from pqbroker.conf.declare import ConfigError, Kind, declarations
from pqbroker.conf.defaults import topic_config, topic_defaults
from pqbroker.conf.topic import FIXED_AT_CREATION, TopicConfig
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.storage.scheme import TopicUnknown

if TYPE_CHECKING:
    from pqbroker.broker.context import Node


class Resource(IntEnum):
    """Kafka's ConfigResource types."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class Operation(IntEnum):
    """Kafka's AlterConfigOp types."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class Change(NamedTuple):
    """One setting of a resource and what is to become of it; `value` is None where the request has none."""

    name: str
    operation: int
    value: str | None


Texts = Mapping[str, str]


async def alter(
    node: "Node", resource: tuple[int, str], changes: Iterable[Change], *, replaces: bool, validate_only: bool
) -> None:
    """Make the changes of one resource, all or none; durable when it returns. KafkaError 3, 17, 40, 42.

    `replaces`: what the changes do not name goes back to its default.
    """
    wanted = list(changes)
    kind, name = resource
    _check(wanted)
    if kind == Resource.TOPIC:
        await _alter_topic(node, name, wanted, replaces=replaces, validate_only=validate_only)
    elif kind == Resource.BROKER:
        _refuse_broker(node, name, wanted)
    else:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"resource type {kind} has no configs that can be altered here")


def check_once(resources: Iterable[tuple[int, str]]) -> frozenset[tuple[int, str]]:
    """Type and name of the resources that a request names more than once; Kafka refuses each of them."""
    return frozenset(resource for resource, count in Counter(resources).items() if count > 1)


def named_twice(resource: tuple[int, str]) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, f"{resource[1]!r} is named more than once; name each resource once")


def _check(changes: list[Change]) -> None:
    """What is wrong with a request whatever it is about."""
    twice = sorted(name for name, count in Counter(change.name for change in changes).items() if count > 1)
    if twice:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{', '.join(twice)} named more than once; name each config once")
    for change in changes:
        if not change.name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "a config has no name")
        if change.operation not in tuple(Operation):
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"operation {change.operation} on {change.name} is unknown")
        if change.value is None and change.operation != Operation.DELETE:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{change.name} has no value; give one, or delete the config")


async def _alter_topic(node: "Node", name: str, changes: list[Change], *, replaces: bool, validate_only: bool) -> None:
    check_topic_name(name)
    group = node.groups.get(name)
    if group is None:
        raise unknown_topic()
    defaults = topic_defaults(node.settings)
    change = _changing(changes, defaults, replaces=replaces)
    try:
        if validate_only:
            topic_config(change(group.topic.config), node.settings)
        else:
            await node.groups.reconfigure(name, change)
    except ConfigError as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from None
    except TopicUnknown:
        raise unknown_topic() from None


def _changing(changes: list[Change], defaults: Texts, *, replaces: bool) -> Callable[[Texts], Texts]:
    """A function from what a topic is set to now to what it is to be set to; it raises ConfigError."""

    def change_all(stored: Texts) -> Texts:
        fixed = {name: text for name, text in stored.items() if name in FIXED_AT_CREATION}
        texts = dict(fixed if replaces else stored)
        for change in changes:
            _apply(texts, change, defaults)
        for name in FIXED_AT_CREATION:
            if _value(name, texts, defaults) != _value(name, stored, defaults):
                raise ConfigError(f"{name} is fixed when a topic is created; create another topic with it")
        return texts

    return change_all


def _value(name: str, texts: Texts, defaults: Texts) -> Any:
    """What a topic config is in force, given what the topic and the node are set to."""
    declaration = declarations(TopicConfig)[name]
    text = texts.get(name, defaults.get(name))
    return declaration.default if text is None else declaration.parse(text)


def _apply(texts: dict[str, str], change: Change, defaults: Texts) -> None:
    name, operation, value = change
    declaration = declarations(TopicConfig).get(name)
    if declaration is None:
        raise ConfigError(f"{name} is no config of a topic; kafka-configs --describe --all lists them")
    if operation == Operation.DELETE:
        texts.pop(name, None)
        return
    assert value is not None
    if operation == Operation.SET:
        texts[name] = value
        return
    if declaration.kind is not Kind.LIST:
        raise ConfigError(f"{name} is a {declaration.kind.name.lower()}, not a list; set it instead")
    present = _value(name, texts, defaults)
    given = tuple(item.strip() for item in value.split(",") if item.strip())
    if operation == Operation.APPEND:
        kept = (*present, *(item for item in given if item not in present))
    else:
        kept = tuple(item for item in present if item not in given)
    texts[name] = declaration.format(kept)


def _refuse_broker(node: "Node", name: str, changes: list[Change]) -> None:
    """A broker's settings are read once, at its start: saying that one was changed would be a lie."""
    node_id = str(node.settings.node_id)
    if name not in ("", node_id):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"this is broker {node_id}, not {name!r}")
    known = declarations(BrokerSettings)
    unknown = sorted(change.name for change in changes if change.name not in known)
    if unknown:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"{', '.join(unknown)} is no setting of a broker")
    if changes:
        names = ", ".join(sorted(change.name for change in changes))
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"Cannot update these configs dynamically: {names}. A broker is set at its start: by a flag (--set "
            "NAME=VALUE), the environment or its file",
        )
