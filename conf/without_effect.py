"""Kafka's node settings that change nothing here: `name | type | default | allowed`, as `declare.rows` reads them.

A line `# …` says why those below it have no effect. Those of access control are a table of their own.
"""

WITHOUT_EFFECT = """\
# There is one replica.
default.replication.factor | int | 1 | 1..
auto.leader.rebalance.enable | boolean | true
leader.imbalance.check.interval.seconds | long | 300 | 1..
leader.imbalance.per.broker.percentage | int | 10
unclean.leader.election.enable | boolean | false
unclean.leader.election.interval.ms | long | 300000 | 1..
num.replica.fetchers | int | 1 | 1..
replica.fetch.backoff.ms | int | 1000 | 0..
replica.fetch.max.bytes | int | 1048576 | 0..
replica.fetch.min.bytes | int | 1
replica.fetch.response.max.bytes | int | 10485760 | 0..
replica.fetch.wait.max.ms | int | 500
replica.high.watermark.checkpoint.interval.ms | long | 5000
replica.lag.time.max.ms | long | 30000
replica.selector.class | string | null
replica.socket.receive.buffer.bytes | int | 65536
replica.socket.timeout.ms | int | 30000
follower.fetch.last.tiered.offset.enable | boolean | false
leader.replication.throttled.rate | long | 9223372036854775807 | 0..
follower.replication.throttled.rate | long | 9223372036854775807 | 0..
# There is one replica, synced before it acknowledges.
min.insync.replicas | int | 1 | 1..
# `node.id` is the node's id.
broker.id | int | -1 | -1..
# A node is in no rack.
broker.rack | string | null
# The first node is the controller, and nodes have links of their own.
inter.broker.listener.name | string | null
security.inter.broker.protocol | string | PLAINTEXT | PLAINTEXT SASL_PLAINTEXT SASL_SSL SSL
request.timeout.ms | int | 30000 | 1..
process.roles | list |
controller.listener.names | list |
controller.quorum.voters | list |
controller.quorum.bootstrap.servers | list |
controller.quorum.append.linger.ms | int | 25 | 0..
controller.quorum.election.backoff.max.ms | int | 1000 | 0..
controller.quorum.election.timeout.ms | int | 1000 | 0..
controller.quorum.fetch.timeout.ms | int | 2000 | 0..
controller.quorum.request.timeout.ms | int | 2000 | 0..
controller.quorum.retry.backoff.ms | int | 20 | 0..
broker.heartbeat.interval.ms | int | 2000
broker.session.timeout.ms | int | 9000
initial.broker.registration.timeout.ms | int | 60000
metadata.log.dir | string | null
metadata.log.segment.bytes | int | 1073741824 | 8388608..
metadata.log.segment.ms | long | 604800000
metadata.log.max.record.bytes.between.snapshots | long | 20971520 | 1..
metadata.log.max.snapshot.interval.ms | long | 3600000 | 0..
metadata.max.retention.bytes | long | 104857600
metadata.max.retention.ms | long | 604800000
metadata.max.idle.interval.ms | int | 500 | 0..
controlled.shutdown.enable | boolean | true
server.max.startup.time.ms | long | 9223372036854775807 | 0..
socket.connection.setup.timeout.ms | long | 10000
socket.connection.setup.timeout.max.ms | long | 30000
early.start.listeners | list | null
controller.socket.timeout.ms | int | 30000
controller.quorum.auto.join.enable | boolean | false
controller.quorum.fetch.snapshot.max.bytes | int | 1048576 | 1..
controller.quorum.fetch.max.bytes | int | 1048576 | 1..
# `--data` or `log.dirs` is the directory.
log.dir | list | /tmp/kafka-logs
cordoned.log.dirs | list |
# One event loop, and `pqbroker.read.threads`.
background.threads | int | 10 | 1..
num.io.threads | int | 8 | 1..
num.network.threads | int | 3 | 1..
num.recovery.threads.per.data.dir | int | 2 | 1..
num.replica.alter.log.dirs.threads | int | null
# `pqbroker.connection.requests.max` is the limit.
queued.max.requests | int | 500 | 1..
# `pqbroker.inflight.bytes.max` is the limit.
queued.max.request.bytes | long | -1
# The operating system decides.
socket.listen.backlog.size | int | 50 | 1..
socket.receive.buffer.bytes | int | 102400 | -1..
socket.send.buffer.bytes | int | 102400 | -1..
# `max.connections` is the limit.
max.connection.creation.rate | int | 2147483647 | 0..
# `pqbroker.durability` decides when records are synced.
log.flush.interval.messages | long | 9223372036854775807 | 1..
log.flush.interval.ms | long | null
log.flush.scheduler.interval.ms | long | 9223372036854775807
# A start reads the index.
log.flush.offset.checkpoint.interval.ms | int | 60000 | 0..
log.flush.start.offset.checkpoint.interval.ms | int | 60000 | 0..
# A blob carries its own index, about every 32 KiB.
log.index.interval.bytes | int | 4096 | 0..
# A blob carries its own index.
log.index.size.max.bytes | int | 10485760 | 4..
# `pqbroker.segment.bytes` and the node decide on segments.
log.segment.bytes | int | 1073741824 | 14..
log.roll.jitter.ms | long | null
log.roll.jitter.hours | int | 0 | 0..
log.preallocate | boolean | false
# Space is given back when the deletion is durable.
log.segment.delete.delay.ms | long | 60000 | 0..
# Retention starts with the node.
log.initial.task.delay.ms | long | 30000 | 0..
# A directory that fails closes its cell at once.
log.dir.failure.timeout.ms | long | 30000 | 1..
# The cleaner reads and writes a few bodies at a time, 16 MiB.
log.cleaner.io.buffer.size | int | 524288 | 0..
# A waiting request is dropped when it is answered.
fetch.purgatory.purge.interval.requests | int | 1000
producer.purgatory.purge.interval.requests | int | 1000
delete.records.purgatory.purge.interval.requests | int | 1
# Groups are coordinated on the event loop.
group.coordinator.append.linger.ms | int | -1 | -1..
# Classic groups and those of the consumer protocol are always served.
group.coordinator.rebalance.protocols | list | classic,consumer,streams | classic consumer share streams
# Groups are coordinated on the event loop.
group.coordinator.threads | int | 4 | 1..
# A commit is done when its store has synced it.
offsets.commit.timeout.ms | int | 5000 | 1..
# Offsets are rows of their partitions.
offsets.load.buffer.size | int | 5242880 | 1..
# There is no topic of offsets.
offsets.topic.compression.codec | int | 0 | 0..
offsets.topic.num.partitions | int | 50 | 1..
offsets.topic.replication.factor | short | 3 | 1..
offsets.topic.segment.bytes | int | 104857600 | 1..
# Share groups are not served.
share.coordinator.state.topic.min.isr | short | 2 | 1..
share.coordinator.state.topic.replication.factor | short | 3 | 1..
group.share.session.timeout.ms | int | 45000 | 1..
group.share.min.session.timeout.ms | int | 45000 | 1..
group.share.max.session.timeout.ms | int | 60000 | 1..
group.share.heartbeat.interval.ms | int | 5000 | 1..
group.share.min.heartbeat.interval.ms | int | 5000 | 1..
group.share.max.heartbeat.interval.ms | int | 15000 | 1..
group.share.max.size | int | 200 | 1..1000
group.share.assignors | list | simple
group.share.assignment.interval.ms | int | 1000 | 0..
group.share.min.assignment.interval.ms | int | 0 | 0..
group.share.max.assignment.interval.ms | int | 15000 | 0..
group.share.delivery.count.limit | int | 5 | 2..10
group.share.max.delivery.count.limit | int | 10 | 5..25
group.share.min.delivery.count.limit | int | 2 | 2..5
group.share.record.lock.duration.ms | int | 30000 | 1000..3600000
group.share.min.record.lock.duration.ms | int | 15000 | 1000..30000
group.share.max.record.lock.duration.ms | int | 60000 | 30000..3600000
group.share.partition.max.record.locks | int | 2000 | 100..10000
group.share.max.partition.max.record.locks | int | 4000 | 2000..10000
group.share.min.partition.max.record.locks | int | 100 | 100..2000
share.fetch.purgatory.purge.interval.requests | int | 1000
group.share.max.share.sessions | int | 2000 | 1..
share.coordinator.state.topic.num.partitions | int | 50 | 1..
share.coordinator.state.topic.segment.bytes | int | 104857600 | 1..
share.coordinator.threads | int | 1 | 1..
share.coordinator.snapshot.update.records.per.snapshot | int | 500 | 0..500
share.coordinator.load.buffer.size | int | 5242880 | 1..
share.coordinator.state.topic.compression.codec | int | 0
share.coordinator.append.linger.ms | int | -1 | -1..
share.coordinator.write.timeout.ms | int | 5000 | 1..
share.coordinator.cached.buffer.max.bytes | int | 1048588 | 524288..
# The broker looks for old transactions at intervals of its own.
transaction.abort.timed.out.transaction.cleanup.interval.ms | int | 10000 | 1..
transaction.remove.expired.transaction.cleanup.interval.ms | int | 3600000 | 1..
# Every batch of a transaction is verified.
transaction.partition.verification.enable | boolean | true
# Two-phase commit is not served.
transaction.two.phase.commit.enable | boolean | false
# There is no topic of transactions.
transaction.state.log.load.buffer.size | int | 5242880 | 1..
transaction.state.log.min.isr | int | 2 | 1..
transaction.state.log.num.partitions | int | 50 | 1..
transaction.state.log.replication.factor | short | 3 | 1..
transaction.state.log.segment.bytes | int | 104857600 | 1..
# Producers are looked for with the records, every `log.retention.check.interval.ms`.
producer.id.expiration.check.interval.ms | int | 600000 | 1..
# A request waits for the end of the transaction before.
add.partitions.to.txn.retry.backoff.ms | int | 20 | 1..
# `quota.window.size.seconds` is the window of all quotas of clients.
controller.quota.window.size.seconds | int | 1 | 1..
# There is one replica.
replication.quota.window.num | int | 11 | 1..
replication.quota.window.size.seconds | int | 1 | 1..
alter.log.dirs.replication.quota.window.num | int | 11 | 1..
alter.log.dirs.replication.quota.window.size.seconds | int | 1 | 1..
# Quotas are Kafka's own, without a callback.
client.quota.callback.class | class | null
# There are no Java policies.
alter.config.policy.class.name | class | null
create.topic.policy.class.name | class | null
# Nothing is tiered.
remote.log.storage.system.enable | boolean | false
log.local.retention.bytes | long | -2 | -2..
log.local.retention.ms | long | -2 | -2..
remote.log.storage.manager.impl.prefix | string | rsm.config.
remote.log.metadata.manager.impl.prefix | string | rlmm.config.
remote.log.storage.manager.class.name | string | null
remote.log.storage.manager.class.path | string | null
remote.log.metadata.manager.class.name | string | \
org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager
remote.log.metadata.manager.class.path | string | null
remote.log.metadata.manager.listener.name | string | null
remote.log.metadata.custom.metadata.max.bytes | int | 128 | 0..
remote.log.index.file.cache.total.size.bytes | long | 1073741824 | 1..
remote.log.manager.thread.pool.size | int | 2 | 1..
remote.log.manager.copier.thread.pool.size | int | 10 | 1..
remote.log.manager.expiration.thread.pool.size | int | 10 | 1..
remote.log.manager.follower.thread.pool.size | int | 2 | 1..
remote.log.manager.task.interval.ms | long | 30000 | 1..
remote.log.reader.threads | int | 10 | 1..
remote.log.reader.max.pending.tasks | int | 100 | 1..
remote.log.manager.copy.max.bytes.per.second | long | 9223372036854775807 | 1..
remote.log.manager.copy.quota.window.num | int | 11 | 1..
remote.log.manager.copy.quota.window.size.seconds | int | 1 | 1..
remote.log.manager.fetch.max.bytes.per.second | long | 9223372036854775807 | 1..
remote.log.manager.fetch.quota.window.num | int | 11 | 1..
remote.log.manager.fetch.quota.window.size.seconds | int | 1 | 1..
remote.fetch.max.wait.ms | int | 500 | 1..
remote.list.offsets.request.timeout.ms | long | 30000 | 1..
# A partition does not move alone: `pqbroker tablet move` moves its tablet.
replica.alter.log.dirs.io.max.bytes.per.second | long | 9223372036854775807 | 0..
# Metrics are at /metrics of the HTTP address.
metric.reporters | list | org.apache.kafka.common.metrics.JmxReporter
metrics.num.samples | int | 2 | 1..
metrics.recording.level | string | INFO
metrics.sample.window.ms | long | 30000 | 1..
kafka.metrics.reporters | list |
kafka.metrics.polling.interval.secs | int | 10 | 1..
# Clients do not send their metrics.
telemetry.max.bytes | int | 1048576 | 1..
# Values are taken as they stand: nothing is looked up.
config.providers | list |
# Groups are coordinated on the event loop.
group.coordinator.background.threads | int | 2 | 1..
group.coordinator.cached.buffer.max.bytes | int | 1048588 | 524288..
# Streams groups are not served.
group.streams.session.timeout.ms | int | 45000 | 1..
group.streams.min.session.timeout.ms | int | 45000 | 1..
group.streams.max.session.timeout.ms | int | 60000 | 1..
group.streams.heartbeat.interval.ms | int | 5000 | 1..
group.streams.min.heartbeat.interval.ms | int | 5000 | 1..
group.streams.max.heartbeat.interval.ms | int | 15000 | 1..
group.streams.max.size | int | 2147483647 | 1..
group.streams.num.standby.replicas | int | 0 | 0..
group.streams.max.standby.replicas | int | 2 | 0..
group.streams.initial.rebalance.delay.ms | int | 3000 | 0..
group.streams.assignment.interval.ms | int | 1000 | 0..
group.streams.min.assignment.interval.ms | int | 0 | 0..
group.streams.max.assignment.interval.ms | int | 15000 | 0..
"""
