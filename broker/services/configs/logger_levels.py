"""Levels of this process's loggers as Kafka's BROKER_LOGGER resource (KIP-412). They last until the process ends."""

import logging
from collections.abc import Iterator, Sequence
from types import MappingProxyType

from pqbroker.broker.services.configs.operations import Change, Operation
from pqbroker.broker.services.configs.texts import ConfigText, Source
from pqbroker.conf.declare import Declaration, Effect, Kind
from pqbroker.protocol.errors import ErrorCode, KafkaError

ROOT = "root"
_PACKAGE = "pqbroker"
_LEVELS = MappingProxyType(
    {
        "FATAL": logging.CRITICAL, "ERROR": logging.ERROR, "WARN": logging.WARNING, "INFO": logging.INFO,
        "DEBUG": logging.DEBUG, "TRACE": 5,
    }
)  # fmt: skip
"""Kafka's levels; TRACE shows what DEBUG does, since nothing here is logged below it."""


def logger_texts() -> Iterator[ConfigText]:
    """The level in force of each logger."""
    for name in _names():
        level = _level_name(logging.getLogger(None if name == ROOT else name).getEffectiveLevel())
        declaration = Declaration(name, "", Kind.STRING, None, f"Level of the logger {name}.", effect=Effect.FULL)
        yield ConfigText(declaration, level, Source.DYNAMIC_BROKER_LOGGER, ())


def check_logger_node(name: str, node_id: str) -> None:
    """KafkaError INVALID_REQUEST for the name of another node, in Kafka's words."""
    if not name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Broker id must not be empty")
    if name != node_id:
        text = f"Unexpected broker id, expected {node_id} but received {name}"
        raise KafkaError(ErrorCode.INVALID_REQUEST, text)


def alter_loggers(changes: Sequence[Change], *, validate_only: bool) -> None:
    """Set levels, or take them back to that of the logger above; all or none. KafkaError INVALID_REQUEST,
    INVALID_CONFIG."""
    names = set(_names())
    for change in changes:
        _check(change, names)
    if validate_only:
        return
    for name, operation, value in changes:
        logger = logging.getLogger(None if name == ROOT else name)
        logger.setLevel(logging.NOTSET if operation == Operation.DELETE else _LEVELS[str(value)])


def _check(change: Change, names: set[str]) -> None:
    name, operation, value = change
    if operation not in (Operation.SET, Operation.DELETE):
        word = Operation(operation).name
        text = f"{word} operation is not allowed for the BROKER_LOGGER resource; set the level, or delete it"
        raise KafkaError(ErrorCode.INVALID_REQUEST, text)
    if name not in names:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"Logger {name} does not exist!")
    if operation == Operation.DELETE and name == ROOT:
        text = "Removing the log level of the root logger is not allowed; set another one"
        raise KafkaError(ErrorCode.INVALID_REQUEST, text)
    if operation == Operation.SET and value not in _LEVELS:
        levels = ", ".join(_LEVELS)
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"{value!r} is no log level of {name}; choose from {levels}")


def _names() -> list[str]:
    """The loggers of this broker: those of libraries belong to the root."""
    known = logging.Logger.manager.loggerDict
    ours = (name for name, logger in known.items() if isinstance(logger, logging.Logger))
    return [ROOT, *sorted(name for name in ours if name == _PACKAGE or name.startswith(f"{_PACKAGE}."))]


def _level_name(level: int) -> str:
    """Kafka's name of the most detailed level that is shown."""
    return next((name for name, number in _LEVELS.items() if level >= number), "TRACE")
