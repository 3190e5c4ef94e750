"""What is to become of single configs, whosever they are: Kafka's four operations on texts by name."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum
from typing import Any, NamedTuple

from pqbroker.conf.declare import ConfigError, Declaration, Kind
from pqbroker.protocol.errors import ErrorCode, KafkaError

Texts = Mapping[str, str]


class Operation(IntEnum):
    """Kafka's AlterConfigOp types."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class Change(NamedTuple):
    """One config of a resource and what is to become of it; `value` is None where the request has none."""

    name: str
    operation: int
    value: str | None


def check_changes(changes: Iterable[Change]) -> None:
    """What is wrong with the changes of a resource whatever it is: KafkaError INVALID_REQUEST."""
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


def apply_change(
    texts: dict[str, str], change: Change, declaration: Declaration, present: Callable[[], tuple[Any, ...]]
) -> None:
    """Make a change to `texts`; `present`: the items of a list in force. ConfigError for a list operation on no list.

    The new text is not checked here.
    """
    name, operation, value = change
    if operation == Operation.DELETE:
        texts.pop(name, None)
        return
    assert value is not None
    if operation == Operation.SET:
        texts[name] = value
        return
    if declaration.kind is not Kind.LIST:
        word, kind = Operation(operation).name.lower(), declaration.kind.name
        raise ConfigError(f"Config value {word} is not allowed for config key: {name}; it is of type {kind}, set it")
    given = tuple(item.strip() for item in value.split(",") if item.strip())
    there = present()
    if operation == Operation.APPEND:
        kept = (*there, *(item for item in given if item not in there))
    else:
        kept = tuple(item for item in there if item not in given)
    texts[name] = declaration.format(kept)
