"""The auto trim of queues as E.13 has it, kept in configs of the topic; the partition's retention carries it out."""

from collections.abc import Mapping
from typing import Any, Final

from pqbroker.broker.ground.access import AclOperation
from pqbroker.broker.services.queues.callers import QueuesCaller
from pqbroker.broker.services.queues.finding import find_queue
from pqbroker.conf.topic import TopicConfig
from pqbroker.pq.serving.topic import Topic
from pqbroker.tables.refusals import TableError, nearest

LIFETIME_STEP_MS: Final = 1000
_MOST: Final = (1 << 63) - 1
_CONFIGS: Final = {
    "enable": "pq.auto.trim",
    "retained_rows": "pq.auto.trim.retained.rows",
    "retained_lifetime_duration": "pq.auto.trim.retained.ms",
}
"""Configs of the topic by the fields of the auto trim."""


def auto_trim_of(config: TopicConfig) -> dict[str, Any]:
    """Return a queue's auto trim: None for a bound that is not set."""
    rows, lifetime_ms = config.pq_auto_trim_retained_rows, config.pq_auto_trim_retained_ms
    return {
        "enable": config.pq_auto_trim,
        "retained_rows": None if rows < 0 else rows,
        "retained_lifetime_duration": None if lifetime_ms < 0 else lifetime_ms,
    }


async def set_auto_trim(caller: QueuesCaller, queue: str, given: Any) -> Topic:
    """Replace a queue's auto trim; fields that are left out go back to their defaults. KafkaError; TableError
    INVALID_AUTO_TRIM."""
    topic = find_queue(caller, AclOperation.ALTER_CONFIGS, queue)
    wanted = _checked(given)

    def change(texts: Mapping[str, str]) -> Mapping[str, str]:
        return {name: text for name, text in texts.items() if name not in _CONFIGS.values()} | wanted

    return await caller.node.cell.current.topics.reconfigure(topic.record.name, change)


def _checked(given: Any) -> dict[str, str]:
    """Return the configs of an auto trim. TableError INVALID_AUTO_TRIM."""
    if not isinstance(given, dict):
        raise _invalid("auto_trim_config is no object", f"Give an object with {', '.join(_CONFIGS)}.")
    texts: dict[str, str] = {}
    for name, value in given.items():
        if name not in _CONFIGS:
            raise _invalid(f"auto_trim_config has the unknown field {name[:100]!r}", nearest(name[:100], _CONFIGS))
        if value is None:
            continue
        if name == "enable":
            if not isinstance(value, bool):
                raise _invalid(f"auto_trim_config.enable is {value!r}"[:200], "Give true or false.")
            texts[_CONFIGS[name]] = str(value).lower()
            continue
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _MOST:
            raise _invalid(f"auto_trim_config.{name} is {value!r}"[:200], "Give a whole number from 0 on, or null.")
        if name == "retained_lifetime_duration" and value % LIFETIME_STEP_MS:
            cure = f"Give milliseconds that are whole seconds: a multiple of {LIFETIME_STEP_MS}."
            raise _invalid(f"auto_trim_config.{name} is {value}", cure)
        texts[_CONFIGS[name]] = str(value)
    return texts


def _invalid(message: str, cure: str) -> TableError:
    return TableError("INVALID_AUTO_TRIM", message, cure)
