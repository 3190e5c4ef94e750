"""Broker settings: every limit and choice of a node. Names are Kafka's where Kafka has one, `pqbroker.` otherwise.

Kafka's settings for access control are left out, hence refused: nobody shall believe in a lock that is not there.
"""

from dataclasses import dataclass

from pqbroker.conf.declare import Kind, setting, without_effect

MIB = 1 << 20
_INT_MAX = (1 << 31) - 1
_LONG_MAX = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    """What one node is set to."""

    node_id: int = setting("node.id", Kind.INT, 1, "The node's id in Kafka's metadata.", low=0)
    advertised_listeners: str = setting(
        "advertised.listeners", Kind.STRING, "",
        "[NAME://]HOST:PORT that clients are told to connect to, for each listener (`--kafka`) by its name; with one "
        "listener the first counts; empty: the address they came on.",
    )  # fmt: skip
    delete_topic_enable: bool = setting(
        "delete.topic.enable", Kind.BOOLEAN, True, "Whether topics may be deleted; if not: TOPIC_DELETION_DISABLED."
    )
    auto_create_topics_enable: bool = setting(
        "auto.create.topics.enable", Kind.BOOLEAN, True, "Create a topic that a client's Metadata request names."
    )
    num_partitions: int = setting(
        "num.partitions", Kind.INT, 1, "Partitions of a topic created without a count.", low=1, high=20_000
    )
    topic_partitions_max: int = setting(
        "pqbroker.topic.partitions.max", Kind.INT, 20_000, "Partitions a topic may have.", low=1, high=1_000_000
    )
    durability: str = setting(
        "pqbroker.durability", Kind.STRING, "fsync",
        "When a write is acknowledged: after fsync, after a write synced every interval, or after a write.",
        choices=("fsync", "interval", "none"),
    )  # fmt: skip
    sync_interval_ms: int = setting(
        "pqbroker.sync.interval.ms", Kind.INT, 100, "Time between syncs with durability=interval.", low=1
    )
    socket_request_max_bytes: int = setting(
        "socket.request.max.bytes", Kind.INT, 100 * MIB,
        "The largest request taken; a larger one closes the connection.", low=1024,
    )  # fmt: skip
    max_connections: int = setting(
        "max.connections", Kind.INT, 10_000, "Connections open at once; one more is closed at once.", low=1
    )
    connections_max_idle_ms: int = setting(
        "connections.max.idle.ms", Kind.LONG, 600_000,
        "A connection without a request for so long is closed; -1: never.", low=-1,
    )  # fmt: skip
    connection_requests_max: int = setting(
        "pqbroker.connection.requests.max", Kind.INT, 256,
        "Requests of one connection in work at once; reading pauses above.", low=1,
    )  # fmt: skip
    connection_bytes_max: int = setting(
        "pqbroker.connection.bytes.max", Kind.INT, 64 * MIB,
        "Request bytes of one connection in work at once; reading pauses above.", low=1024,
    )  # fmt: skip
    node_bytes_max: int = setting(
        "pqbroker.inflight.bytes.max", Kind.LONG, 256 * MIB,
        "Request bytes of all connections in work at once; reading pauses above.", low=1024,
    )  # fmt: skip
    drain_timeout_ms: int = setting(
        "pqbroker.drain.timeout.ms", Kind.INT, 5_000, "How long a stopping node waits for requests in work.", low=0
    )
    cell_reopen_timeout_ms: int = setting(
        "pqbroker.cell.reopen.timeout.ms", Kind.INT, 60_000,
        "How long a node tries to open a lost cell again before it exits.", low=0,
    )  # fmt: skip
    describe_partitions_max: int = setting(
        "max.request.partition.size.limit", Kind.INT, 2000, "Partitions that one DescribeTopicPartitions answer has.",
        low=1,
    )  # fmt: skip
    fetch_max_bytes: int = setting("fetch.max.bytes", Kind.INT, 55 * MIB, "The largest Fetch answer.", low=1024)
    fetch_sessions_max: int = setting(
        "max.incremental.fetch.session.cache.slots", Kind.INT, 1000,
        "Incremental fetch sessions kept; 0 turns them off.", low=0,
    )  # fmt: skip
    producer_id_expiration_ms: int = setting(
        "producer.id.expiration.ms", Kind.INT, 86_400_000,
        "How long an idle producer's sequence is remembered at least.", low=1,
    )  # fmt: skip
    retention_check_interval_ms: int = setting(
        "log.retention.check.interval.ms", Kind.LONG, 5_000, "Time between two looks for records past retention.", low=1
    )
    cache_bytes: int = setting(
        "pqbroker.cache.bytes", Kind.LONG, 128 * MIB, "Node-wide cache of blobs read from disk.", low=0
    )
    head_bytes: int = setting(
        "pqbroker.head.bytes", Kind.LONG, 256 * MIB, "Node-wide budget for heads kept in memory.", low=MIB
    )
    memory_engine_bytes: int = setting(
        "pqbroker.memory.engine.bytes", Kind.LONG, 1024 * MIB, "What a broker with --data :memory: may hold.", low=MIB
    )
    segment_bytes: int = setting(
        "pqbroker.segment.bytes", Kind.LONG, 64 * MIB,
        "Size of a blob segment; smaller where the disk is small (1 % of what is free).", low=MIB,
    )  # fmt: skip
    round_bytes_max: int = setting(
        "pqbroker.commit.round.bytes", Kind.INT, 16 * MIB, "Bytes that one group commit takes.", low=MIB
    )
    inline_bytes_max: int = setting(
        "pqbroker.inline.bytes", Kind.INT, 1000,
        "Values smaller than this are kept in the index instead of a segment.", low=0, high=65_536,
    )  # fmt: skip
    ballast_bytes: int = setting(
        "pqbroker.ballast.bytes", Kind.LONG, 8 * MIB, "A file kept to have room for deletes on a full disk.", low=0
    )
    pools: tuple[str, ...] = setting(
        "pqbroker.pools", Kind.LIST, (),
        "More places for blobs, each NAME=DIRECTORY, such as big=/mnt/big; `main` is the one in the data directory, "
        "which belongs on the fastest medium. A pool that has been given stays.",
    )  # fmt: skip
    storage_profile: tuple[str, ...] = setting(
        "pqbroker.storage.profile", Kind.LIST, (),
        "Where channels of new tablets go, and limits of each: TYPE.CHANNEL=POOL[:operations=N][:bytes=N][:space=N]; "
        "types scheme, persqueue, coordinator; channels 0 log, 1 snapshots, 2 data; operations and bytes a second, "
        "over which writes wait, bytes of space, over which they are refused.",
    )  # fmt: skip
    disk_yellow_bytes: int = setting(
        "pqbroker.disk.yellow.bytes", Kind.LONG, 256 * MIB,
        "Less free than this in a pool, beyond 32 MiB, stops writes with KAFKA_STORAGE_ERROR until there is more; a "
        "tenth of the disk if that is less.", low=0,
    )  # fmt: skip
    disk_light_yellow_bytes: int = setting(
        "pqbroker.disk.light.yellow.bytes", Kind.LONG, 1024 * MIB,
        "Less free than this says that channels should move to another pool; a fifth of the disk if that is less.",
        low=0,
    )  # fmt: skip
    compaction_bytes_per_second: int = setting(
        "pqbroker.compaction.bytes.per.second", Kind.LONG, 32 * MIB,
        "Blobs moved at most to empty mostly dead segments; 0: only a segment that is dead as a whole gives back its "
        "room.", low=0,
    )  # fmt: skip
    compaction_dead_percent: int = setting(
        "pqbroker.compaction.dead.percent", Kind.INT, 50, "How much of a segment is dead before it is emptied.",
        low=1, high=99,
    )  # fmt: skip
    read_threads: int = setting("pqbroker.read.threads", Kind.INT, 4, "Threads that read from disk.", low=1, high=256)
    write_cycle_bytes_max: int = setting(
        "pqbroker.write.cycle.bytes", Kind.INT, 16 * MIB, "Bytes of one write cycle of a partition.", low=MIB
    )
    write_queue_bytes_max: int = setting(
        "pqbroker.write.queue.bytes", Kind.INT, 30_000_000,
        "Bytes in flight at one partition; more are answered REQUEST_TIMED_OUT (retry). One batch is always taken.",
        low=MIB,
    )  # fmt: skip
    write_border_bytes: int = setting(
        "pqbroker.write.border.bytes", Kind.INT, 10_000_000,
        "Bytes in flight at one partition above which writers are told to pause.", low=MIB,
    )  # fmt: skip
    partition_reads_max: int = setting(
        "pqbroker.partition.reads.max", Kind.INT, 20,
        "Reads of one partition from the disk at once; more wait for their turn.", low=1,
    )  # fmt: skip

    # HTTP and metrics
    http_body_bytes_max: int = setting(
        "pqbroker.http.body.bytes.max", Kind.INT, 2 * MIB, "The largest body of an HTTP request.", low=1024
    )
    http_items_max: int = setting(
        "pqbroker.http.items.max", Kind.INT, 1000,
        "Topics, groups, tablets, keys, records or the like that an HTTP answer lists.", low=1, high=100_000,
    )  # fmt: skip
    http_answer_bytes_max: int = setting(
        "pqbroker.http.answer.bytes.max", Kind.INT, MIB,
        "Bytes of records that an HTTP answer shows; one record always.", low=1024,
    )  # fmt: skip
    http_look_bytes_max: int = setting(
        "pqbroker.http.look.bytes.max", Kind.INT, 32 * MIB,
        "Bytes of records that an HTTP request looks through, as they are without compression.", low=1024,
    )  # fmt: skip
    http_looks_max: int = setting(
        "pqbroker.http.looks.max", Kind.INT, 2, "HTTP requests that decode records at once; more wait.", low=1
    )
    metrics_partitions_max: int = setting(
        "pqbroker.metrics.partitions.max", Kind.INT, 500,
        "Partitions that have series of their own in `/metrics`; above, topics have, and above that the node.", low=0,
    )  # fmt: skip
    metrics_offsets_max: int = setting(
        "pqbroker.metrics.offsets.max", Kind.INT, 500,
        "Offsets of consumer groups that have a lag of their own in `/metrics`; above, groups have, and above that the "
        "node.", low=0,
    )  # fmt: skip

    # What a new topic is set to, where the topic itself does not say
    default_replication_factor: int = without_effect(
        "default.replication.factor", Kind.INT, 1, "There is one replica.", low=1
    )
    min_insync_replicas: int = without_effect(
        "min.insync.replicas", Kind.INT, 1, "There is one replica, synced before it acknowledges.", low=1
    )
    message_max_bytes: int = setting(
        "message.max.bytes", Kind.INT, 1_048_588, "Default of `max.message.bytes`.", low=0, high=125_829_120
    )
    log_cleanup_policy: tuple[str, ...] = setting(
        "log.cleanup.policy", Kind.LIST, ("delete",), "Default of `cleanup.policy`.", choices=("delete", "compact")
    )
    log_message_timestamp_type: str = setting(
        "log.message.timestamp.type", Kind.STRING, "CreateTime", "Default of `message.timestamp.type`.",
        choices=("CreateTime", "LogAppendTime"),
    )  # fmt: skip
    log_message_timestamp_before_max_ms: int = setting(
        "log.message.timestamp.before.max.ms", Kind.LONG, _LONG_MAX, "Default of `message.timestamp.before.max.ms`.",
        low=0,
    )  # fmt: skip
    log_message_timestamp_after_max_ms: int = setting(
        "log.message.timestamp.after.max.ms", Kind.LONG, 3_600_000, "Default of `message.timestamp.after.max.ms`.",
        low=0,
    )  # fmt: skip
    log_retention_ms: int | None = setting(
        "log.retention.ms", Kind.LONG, None, "Default of `retention.ms`; not set: the minutes decide.", low=-1
    )
    log_retention_minutes: int | None = setting(
        "log.retention.minutes", Kind.INT, None, "Default of `retention.ms` in minutes; not set: the hours decide.",
        low=-1,
    )  # fmt: skip
    log_retention_hours: int = setting(
        "log.retention.hours", Kind.INT, 168, "Default of `retention.ms` in hours.", low=-1
    )
    log_retention_bytes: int = setting("log.retention.bytes", Kind.LONG, -1, "Default of `retention.bytes`.", low=-1)
    compression_type: str = without_effect(
        "compression.type", Kind.STRING, "producer", "Batches are stored as the producer compressed them.",
        choices=("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"),
    )  # fmt: skip
    compression_gzip_level: int = without_effect("compression.gzip.level", Kind.INT, -1, "Nothing is recompressed.")
    compression_lz4_level: int = without_effect("compression.lz4.level", Kind.INT, 9, "Nothing is recompressed.")
    compression_zstd_level: int = without_effect("compression.zstd.level", Kind.INT, 3, "Nothing is recompressed.")

    # Kafka's settings without effect here: its files and threads
    broker_id: int = without_effect("broker.id", Kind.INT, -1, "`node.id` is the node's id.", low=-1)
    broker_rack: str | None = without_effect("broker.rack", Kind.STRING, None, "A node is in no rack.")
    listeners: tuple[str, ...] = without_effect(
        "listeners", Kind.LIST, ("PLAINTEXT://:9092",), "`--kafka` and `--http` decide where a node listens."
    )
    listener_security_protocol_map: str = without_effect(
        "listener.security.protocol.map", Kind.STRING, "PLAINTEXT:PLAINTEXT", "Listeners are plain."
    )
    inter_broker_listener_name: str | None = without_effect(
        "inter.broker.listener.name", Kind.STRING, None, "A node is its own controller."
    )
    security_inter_broker_protocol: str = without_effect(
        "security.inter.broker.protocol", Kind.STRING, "PLAINTEXT", "A node is its own controller."
    )
    log_dir: tuple[str, ...] = without_effect(
        "log.dir", Kind.LIST, ("/tmp/kafka-logs",), "`--data` is the directory."
    )
    log_dirs: tuple[str, ...] | None = without_effect("log.dirs", Kind.LIST, None, "`--data` is the directory.")
    background_threads: int = without_effect(
        "background.threads", Kind.INT, 10, "One event loop, and `pqbroker.read.threads`.", low=1
    )
    num_io_threads: int = without_effect(
        "num.io.threads", Kind.INT, 8, "One event loop, and `pqbroker.read.threads`.", low=1
    )
    num_network_threads: int = without_effect(
        "num.network.threads", Kind.INT, 3, "One event loop, and `pqbroker.read.threads`.", low=1
    )
    num_recovery_threads_per_data_dir: int = without_effect(
        "num.recovery.threads.per.data.dir", Kind.INT, 2, "One event loop, and `pqbroker.read.threads`.", low=1
    )
    num_replica_alter_log_dirs_threads: int | None = without_effect(
        "num.replica.alter.log.dirs.threads", Kind.INT, None, "One event loop, and `pqbroker.read.threads`."
    )
    queued_max_requests: int = without_effect(
        "queued.max.requests", Kind.INT, 500, "`pqbroker.connection.requests.max` is the limit.", low=1
    )
    queued_max_request_bytes: int = without_effect(
        "queued.max.request.bytes", Kind.LONG, -1, "`pqbroker.inflight.bytes.max` is the limit."
    )
    request_timeout_ms: int = without_effect(
        "request.timeout.ms", Kind.INT, 30_000, "A node is its own controller.", low=1
    )
    socket_listen_backlog_size: int = without_effect(
        "socket.listen.backlog.size", Kind.INT, 50, "The system's default.", low=1
    )
    socket_receive_buffer_bytes: int = without_effect(
        "socket.receive.buffer.bytes", Kind.INT, 102_400, "The system's default.", low=-1
    )
    socket_send_buffer_bytes: int = without_effect(
        "socket.send.buffer.bytes", Kind.INT, 102_400, "The system's default.", low=-1
    )
    max_connections_per_ip: int = without_effect(
        "max.connections.per.ip", Kind.INT, _INT_MAX, "`max.connections` is the limit.", low=0
    )
    max_connections_per_ip_overrides: str = without_effect(
        "max.connections.per.ip.overrides", Kind.STRING, "", "`max.connections` is the limit."
    )
    max_connection_creation_rate: int = without_effect(
        "max.connection.creation.rate", Kind.INT, _INT_MAX, "`max.connections` is the limit.", low=0
    )
    connection_failed_authentication_delay_ms: int = without_effect(
        "connection.failed.authentication.delay.ms", Kind.INT, 100, "Listeners are plain.", low=0
    )
    connections_max_reauth_ms: int = without_effect(
        "connections.max.reauth.ms", Kind.LONG, 0, "Listeners are plain.", low=0
    )
    log_flush_interval_messages: int = without_effect(
        "log.flush.interval.messages", Kind.LONG, _LONG_MAX, "`pqbroker.durability` decides when records are synced.",
        low=1,
    )  # fmt: skip
    log_flush_interval_ms: int | None = without_effect(
        "log.flush.interval.ms", Kind.LONG, None, "`pqbroker.durability` decides when records are synced."
    )
    log_flush_scheduler_interval_ms: int = without_effect(
        "log.flush.scheduler.interval.ms", Kind.LONG, _LONG_MAX,
        "`pqbroker.durability` decides when records are synced.",
    )  # fmt: skip
    log_flush_offset_checkpoint_interval_ms: int = without_effect(
        "log.flush.offset.checkpoint.interval.ms", Kind.INT, 60_000, "Recovery reads the index.", low=0
    )
    log_flush_start_offset_checkpoint_interval_ms: int = without_effect(
        "log.flush.start.offset.checkpoint.interval.ms", Kind.INT, 60_000, "Recovery reads the index.", low=0
    )
    log_index_interval_bytes: int = without_effect(
        "log.index.interval.bytes", Kind.INT, 4096, "A blob carries its own index, about every 32 KiB.", low=0
    )
    log_index_size_max_bytes: int = without_effect(
        "log.index.size.max.bytes", Kind.INT, 10_485_760, "A blob carries its own index.", low=4
    )
    log_segment_bytes: int = without_effect(
        "log.segment.bytes", Kind.INT, 1 << 30, "`pqbroker.segment.bytes` and the node decide on segments.", low=14
    )
    log_segment_delete_delay_ms: int = without_effect(
        "log.segment.delete.delay.ms", Kind.LONG, 60_000, "Space is given back when the deletion is durable.", low=0
    )
    log_roll_ms: int | None = without_effect(
        "log.roll.ms", Kind.LONG, None, "`pqbroker.segment.bytes` and the node decide on segments."
    )
    log_roll_hours: int = without_effect(
        "log.roll.hours", Kind.INT, 168, "`pqbroker.segment.bytes` and the node decide on segments.", low=1
    )
    log_roll_jitter_ms: int | None = without_effect(
        "log.roll.jitter.ms", Kind.LONG, None, "`pqbroker.segment.bytes` and the node decide on segments."
    )
    log_roll_jitter_hours: int = without_effect(
        "log.roll.jitter.hours", Kind.INT, 0, "`pqbroker.segment.bytes` and the node decide on segments.", low=0
    )
    log_preallocate: bool = without_effect(
        "log.preallocate", Kind.BOOLEAN, False, "`pqbroker.segment.bytes` and the node decide on segments."
    )
    log_initial_task_delay_ms: int = without_effect(
        "log.initial.task.delay.ms", Kind.LONG, 30_000, "Retention starts with the node.", low=0
    )
    log_dir_failure_timeout_ms: int = without_effect(
        "log.dir.failure.timeout.ms", Kind.LONG, 30_000, "A directory that fails closes its cell at once.", low=1
    )
    log_cleaner_enable: bool = without_effect(
        "log.cleaner.enable", Kind.BOOLEAN, True, "For the cleaner of compacted topics."
    )
    log_cleaner_threads: int = without_effect(
        "log.cleaner.threads", Kind.INT, 1, "For the cleaner of compacted topics.", low=0
    )
    log_cleaner_io_max_bytes_per_second: float = without_effect(
        "log.cleaner.io.max.bytes.per.second", Kind.DOUBLE, 1.7976931348623157e308,
        "For the cleaner of compacted topics.",
    )  # fmt: skip
    log_cleaner_dedupe_buffer_size: int = without_effect(
        "log.cleaner.dedupe.buffer.size", Kind.LONG, 134_217_728, "For the cleaner of compacted topics."
    )
    log_cleaner_io_buffer_size: int = without_effect(
        "log.cleaner.io.buffer.size", Kind.INT, 524_288, "For the cleaner of compacted topics.", low=0
    )
    log_cleaner_io_buffer_load_factor: float = without_effect(
        "log.cleaner.io.buffer.load.factor", Kind.DOUBLE, 0.9, "For the cleaner of compacted topics."
    )
    log_cleaner_backoff_ms: int = without_effect(
        "log.cleaner.backoff.ms", Kind.LONG, 15_000, "For the cleaner of compacted topics.", low=0
    )
    log_cleaner_min_cleanable_ratio: float = without_effect(
        "log.cleaner.min.cleanable.ratio", Kind.DOUBLE, 0.5, "For the cleaner of compacted topics.", low=0
    )
    log_cleaner_delete_retention_ms: int = without_effect(
        "log.cleaner.delete.retention.ms", Kind.LONG, 86_400_000, "For the cleaner of compacted topics.", low=0
    )
    log_cleaner_min_compaction_lag_ms: int = without_effect(
        "log.cleaner.min.compaction.lag.ms", Kind.LONG, 0, "For the cleaner of compacted topics.", low=0
    )
    log_cleaner_max_compaction_lag_ms: int = without_effect(
        "log.cleaner.max.compaction.lag.ms", Kind.LONG, _LONG_MAX, "For the cleaner of compacted topics.", low=1
    )

    # ... replication and the controller
    process_roles: tuple[str, ...] = without_effect("process.roles", Kind.LIST, (), "A node is its own controller.")
    controller_listener_names: tuple[str, ...] = without_effect(
        "controller.listener.names", Kind.LIST, (), "A node is its own controller."
    )
    controller_quorum_voters: tuple[str, ...] = without_effect(
        "controller.quorum.voters", Kind.LIST, (), "A node is its own controller."
    )
    controller_quorum_bootstrap_servers: tuple[str, ...] = without_effect(
        "controller.quorum.bootstrap.servers", Kind.LIST, (), "A node is its own controller."
    )
    controller_quorum_append_linger_ms: int = without_effect(
        "controller.quorum.append.linger.ms", Kind.INT, 25, "A node is its own controller."
    )
    controller_quorum_election_backoff_max_ms: int = without_effect(
        "controller.quorum.election.backoff.max.ms", Kind.INT, 1000, "A node is its own controller."
    )
    controller_quorum_election_timeout_ms: int = without_effect(
        "controller.quorum.election.timeout.ms", Kind.INT, 1000, "A node is its own controller."
    )
    controller_quorum_fetch_timeout_ms: int = without_effect(
        "controller.quorum.fetch.timeout.ms", Kind.INT, 2000, "A node is its own controller."
    )
    controller_quorum_request_timeout_ms: int = without_effect(
        "controller.quorum.request.timeout.ms", Kind.INT, 2000, "A node is its own controller."
    )
    controller_quorum_retry_backoff_ms: int = without_effect(
        "controller.quorum.retry.backoff.ms", Kind.INT, 20, "A node is its own controller."
    )
    broker_heartbeat_interval_ms: int = without_effect(
        "broker.heartbeat.interval.ms", Kind.INT, 2000, "A node is its own controller."
    )
    broker_session_timeout_ms: int = without_effect(
        "broker.session.timeout.ms", Kind.INT, 9000, "A node is its own controller."
    )
    initial_broker_registration_timeout_ms: int = without_effect(
        "initial.broker.registration.timeout.ms", Kind.INT, 60_000, "A node is its own controller."
    )
    metadata_log_dir: str | None = without_effect(
        "metadata.log.dir", Kind.STRING, None, "A node is its own controller."
    )
    metadata_log_segment_bytes: int = without_effect(
        "metadata.log.segment.bytes", Kind.INT, 1 << 30, "A node is its own controller."
    )
    metadata_log_segment_ms: int = without_effect(
        "metadata.log.segment.ms", Kind.LONG, 604_800_000, "A node is its own controller."
    )
    metadata_log_max_record_bytes_between_snapshots: int = without_effect(
        "metadata.log.max.record.bytes.between.snapshots", Kind.LONG, 20_971_520, "A node is its own controller."
    )
    metadata_log_max_snapshot_interval_ms: int = without_effect(
        "metadata.log.max.snapshot.interval.ms", Kind.LONG, 3_600_000, "A node is its own controller."
    )
    metadata_max_retention_bytes: int = without_effect(
        "metadata.max.retention.bytes", Kind.LONG, 104_857_600, "A node is its own controller."
    )
    metadata_max_retention_ms: int = without_effect(
        "metadata.max.retention.ms", Kind.LONG, 604_800_000, "A node is its own controller."
    )
    metadata_max_idle_interval_ms: int = without_effect(
        "metadata.max.idle.interval.ms", Kind.INT, 500, "A node is its own controller."
    )
    controlled_shutdown_enable: bool = without_effect(
        "controlled.shutdown.enable", Kind.BOOLEAN, True, "A node is its own controller."
    )
    server_max_startup_time_ms: int = without_effect(
        "server.max.startup.time.ms", Kind.LONG, _LONG_MAX, "A node is its own controller."
    )
    auto_leader_rebalance_enable: bool = without_effect(
        "auto.leader.rebalance.enable", Kind.BOOLEAN, True, "There is one replica."
    )
    leader_imbalance_check_interval_seconds: int = without_effect(
        "leader.imbalance.check.interval.seconds", Kind.LONG, 300, "There is one replica."
    )
    leader_imbalance_per_broker_percentage: int = without_effect(
        "leader.imbalance.per.broker.percentage", Kind.INT, 10, "There is one replica."
    )
    unclean_leader_election_enable: bool = without_effect(
        "unclean.leader.election.enable", Kind.BOOLEAN, False, "There is one replica."
    )
    unclean_leader_election_interval_ms: int = without_effect(
        "unclean.leader.election.interval.ms", Kind.LONG, 300_000, "There is one replica."
    )
    num_replica_fetchers: int = without_effect("num.replica.fetchers", Kind.INT, 1, "There is one replica.")
    replica_fetch_backoff_ms: int = without_effect("replica.fetch.backoff.ms", Kind.INT, 1000, "There is one replica.")
    replica_fetch_max_bytes: int = without_effect(
        "replica.fetch.max.bytes", Kind.INT, 1_048_576, "There is one replica."
    )
    replica_fetch_min_bytes: int = without_effect("replica.fetch.min.bytes", Kind.INT, 1, "There is one replica.")
    replica_fetch_response_max_bytes: int = without_effect(
        "replica.fetch.response.max.bytes", Kind.INT, 10_485_760, "There is one replica."
    )
    replica_fetch_wait_max_ms: int = without_effect("replica.fetch.wait.max.ms", Kind.INT, 500, "There is one replica.")
    replica_high_watermark_checkpoint_interval_ms: int = without_effect(
        "replica.high.watermark.checkpoint.interval.ms", Kind.LONG, 5000, "There is one replica."
    )
    replica_lag_time_max_ms: int = without_effect("replica.lag.time.max.ms", Kind.LONG, 30_000, "There is one replica.")
    replica_selector_class: str | None = without_effect(
        "replica.selector.class", Kind.STRING, None, "There is one replica."
    )
    replica_socket_receive_buffer_bytes: int = without_effect(
        "replica.socket.receive.buffer.bytes", Kind.INT, 65_536, "There is one replica."
    )
    replica_socket_timeout_ms: int = without_effect(
        "replica.socket.timeout.ms", Kind.INT, 30_000, "There is one replica."
    )
    follower_fetch_last_tiered_offset_enable: bool = without_effect(
        "follower.fetch.last.tiered.offset.enable", Kind.BOOLEAN, False, "There is one replica."
    )
    fetch_purgatory_purge_interval_requests: int = without_effect(
        "fetch.purgatory.purge.interval.requests", Kind.INT, 1000, "What waits is dropped when it is answered."
    )
    producer_purgatory_purge_interval_requests: int = without_effect(
        "producer.purgatory.purge.interval.requests", Kind.INT, 1000, "What waits is dropped when it is answered."
    )
    delete_records_purgatory_purge_interval_requests: int = without_effect(
        "delete.records.purgatory.purge.interval.requests", Kind.INT, 1, "What waits is dropped when it is answered."
    )

    # ... consumer groups and transactions
    group_initial_rebalance_delay_ms: int = setting(
        "group.initial.rebalance.delay.ms", Kind.INT, 3000,
        "How long the first rebalance of an empty group waits for more members.", low=0,
    )  # fmt: skip
    group_min_session_timeout_ms: int = setting(
        "group.min.session.timeout.ms", Kind.INT, 6000, "The shortest session timeout a member may ask for.", low=0
    )
    group_max_session_timeout_ms: int = setting(
        "group.max.session.timeout.ms", Kind.INT, 1_800_000, "The longest session timeout a member may ask for.", low=0
    )
    group_max_size: int = setting(
        "group.max.size", Kind.INT, _INT_MAX, "Members that a group may have.", low=1
    )
    group_coordinator_append_linger_ms: int = without_effect(
        "group.coordinator.append.linger.ms", Kind.INT, -1, "For consumer groups.", low=-1
    )
    group_coordinator_rebalance_protocols: tuple[str, ...] = without_effect(
        "group.coordinator.rebalance.protocols", Kind.LIST, ("classic", "consumer", "streams"), "For consumer groups."
    )
    group_coordinator_threads: int = without_effect(
        "group.coordinator.threads", Kind.INT, 4, "For consumer groups.", low=0
    )
    group_consumer_assignors: tuple[str, ...] = without_effect(
        "group.consumer.assignors", Kind.LIST, ("uniform", "range"), "For consumer groups."
    )
    group_consumer_heartbeat_interval_ms: int = without_effect(
        "group.consumer.heartbeat.interval.ms", Kind.INT, 5000, "For consumer groups.", low=0
    )
    group_consumer_min_heartbeat_interval_ms: int = without_effect(
        "group.consumer.min.heartbeat.interval.ms", Kind.INT, 5000, "For consumer groups.", low=0
    )
    group_consumer_max_heartbeat_interval_ms: int = without_effect(
        "group.consumer.max.heartbeat.interval.ms", Kind.INT, 15_000, "For consumer groups.", low=0
    )
    group_consumer_session_timeout_ms: int = without_effect(
        "group.consumer.session.timeout.ms", Kind.INT, 45_000, "For consumer groups.", low=0
    )
    group_consumer_min_session_timeout_ms: int = without_effect(
        "group.consumer.min.session.timeout.ms", Kind.INT, 45_000, "For consumer groups.", low=0
    )
    group_consumer_max_session_timeout_ms: int = without_effect(
        "group.consumer.max.session.timeout.ms", Kind.INT, 60_000, "For consumer groups.", low=0
    )
    group_consumer_max_size: int = without_effect(
        "group.consumer.max.size", Kind.INT, _INT_MAX, "For consumer groups.", low=0
    )
    group_consumer_migration_policy: str = without_effect(
        "group.consumer.migration.policy", Kind.STRING, "bidirectional", "For consumer groups."
    )
    group_consumer_regex_refresh_interval_ms: int = without_effect(
        "group.consumer.regex.refresh.interval.ms", Kind.INT, 600_000, "For consumer groups.", low=0
    )
    offset_metadata_max_bytes: int = setting(
        "offset.metadata.max.bytes", Kind.INT, 4096,
        "The longest text that a consumer may commit with an offset, in characters.", low=0, high=16_000,
    )  # fmt: skip
    offsets_retention_minutes: int = setting(
        "offsets.retention.minutes", Kind.INT, 10_080,
        "How long a group and its offsets are kept after its last member has left.", low=1,
    )  # fmt: skip
    partition_consumers_max: int = setting(
        "pqbroker.partition.consumers.max", Kind.INT, 10_000,
        "Consumer groups with an offset in one partition; the commit of one more is refused.", low=1,
    )  # fmt: skip
    offsets_commit_timeout_ms: int = without_effect(
        "offsets.commit.timeout.ms", Kind.INT, 5000, "A commit is done when its store has synced it.", low=0
    )
    offsets_load_buffer_size: int = without_effect(
        "offsets.load.buffer.size", Kind.INT, 5_242_880, "Offsets are rows of their partitions.", low=0
    )
    offsets_retention_check_interval_ms: int = without_effect(
        "offsets.retention.check.interval.ms", Kind.LONG, 600_000,
        "Looked at with the records, every `log.retention.check.interval.ms`.", low=0,
    )  # fmt: skip
    offsets_topic_compression_codec: int = without_effect(
        "offsets.topic.compression.codec", Kind.INT, 0, "There is no topic of offsets.", low=0
    )
    offsets_topic_num_partitions: int = without_effect(
        "offsets.topic.num.partitions", Kind.INT, 50, "There is no topic of offsets.", low=0
    )
    offsets_topic_replication_factor: int = without_effect(
        "offsets.topic.replication.factor", Kind.SHORT, 3, "There is no topic of offsets.", low=0
    )
    offsets_topic_segment_bytes: int = without_effect(
        "offsets.topic.segment.bytes", Kind.INT, 104_857_600, "There is no topic of offsets.", low=0
    )
    share_coordinator_state_topic_min_isr: int = without_effect(
        "share.coordinator.state.topic.min.isr", Kind.SHORT, 2, "Share groups are not served.", low=1
    )
    share_coordinator_state_topic_replication_factor: int = without_effect(
        "share.coordinator.state.topic.replication.factor", Kind.SHORT, 3, "Share groups are not served.", low=1
    )
    transaction_max_timeout_ms: int = without_effect(
        "transaction.max.timeout.ms", Kind.INT, 900_000, "For transactions.", low=1
    )
    transactional_id_expiration_ms: int = without_effect(
        "transactional.id.expiration.ms", Kind.INT, 604_800_000, "For transactions.", low=1
    )
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = without_effect(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms", Kind.INT, 10_000, "For transactions.", low=1
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: int = without_effect(
        "transaction.remove.expired.transaction.cleanup.interval.ms", Kind.INT, 3_600_000, "For transactions.", low=1
    )
    transaction_partition_verification_enable: bool = without_effect(
        "transaction.partition.verification.enable", Kind.BOOLEAN, True, "For transactions."
    )
    transaction_two_phase_commit_enable: bool = without_effect(
        "transaction.two.phase.commit.enable", Kind.BOOLEAN, False, "For transactions."
    )
    transaction_state_log_load_buffer_size: int = without_effect(
        "transaction.state.log.load.buffer.size", Kind.INT, 5_242_880, "For transactions.", low=1
    )
    transaction_state_log_min_isr: int = without_effect(
        "transaction.state.log.min.isr", Kind.INT, 2, "For transactions.", low=1
    )
    transaction_state_log_num_partitions: int = without_effect(
        "transaction.state.log.num.partitions", Kind.INT, 50, "For transactions.", low=1
    )
    transaction_state_log_replication_factor: int = without_effect(
        "transaction.state.log.replication.factor", Kind.SHORT, 3, "For transactions.", low=1
    )
    transaction_state_log_segment_bytes: int = without_effect(
        "transaction.state.log.segment.bytes", Kind.INT, 104_857_600, "For transactions.", low=1
    )
    producer_id_expiration_check_interval_ms: int = without_effect(
        "producer.id.expiration.check.interval.ms", Kind.INT, 600_000, "For transactions.", low=1
    )

    # ... quotas, policies, tiers, metrics
    quota_window_num: int = without_effect("quota.window.num", Kind.INT, 11, "For quotas.")
    quota_window_size_seconds: int = without_effect("quota.window.size.seconds", Kind.INT, 1, "For quotas.")
    controller_quota_window_num: int = without_effect("controller.quota.window.num", Kind.INT, 11, "For quotas.")
    controller_quota_window_size_seconds: int = without_effect(
        "controller.quota.window.size.seconds", Kind.INT, 1, "For quotas."
    )
    replication_quota_window_num: int = without_effect("replication.quota.window.num", Kind.INT, 11, "For quotas.")
    replication_quota_window_size_seconds: int = without_effect(
        "replication.quota.window.size.seconds", Kind.INT, 1, "For quotas."
    )
    alter_log_dirs_replication_quota_window_num: int = without_effect(
        "alter.log.dirs.replication.quota.window.num", Kind.INT, 11, "For quotas."
    )
    alter_log_dirs_replication_quota_window_size_seconds: int = without_effect(
        "alter.log.dirs.replication.quota.window.size.seconds", Kind.INT, 1, "For quotas."
    )
    client_quota_callback_class: str | None = without_effect(
        "client.quota.callback.class", Kind.CLASS, None, "For quotas."
    )
    alter_config_policy_class_name: str | None = without_effect(
        "alter.config.policy.class.name", Kind.CLASS, None, "There are no Java policies."
    )
    create_topic_policy_class_name: str | None = without_effect(
        "create.topic.policy.class.name", Kind.CLASS, None, "There are no Java policies."
    )
    remote_log_storage_system_enable: bool = without_effect(
        "remote.log.storage.system.enable", Kind.BOOLEAN, False, "Nothing is tiered."
    )
    log_local_retention_bytes: int = without_effect(
        "log.local.retention.bytes", Kind.LONG, -2, "Nothing is tiered.", low=-2
    )
    log_local_retention_ms: int = without_effect("log.local.retention.ms", Kind.LONG, -2, "Nothing is tiered.", low=-2)
    metric_reporters: tuple[str, ...] = without_effect(
        "metric.reporters", Kind.LIST, ("org.apache.kafka.common.metrics.JmxReporter",),
        "Metrics are at /metrics of the HTTP address.",
    )  # fmt: skip
    metrics_num_samples: int = without_effect(
        "metrics.num.samples", Kind.INT, 2, "Metrics are at /metrics of the HTTP address."
    )
    metrics_recording_level: str = without_effect(
        "metrics.recording.level", Kind.STRING, "INFO", "Metrics are at /metrics of the HTTP address."
    )
    metrics_sample_window_ms: int = without_effect(
        "metrics.sample.window.ms", Kind.LONG, 30_000, "Metrics are at /metrics of the HTTP address."
    )
    telemetry_max_bytes: int = without_effect(
        "telemetry.max.bytes", Kind.INT, 1_048_576, "Clients do not send their metrics."
    )

    # ... what only later parts of Kafka have
    remote_log_storage_manager_impl_prefix: str = without_effect(
        "remote.log.storage.manager.impl.prefix", Kind.STRING, "rsm.config.", "Nothing is tiered."
    )
    remote_log_metadata_manager_impl_prefix: str = without_effect(
        "remote.log.metadata.manager.impl.prefix", Kind.STRING, "rlmm.config.", "Nothing is tiered."
    )
    remote_log_storage_manager_class_name: str | None = without_effect(
        "remote.log.storage.manager.class.name", Kind.STRING, None, "Nothing is tiered."
    )
    remote_log_storage_manager_class_path: str | None = without_effect(
        "remote.log.storage.manager.class.path", Kind.STRING, None, "Nothing is tiered."
    )
    remote_log_metadata_manager_class_name: str = without_effect(
        "remote.log.metadata.manager.class.name",
        Kind.STRING,
        ("org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager"),
        "Nothing is tiered.",
    )
    remote_log_metadata_manager_class_path: str | None = without_effect(
        "remote.log.metadata.manager.class.path", Kind.STRING, None, "Nothing is tiered."
    )
    remote_log_metadata_manager_listener_name: str | None = without_effect(
        "remote.log.metadata.manager.listener.name", Kind.STRING, None, "Nothing is tiered."
    )
    remote_log_metadata_custom_metadata_max_bytes: int = without_effect(
        "remote.log.metadata.custom.metadata.max.bytes", Kind.INT, 128, "Nothing is tiered.", low=0
    )
    remote_log_index_file_cache_total_size_bytes: int = without_effect(
        "remote.log.index.file.cache.total.size.bytes", Kind.LONG, 1 << 30, "Nothing is tiered.", low=1
    )
    remote_log_manager_thread_pool_size: int = without_effect(
        "remote.log.manager.thread.pool.size", Kind.INT, 2, "Nothing is tiered.", low=1
    )
    remote_log_manager_copier_thread_pool_size: int = without_effect(
        "remote.log.manager.copier.thread.pool.size", Kind.INT, 10, "Nothing is tiered.", low=1
    )
    remote_log_manager_expiration_thread_pool_size: int = without_effect(
        "remote.log.manager.expiration.thread.pool.size", Kind.INT, 10, "Nothing is tiered.", low=1
    )
    remote_log_manager_follower_thread_pool_size: int = without_effect(
        "remote.log.manager.follower.thread.pool.size", Kind.INT, 2, "Nothing is tiered.", low=1
    )
    remote_log_manager_task_interval_ms: int = without_effect(
        "remote.log.manager.task.interval.ms", Kind.LONG, 30_000, "Nothing is tiered.", low=1
    )
    remote_log_reader_threads: int = without_effect(
        "remote.log.reader.threads", Kind.INT, 10, "Nothing is tiered.", low=1
    )
    remote_log_reader_max_pending_tasks: int = without_effect(
        "remote.log.reader.max.pending.tasks", Kind.INT, 100, "Nothing is tiered.", low=1
    )
    remote_log_manager_copy_max_bytes_per_second: int = without_effect(
        "remote.log.manager.copy.max.bytes.per.second", Kind.LONG, _LONG_MAX, "Nothing is tiered.", low=1
    )
    remote_log_manager_copy_quota_window_num: int = without_effect(
        "remote.log.manager.copy.quota.window.num", Kind.INT, 11, "Nothing is tiered.", low=1
    )
    remote_log_manager_copy_quota_window_size_seconds: int = without_effect(
        "remote.log.manager.copy.quota.window.size.seconds", Kind.INT, 1, "Nothing is tiered.", low=1
    )
    remote_log_manager_fetch_max_bytes_per_second: int = without_effect(
        "remote.log.manager.fetch.max.bytes.per.second", Kind.LONG, _LONG_MAX, "Nothing is tiered.", low=1
    )
    remote_log_manager_fetch_quota_window_num: int = without_effect(
        "remote.log.manager.fetch.quota.window.num", Kind.INT, 11, "Nothing is tiered.", low=1
    )
    remote_log_manager_fetch_quota_window_size_seconds: int = without_effect(
        "remote.log.manager.fetch.quota.window.size.seconds", Kind.INT, 1, "Nothing is tiered.", low=1
    )
    remote_fetch_max_wait_ms: int = without_effect(
        "remote.fetch.max.wait.ms", Kind.INT, 500, "Nothing is tiered.", low=1
    )
    remote_list_offsets_request_timeout_ms: int = without_effect(
        "remote.list.offsets.request.timeout.ms", Kind.LONG, 30_000, "Nothing is tiered.", low=1
    )
    socket_connection_setup_timeout_ms: int = without_effect(
        "socket.connection.setup.timeout.ms", Kind.LONG, 10_000, "A node is its own controller."
    )
    socket_connection_setup_timeout_max_ms: int = without_effect(
        "socket.connection.setup.timeout.max.ms", Kind.LONG, 30_000, "A node is its own controller."
    )
    early_start_listeners: tuple[str, ...] | None = without_effect(
        "early.start.listeners", Kind.LIST, None, "A node is its own controller."
    )
    controller_socket_timeout_ms: int = without_effect(
        "controller.socket.timeout.ms", Kind.INT, 30_000, "A node is its own controller."
    )
    controller_quorum_auto_join_enable: bool = without_effect(
        "controller.quorum.auto.join.enable", Kind.BOOLEAN, False, "A node is its own controller."
    )
    controller_quorum_fetch_snapshot_max_bytes: int = without_effect(
        "controller.quorum.fetch.snapshot.max.bytes", Kind.INT, 1_048_576, "A node is its own controller.", low=1
    )
    controller_quorum_fetch_max_bytes: int = without_effect(
        "controller.quorum.fetch.max.bytes", Kind.INT, 1_048_576, "A node is its own controller.", low=1
    )
    config_providers: tuple[str, ...] = without_effect(
        "config.providers", Kind.LIST, (), "Values are taken as they stand: nothing is looked up."
    )
    group_coordinator_background_threads: int = without_effect(
        "group.coordinator.background.threads", Kind.INT, 2, "Groups are coordinated on the event loop.", low=1
    )
    group_coordinator_cached_buffer_max_bytes: int = without_effect(
        "group.coordinator.cached.buffer.max.bytes",
        Kind.INT,
        1_048_588,
        "Groups are coordinated on the event loop.",
        low=524288,
    )
    group_consumer_assignment_interval_ms: int = without_effect(
        "group.consumer.assignment.interval.ms", Kind.INT, 1000, "Consumer groups of KIP-848 are not served.", low=0
    )
    group_consumer_min_assignment_interval_ms: int = without_effect(
        "group.consumer.min.assignment.interval.ms", Kind.INT, 0, "Consumer groups of KIP-848 are not served.", low=0
    )
    group_consumer_max_assignment_interval_ms: int = without_effect(
        "group.consumer.max.assignment.interval.ms",
        Kind.INT,
        15_000,
        "Consumer groups of KIP-848 are not served.",
        low=0,
    )
    group_share_session_timeout_ms: int = without_effect(
        "group.share.session.timeout.ms", Kind.INT, 45_000, "Share groups are not served.", low=1
    )
    group_share_min_session_timeout_ms: int = without_effect(
        "group.share.min.session.timeout.ms", Kind.INT, 45_000, "Share groups are not served.", low=1
    )
    group_share_max_session_timeout_ms: int = without_effect(
        "group.share.max.session.timeout.ms", Kind.INT, 60_000, "Share groups are not served.", low=1
    )
    group_share_heartbeat_interval_ms: int = without_effect(
        "group.share.heartbeat.interval.ms", Kind.INT, 5000, "Share groups are not served.", low=1
    )
    group_share_min_heartbeat_interval_ms: int = without_effect(
        "group.share.min.heartbeat.interval.ms", Kind.INT, 5000, "Share groups are not served.", low=1
    )
    group_share_max_heartbeat_interval_ms: int = without_effect(
        "group.share.max.heartbeat.interval.ms", Kind.INT, 15_000, "Share groups are not served.", low=1
    )
    group_share_max_size: int = without_effect(
        "group.share.max.size", Kind.INT, 200, "Share groups are not served.", low=1, high=1000
    )
    group_share_assignors: tuple[str, ...] = without_effect(
        "group.share.assignors", Kind.LIST, ("simple",), "Share groups are not served."
    )
    group_share_assignment_interval_ms: int = without_effect(
        "group.share.assignment.interval.ms", Kind.INT, 1000, "Share groups are not served.", low=0
    )
    group_share_min_assignment_interval_ms: int = without_effect(
        "group.share.min.assignment.interval.ms", Kind.INT, 0, "Share groups are not served.", low=0
    )
    group_share_max_assignment_interval_ms: int = without_effect(
        "group.share.max.assignment.interval.ms", Kind.INT, 15_000, "Share groups are not served.", low=0
    )
    group_share_delivery_count_limit: int = without_effect(
        "group.share.delivery.count.limit", Kind.INT, 5, "Share groups are not served.", low=2, high=10
    )
    group_share_max_delivery_count_limit: int = without_effect(
        "group.share.max.delivery.count.limit", Kind.INT, 10, "Share groups are not served.", low=5, high=25
    )
    group_share_min_delivery_count_limit: int = without_effect(
        "group.share.min.delivery.count.limit", Kind.INT, 2, "Share groups are not served.", low=2, high=5
    )
    group_share_record_lock_duration_ms: int = without_effect(
        "group.share.record.lock.duration.ms", Kind.INT, 30_000, "Share groups are not served.", low=1000, high=3600000
    )
    group_share_min_record_lock_duration_ms: int = without_effect(
        "group.share.min.record.lock.duration.ms",
        Kind.INT,
        15_000,
        "Share groups are not served.",
        low=1000,
        high=30000,
    )
    group_share_max_record_lock_duration_ms: int = without_effect(
        "group.share.max.record.lock.duration.ms",
        Kind.INT,
        60_000,
        "Share groups are not served.",
        low=30000,
        high=3600000,
    )
    group_share_partition_max_record_locks: int = without_effect(
        "group.share.partition.max.record.locks", Kind.INT, 2000, "Share groups are not served.", low=100, high=10000
    )
    group_share_max_partition_max_record_locks: int = without_effect(
        "group.share.max.partition.max.record.locks",
        Kind.INT,
        4000,
        "Share groups are not served.",
        low=2000,
        high=10000,
    )
    group_share_min_partition_max_record_locks: int = without_effect(
        "group.share.min.partition.max.record.locks", Kind.INT, 100, "Share groups are not served.", low=100, high=2000
    )
    share_fetch_purgatory_purge_interval_requests: int = without_effect(
        "share.fetch.purgatory.purge.interval.requests", Kind.INT, 1000, "Share groups are not served."
    )
    group_share_max_share_sessions: int = without_effect(
        "group.share.max.share.sessions", Kind.INT, 2000, "Share groups are not served.", low=1
    )
    share_coordinator_state_topic_num_partitions: int = without_effect(
        "share.coordinator.state.topic.num.partitions", Kind.INT, 50, "Share groups are not served.", low=1
    )
    share_coordinator_state_topic_segment_bytes: int = without_effect(
        "share.coordinator.state.topic.segment.bytes", Kind.INT, 104_857_600, "Share groups are not served.", low=1
    )
    share_coordinator_threads: int = without_effect(
        "share.coordinator.threads", Kind.INT, 1, "Share groups are not served.", low=1
    )
    share_coordinator_snapshot_update_records_per_snapshot: int = without_effect(
        "share.coordinator.snapshot.update.records.per.snapshot",
        Kind.INT,
        500,
        "Share groups are not served.",
        low=0,
        high=500,
    )
    share_coordinator_load_buffer_size: int = without_effect(
        "share.coordinator.load.buffer.size", Kind.INT, 5_242_880, "Share groups are not served.", low=1
    )
    share_coordinator_state_topic_compression_codec: int = without_effect(
        "share.coordinator.state.topic.compression.codec", Kind.INT, 0, "Share groups are not served."
    )
    share_coordinator_append_linger_ms: int = without_effect(
        "share.coordinator.append.linger.ms", Kind.INT, -1, "Share groups are not served.", low=-1
    )
    share_coordinator_write_timeout_ms: int = without_effect(
        "share.coordinator.write.timeout.ms", Kind.INT, 5000, "Share groups are not served.", low=1
    )
    share_coordinator_cached_buffer_max_bytes: int = without_effect(
        "share.coordinator.cached.buffer.max.bytes", Kind.INT, 1_048_588, "Share groups are not served.", low=524288
    )
    group_streams_session_timeout_ms: int = without_effect(
        "group.streams.session.timeout.ms", Kind.INT, 45_000, "Streams groups are not served.", low=1
    )
    group_streams_min_session_timeout_ms: int = without_effect(
        "group.streams.min.session.timeout.ms", Kind.INT, 45_000, "Streams groups are not served.", low=1
    )
    group_streams_max_session_timeout_ms: int = without_effect(
        "group.streams.max.session.timeout.ms", Kind.INT, 60_000, "Streams groups are not served.", low=1
    )
    group_streams_heartbeat_interval_ms: int = without_effect(
        "group.streams.heartbeat.interval.ms", Kind.INT, 5000, "Streams groups are not served.", low=1
    )
    group_streams_min_heartbeat_interval_ms: int = without_effect(
        "group.streams.min.heartbeat.interval.ms", Kind.INT, 5000, "Streams groups are not served.", low=1
    )
    group_streams_max_heartbeat_interval_ms: int = without_effect(
        "group.streams.max.heartbeat.interval.ms", Kind.INT, 15_000, "Streams groups are not served.", low=1
    )
    group_streams_max_size: int = without_effect(
        "group.streams.max.size", Kind.INT, _INT_MAX, "Streams groups are not served.", low=1
    )
    group_streams_num_standby_replicas: int = without_effect(
        "group.streams.num.standby.replicas", Kind.INT, 0, "Streams groups are not served.", low=0
    )
    group_streams_max_standby_replicas: int = without_effect(
        "group.streams.max.standby.replicas", Kind.INT, 2, "Streams groups are not served.", low=0
    )
    group_streams_initial_rebalance_delay_ms: int = without_effect(
        "group.streams.initial.rebalance.delay.ms", Kind.INT, 3000, "Streams groups are not served.", low=0
    )
    group_streams_assignment_interval_ms: int = without_effect(
        "group.streams.assignment.interval.ms", Kind.INT, 1000, "Streams groups are not served.", low=0
    )
    group_streams_min_assignment_interval_ms: int = without_effect(
        "group.streams.min.assignment.interval.ms", Kind.INT, 0, "Streams groups are not served.", low=0
    )
    group_streams_max_assignment_interval_ms: int = without_effect(
        "group.streams.max.assignment.interval.ms", Kind.INT, 15_000, "Streams groups are not served.", low=0
    )
    cordoned_log_dirs: tuple[str, ...] = without_effect(
        "cordoned.log.dirs", Kind.LIST, (), "`--data` is the directory."
    )
    kafka_metrics_reporters: tuple[str, ...] = without_effect(
        "kafka.metrics.reporters", Kind.LIST, (), "Metrics are at /metrics of the HTTP address."
    )
    kafka_metrics_polling_interval_secs: int = without_effect(
        "kafka.metrics.polling.interval.secs", Kind.INT, 10, "Metrics are at /metrics of the HTTP address.", low=1
    )
    add_partitions_to_txn_retry_backoff_max_ms: int = without_effect(
        "add.partitions.to.txn.retry.backoff.max.ms", Kind.INT, 100, "For transactions.", low=0
    )
    add_partitions_to_txn_retry_backoff_ms: int = without_effect(
        "add.partitions.to.txn.retry.backoff.ms", Kind.INT, 20, "For transactions.", low=1
    )
