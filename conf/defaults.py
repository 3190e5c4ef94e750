"""Defaults that a node's settings make of the configs that a topic leaves open, as Kafka's `log.…` settings do."""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final, NamedTuple

from pqbroker.conf.broker import BrokerSettings
from pqbroker.conf.declare import ConfigError, changed, declarations, declared, parse
from pqbroker.conf.topic import TopicConfig

NODE_SETTINGS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "cleanup.policy": ("log.cleanup.policy",),
        "compression.gzip.level": ("compression.gzip.level",),
        "compression.lz4.level": ("compression.lz4.level",),
        "compression.type": ("compression.type",),
        "compression.zstd.level": ("compression.zstd.level",),
        "delete.retention.ms": ("log.cleaner.delete.retention.ms",),
        "file.delete.delay.ms": ("log.segment.delete.delay.ms",),
        "flush.messages": ("log.flush.interval.messages",),
        "flush.ms": ("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
        "index.interval.bytes": ("log.index.interval.bytes",),
        "local.retention.bytes": ("log.local.retention.bytes",),
        "local.retention.ms": ("log.local.retention.ms",),
        "max.compaction.lag.ms": ("log.cleaner.max.compaction.lag.ms",),
        "max.message.bytes": ("message.max.bytes",),
        "message.timestamp.after.max.ms": ("log.message.timestamp.after.max.ms",),
        "message.timestamp.before.max.ms": ("log.message.timestamp.before.max.ms",),
        "message.timestamp.type": ("log.message.timestamp.type",),
        "min.cleanable.dirty.ratio": ("log.cleaner.min.cleanable.ratio",),
        "min.compaction.lag.ms": ("log.cleaner.min.compaction.lag.ms",),
        "min.insync.replicas": ("min.insync.replicas",),
        "preallocate": ("log.preallocate",),
        "retention.bytes": ("log.retention.bytes",),
        "retention.ms": ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
        "segment.bytes": ("log.segment.bytes",),
        "segment.index.bytes": ("log.index.size.max.bytes",),
        "segment.jitter.ms": ("log.roll.jitter.ms", "log.roll.jitter.hours"),
        "segment.ms": ("log.roll.ms", "log.roll.hours"),
        "unclean.leader.election.enable": ("unclean.leader.election.enable",),
    }
)
"""The node's settings that stand for a topic config where the topic does not say; the first that is set decides."""

_LAGS: Final = ("min.compaction.lag.ms", "max.compaction.lag.ms")
_MS = {"minutes": 60_000, "hours": 3_600_000}


def topic_config(texts: Mapping[str, str], settings: BrokerSettings) -> TopicConfig:
    """Return the config in force for a topic that is set to `texts`. ConfigError if one of them is invalid."""
    return changed(_of_node(settings).config, texts)


def stored_config(texts: Mapping[str, str], settings: BrokerSettings) -> TopicConfig:
    """Return the config in force for a topic that was set to `texts`, perhaps by a version with other settings.

    An invalid text leaves its default in force. Retention keeps every record then: the text may have meant to keep some
    that the default would delete.
    """
    wrong = wrong_texts(texts)
    config = topic_config({name: text for name, text in texts.items() if name not in wrong}, settings)
    if not wrong:
        return config
    return replace(config, retention_ms=-1, retention_bytes=-1, pq_delete_when_read=False, pq_auto_trim=False)


def check_changed(texts: Mapping[str, str], stored: Mapping[str, str], settings: BrokerSettings) -> None:
    """Check that a topic which is set to `stored` can be set to `texts`. ConfigError. Texts that do not change may be
    invalid: otherwise, of two invalid ones, neither could be corrected."""
    check_size(texts, stored, settings)
    new = topic_config({name: text for name, text in texts.items() if stored.get(name) != text}, settings)
    if new.remote_storage_enable:  # one that was set to it by an earlier version may go on so
        raise ConfigError("remote.storage.enable is true, and this broker tiers nothing; leave it out")
    if any(stored.get(name) != texts.get(name) for name in _LAGS):
        _check_lags(stored_config(texts, settings))


def _check_lags(config: TopicConfig) -> None:
    """ConfigError where the least age of cleaned records is above the greatest one."""
    least, most = config.min_compaction_lag_ms, config.max_compaction_lag_ms
    if least > most:
        raise ConfigError(f"min.compaction.lag.ms is {least}, more than max.compaction.lag.ms, {most}")


def check_size(texts: Mapping[str, str], stored: Mapping[str, str], settings: BrokerSettings) -> None:
    """Check the size of a resource's texts. ConfigError if it is over the limit and grows."""
    size = _size(texts)
    if size > settings.config_bytes_max and size > _size(stored):
        raise ConfigError(
            f"configs of {size} bytes, the limit is {settings.config_bytes_max}: shorten the longest, or raise "
            "pqbroker.config.bytes.max"
        )


def wrong_texts(texts: Mapping[str, str]) -> dict[str, str]:
    """Return why a topic's invalid texts are invalid, by name."""
    wrong: dict[str, str] = {}
    for name, text in texts.items():
        declaration = declared(TopicConfig, name)
        if declaration is None:
            wrong[name] = f"{name} is {text!r}, and no config that this version knows"
            continue
        try:
            declaration.parse(text)
        except ConfigError as error:
            wrong[name] = str(error)
    return wrong


def topic_defaults(settings: BrokerSettings) -> Mapping[str, str]:
    """Texts by name of the topic configs that the node's settings give; a topic's own texts go over them."""
    return _of_node(settings).texts


class _OfNode(NamedTuple):
    """The part of a topic's config that comes from a node: texts by name, and the config that they make."""

    settings: BrokerSettings
    texts: Mapping[str, str]
    config: TopicConfig


_KNOWN_MAX = 4
_known: list[_OfNode] = []
"""Last few that were made: a node has thousands of topics, but its settings rarely change."""


def _of_node(settings: BrokerSettings) -> _OfNode:
    for known in _known:
        if known.settings is settings:
            return known
    texts = {name: _first_set(of_node, settings) for name, of_node in NODE_SETTINGS.items()}
    made = _OfNode(settings, MappingProxyType(texts), parse(TopicConfig, texts))
    _known[:] = [made, *_known[: _KNOWN_MAX - 1]]
    return made


def _size(texts: Mapping[str, str]) -> int:
    return sum(len(name) + len(text.encode(errors="surrogatepass")) for name, text in texts.items())


def _first_set(names: tuple[str, ...], settings: BrokerSettings) -> str:
    """The text of the first setting that is set, in the topic's unit; times below zero mean for ever."""
    known = declarations(BrokerSettings)
    name = next(name for name in names if known[name].value_in(settings) is not None)
    ms = _MS.get(name.rpartition(".")[2])
    if ms is None:
        return known[name].of(settings)
    return str(max(-1, known[name].value_in(settings) * ms))
