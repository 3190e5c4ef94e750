"""What a node's settings make of the configs that a topic leaves open, as Kafka's `log.…` settings do."""

from collections.abc import Mapping

from pqbroker.conf.broker import BrokerSettings
from pqbroker.conf.declare import declarations, parse
from pqbroker.conf.topic import TopicConfig

_NODE_SETTING = {
    "cleanup.policy": "log.cleanup.policy",
    "max.message.bytes": "message.max.bytes",
    "message.timestamp.after.max.ms": "log.message.timestamp.after.max.ms",
    "message.timestamp.before.max.ms": "log.message.timestamp.before.max.ms",
    "message.timestamp.type": "log.message.timestamp.type",
    "retention.bytes": "log.retention.bytes",
}
_MS_PER_MINUTE = 60_000
_MS_PER_HOUR = 3_600_000


def topic_config(texts: Mapping[str, str], settings: BrokerSettings) -> TopicConfig:
    """The config in force for a topic that is set to `texts`; ConfigError when one of them cannot be."""
    return parse(TopicConfig, {**topic_defaults(settings), **texts})


def topic_defaults(settings: BrokerSettings) -> dict[str, str]:
    """Texts by name of the topic configs that the node's settings give; a topic's own texts go over them."""
    known = declarations(BrokerSettings)
    values = {name: known[of_node].of(settings) for name, of_node in _NODE_SETTING.items()}
    return {**values, "retention.ms": str(_retention_ms(settings))}


def _retention_ms(settings: BrokerSettings) -> int:
    """The finest of Kafka's three settings that is set decides; below zero means for ever."""
    if settings.log_retention_ms is not None:
        return settings.log_retention_ms
    if settings.log_retention_minutes is not None:
        return max(-1, settings.log_retention_minutes * _MS_PER_MINUTE)
    return max(-1, settings.log_retention_hours * _MS_PER_HOUR)
