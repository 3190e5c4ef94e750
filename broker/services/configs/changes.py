"""Changing what topics, brokers, loggers, groups and client metrics subscriptions are set to, one resource of a request
at a time (AlterConfigs and its successor)."""

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from functools import partial
from typing import Any, Final

from pqbroker.broker.ground.access import CLUSTER, AclKind, AclOperation, AclResource, check_access
from pqbroker.broker.services.configs.callers import ConfigsCaller
from pqbroker.broker.services.configs.location_configs import check_locations
from pqbroker.broker.services.configs.logger_levels import alter_loggers, check_logger_node
from pqbroker.broker.services.configs.named_resources import GROUPS, SUBSCRIPTIONS, NamedKind, alter_named
from pqbroker.broker.services.configs.operations import (
    Change,
    Operation,
    Texts,
    apply_change,
    by_stored_names,
    taken_changes,
)
from pqbroker.broker.services.topics.finding import find_topic
from pqbroker.broker.services.topics.topic_names import check_topic_name
from pqbroker.broker.services.topics.topic_schemas import (
    FORMATS,
    RETENTION,
    SCHEMA,
    check_new_schema,
    fixed_configs,
    follow_retention,
)
from pqbroker.conf.declare import ConfigError, declared
from pqbroker.conf.defaults import check_changed, topic_defaults, wrong_texts
from pqbroker.conf.topic import TopicConfig
from pqbroker.protocol.errors import ErrorCode, KafkaError


class Resource(IntEnum):
    """Kafka's ConfigResource types."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


NAMED_KINDS = {Resource.GROUP: GROUPS, Resource.CLIENT_METRICS: SUBSCRIPTIONS}
"""The kinds of resources that exist by being set."""


def access_resource(kind: int, name: str) -> AclResource:
    """Return the resource of access rules that configs of a kind belong to: a group, or the cluster."""
    return AclResource(AclKind.GROUP, name) if kind == Resource.GROUP else CLUSTER


def unknown_kind(kind: int) -> KafkaError:
    """The refusal of a resource type that Kafka does not have."""
    known = ", ".join(f"{resource.name} ({resource.value})" for resource in Resource)
    return KafkaError(ErrorCode.INVALID_REQUEST, f"resource type {kind} is unknown; the types are {known}")


@dataclass(frozen=True, slots=True)
class Alteration:
    """The changes that a caller asks for of one resource."""

    caller: ConfigsCaller
    name: str
    changes: list[Change]
    replaces: bool
    """True if configs that the changes do not name go back to their defaults."""
    validate_only: bool


async def alter(
    caller: ConfigsCaller, resource: tuple[int, str], changes: Iterable[Change], *, replaces: bool, validate_only: bool
) -> None:
    """Make the changes of one resource, all or none; durable when it returns. KafkaError 3, 17, 29, 31, 40, 42;
    ConfigError.

    `replaces`: what the changes do not name goes back to its default.
    """
    wanted = taken_changes(changes)
    kind, name = resource
    if kind not in _ALTERED:
        raise unknown_kind(kind)
    if kind != Resource.TOPIC:
        check_access(caller, AclOperation.ALTER_CONFIGS, access_resource(kind, name))
    await _ALTERED[kind](Alteration(caller, name, wanted, replaces, validate_only))


async def _alter_topic(asked: Alteration) -> None:
    name, node, replaces = asked.name, asked.caller.node, asked.replaces
    changes = by_stored_names(TopicConfig, asked.changes)
    if not name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a topic has to be named: there are no configs of all topics")
    check_topic_name(name)
    topic = find_topic(asked.caller, AclOperation.ALTER_CONFIGS, name)
    change = _changing(changes, topic_defaults(node.settings), fixed_configs(topic), replaces=replaces)
    stored = topic.record.config
    if replaces or not {SCHEMA, *FORMATS}.isdisjoint(one.name for one in changes):
        check_new_schema(topic, change(stored), node.settings)
    if asked.validate_only:
        check_changed(change(stored), stored, node.settings)
        return
    is_given = not replaces and any(one.name == RETENTION for one in changes)
    follow = partial(follow_retention, node.settings, is_given=is_given)
    await node.cell.current.topics.reconfigure(name, change, follow)


async def _alter_broker(asked: Alteration) -> None:
    changes = check_locations(asked.caller.node, asked.changes)
    node = asked.caller.node
    await node.cell.current.settings.alter(
        asked.name, changes, node.check_settings, replaces=asked.replaces, validate_only=asked.validate_only
    )
    await node.take_settings()


async def _alter_loggers(asked: Alteration) -> None:
    if asked.replaces:
        text = "AlterConfigs does not set levels of loggers; use IncrementalAlterConfigs (kafka-configs --alter)"
        raise KafkaError(ErrorCode.INVALID_REQUEST, text)
    check_logger_node(asked.name, str(asked.caller.node.settings.node_id))
    alter_loggers(asked.changes, validate_only=asked.validate_only)


async def _alter_named(kind: NamedKind, asked: Alteration) -> None:
    current, changes = asked.caller.node.cell.current, asked.changes
    if asked.replaces:
        given = {change.name for change in changes}
        stored = current.scheme.named_settings(kind.name).get(asked.name, {})
        changes = [*changes, *(Change(each, Operation.DELETE, None) for each in stored if each not in given)]
    in_force = current.settings.in_force
    await alter_named(kind, current.scheme, asked.name, changes, in_force, validate_only=asked.validate_only)


_ALTERED: Final[Mapping[int, Callable[[Alteration], Awaitable[None]]]] = {
    Resource.TOPIC: _alter_topic,
    Resource.BROKER: _alter_broker,
    Resource.BROKER_LOGGER: _alter_loggers,
    **{resource: partial(_alter_named, kind) for resource, kind in NAMED_KINDS.items()},
}


def _changing(
    changes: list[Change], defaults: Texts, fixed: Collection[str], *, replaces: bool
) -> Callable[[Texts], Texts]:
    """A function from what a topic is set to now to what it is to be set to; it raises ConfigError."""

    def change_all(stored: Texts) -> Texts:
        texts = {name: text for name, text in stored.items() if not replaces or name in fixed}
        for change in changes:
            _apply(texts, change, defaults)
        wrong = wrong_texts(stored)
        sound = {name: text for name, text in stored.items() if name not in wrong}
        for name in fixed:
            if texts.get(name) != stored.get(name) and _value(name, texts, defaults) != _value(name, sound, defaults):
                raise ConfigError(f"{name} is fixed when a topic is created; create another topic with it")
        return texts

    return change_all


def _apply(texts: dict[str, str], change: Change, defaults: Texts) -> None:
    declaration = declared(TopicConfig, change.name)
    if declaration is None and change.operation == Operation.DELETE:
        texts.pop(change.name, None)  # another version took it, or it is not set
        return
    if declaration is None:
        raise ConfigError(f"{change.name} is no config of a topic; kafka-configs --describe --all lists them")
    apply_change(texts, change, declaration, lambda: _value(change.name, texts, defaults))


def _value(name: str, texts: Texts, defaults: Texts) -> Any:
    """Return the value of a topic config that is in force, given what the topic and the node are set to."""
    declaration = declared(TopicConfig, name)
    assert declaration is not None
    text = texts.get(name, defaults.get(name))
    return declaration.default if text is None else declaration.parse(text)
