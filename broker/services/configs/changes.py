"""Changing what topics, brokers, loggers, groups and client metrics subscriptions are set to, one resource of a request
at a time (AlterConfigs and its successor)."""

from collections.abc import Callable, Collection, Iterable
from enum import IntEnum
from functools import partial
from typing import TYPE_CHECKING, Any

from pqbroker.broker.ground.access import AclOperation, check_access
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
from pqbroker.broker.services.topics.partitions import needs_keys
from pqbroker.broker.services.topics.topic_names import check_topic_name
from pqbroker.broker.services.topics.topic_schemas import (
    FORMATS,
    RETENTION,
    SCHEMA,
    check_new_schema,
    fixed_configs,
    follow_retention,
)
from pqbroker.broker.services.topics.topics import tell_no_compaction
from pqbroker.conf.declare import ConfigError, declared
from pqbroker.conf.defaults import check_changed, topic_defaults, wrong_texts
from pqbroker.conf.topic import TopicConfig
from pqbroker.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from pqbroker.storage.tablets.scheme import Scheme


class Resource(IntEnum):
    """Kafka's ConfigResource types."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


NAMED_KINDS = {Resource.GROUP: GROUPS, Resource.CLIENT_METRICS: SUBSCRIPTIONS}
"""The kinds of resources that exist by being set."""


def unknown_kind(kind: int) -> KafkaError:
    """The refusal of a resource type that Kafka does not have."""
    known = ", ".join(f"{resource.name} ({resource.value})" for resource in Resource)
    return KafkaError(ErrorCode.INVALID_REQUEST, f"resource type {kind} is unknown; the types are {known}")


async def alter(
    caller: ConfigsCaller, resource: tuple[int, str], changes: Iterable[Change], *, replaces: bool, validate_only: bool
) -> None:
    """Make the changes of one resource, all or none; durable when it returns. KafkaError 3, 17, 29, 31, 40, 42;
    ConfigError.

    `replaces`: what the changes do not name goes back to its default.
    """
    wanted = taken_changes(changes)
    kind, name = resource
    current = caller.node.cell.current
    if kind == Resource.TOPIC:
        wanted = by_stored_names(TopicConfig, wanted)
        await _alter_topic(caller, name, wanted, replaces=replaces, validate_only=validate_only)
    elif kind == Resource.BROKER:
        check_access(caller, AclOperation.ALTER_CONFIGS)
        changes = check_locations(caller.node, wanted)
        await current.settings.alter(name, changes, replaces=replaces, validate_only=validate_only)
    elif kind == Resource.BROKER_LOGGER:
        check_access(caller, AclOperation.ALTER_CONFIGS)
        _alter_loggers(name, wanted, str(caller.node.settings.node_id), replaces=replaces, validate_only=validate_only)
    elif kind in NAMED_KINDS:
        check_access(caller, AclOperation.ALTER_CONFIGS)
        named = NAMED_KINDS[Resource(kind)]
        if replaces:
            wanted += _unnamed(named, current.scheme, name, wanted)
        await alter_named(named, current.scheme, name, wanted, current.settings.in_force, validate_only=validate_only)
    else:
        raise unknown_kind(kind)


def _alter_loggers(
    name: str, changes: list[Change], node_id: str, *, replaces: bool, validate_only: bool
) -> None:
    if replaces:
        text = "AlterConfigs does not set levels of loggers; use IncrementalAlterConfigs (kafka-configs --alter)"
        raise KafkaError(ErrorCode.INVALID_REQUEST, text)
    check_logger_node(name, node_id)
    alter_loggers(changes, validate_only=validate_only)


def _unnamed(kind: NamedKind, scheme: "Scheme", name: str, changes: list[Change]) -> list[Change]:
    """The deletion of what is set for a resource and not named."""
    given = {change.name for change in changes}
    stored = scheme.named_settings(kind.name).get(name, {})
    return [Change(each, Operation.DELETE, None) for each in stored if each not in given]


async def _alter_topic(
    caller: ConfigsCaller, name: str, changes: list[Change], *, replaces: bool, validate_only: bool
) -> None:
    if not name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a topic has to be named: there are no configs of all topics")
    check_topic_name(name)
    node, topic = caller.node, find_topic(caller, AclOperation.ALTER_CONFIGS, name)
    defaults = topic_defaults(node.settings)
    change = _changing(changes, defaults, fixed_configs(topic), replaces=replaces)
    stored = topic.record.config
    if replaces or not {SCHEMA, *FORMATS}.isdisjoint(one.name for one in changes):
        check_new_schema(topic, change(stored), node.settings)
    if validate_only:
        check_changed(change(stored), stored, node.settings)
        return
    was_compacted = needs_keys(topic)
    is_given = not replaces and any(one.name == RETENTION for one in changes)
    follow = partial(follow_retention, node.settings, is_given=is_given)
    changed = await node.cell.current.topics.reconfigure(name, change, follow)
    if needs_keys(changed) and not was_compacted:
        tell_no_compaction(name)


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
