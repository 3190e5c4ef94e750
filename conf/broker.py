"""Broker settings: every limit and choice of a node. Names are Kafka's where Kafka has one, `pqbroker.` otherwise."""

from dataclasses import dataclass

from pqbroker.conf.declare import Kind, setting

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    """What one node is set to."""

    node_id: int = setting("node.id", Kind.INT, 1, "The node's id in Kafka's metadata.", low=0)
    advertised_listeners: str = setting(
        "advertised.listeners", Kind.STRING, "", "HOST:PORT that clients are told to connect to; empty: the address they came on."
    )
    auto_create_topics_enable: bool = setting(
        "auto.create.topics.enable", Kind.BOOLEAN, True, "Create a topic that a client's Metadata request names."
    )
    num_partitions: int = setting("num.partitions", Kind.INT, 1, "Partitions of a topic created without a count.", low=1, high=20_000)
    durability: str = setting(
        "pqbroker.durability", Kind.STRING, "fsync",
        "When a write is acknowledged: after fsync, after a write synced every interval, or after a write.",
        choices=("fsync", "interval", "none"),
    )  # fmt: skip
    sync_interval_ms: int = setting("pqbroker.sync.interval.ms", Kind.INT, 100, "Time between syncs with durability=interval.", low=1)
    socket_request_max_bytes: int = setting(
        "socket.request.max.bytes", Kind.INT, 100 * MIB, "The largest request taken; a larger one closes the connection.", low=1024
    )
    max_connections: int = setting("max.connections", Kind.INT, 10_000, "Connections open at once; one more is closed at once.", low=1)
    connections_max_idle_ms: int = setting(
        "connections.max.idle.ms", Kind.LONG, 600_000, "A connection without a request for so long is closed; -1: never.", low=-1
    )
    connection_requests_max: int = setting(
        "pqbroker.connection.requests.max", Kind.INT, 256, "Requests of one connection in work at once; reading pauses above.", low=1
    )
    connection_bytes_max: int = setting(
        "pqbroker.connection.bytes.max", Kind.INT, 64 * MIB, "Request bytes of one connection in work at once; reading pauses above.", low=1024
    )
    node_bytes_max: int = setting(
        "pqbroker.inflight.bytes.max", Kind.LONG, 256 * MIB, "Request bytes of all connections in work at once; reading pauses above.", low=1024
    )
    fetch_max_bytes: int = setting("fetch.max.bytes", Kind.INT, 55 * MIB, "The largest Fetch answer.", low=1024)
    fetch_sessions_max: int = setting(
        "max.incremental.fetch.session.cache.slots", Kind.INT, 1000, "Incremental fetch sessions kept; 0 turns them off.", low=0
    )
    producer_id_expiration_ms: int = setting(
        "producer.id.expiration.ms", Kind.INT, 86_400_000, "How long an idle producer's sequence is remembered at least.", low=1
    )
    retention_check_interval_ms: int = setting(
        "log.retention.check.interval.ms", Kind.LONG, 5_000, "Time between two looks for records past retention.", low=1
    )
    cache_bytes: int = setting("pqbroker.cache.bytes", Kind.LONG, 128 * MIB, "Node-wide cache of blobs read from disk.", low=0)
    head_bytes: int = setting("pqbroker.head.bytes", Kind.LONG, 256 * MIB, "Node-wide budget for heads kept in memory.", low=MIB)
    memory_engine_bytes: int = setting(
        "pqbroker.memory.engine.bytes", Kind.LONG, 1024 * MIB, "What a broker with --data :memory: may hold.", low=MIB
    )
    segment_bytes: int = setting(
        "pqbroker.segment.bytes", Kind.LONG, 64 * MIB, "Size of a blob segment; smaller where the disk is small (1 % of what is free).",
        low=MIB,
    )  # fmt: skip
    round_bytes_max: int = setting("pqbroker.commit.round.bytes", Kind.INT, 16 * MIB, "Bytes that one group commit takes.", low=MIB)
    inline_bytes_max: int = setting(
        "pqbroker.inline.bytes", Kind.INT, 1000, "Values smaller than this are kept in the index instead of a segment.", low=0, high=65_536
    )
    ballast_bytes: int = setting(
        "pqbroker.ballast.bytes", Kind.LONG, 8 * MIB, "A file kept to have room for deletes on a full disk.", low=0
    )
    read_threads: int = setting("pqbroker.read.threads", Kind.INT, 4, "Threads that read from disk.", low=1, high=256)
    write_cycle_bytes_max: int = setting("pqbroker.write.cycle.bytes", Kind.INT, 16 * MIB, "Bytes of one write cycle of a partition.", low=MIB)
    write_queue_bytes_max: int = setting(
        "pqbroker.write.queue.bytes", Kind.INT, 64 * MIB, "Bytes that may wait at one partition; more are answered REQUEST_TIMED_OUT (retry).", low=MIB
    )
    topic_partitions_max: int = setting(
        "pqbroker.topic.partitions.max", Kind.INT, 20_000, "Partitions a topic may have.", low=1, high=1_000_000
    )
    drain_timeout_ms: int = setting(
        "pqbroker.drain.timeout.ms", Kind.INT, 5_000, "How long a stopping node waits for requests in work.", low=0
    )
    cell_reopen_timeout_ms: int = setting(
        "pqbroker.cell.reopen.timeout.ms", Kind.INT, 60_000, "How long a node tries to open a lost cell again before it exits.", low=0
    )
