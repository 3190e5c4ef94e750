"""Topic configs: every one of Kafka's, and ours under `pq.`, `value.` and `key.`. Those without effect here say so."""

from dataclasses import dataclass

from pqbroker.conf.declare import Kind, setting, without_effect

_LONG_MAX = (1 << 63) - 1

COMPACT = "compact"
PRODUCER = "producer"
"""The compression.type that leaves batches as they come."""
AUTO, HEADER, FULL = "auto", "header", "full"
"""Values of pq.batch.check."""
KEEP, REFUSE = "keep", "refuse"
"""Values of value.invalid."""
JSON, FORMATS = "json", ("json", "avro", "raw")
"""Values of value.format and key.format; the first is the default."""
FIXED_AT_CREATION = frozenset({"pq.bundle", "pq.partitions.per.tablet"})
"""Configs that can be given to a new topic only."""


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """The settings of one topic; names outside are Kafka's (`retention.ms`), defaults are Kafka's."""

    cleanup_policy: tuple[str, ...] = setting(
        "cleanup.policy", Kind.LIST, ("delete",),
        "Removal of old records: `delete` by age or size; `compact` keeps the last record of each key, and requires a "
        "key in each; both together are possible.",
        choices=("delete", "compact"),
    )  # fmt: skip
    compression_type: str = setting(
        "compression.type", Kind.STRING, PRODUCER,
        "Codec of stored batches: `producer` stores them as they come; any other recompresses those that come under"
        " another codec, in a thread.",
        choices=(PRODUCER, "uncompressed", "gzip", "snappy", "lz4", "zstd"),
    )  # fmt: skip
    compression_gzip_level: int = setting(
        "compression.gzip.level", Kind.INT, -1, "Level of `compression.type=gzip`; -1: the codec's default.",
        low=-1, high=9,
    )  # fmt: skip
    compression_lz4_level: int = setting(
        "compression.lz4.level", Kind.INT, 9, "Level of `compression.type=lz4`.", low=1, high=17
    )
    compression_zstd_level: int = setting(
        "compression.zstd.level", Kind.INT, 3, "Level of `compression.type=zstd`.", low=-131_072, high=22
    )
    delete_retention_ms: int = setting(
        "delete.retention.ms", Kind.LONG, 86_400_000,
        "Time that compaction keeps the tombstone of a key after it removed the older records of the key.", low=0,
    )  # fmt: skip
    file_delete_delay_ms: int = without_effect(
        "file.delete.delay.ms", Kind.LONG, 60_000, "Space is freed when the deletion is durable.", low=0
    )
    flush_messages: int = without_effect(
        "flush.messages", Kind.LONG, _LONG_MAX, "`pqbroker.durability` decides when records are synced.", low=1
    )
    flush_ms: int = without_effect(
        "flush.ms", Kind.LONG, _LONG_MAX, "`pqbroker.durability` decides when records are synced.", low=0
    )
    follower_replication_throttled_replicas: tuple[str, ...] = without_effect(
        "follower.replication.throttled.replicas", Kind.LIST, (), "There are no followers.",
        pattern=r"\*|[0-9]+:[0-9]+",
    )
    index_interval_bytes: int = without_effect(
        "index.interval.bytes", Kind.INT, 4096, "A blob carries its own index, about every 32 KiB.", low=0
    )
    leader_replication_throttled_replicas: tuple[str, ...] = without_effect(
        "leader.replication.throttled.replicas", Kind.LIST, (), "There are no followers.",
        pattern=r"\*|[0-9]+:[0-9]+",
    )
    local_retention_bytes: int = without_effect("local.retention.bytes", Kind.LONG, -2, "Nothing is tiered.", low=-2)
    local_retention_ms: int = without_effect("local.retention.ms", Kind.LONG, -2, "Nothing is tiered.", low=-2)
    max_compaction_lag_ms: int = setting(
        "max.compaction.lag.ms", Kind.LONG, _LONG_MAX,
        "Time after which compaction reaches a record, whatever `min.cleanable.dirty.ratio` says.", low=1,
    )  # fmt: skip
    max_message_bytes: int = setting(
        "max.message.bytes", Kind.INT, 1_048_588, "Bytes of a record batch at most.", low=0, high=125_829_120
    )
    message_timestamp_after_max_ms: int = setting(
        "message.timestamp.after.max.ms", Kind.LONG, 3_600_000,
        "Milliseconds that a record's timestamp may be ahead of the broker's clock.", low=0,
    )  # fmt: skip
    message_timestamp_before_max_ms: int = setting(
        "message.timestamp.before.max.ms", Kind.LONG, _LONG_MAX,
        "Milliseconds that a record's timestamp may be behind the broker's clock.", low=0,
    )  # fmt: skip
    message_timestamp_type: str = setting(
        "message.timestamp.type", Kind.STRING, "CreateTime",
        "Clock of a record's timestamp: the producer's or the broker's.",
        choices=("CreateTime", "LogAppendTime"),
    )  # fmt: skip
    min_cleanable_dirty_ratio: float = setting(
        "min.cleanable.dirty.ratio", Kind.DOUBLE, 0.5,
        "Share of a log, in bytes and without its head, that was never compacted, above which it is compacted.",
        low=0, high=1,
    )  # fmt: skip
    min_compaction_lag_ms: int = setting(
        "min.compaction.lag.ms", Kind.LONG, 0, "Time in which compaction leaves a record alone.", low=0
    )
    min_insync_replicas: int = without_effect(
        "min.insync.replicas", Kind.INT, 1, "There is one replica, synced before it acknowledges.", low=1
    )
    preallocate: bool = without_effect("preallocate", Kind.BOOLEAN, False, "Segments belong to the node.")
    remote_log_copy_disable: bool = without_effect("remote.log.copy.disable", Kind.BOOLEAN, False, "Nothing is tiered.")
    remote_log_delete_on_disable: bool = without_effect(
        "remote.log.delete.on.disable", Kind.BOOLEAN, False, "Nothing is tiered."
    )
    remote_storage_enable: bool = without_effect(
        "remote.storage.enable", Kind.BOOLEAN, False, "Nothing is tiered: `true` is refused."
    )
    retention_bytes: int = setting(
        "retention.bytes", Kind.LONG, -1, "Bytes of a partition to keep; below 0: no limit."
    )
    retention_ms: int = setting(
        "retention.ms", Kind.LONG, 604_800_000, "Time to keep records; -1: for ever.", low=-1
    )
    segment_bytes: int = without_effect(
        "segment.bytes", Kind.INT, 1 << 30, "Segments belong to the node: `pqbroker.segment.bytes`.", low=14
    )
    segment_index_bytes: int = without_effect(
        "segment.index.bytes", Kind.INT, 10_485_760, "A blob carries its own index.", low=4
    )
    segment_jitter_ms: int = without_effect("segment.jitter.ms", Kind.LONG, 0, "Segments belong to the node.", low=0)
    segment_ms: int = setting(
        "segment.ms", Kind.LONG, 604_800_000,
        "Time after which records of a compacted topic leave the head, so that they can be compacted; "
        "`max.compaction.lag.ms` where that is shorter. Other topics: no effect.", low=1,
    )  # fmt: skip
    unclean_leader_election_enable: bool = without_effect(
        "unclean.leader.election.enable", Kind.BOOLEAN, False, "There is one replica: no election loses records."
    )
    pq_low_watermark_bytes: int = setting(
        "pq.low.watermark.bytes", Kind.INT, 6_291_456, "Bytes of the head from which it becomes a body blob.",
        low=1024, high=8_388_608,
    )  # fmt: skip
    pq_max_count_in_partition: int = setting(
        "pq.max.count.in.partition", Kind.LONG, -1,
        "Records in a partition above which writes are refused; -1: no limit.", low=-1,
    )  # fmt: skip
    pq_max_size_in_partition: int = setting(
        "pq.max.size.in.partition", Kind.LONG, -1,
        "Bytes in a partition above which writes are refused; -1: no limit.", low=-1,
    )  # fmt: skip
    pq_partition_full_error: str = setting(
        "pq.partition.full.error", Kind.STRING, "POLICY_VIOLATION",
        "Error for writes to a partition that is full by `pq.max.count.in.partition` or `pq.max.size.in.partition`."
        " Clients retry KAFKA_STORAGE_ERROR, idempotent ones for ever.",
        choices=("POLICY_VIOLATION", "KAFKA_STORAGE_ERROR"),
    )  # fmt: skip
    pq_write_speed_bytes: int = setting(
        "pq.write.speed.bytes", Kind.LONG, -1,
        "Bytes a second written to a partition; faster writers have to pause; -1 or 0: no limit.",
        low=-1,
    )  # fmt: skip
    pq_write_burst_bytes: int = setting(
        "pq.write.burst.bytes", Kind.LONG, -1,
        "Bytes by which a partition may exceed `pq.write.speed.bytes` at once; -1: those of one second.", low=-1,
    )  # fmt: skip
    pq_write_speed_messages: int = setting(
        "pq.write.speed.messages", Kind.LONG, 0,
        "Records a second written to a partition; faster writers have to pause; -1 or 0: no limit.",
        low=-1,
    )  # fmt: skip
    pq_write_burst_messages: int = setting(
        "pq.write.burst.messages", Kind.LONG, -1,
        "Records by which a partition may exceed `pq.write.speed.messages` at once; -1: those of one second.", low=-1,
    )  # fmt: skip
    pq_inactive_partitions: tuple[str, ...] = setting(
        "pq.inactive.partitions", Kind.LIST, (),
        "Numbers of read-only partitions; writes to them are answered POLICY_VIOLATION.", low=0,
    )  # fmt: skip
    pq_important_groups: tuple[str, ...] = setting(
        "pq.important.groups", Kind.LIST, (),
        "Consumer groups whose unread records are kept, whatever their age and the partition's size.",
    )  # fmt: skip
    pq_availability_period_ms: int = setting(
        "pq.availability.period.ms", Kind.LONG, -1,
        "Time that `pq.important.groups` keep an unread record; -1: for ever.", low=-1,
    )  # fmt: skip
    pq_delete_when_read: bool = setting(
        "pq.delete.when.read", Kind.BOOLEAN, False,
        "Delete records as soon as all of `pq.important.groups` have read them, whatever their age.",
    )  # fmt: skip
    pq_registered_groups: tuple[str, ...] = setting(
        "pq.registered.groups", Kind.LIST, (),
        "Consumer groups that are registered as consumers of the queue and not vital; those of `pq.important.groups`"
        " are registered as vital ones.",
    )  # fmt: skip
    pq_auto_trim: bool = setting(
        "pq.auto.trim", Kind.BOOLEAN, False,
        "Delete records, one by one, that all of `pq.important.groups` have read; without such groups none.",
    )  # fmt: skip
    pq_auto_trim_retained_rows: int = setting(
        "pq.auto.trim.retained.rows", Kind.LONG, -1,
        "Records of a partition that `pq.auto.trim` always keeps; -1: none.", low=-1,
    )  # fmt: skip
    pq_auto_trim_retained_ms: int = setting(
        "pq.auto.trim.retained.ms", Kind.LONG, -1,
        "Age from which `pq.auto.trim` deletes records; the age of a blob is that of its newest record. -1: any.",
        low=-1,
    )  # fmt: skip
    pq_producer_id_lifetime_ms: int = setting(
        "pq.producer.id.lifetime.ms", Kind.LONG, 0,
        "Time that an idle producer is remembered at least, even without data; never less than"
        " `producer.id.expiration.ms`.", low=0, earlier="pq.source.id.lifetime.ms",
    )  # fmt: skip
    pq_producer_ids_max: int = setting(
        "pq.producer.ids.max", Kind.INT, 6_000_000,
        "Producers remembered per partition; the oldest are forgotten first.", low=1, earlier="pq.source.id.max.counts",
    )  # fmt: skip
    pq_sessions_max: int = setting(
        "pq.sessions.max", Kind.INT, 100_000,
        "Sessions of inserted rows remembered per partition; the oldest are forgotten first.", low=1,
    )  # fmt: skip
    pq_batch_check: str = setting(
        "pq.batch.check", Kind.STRING, AUTO,
        "Depth to which a batch is read before it is stored: `header` reads its header and first record; `full` reads"
        " each record and refuses a batch that does not hold what it counts; `auto` is `full` for topics with a schema"
        " or `cleanup.policy=compact`, else `header`.",
        choices=(AUTO, HEADER, FULL),
    )  # fmt: skip
    pq_schema: str = setting(
        "pq.schema", Kind.STRING, "",
        'Columns by which records are rows, as a JSON array: `[{"name": "id", "type": "int64"}]`; empty: none.'
        " Tables have one already.",
    )
    value_invalid: str = setting(
        "value.invalid", Kind.STRING, KEEP,
        "What becomes of a record that is no row of the topic's schema: `keep` stores it, `refuse` answers"
        " INVALID_RECORD.",
        choices=(KEEP, REFUSE),
    )  # fmt: skip
    value_format: str = setting(
        "value.format", Kind.STRING, JSON,
        "How values of records hold columns of a schema: `json`, an object; `avro`, a record; `raw`, the bytes of one"
        " column.",
        choices=FORMATS,
    )  # fmt: skip
    value_avro_schema: str = setting(
        "value.avro.schema", Kind.STRING, "",
        "With `value.format=avro`: the Avro schema of values, as JSON; empty: the columns make it.",
    )
    key_format: str = setting(
        "key.format", Kind.STRING, JSON, "The same as `value.format`, for keys.", choices=FORMATS
    )  # fmt: skip
    key_avro_schema: str = setting(
        "key.avro.schema", Kind.STRING, "", "The same as `value.avro.schema`, for keys."
    )  # fmt: skip
    value_registry: str = setting(
        "value.registry", Kind.STRING, "",
        "Name of a registry (`pqbroker.registries`) by whose schemas values are decoded where they are shown; empty:"
        " none. Records are stored as they come.",
    )  # fmt: skip
    key_registry: str = setting("key.registry", Kind.STRING, "", "The same as `value.registry`, for keys.")
    value_registry_subject: str = setting(
        "value.registry.subject", Kind.STRING, "",
        "Subject in the registry of `value.registry` whose latest schema gives the columns of SQL; empty:"
        " `TOPIC-value`. Producers that name subjects by records (RecordNameStrategy) have others, as `shop.Order`.",
    )  # fmt: skip
    key_registry_subject: str = setting(
        "key.registry.subject", Kind.STRING, "", "The same as `value.registry.subject`, for keys; empty: `TOPIC-key`."
    )
    pq_bundle: str = setting(
        "pq.bundle", Kind.STRING, "default", "Bundle of cells that the topic's tablets live in; fixed at creation."
    )
    pq_partitions_per_tablet: int = setting(
        "pq.partitions.per.tablet", Kind.INT, 4, "Partitions that share one PQ tablet; fixed at creation.",
        low=1, high=1000,
    )  # fmt: skip

    @property
    def compression_level(self) -> int | None:
        """The level of `compression.type`; None: the codec's own default."""
        match self.compression_type:
            case "gzip":
                return None if self.compression_gzip_level == -1 else self.compression_gzip_level
            case "lz4":
                return self.compression_lz4_level
            case "zstd":
                return self.compression_zstd_level
        return None
