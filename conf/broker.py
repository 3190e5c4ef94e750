"""Broker settings: every limit and choice of a node. Names are Kafka's where Kafka has one, `pqbroker.` otherwise.

Those of Kafka's that change nothing here are a table of their own, in `without_effect`.
"""

from dataclasses import dataclass
from typing import Any

from pqbroker.conf.declare import Kind, rows, setting
from pqbroker.conf.without_effect import WITHOUT_EFFECT

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
    config_bytes_max: int = setting(
        "pqbroker.config.bytes.max", Kind.INT, 32_768,
        "Bytes of all configs that a topic or a node is set to, names and values; above: INVALID_CONFIG.", low=1024,
    )  # fmt: skip
    partitions_max: int = setting(
        "pqbroker.partitions.max", Kind.INT, 10_000,
        "Partitions of all topics together; what would make them more is refused with POLICY_VIOLATION. A directory "
        "that has more is served.",
        low=1, high=10_000_000,
    )  # fmt: skip
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
        "Request bytes of all connections, in work or still arriving; reading pauses above.", low=1024,
    )  # fmt: skip
    reserved_bytes: int = setting(
        "pqbroker.reserved.bytes", Kind.LONG, 64 * MIB,
        "Part of pqbroker.inflight.bytes.max that requests over 64 KiB leave to smaller ones, a quarter of it at most.",
        low=0,
    )  # fmt: skip
    unfinished_bytes_max: int = setting(
        "pqbroker.unfinished.bytes.max", Kind.LONG, 128 * MIB,
        "Bytes of requests over 64 KiB that have not arrived whole, at most half of pqbroker.inflight.bytes.max; over "
        "it a connection closes: one whose request makes no progress, else the last to begin. A lone one passes.",
        low=0,
    )  # fmt: skip
    unfinished_stall_ms: int = setting(
        "pqbroker.unfinished.stall.ms", Kind.INT, 5_000,
        "An unfinished request makes no progress when it does not bring 2 MiB in this time; its connection closes when "
        "another request needs the room.", low=1,
    )  # fmt: skip
    request_elements_max: int = setting(
        "pqbroker.request.elements.max", Kind.INT, 32_768,
        "Array elements that one request may have, all its arrays together; one with more closes the connection. To be "
        "raised with `pqbroker.partitions.max`.",
        low=1000, high=1 << 20,
    )  # fmt: skip
    answer_bytes_max: int = setting(
        "pqbroker.answer.bytes.max", Kind.INT, 64 * MIB,
        "The largest answer but for records, which `fetch.max.bytes` limits; a larger one closes the connection.",
        low=MIB,
    )  # fmt: skip
    unsent_bytes_max: int = setting(
        "pqbroker.unsent.bytes.max", Kind.LONG, 128 * MIB,
        "Bytes of long requests and answers in work, and of answers that clients have not taken; above, answers over "
        "64 KiB wait.",
        low=MIB,
    )  # fmt: skip
    answer_stall_ms: int = setting(
        "pqbroker.answer.stall.ms", Kind.INT, 10_000,
        "A connection whose client takes less than 64 KiB of its answers in this time is cut while answers of others "
        "wait for room.", low=100,
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
    fetch_session_partitions_max: int = setting(
        "pqbroker.fetch.session.partitions.max", Kind.INT, 200_000,
        "Partitions that all fetch sessions name together; above, clients get no session and fetch in full.", low=0,
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
    sent_files_max: int = setting(
        "pqbroker.sent.files.max", Kind.INT, 128,
        "Segment files that answers on their way to clients hold open at once, node-wide; beyond, answers are read "
        "into memory first. 0: all are.",
        low=0, high=65_536,
    )  # fmt: skip
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
        "Values smaller than this are no blobs: they are in the row of their key, and in memory.", low=0, high=65_536,
    )  # fmt: skip
    index_blob_bytes_max: int = setting(
        "pqbroker.index.blob.bytes", Kind.INT, 8192,
        "Blobs smaller than this are kept in the index instead of a segment, whose sync they spare.", low=0,
        high=65_536,
    )  # fmt: skip
    ballast_bytes: int = setting(
        "pqbroker.ballast.bytes", Kind.LONG, 8 * MIB,
        "A file that keeps room to start and to delete with on a full disk; less than 1 MiB does not do for a start.",
        low=0,
    )  # fmt: skip
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
    tablet_commits_max: int = setting(
        "pqbroker.tablet.commits.max", Kind.LONG, (1 << 32) - 1 - (1 << 20),
        "Commits after which a tablet restarts, one generation later, while it is served: the ids of its blobs "
        "count them in 32 bits. Clients see a new leader epoch.", low=100, high=(1 << 32) - 1 - (1 << 20),
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
    decode_threads: int = setting(
        "pqbroker.decode.threads", Kind.INT, 1,
        "Threads that look into record batches: searches by time, keys of long batches for compacted topics, looks "
        "over HTTP. Each takes up to 128 MiB, a batch decompressed; more looks wait.", low=1, high=64,
    )  # fmt: skip
    write_cycle_bytes_max: int = setting(
        "pqbroker.write.cycle.bytes", Kind.INT, 16 * MIB, "Bytes of one write cycle of a partition.", low=MIB
    )
    write_queue_bytes_max: int = setting(
        "pqbroker.write.queue.bytes", Kind.INT, 30_000_000,
        "Bytes in flight at one partition; while there are as many a batch is answered REQUEST_TIMED_OUT (retry). "
        "A batch larger than this is not counted: it waits in line, and what comes behind it waits for it.",
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
    http_hosts: tuple[str, ...] = setting(
        "pqbroker.http.hosts", Kind.LIST, (),
        "Names under which HTTP clients reach this node. A request for another name is refused, since a web site of "
        "that name could have sent it (DNS rebinding). IP addresses, `localhost` and the host of `--http` need no "
        "entry.",
    )  # fmt: skip
    http_body_bytes_max: int = setting(
        "pqbroker.http.body.bytes.max", Kind.INT, 2 * MIB, "The largest body of an HTTP request.", low=1024
    )
    http_bytes_max: int = setting(
        "pqbroker.http.inflight.bytes.max", Kind.LONG, 64 * MIB,
        "Bytes of HTTP bodies and answers in memory at once. Above, the slowest connection that holds some is closed; "
        "when there is none, the request is answered 503.", low=1024,
    )  # fmt: skip
    http_connections_max: int = setting(
        "pqbroker.http.connections.max", Kind.INT, 128,
        "HTTP connections that have sent a request. For one more, the connection that has waited for its client "
        "longest is closed; while the broker works for all of them, it is answered 503. `/health` and `/metrics` are "
        "not counted.", low=1,
    )  # fmt: skip
    http_arrivals_max: int = setting(
        "pqbroker.http.arrivals.max", Kind.INT, 1024,
        "HTTP connections that have not sent a request yet; for one more, the oldest of them is closed. At most an "
        "eighth of the open files that the system allows.", low=1,
    )  # fmt: skip
    http_request_timeout_ms: int = setting(
        "pqbroker.http.request.timeout.ms", Kind.INT, 30_000,
        "How long an HTTP client may take to send the head of a request, to send its body, and to receive the answer, "
        "each; then the connection is closed.", low=1,
    )  # fmt: skip
    http_idle_timeout_ms: int = setting(
        "pqbroker.http.idle.timeout.ms", Kind.INT, 75_000,
        "How long an HTTP connection is kept open between two requests.", low=1,
    )  # fmt: skip
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
        "pqbroker.http.looks.max", Kind.INT, 2,
        "HTTP requests that decode records at once, and HTTP requests that parse a body of 8 KiB or more; more wait.",
        low=1,
    )  # fmt: skip
    test_commands: bool = setting(
        "pqbroker.test.commands", Kind.BOOLEAN, False,
        "Let HTTP clients bring about faults of the store (`/v1/faults`) and change keys of tablets "
        "(`/v1/tablets/ID/commands`). For brokers in tests only.",
    )  # fmt: skip
    loop_lag_sample_ms: int = setting(
        "pqbroker.loop.lag.sample.ms", Kind.INT, 50, "Time between two samples of how late the event loop is.", low=1
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
    message_max_bytes: int = setting(
        "message.max.bytes", Kind.INT, 1_048_588, "Default of `max.message.bytes`.", low=0, high=125_829_120
    )
    log_cleanup_policy: tuple[str, ...] = setting(
        "log.cleanup.policy", Kind.LIST, ("delete",), "Default of `cleanup.policy`; `compact` does not compact yet.",
        choices=("delete", "compact"),
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

    # Consumer groups
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
    group_id_bytes_max: int = setting(
        "pqbroker.group.id.bytes.max", Kind.INT, 1024, "Bytes of a group's id; above: INVALID_GROUP_ID.", low=1,
        high=4096,
    )  # fmt: skip
    member_metadata_bytes_max: int = setting(
        "pqbroker.member.metadata.bytes.max", Kind.INT, MIB,
        "Bytes of one member of a group: its subscription, in every protocol it offers, and its ids; above: "
        "GROUP_MAX_SIZE_REACHED.", low=1024,
    )  # fmt: skip
    group_metadata_bytes_max: int = setting(
        "pqbroker.group.metadata.bytes.max", Kind.INT, 5 * MIB,
        "Bytes of all members of a group, as pqbroker.member.metadata.bytes.max counts them, and 640 for each; above: "
        "GROUP_MAX_SIZE_REACHED.", low=1024, high=5 * MIB,
    )  # fmt: skip
    group_assignment_bytes_max: int = setting(
        "pqbroker.group.assignment.bytes.max", Kind.INT, 5 * MIB // 2,
        "Bytes of the assignments of a group; above: UNKNOWN_SERVER_ERROR, as in Kafka.", low=1024, high=5 * MIB // 2,
    )  # fmt: skip
    groups_bytes_max: int = setting(
        "pqbroker.groups.bytes.max", Kind.LONG, 64 * MIB,
        "Bytes of all groups of the node, members and assignments, and 2 KiB for each; above: GROUP_MAX_SIZE_REACHED. "
        "Groups that are stored are always served.", low=1024,
    )  # fmt: skip
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

    without_effect: tuple[tuple[str, Any], ...] = rows(WITHOUT_EFFECT)
