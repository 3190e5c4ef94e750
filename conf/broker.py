"""Broker settings: every limit and choice of a node. Names are Kafka's where Kafka has one, `pqbroker.` otherwise.

Those of access rules, the audit log, TLS, the cleaner, HTTP, logins, several nodes, quotas, registries, searches, SQL,
consumer groups, transactional producers and test brokers are declared in `access`, `audit`, `tls`, `cleaner`, `http`,
`logins` and `oauth`, `peers`, `quotas`, `registry`, `search`, `sql`, `consumer_groups`, `transactional_producers` and
`cues`; those of Kafka's that change nothing here are tables, in `without_effect` and `access_control`.
"""

from dataclasses import dataclass
from typing import Any

from pqbroker.conf import (
    access,
    audit,
    cleaner,
    consumer_groups,
    cues,
    http,
    logins,
    peers,
    quotas,
    registry,
    search,
    sql,
    storage,
    tables,
    tls,
    topic_defaults,
    transactional_producers,
    transactions,
)
from pqbroker.conf.access_control import ACCESS_CONTROL
from pqbroker.conf.addresses import address_counts
from pqbroker.conf.declare import Kind, of_listeners, rows, setting
from pqbroker.conf.oauth import OAUTH
from pqbroker.conf.without_effect import WITHOUT_EFFECT

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    """The settings of one node."""

    node_id: int = setting("node.id", Kind.INT, 1, "The node's id in Kafka's metadata.", low=0)
    listeners: tuple[str, ...] = setting(
        "listeners", Kind.LIST, ("PLAINTEXT://:9092",),
        "[NAME://]HOST:PORT that Kafka clients connect to, where neither `--kafka` nor PQBROKER_LISTEN_KAFKA says so; "
        "no host: all addresses. Listeners of `controller.listener.names` are left out. Not set: 127.0.0.1:9092.",
    )  # fmt: skip
    log_dirs: tuple[str, ...] | None = setting(
        "log.dirs", Kind.LIST, None,
        "The data directory, where neither `--data` nor PQBROKER_DATA_DIR says so; one. Not set: ./data.",
    )  # fmt: skip
    log_format: str = setting(
        "pqbroker.log.format", Kind.STRING, "text", "Form of the log's lines: text, or a JSON object each.",
        choices=("text", "json"),
    )  # fmt: skip
    advertised_listeners: str = setting(
        "advertised.listeners", Kind.STRING, "",
        "[NAME://]HOST:PORT that clients connect to, for each listener (`--kafka`) by its name; with one listener the "
        "first counts; empty: the address that the client connected to. {port} stands for the listener's port. With "
        "several nodes {node} in the host stands for a node's id, and node K has this port plus K.",
    )  # fmt: skip
    protocol_map: str = tls.PROTOCOL_MAP
    handshakes_max: int = tls.HANDSHAKES_MAX
    handshake_timeout_ms: int = tls.HANDSHAKE_TIMEOUT_MS
    tls: tuple[tuple[str, Any], ...] = rows(tls.TLS)
    listener_settings: tuple[tuple[str, Any], ...] = of_listeners()
    delete_topic_enable: bool = setting(
        "delete.topic.enable", Kind.BOOLEAN, True, "Allow clients to delete topics; if false: TOPIC_DELETION_DISABLED."
    )
    auto_create_topics_enable: bool = setting(
        "auto.create.topics.enable", Kind.BOOLEAN, True,
        "Create an unknown topic when a client's Metadata request names it."
    )
    num_partitions: int = setting(
        "num.partitions", Kind.INT, 1, "Partitions of a topic created without a count.", low=1, high=20_000
    )
    topic_partitions_max: int = setting(
        "pqbroker.topic.partitions.max", Kind.INT, 20_000, "Partitions of a topic at most.", low=1, high=1_000_000
    )
    config_bytes_max: int = setting(
        "pqbroker.config.bytes.max", Kind.INT, 32_768,
        "Bytes of all configs set on a topic or a node, names and values, at most; above: INVALID_CONFIG.", low=1024,
    )  # fmt: skip
    config_resources_max: int = setting(
        "pqbroker.config.resources.max", Kind.INT, 1000,
        "Consumer groups with configs of their own, and client metrics subscriptions likewise, at most; one more is"
        " refused.",
        low=1,
    )  # fmt: skip
    partitions_max: int = setting(
        "pqbroker.partitions.max", Kind.INT, 10_000,
        "Partitions of all topics together at most; above: POLICY_VIOLATION. A directory that has more is served.",
        low=1, high=10_000_000,
    )  # fmt: skip
    durability: str = setting(
        "pqbroker.durability", Kind.STRING, "fsync",
        "Condition of an acknowledgement: fsync, or a write that is synced at intervals (interval) or never (none).",
        choices=("fsync", "interval", "none"),
    )  # fmt: skip
    sync_interval_ms: int = setting(
        "pqbroker.sync.interval.ms", Kind.INT, 100, "Time between syncs with pqbroker.durability=interval.", low=1
    )
    socket_request_max_bytes: int = setting(
        "socket.request.max.bytes", Kind.INT, 100 * MIB,
        "Bytes of a request at most; a larger one closes the connection.", low=1024,
    )  # fmt: skip
    max_connections: int = setting(
        "max.connections", Kind.INT, 10_000,
        "Open connections at most; an address with many has at most seven eighths of them. Above, a connection of the "
        "address with the most is closed, the one without a request for the longest time first.", low=1,
    )  # fmt: skip
    connections_per_ip_max: int = setting(
        "max.connections.per.ip", Kind.INT, 2_147_483_647,
        "Open connections of one address at most; one more is closed at once.", low=0,
    )  # fmt: skip
    connections_per_ip_overrides: str = setting(
        "max.connections.per.ip.overrides", Kind.STRING, "",
        "Addresses with a limit of their own in place of max.connections.per.ip: ADDRESS:COUNT, with commas.",
        read=address_counts,
    )  # fmt: skip
    connections_max_idle_ms: int = setting(
        "connections.max.idle.ms", Kind.LONG, 600_000,
        "Time without a request after which a connection is closed; -1: never.", low=-1,
    )  # fmt: skip
    connection_requests_max: int = setting(
        "pqbroker.connection.requests.max", Kind.INT, 256,
        "Requests of one connection being served at once; above, reading pauses.", low=1,
    )  # fmt: skip
    connection_bytes_max: int = setting(
        "pqbroker.connection.bytes.max", Kind.INT, 64 * MIB,
        "Request bytes of one connection being served at once; above, reading pauses.", low=1024,
    )  # fmt: skip
    node_bytes_max: int = setting(
        "pqbroker.inflight.bytes.max", Kind.LONG, 256 * MIB,
        "Request bytes of all connections, being served or arriving; above, reading pauses. The last eighth is kept "
        "for addresses with few. Several nodes share it.",
        low=1024,
    )  # fmt: skip
    reserved_bytes: int = setting(
        "pqbroker.reserved.bytes", Kind.LONG, 64 * MIB,
        "Part of pqbroker.inflight.bytes.max reserved for requests up to 64 KiB, a quarter of it at most. "
        "Several nodes share it.",
        low=0,
    )  # fmt: skip
    unfinished_bytes_max: int = setting(
        "pqbroker.unfinished.bytes.max", Kind.LONG, 128 * MIB,
        "Bytes of requests over 64 KiB that have arrived in part, at most half of pqbroker.inflight.bytes.max. Above, "
        "a connection closes: one whose request makes no progress, else the last to begin. One alone is never closed. "
        "Several nodes share it.",
        low=0,
    )  # fmt: skip
    unfinished_stall_ms: int = setting(
        "pqbroker.unfinished.stall.ms", Kind.INT, 5_000,
        "Time in which a request that has arrived in part must bring 2 MiB; else its connection closes when another "
        "request needs the memory.", low=1,
    )  # fmt: skip
    request_elements_max: int = setting(
        "pqbroker.request.elements.max", Kind.INT, 32_768,
        "Array elements of one request at most, all its arrays together; above, the connection closes. Raise it with "
        "`pqbroker.partitions.max`.",
        low=1000, high=1 << 20,
    )  # fmt: skip
    answer_bytes_max: int = setting(
        "pqbroker.answer.bytes.max", Kind.INT, 64 * MIB,
        "Bytes of an answer at most, records not counted (`fetch.max.bytes`); a larger one closes the connection.",
        low=MIB,
    )  # fmt: skip
    unsent_bytes_max: int = setting(
        "pqbroker.unsent.bytes.max", Kind.LONG, 128 * MIB,
        "Bytes of long requests and answers being served, and of answers that clients have not read; above, answers "
        "over 64 KiB wait. The last eighth is kept for the first MiB of each address. Several nodes share it.",
        low=MIB,
    )  # fmt: skip
    answer_stall_ms: int = setting(
        "pqbroker.answer.stall.ms", Kind.INT, 10_000,
        "Time in which a client must read 64 KiB of its answers; else its connection closes while answers of others "
        "wait for memory.", low=100,
    )  # fmt: skip
    drain_timeout_ms: int = setting(
        "pqbroker.drain.timeout.ms", Kind.INT, 5_000,
        "Time that a stopping node waits for requests being served.", low=0
    )
    cell_reopen_timeout_ms: int = setting(
        "pqbroker.cell.reopen.timeout.ms", Kind.INT, 60_000,
        "Time that a node tries to reopen a lost cell before it exits.", low=0,
    )  # fmt: skip
    describe_partitions_max: int = setting(
        "max.request.partition.size.limit", Kind.INT, 2000, "Partitions in one DescribeTopicPartitions answer at most.",
        low=1,
    )  # fmt: skip
    fetch_max_bytes: int = setting("fetch.max.bytes", Kind.INT, 55 * MIB, "Bytes of a Fetch answer at most.", low=1024)
    fetch_sessions_max: int = setting(
        "max.incremental.fetch.session.cache.slots", Kind.INT, 1000,
        "Incremental fetch sessions at most; 0 turns them off.", low=0,
    )  # fmt: skip
    fetch_session_partitions_max: int = setting(
        "pqbroker.fetch.session.partitions.max", Kind.INT, 200_000,
        "Partitions of all fetch sessions together at most; above, clients get no session and fetch in full.", low=0,
    )  # fmt: skip
    producer_id_expiration_ms: int = setting(
        "producer.id.expiration.ms", Kind.INT, 86_400_000,
        "Time that an idle producer's sequence is remembered at least.", low=1,
    )  # fmt: skip
    retention_check_interval_ms: int = setting(
        "log.retention.check.interval.ms", Kind.LONG, 5_000,
        "Time between two searches for records past retention.", low=1
    )
    staged_bytes_max: int = setting(
        "pqbroker.staged.bytes.max", Kind.LONG, 8192 * MIB,
        "Bytes of rows that wait in one tablet of a table for the commit of their batch at most; above, more are "
        "refused.", low=MIB,
    )  # fmt: skip
    cache_bytes: int = setting(
        "pqbroker.cache.bytes", Kind.LONG, 128 * MIB,
        "Bytes of the cache of blobs read from disk. Several nodes share it.", low=0,
    )  # fmt: skip
    sent_files_max: int = setting(
        "pqbroker.sent.files.max", Kind.INT, 128,
        "Segment files that answers to clients hold open at once, all together; above, answers are read into "
        "memory first. 0: always. Several nodes share it.",
        low=0, high=65_536,
    )  # fmt: skip
    head_bytes: int = setting(
        "pqbroker.head.bytes", Kind.LONG, 256 * MIB,
        "Bytes of heads (newest records) that are kept in memory. Several nodes share it.", low=MIB
    )
    memory_engine_bytes: int = setting(
        "pqbroker.memory.engine.bytes", Kind.LONG, 1024 * MIB,
        "Bytes that a broker with --data :memory: stores at most.", low=MIB
    )
    segment_bytes: int = setting(
        "pqbroker.segment.bytes", Kind.LONG, 64 * MIB,
        "Bytes of a blob segment; on a small disk 1 % of its free space.", low=MIB,
    )  # fmt: skip
    round_bytes_max: int = setting(
        "pqbroker.commit.round.bytes", Kind.INT, 16 * MIB, "Bytes of one group commit at most.", low=MIB
    )
    inline_bytes_max: int = setting(
        "pqbroker.inline.bytes", Kind.INT, 1000,
        "Values smaller than this are stored in the row of their key, and in memory, not as blobs.", low=0, high=65_536,
    )  # fmt: skip
    index_blob_bytes_max: int = setting(
        "pqbroker.index.blob.bytes", Kind.INT, 8192,
        "Blobs smaller than this are stored in the index instead of a segment, which saves its sync.", low=0,
        high=65_536,
    )  # fmt: skip
    ballast_bytes: int = setting(
        "pqbroker.ballast.bytes", Kind.LONG, 8 * MIB,
        "Bytes of a file that reserves space to start and to delete with on a full disk; a start needs 1 MiB or more.",
        low=0,
    )  # fmt: skip
    read_only_look_ms: int = setting(
        "pqbroker.read.only.look.ms", Kind.INT, 1000,
        "Time between two checks of the free space of a cell that is open for reading only because its disk was full. "
        "With 1 MiB free the cell is opened for writing.", low=10, high=60_000,
    )  # fmt: skip
    pools: tuple[str, ...] = setting(
        "pqbroker.pools", Kind.LIST, (),
        "Additional pools for blobs, each NAME=DIRECTORY, such as big=/mnt/big. `main` is in the data directory, which "
        "belongs on the fastest medium. A pool cannot be removed.",
    )  # fmt: skip
    node_tags: tuple[str, ...] = storage.NODE_TAGS
    cells_max: int = storage.CELLS_MAX
    backup_dir: str = storage.BACKUP_DIR
    backups_max: int = storage.BACKUPS_MAX
    storage_profile: tuple[str, ...] = setting(
        "pqbroker.storage.profile", Kind.LIST, (),
        "Pools and limits of the channels of new tablets: TYPE.CHANNEL=POOL[:operations=N][:bytes=N][:space=N]. Types: "
        "scheme, persqueue, coordinator, hive. Channels: 0 log, 1 snapshots, 2 data. Above operations or bytes a "
        "second writes wait, above bytes of space they are refused.",
    )  # fmt: skip
    tablet_commits_max: int = setting(
        "pqbroker.tablet.commits.max", Kind.LONG, (1 << 32) - 1 - (1 << 20),
        "Commits after which a tablet restarts while it is served, one generation later: the ids of its blobs count "
        "commits in 32 bits. Clients see a new leader epoch.", low=100, high=(1 << 32) - 1 - (1 << 20),
    )  # fmt: skip
    disk_yellow_bytes: int = setting(
        "pqbroker.disk.yellow.bytes", Kind.LONG, 256 * MIB,
        "Free bytes of a pool, beyond 32 MiB, below which writes are refused with KAFKA_STORAGE_ERROR; a tenth of the "
        "disk if that is less.", low=0,
    )  # fmt: skip
    disk_light_yellow_bytes: int = setting(
        "pqbroker.disk.light.yellow.bytes", Kind.LONG, 1024 * MIB,
        "Free bytes of a pool below which channels should move to another one; a fifth of the disk if that is less.",
        low=0,
    )  # fmt: skip
    emptying_bytes_per_second: int = setting(
        "pqbroker.segment.emptying.bytes.per.second", Kind.LONG, 32 * MIB,
        "Bytes of blobs a second that are moved at most to empty mostly dead segments. With 0 a segment gives back its "
        "space only when it is dead as a whole.", low=0, earlier="pqbroker.compaction.bytes.per.second",
    )  # fmt: skip
    emptying_dead_percent: int = setting(
        "pqbroker.segment.emptying.dead.percent", Kind.INT, 50,
        "Percent of a segment that must be dead before it is emptied.",
        low=1, high=99, earlier="pqbroker.compaction.dead.percent",
    )  # fmt: skip
    read_threads: int = setting(
        "pqbroker.read.threads", Kind.INT, 4,
        "Threads that read from the disk.", low=1, high=256
    )  # fmt: skip
    decode_threads: int = setting(
        "pqbroker.decode.threads", Kind.INT, 1,
        "Threads that decode record batches: for searches by time, keys of long batches of compacted topics, records "
        "over HTTP. Each needs up to 128 MiB, one batch decompressed.", low=1, high=64,
    )  # fmt: skip
    write_cycle_bytes_max: int = setting(
        "pqbroker.write.cycle.bytes", Kind.INT, 16 * MIB, "Bytes of one write cycle of a partition at most.", low=MIB
    )
    write_queue_bytes_max: int = setting(
        "pqbroker.write.queue.bytes", Kind.INT, 30_000_000,
        "Bytes in flight at one partition at most; above, a batch is answered REQUEST_TIMED_OUT (retriable). A batch "
        "larger than this is not counted: it waits its turn, and later batches wait for it.",
        low=MIB,
    )  # fmt: skip
    write_border_bytes: int = setting(
        "pqbroker.write.border.bytes", Kind.INT, 10_000_000,
        "Bytes in flight at one partition above which writers have to pause.", low=MIB,
    )  # fmt: skip
    partition_reads_max: int = setting(
        "pqbroker.partition.reads.max", Kind.INT, 20,
        "Reads of one partition from the disk at once; more wait.", low=1,
    )  # fmt: skip

    # The cleaner of compacted topics
    cleaner_enable: bool = cleaner.ENABLE
    cleaner_threads: int = cleaner.THREADS
    cleaner_io_rate: float = cleaner.IO_RATE
    cleaner_buffer_bytes: int = cleaner.BUFFER_BYTES
    cleaner_load_factor: float = cleaner.LOAD_FACTOR
    cleaner_backoff_ms: int = cleaner.LOOK_PERIOD_MS
    cleaner_batch_bytes_max: int = cleaner.CLEANED_BATCH_BYTES_MAX

    # HTTP and metrics
    http_security_protocol: str = http.SECURITY_PROTOCOL
    http_hosts: tuple[str, ...] = http.HOSTS
    http_body_bytes_max: int = http.BODY_BYTES_MAX
    http_body_objects_max: int = http.BODY_OBJECTS_MAX
    http_bytes_max: int = http.BYTES_MAX
    advertised_http: str = http.ADVERTISED_HTTP
    http_connections_max: int = http.CONNECTIONS_MAX
    http_arrivals_max: int = http.ARRIVALS_MAX
    http_request_timeout_ms: int = http.REQUEST_TIMEOUT_MS
    http_idle_timeout_ms: int = http.IDLE_TIMEOUT_MS
    http_items_max: int = http.ITEMS_MAX
    http_answer_bytes_max: int = http.ANSWER_BYTES_MAX
    http_look_bytes_max: int = http.LOOK_BYTES_MAX
    http_looks_max: int = http.LOOKS_MAX
    http_followers_max: int = http.FOLLOWERS_MAX
    http_unsent_bytes_max: int = http.UNSENT_BYTES_MAX
    console_writes: bool = http.CONSOLE_WRITES
    http_login_required: bool | None = http.LOGIN_REQUIRED
    console_login_ms: int = http.CONSOLE_LOGIN_MS
    console_logins_max: int = http.CONSOLE_LOGINS_MAX

    # Logins
    sasl_mechanisms: tuple[str, ...] = logins.ENABLED_MECHANISMS
    jaas_config: str | None = logins.JAAS_CONFIG
    serves_without_login: bool = logins.SERVES_WITHOUT_LOGIN
    sasl_bytes_max: int = logins.SERVER_RECEIVE_BYTES_MAX
    reauth_ms_max: int = logins.CONNECTIONS_REAUTH_MS_MAX
    failed_login_delay_ms: int = logins.FAILED_LOGIN_DELAY_MS
    login_bytes_max: int = logins.LOGIN_BYTES_MAX
    login_timeout_ms: int = logins.LOGIN_TIMEOUT_MS
    login_checks_max: int = logins.LOGIN_CHECKS_MAX
    oauth: tuple[tuple[str, Any], ...] = rows(OAUTH)
    users_max: int = logins.USERS_MAX
    tokens_max: int = logins.TOKENS_MAX
    user_name_bytes_max: int = logins.USER_NAME_BYTES_MAX

    # Tables
    table_columns_max: int = tables.COLUMNS_MAX
    table_attribute_sets_max: int = tables.ATTRIBUTE_SETS_MAX
    table_stores_bytes_max: int = tables.STORES_BYTES_MAX
    table_blocks_bytes_max: int = tables.BLOCKS_BYTES_MAX
    table_flushes_max: int = tables.FLUSHES_MAX
    table_compactions_max: int = tables.COMPACTIONS_MAX
    table_partitionings_max: int = tables.PARTITIONINGS_MAX
    table_merge_rate: int = tables.MERGE_RATE
    table_merge_memory: int = tables.MERGE_MEMORY
    table_chunk_bytes_max: int = tables.CHUNK_BYTES_MAX
    table_feeds_max: int = tables.FEEDS_MAX
    table_feed_rate: int = tables.FEED_RATE
    table_backoff_ms: int = tables.BACKOFF_MS
    queue_consumers_max: int = tables.QUEUE_CONSUMERS_MAX
    queue_trim_interval_ms: int = tables.QUEUE_TRIM_INTERVAL_MS
    queue_meta_bytes_max: int = tables.QUEUE_META_BYTES_MAX
    transactions_max: int = transactions.TRANSACTIONS_MAX
    transaction_timeout_ms_max: int = transactions.TRANSACTION_TIMEOUT_MS_MAX
    transaction_age_ms_max: int = transactions.TRANSACTION_AGE_MS_MAX
    transaction_rows_max: int = transactions.TRANSACTION_ROWS_MAX
    transaction_participants_max: int = transactions.TRANSACTION_PARTICIPANTS_MAX
    transaction_prepare_ms_max: int = transactions.TRANSACTION_PREPARE_MS_MAX
    transaction_kept_ms: int = transactions.TRANSACTION_KEPT_MS
    sql_queries_max: int = sql.QUERIES_MAX
    sql_queries_waiting_max: int = sql.QUERIES_WAITING_MAX
    sql_depth_max: int = sql.DEPTH_MAX
    sql_params_max: int = sql.PARAMS_MAX
    sql_params_bytes_max: int = sql.PARAMS_BYTES_MAX
    sql_time_ms_max: int = sql.TIME_MS_MAX
    sql_memory_bytes_max: int = sql.MEMORY_BYTES_MAX
    sql_columns_bytes_max: int = sql.COLUMNS_BYTES_MAX
    sql_result_bytes_max: int = sql.RESULT_BYTES_MAX
    sql_files_directory: str = sql.SQL_FILES_DIRECTORY
    sql_uploads_max: int = sql.SQL_UPLOADS_MAX
    sql_files_max: int = sql.SQL_FILES_MAX
    sql_files_bytes_max: int = sql.SQL_FILES_BYTES_MAX
    sql_worker_idle_ms: int = sql.WORKER_IDLE_MS
    registries: tuple[str, ...] = registry.REGISTRIES
    registry_config_files: tuple[str, ...] = registry.CONFIG_FILES
    registry_timeout_ms: int = registry.REGISTRY_TIMEOUT_MS
    registry_failure_ms: int = registry.REGISTRY_FAILURE_MS
    registry_schema_bytes_max: int = registry.SCHEMA_BYTES_MAX
    registry_schema_types_max: int = registry.SCHEMA_TYPES_MAX
    registry_value_parts_max: int = registry.VALUE_PARTS_MAX
    registry_schemas_max: int = registry.SCHEMAS_MAX
    registry_decodings_max: int = registry.DECODINGS_MAX
    registry_decoding_ms_max: int = registry.DECODING_MS_MAX
    peer_frame_bytes_max: int = peers.PEER_FRAME_BYTES_MAX
    peer_request_timeout_ms: int = peers.PEER_REQUEST_TIMEOUT_MS
    node_silence_ms: int = peers.NODE_SILENCE_MS
    node_return_ms: int = peers.NODE_RETURN_MS
    search_searches_max: int = search.SEARCHES_MAX
    search_searches_waiting_max: int = search.SEARCHES_WAITING_MAX
    search_time_ms_max: int = search.SEARCH_TIME_MS_MAX
    search_bytes_max: int = search.SEARCH_BYTES_MAX
    search_decompressed_bytes_max: int = search.SEARCH_DECOMPRESSED_BYTES_MAX
    search_batch_bytes_max: int = search.SEARCH_BATCH_BYTES_MAX
    search_decoded_bytes_max: int = search.SEARCH_DECODED_BYTES_MAX
    search_matches_max: int = search.SEARCH_MATCHES_MAX
    search_answer_bytes_max: int = search.SEARCH_ANSWER_BYTES_MAX
    search_memory_bytes_max: int = search.SEARCH_MEMORY_BYTES_MAX

    # Brokers for tests
    test_door: bool = cues.TEST_DOOR
    test_faults_max: int = cues.TEST_FAULTS_MAX
    test_hold_ms_max: int = cues.TEST_HOLD_MS_MAX
    test_clock_ms_max: int = cues.TEST_CLOCK_MS_MAX
    loop_lag_sample_ms: int = setting(
        "pqbroker.loop.lag.sample.ms", Kind.INT, 50, "Time between two samples of the event loop's delay.", low=1
    )
    metrics_partitions_max: int = setting(
        "pqbroker.metrics.partitions.max", Kind.INT, 500,
        "Partitions with series of their own in `/metrics`; above, series are per topic, and above that per node.",
        low=0,
    )  # fmt: skip
    metrics_offsets_max: int = setting(
        "pqbroker.metrics.offsets.max", Kind.INT, 500,
        "Offsets of consumer groups with a lag of their own in `/metrics`; above, lags are per group, and above that "
        "per node.", low=0,
    )  # fmt: skip

    # What a new topic is set to, where the topic itself does not say
    message_max_bytes: int = topic_defaults.MESSAGE_MAX_BYTES
    compression_type: str = topic_defaults.COMPRESSION_TYPE
    compression_gzip_level: int = topic_defaults.COMPRESSION_GZIP_LEVEL
    compression_lz4_level: int = topic_defaults.COMPRESSION_LZ4_LEVEL
    compression_zstd_level: int = topic_defaults.COMPRESSION_ZSTD_LEVEL
    log_cleanup_policy: tuple[str, ...] = topic_defaults.LOG_CLEANUP_POLICY
    log_cleaner_min_cleanable_ratio: float = topic_defaults.LOG_CLEANER_MIN_CLEANABLE_RATIO
    log_cleaner_delete_retention_ms: int = topic_defaults.LOG_CLEANER_DELETE_RETENTION_MS
    log_cleaner_min_compaction_lag_ms: int = topic_defaults.LOG_CLEANER_MIN_COMPACTION_LAG_MS
    log_cleaner_max_compaction_lag_ms: int = topic_defaults.LOG_CLEANER_MAX_COMPACTION_LAG_MS
    log_roll_ms: int | None = topic_defaults.LOG_ROLL_MS
    log_roll_hours: int = topic_defaults.LOG_ROLL_HOURS
    log_message_timestamp_type: str = topic_defaults.LOG_MESSAGE_TIMESTAMP_TYPE
    log_message_timestamp_before_max_ms: int = topic_defaults.LOG_MESSAGE_TIMESTAMP_BEFORE_MAX_MS
    log_message_timestamp_after_max_ms: int = topic_defaults.LOG_MESSAGE_TIMESTAMP_AFTER_MAX_MS
    log_retention_ms: int | None = topic_defaults.LOG_RETENTION_MS
    log_retention_minutes: int | None = topic_defaults.LOG_RETENTION_MINUTES
    log_retention_hours: int = topic_defaults.LOG_RETENTION_HOURS
    log_retention_bytes: int = topic_defaults.LOG_RETENTION_BYTES

    # Access rules
    authorizer_class_name: str = access.AUTHORIZER_CLASS_NAME
    access_class: str = access.ACCESS_CLASS
    super_users: str = access.SUPER_USERS
    allow_everyone_if_no_acl_found: bool = access.ALLOW_EVERYONE_IF_NO_ACL_FOUND
    acls_max: int = access.ACLS_MAX
    acl_bytes_max: int = access.ACL_BYTES_MAX
    access_decisions_max: int = access.ACCESS_DECISIONS_MAX

    # Audit log
    audit_file: str = audit.FILE
    audit_everything: bool = audit.EVERYTHING
    audit_file_bytes_max: int = audit.AUDIT_FILE_BYTES_MAX
    audit_files_max: int = audit.FILES_MAX
    audit_lines_per_second: int = audit.LINES_PER_SECOND

    # Quotas of clients
    quota_window_num: int = quotas.WINDOW_NUM
    quota_window_size_seconds: int = quotas.WINDOW_SIZE_SECONDS
    controller_quota_window_num: int = quotas.CONTROLLER_WINDOW_NUM
    quotas_max: int = quotas.QUOTAS_MAX
    quota_name_bytes_max: int = quotas.QUOTA_NAME_BYTES_MAX
    quota_clients_max: int = quotas.CLIENTS_MAX

    # Consumer groups
    group_initial_rebalance_delay_ms: int = consumer_groups.GROUP_INITIAL_REBALANCE_DELAY_MS
    group_min_session_timeout_ms: int = consumer_groups.GROUP_MIN_SESSION_TIMEOUT_MS
    group_max_session_timeout_ms: int = consumer_groups.GROUP_MAX_SESSION_TIMEOUT_MS
    group_max_size: int = consumer_groups.GROUP_MAX_SIZE
    group_consumer_session_timeout_ms: int = consumer_groups.GROUP_CONSUMER_SESSION_TIMEOUT_MS
    group_consumer_min_session_timeout_ms: int = consumer_groups.GROUP_CONSUMER_MIN_SESSION_TIMEOUT_MS
    group_consumer_max_session_timeout_ms: int = consumer_groups.GROUP_CONSUMER_MAX_SESSION_TIMEOUT_MS
    group_consumer_heartbeat_interval_ms: int = consumer_groups.GROUP_CONSUMER_HEARTBEAT_INTERVAL_MS
    group_consumer_min_heartbeat_interval_ms: int = consumer_groups.GROUP_CONSUMER_MIN_HEARTBEAT_INTERVAL_MS
    group_consumer_max_heartbeat_interval_ms: int = consumer_groups.GROUP_CONSUMER_MAX_HEARTBEAT_INTERVAL_MS
    group_consumer_assignment_interval_ms: int = consumer_groups.GROUP_CONSUMER_ASSIGNMENT_INTERVAL_MS
    group_consumer_min_assignment_interval_ms: int = consumer_groups.GROUP_CONSUMER_MIN_ASSIGNMENT_INTERVAL_MS
    group_consumer_max_assignment_interval_ms: int = consumer_groups.GROUP_CONSUMER_MAX_ASSIGNMENT_INTERVAL_MS
    group_consumer_assignors: tuple[str, ...] = consumer_groups.GROUP_CONSUMER_ASSIGNORS
    group_consumer_regex_refresh_interval_ms: int = consumer_groups.GROUP_CONSUMER_REGEX_REFRESH_INTERVAL_MS
    group_expression_characters_max: int = consumer_groups.GROUP_EXPRESSION_CHARACTERS_MAX
    group_consumer_max_size: int = consumer_groups.GROUP_CONSUMER_MAX_SIZE
    group_consumer_migration_policy: str = consumer_groups.GROUP_CONSUMER_MIGRATION_POLICY
    group_id_bytes_max: int = consumer_groups.GROUP_ID_BYTES_MAX
    member_metadata_bytes_max: int = consumer_groups.MEMBER_METADATA_BYTES_MAX
    group_metadata_bytes_max: int = consumer_groups.GROUP_METADATA_BYTES_MAX
    group_assignment_bytes_max: int = consumer_groups.GROUP_ASSIGNMENT_BYTES_MAX
    groups_bytes_max: int = consumer_groups.GROUPS_BYTES_MAX
    offset_metadata_max_bytes: int = consumer_groups.OFFSET_METADATA_MAX_BYTES
    offsets_retention_check_interval_ms: int = consumer_groups.OFFSETS_RETENTION_CHECK_INTERVAL_MS
    offsets_retention_minutes: int = consumer_groups.OFFSETS_RETENTION_MINUTES
    partition_consumers_max: int = consumer_groups.PARTITION_CONSUMERS_MAX

    # Transactional producers
    transaction_max_timeout_ms: int = transactional_producers.TRANSACTION_MAX_TIMEOUT_MS
    transactional_id_expiration_ms: int = transactional_producers.TRANSACTIONAL_ID_EXPIRATION_MS
    add_partitions_wait_ms: int = transactional_producers.ADD_PARTITIONS_WAIT_MS
    transactional_id_bytes_max: int = transactional_producers.TRANSACTIONAL_ID_BYTES_MAX
    transactional_ids_bytes_max: int = transactional_producers.TRANSACTIONAL_IDS_BYTES_MAX

    without_effect: tuple[tuple[str, Any], ...] = rows(WITHOUT_EFFECT)
    access_control: tuple[tuple[str, Any], ...] = rows(ACCESS_CONTROL)
