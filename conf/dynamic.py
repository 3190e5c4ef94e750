"""What a node can be set to while it runs (KIP-226): for it alone, or for every node, over what it was started with.

`DYNAMIC` is Kafka's list without what would have to be opened anew here (listeners, directories, access control).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pqbroker.conf.broker import BrokerSettings
from pqbroker.conf.declare import changed
from pqbroker.conf.defaults import topic_config

_NAMES = """
background.threads compression.gzip.level compression.lz4.level compression.type compression.zstd.level
follower.fetch.last.tiered.offset.enable group.consumer.assignment.interval.ms
group.coordinator.cached.buffer.max.bytes group.share.assignment.interval.ms group.streams.assignment.interval.ms
log.cleaner.backoff.ms log.cleaner.dedupe.buffer.size log.cleaner.delete.retention.ms
log.cleaner.io.buffer.load.factor log.cleaner.io.buffer.size log.cleaner.io.max.bytes.per.second
log.cleaner.max.compaction.lag.ms log.cleaner.min.cleanable.ratio log.cleaner.min.compaction.lag.ms
log.cleaner.threads log.cleanup.policy log.flush.interval.messages log.flush.interval.ms log.index.interval.bytes
log.index.size.max.bytes log.local.retention.bytes log.local.retention.ms log.message.timestamp.after.max.ms
log.message.timestamp.before.max.ms log.message.timestamp.type log.preallocate log.retention.bytes
log.retention.ms log.roll.jitter.ms log.roll.ms log.segment.bytes log.segment.delete.delay.ms
max.connection.creation.rate max.connections max.connections.per.ip max.connections.per.ip.overrides
message.max.bytes metric.reporters min.insync.replicas num.io.threads num.network.threads
num.recovery.threads.per.data.dir num.replica.fetchers producer.id.expiration.ms remote.fetch.max.wait.ms
remote.list.offsets.request.timeout.ms remote.log.index.file.cache.total.size.bytes
remote.log.manager.copier.thread.pool.size remote.log.manager.copy.max.bytes.per.second
remote.log.manager.expiration.thread.pool.size remote.log.manager.fetch.max.bytes.per.second
remote.log.manager.follower.thread.pool.size remote.log.reader.threads share.coordinator.cached.buffer.max.bytes
transaction.partition.verification.enable unclean.leader.election.enable
"""
DYNAMIC: Final = frozenset(_NAMES.split())


@dataclass(frozen=True, slots=True)
class Layers:
    """What a node is set to, by where from; `of_node` goes over `of_all`, that over `at_start`. Texts by name."""

    at_start: BrokerSettings
    of_all: Mapping[str, str]
    of_node: Mapping[str, str]
    in_force: BrokerSettings


def layers(at_start: BrokerSettings, of_all: Mapping[str, str], of_node: Mapping[str, str]) -> Layers:
    """Lay the texts over the settings; ConfigError when one cannot be, or cannot be what a topic falls back to."""
    in_force = changed(at_start, {**of_all, **of_node})
    topic_config({}, in_force)
    return Layers(at_start, of_all, of_node, in_force)
