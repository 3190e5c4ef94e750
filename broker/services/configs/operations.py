"""Operations on single configs of any owner: Kafka's four, on texts by name."""

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import IntEnum
from itertools import islice
from typing import Any, NamedTuple

from pqbroker.conf.declare import ConfigError, Declaration, Kind, declared, superseded
from pqbroker.protocol.errors import ErrorCode, KafkaError

log = logging.getLogger(__name__)

Texts = Mapping[str, str]

CONFIGS_MAX = 1000
"""Configs named for one resource: more than any resource has, so that some would be unknown or named twice."""


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


def by_stored_names(settings: type, changes: Sequence[Change]) -> list[Change]:
    """The changes by the names of the store; one by an earlier name is left out where the name of now is given too."""
    ignored = superseded(settings, [change.name for change in changes])
    for earlier, name in ignored.items():
        log.warning("%s is ignored: it is an earlier name of %s, which is given too", earlier, name)
    kept = [change for change in changes if change.name not in ignored]
    known = {change.name: declared(settings, change.name) for change in kept}
    return [change._replace(name=one.stored_name) if (one := known[change.name]) else change for change in kept]


def taken_changes(changes: Iterable[Change]) -> list[Change]:
    """Return the changes of a resource. KafkaError INVALID_REQUEST for errors that do not depend on the resource."""
    taken = list(islice(changes, CONFIGS_MAX + 1))
    check_count(len(taken))
    _check_changes(taken)
    return taken


def check_count(configs: int) -> None:
    """KafkaError INVALID_REQUEST for more configs than any resource has."""
    if configs > CONFIGS_MAX:
        text = f"more than {CONFIGS_MAX} configs are named for one resource, which has fewer; name each config once"
        raise KafkaError(ErrorCode.INVALID_REQUEST, text)


def _check_changes(changes: Sequence[Change]) -> None:
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
