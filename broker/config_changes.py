"""Changing what topics and brokers are set to, one resource of a request at a time (AlterConfigs and its successor)."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from pqbroker.broker.config_operations import Change, Operation, Texts, apply_change, check_changes
from pqbroker.broker.own_places import check_places
from pqbroker.broker.partitions import needs_keys, unknown_topic
from pqbroker.broker.refusals import REFUSED, translate
from pqbroker.broker.topic_names import check_topic_name
from pqbroker.broker.topics import tell_no_compaction
from pqbroker.conf.declare import ConfigError, declarations
from pqbroker.conf.defaults import check_changed, topic_defaults, wrong_texts
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


def no_configs(kind: int) -> str:
    """Why a resource that is no topic and no broker is refused."""
    if kind not in tuple(Resource):
        return f"resource type {kind} is unknown; topics (2) and brokers (4) have configs here"
    return f"resource type {Resource(kind).name} ({kind}) has no configs here; topics (2) and brokers (4) have"


class Asked(Protocol):
    """A resource that a request names."""

    resource_type: int
    resource_name: str


class Answer(Protocol):
    """What a request is told about one of its resources; both APIs have a struct of this shape."""

    def __init__(
        self, *, error_code: int, error_message: str | None, resource_type: int, resource_name: str
    ) -> None: ...

    error_code: int
    error_message: str | None
    resource_type: int
    resource_name: str


A = TypeVar("A", bound=Answer)


def answers(make: type[A], asked: Iterable[Asked], code: ErrorCode, message: str) -> list[A]:
    """The same answer for each resource."""
    return [
        make(
            error_code=code,
            error_message=message or None,
            resource_type=each.resource_type,
            resource_name=each.resource_name,
        )
        for each in asked
    ]


async def alter_each(
    node: "Node",
    answers: Sequence[Answer],
    changes: Iterable[Iterable[Change]],
    *,
    replaces: bool,
    validate_only: bool,
) -> None:
    """Alter each resource that is to be answered for, and put what it was refused for into its answer."""
    await node.turns.breathe()
    times = Counter((answer.resource_type, answer.resource_name) for answer in answers)
    for answer, wanted in zip(answers, changes, strict=True):
        await node.turns.breathe()
        resource = (answer.resource_type, answer.resource_name)
        try:
            if times[resource] > 1:
                text = f"{answer.resource_name!r} is named more than once; name each resource once"
                raise KafkaError(ErrorCode.INVALID_REQUEST, text)
            await alter(node, resource, wanted, replaces=replaces, validate_only=validate_only)
        except REFUSED as error:
            answer.error_code, answer.error_message = code, _ = translate(error)
            node.metrics.count_error(code)


async def alter(
    node: "Node", resource: tuple[int, str], changes: Iterable[Change], *, replaces: bool, validate_only: bool
) -> None:
    """Make the changes of one resource, all or none; durable when it returns. KafkaError 3, 17, 40, 42.

    `replaces`: what the changes do not name goes back to its default.
    """
    wanted = list(changes)
    kind, name = resource
    check_changes(wanted)
    if kind == Resource.TOPIC:
        await _alter_topic(node, name, wanted, replaces=replaces, validate_only=validate_only)
    elif kind == Resource.BROKER:
        changes = check_places(node, wanted)
        await node.configured.alter(name, changes, replaces=replaces, validate_only=validate_only)
    else:
        raise KafkaError(ErrorCode.INVALID_REQUEST, no_configs(kind))


async def _alter_topic(node: "Node", name: str, changes: list[Change], *, replaces: bool, validate_only: bool) -> None:
    check_topic_name(name)
    group = node.groups.get(name)
    if group is None:
        raise unknown_topic()
    defaults = topic_defaults(node.settings)
    change = _changing(changes, defaults, replaces=replaces)
    try:
        if validate_only:
            stored = group.topic.config
            check_changed(change(stored), stored, node.settings)
        else:
            was_compacted = needs_keys(group)
            if needs_keys(await node.groups.reconfigure(name, change)) and not was_compacted:
                tell_no_compaction(name)
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
        wrong = wrong_texts(stored)
        sound = {name: text for name, text in stored.items() if name not in wrong}
        for name in FIXED_AT_CREATION:
            if texts.get(name) != stored.get(name) and _value(name, texts, defaults) != _value(name, sound, defaults):
                raise ConfigError(f"{name} is fixed when a topic is created; create another topic with it")
        return texts

    return change_all


def _apply(texts: dict[str, str], change: Change, defaults: Texts) -> None:
    declaration = declarations(TopicConfig).get(change.name)
    if declaration is None and change.operation == Operation.DELETE:
        texts.pop(change.name, None)  # another version took it, or it is not set
        return
    if declaration is None:
        raise ConfigError(f"{change.name} is no config of a topic; kafka-configs --describe --all lists them")
    apply_change(texts, change, declaration, lambda: _value(change.name, texts, defaults))


def _value(name: str, texts: Texts, defaults: Texts) -> Any:
    """What a topic config is in force, given what the topic and the node are set to."""
    declaration = declarations(TopicConfig)[name]
    text = texts.get(name, defaults.get(name))
    return declaration.default if text is None else declaration.parse(text)
