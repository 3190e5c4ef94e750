"""Settings of a node that can change while it runs (KIP-226): for it alone, or for every node, over what it was started
with.

`DYNAMIC` is Kafka's list. Settings that protect or move a listener are on it too: a value that would do so is refused
with the cause, any other is taken.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pqbroker.conf.broker import BrokerSettings
from pqbroker.conf.declare import LISTENER_PREFIX, ConfigError, changed, parse, without_listener
from pqbroker.conf.defaults import NODE_SETTINGS, topic_config

_NAMES = """
background.threads compression.gzip.level compression.lz4.level compression.type compression.zstd.level
config.providers cordoned.log.dirs follower.fetch.last.tiered.offset.enable follower.replication.throttled.rate
group.consumer.assignment.interval.ms group.coordinator.cached.buffer.max.bytes group.share.assignment.interval.ms
group.streams.assignment.interval.ms leader.replication.throttled.rate listener.security.protocol.map listeners
log.cleaner.backoff.ms log.cleaner.dedupe.buffer.size log.cleaner.delete.retention.ms
log.cleaner.io.buffer.load.factor log.cleaner.io.buffer.size log.cleaner.io.max.bytes.per.second
log.cleaner.max.compaction.lag.ms log.cleaner.min.cleanable.ratio log.cleaner.min.compaction.lag.ms
log.cleaner.threads log.cleanup.policy log.flush.interval.messages log.flush.interval.ms log.index.interval.bytes
log.index.size.max.bytes log.local.retention.bytes log.local.retention.ms log.message.timestamp.after.max.ms
log.message.timestamp.before.max.ms log.message.timestamp.type log.preallocate log.retention.bytes log.retention.ms
log.roll.jitter.ms log.roll.ms log.segment.bytes log.segment.delete.delay.ms max.connection.creation.rate
max.connections max.connections.per.ip max.connections.per.ip.overrides message.max.bytes metric.reporters
min.insync.replicas num.io.threads num.network.threads num.recovery.threads.per.data.dir num.replica.fetchers
principal.builder.class producer.id.expiration.ms remote.fetch.max.wait.ms remote.list.offsets.request.timeout.ms
remote.log.index.file.cache.total.size.bytes remote.log.manager.copier.thread.pool.size
remote.log.manager.copy.max.bytes.per.second remote.log.manager.expiration.thread.pool.size
remote.log.manager.fetch.max.bytes.per.second remote.log.manager.follower.thread.pool.size remote.log.reader.threads
replica.alter.log.dirs.io.max.bytes.per.second sasl.enabled.mechanisms sasl.jaas.config sasl.kerberos.kinit.cmd
sasl.kerberos.min.time.before.relogin sasl.kerberos.principal.to.local.rules sasl.kerberos.service.name
sasl.kerberos.ticket.renew.jitter sasl.kerberos.ticket.renew.window.factor sasl.login.refresh.buffer.seconds
sasl.login.refresh.min.period.seconds sasl.login.refresh.window.factor sasl.login.refresh.window.jitter
sasl.mechanism.inter.broker.protocol share.coordinator.cached.buffer.max.bytes ssl.cipher.suites ssl.client.auth
ssl.enabled.protocols ssl.endpoint.identification.algorithm ssl.engine.factory.class ssl.key.password
ssl.keymanager.algorithm ssl.keystore.certificate.chain ssl.keystore.key ssl.keystore.location ssl.keystore.password
ssl.keystore.type ssl.protocol ssl.provider ssl.secure.random.implementation ssl.trustmanager.algorithm
ssl.truststore.certificates ssl.truststore.location ssl.truststore.password ssl.truststore.type
transaction.partition.verification.enable unclean.leader.election.enable
"""
DYNAMIC: Final = frozenset(_NAMES.split())
OF_ONE_NODE: Final = frozenset(
    name
    for name in DYNAMIC
    if name.startswith(("sasl.", "ssl."))
    or name in ("cordoned.log.dirs", "listener.security.protocol.map", "listeners", "principal.builder.class")
)
"""Settings that a node takes only from its own configs, never from the default of all nodes, as in Kafka."""

BY_LISTENER: Final = frozenset((
    "ssl.key.password", "ssl.keystore.certificate.chain", "ssl.keystore.key", "ssl.keystore.location",
    "ssl.keystore.password", "ssl.keystore.type", "ssl.truststore.certificates", "ssl.truststore.location",
    "ssl.truststore.password", "ssl.truststore.type",
))  # fmt: skip
"""Settings that change while a node runs for one listener alone, under its prefix, as in Kafka."""


def is_dynamic(name: str) -> bool:
    """Return True if a setting can change while a node runs, be it one of a listener."""
    return without_listener(name) in DYNAMIC


def is_of_one_node(name: str) -> bool:
    """Return True if a node takes a setting only from its own configs."""
    return name in OF_ONE_NODE or name.startswith(LISTENER_PREFIX)


_RETENTION = frozenset(
    name for config in ("retention.ms", "retention.bytes", "cleanup.policy") for name in NODE_SETTINGS[config]
)
_KEEPS_EVERY_RECORD = {"log.retention.ms": "-1", "log.retention.bytes": "-1"}


@dataclass(frozen=True, slots=True)
class Layers:
    """Settings of a node, by where they come from, as texts by name; `of_node` goes over `of_all`, that over
    `at_start`.

    An invalid text is kept here but not in force.
    """

    at_start: BrokerSettings
    of_all: Mapping[str, str]
    of_node: Mapping[str, str]
    in_force: BrokerSettings


def layers(at_start: BrokerSettings, of_all: Mapping[str, str], of_node: Mapping[str, str]) -> Layers:
    """Lay the texts over the settings. They may come from a version with other settings.

    An invalid text is passed over. If it is one of retention, topics that leave retention to the node keep every
    record: the text may have meant to keep some that the value in force would delete.
    """
    wrong_of_all, wrong_of_node = wrong_settings(of_all), wrong_settings(of_node)
    texts = {name: text for name, text in of_all.items() if name not in wrong_of_all}
    texts |= {name: text for name, text in of_node.items() if name not in wrong_of_node}
    wrong = (wrong_of_all.keys() - of_node.keys()) | wrong_of_node.keys()
    if not wrong.isdisjoint(_RETENTION):
        texts |= _KEEPS_EVERY_RECORD
    return Layers(at_start, of_all, of_node, changed(at_start, texts))


def wrong_settings(texts: Mapping[str, str]) -> dict[str, str]:
    """Return, by name, why a text of a node is invalid, or invalid as what a topic falls back to."""
    wrong: dict[str, str] = {}
    for name, text in texts.items():
        try:
            topic_config({}, parse(BrokerSettings, {name: text}))
        except ConfigError as error:
            wrong[name] = str(error)
    return wrong
