"""Topic configs: every one of Kafka's, and ours under `pq.`. Those without effect here say so (`effective=False`)."""

from dataclasses import dataclass

from pqbroker.conf.declare import Kind, setting

_LONG_MAX = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """What one topic is set to; names outside are Kafka's (`retention.ms`), defaults are Kafka's."""

    cleanup_policy: tuple[str, ...] = setting(
        "cleanup.policy", Kind.LIST, ("delete",), "How old records go: delete by age or size.",
        choices=("delete", "compact"),
    )  # fmt: skip
    compression_type: str = setting(
        "compression.type", Kind.STRING, "producer", "Batches are stored as the producer compressed them.",
        choices=("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"), effective=False,
    )  # fmt: skip
    max_message_bytes: int = setting(
        "max.message.bytes", Kind.INT, 1_048_588, "The largest record batch taken, in bytes.", low=0, high=125_829_120
    )
    message_timestamp_type: str = setting(
        "message.timestamp.type", Kind.STRING, "CreateTime", "Whose clock a record's timestamp is.",
        choices=("CreateTime", "LogAppendTime"),
    )  # fmt: skip
    message_timestamp_before_max_ms: int = setting(
        "message.timestamp.before.max.ms", Kind.LONG, _LONG_MAX, "How far behind the broker's clock a record's timestamp may be.", low=0
    )
    message_timestamp_after_max_ms: int = setting(
        "message.timestamp.after.max.ms", Kind.LONG, 3_600_000, "How far ahead of the broker's clock a record's timestamp may be.", low=0
    )
    retention_ms: int = setting(
        "retention.ms", Kind.LONG, 604_800_000, "How long records are kept; -1 keeps them for ever.", low=-1
    )
    retention_bytes: int = setting(
        "retention.bytes", Kind.LONG, -1, "How many bytes of a partition are kept; -1 means no limit.", low=-1
    )
    pq_low_watermark_bytes: int = setting(
        "pq.low.watermark.bytes", Kind.INT, 6_291_456, "Head size from which the head becomes a body blob.", low=1024, high=8_388_608
    )
    pq_max_count_in_partition: int = setting(
        "pq.max.count.in.partition", Kind.LONG, -1, "Records a partition may hold before writes are refused; -1 means no limit.", low=-1
    )
    pq_max_size_in_partition: int = setting(
        "pq.max.size.in.partition", Kind.LONG, -1, "Bytes a partition may hold before writes are refused; -1 means no limit.", low=-1
    )
    pq_source_id_max_counts: int = setting(
        "pq.source.id.max.counts", Kind.INT, 6_000_000, "Producers remembered per partition; the oldest go first.", low=1
    )
    pq_partitions_per_tablet: int = setting(
        "pq.partitions.per.tablet", Kind.INT, 4, "Partitions that share one PQ tablet; fixed at creation.", low=1, high=1000
    )
