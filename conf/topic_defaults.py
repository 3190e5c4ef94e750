"""Settings that new topics take where the topic itself does not say. `broker.BrokerSettings` lists them."""

from pqbroker.conf.declare import Kind, setting

_LONG_MAX = (1 << 63) - 1

MESSAGE_MAX_BYTES = setting(
    "message.max.bytes", Kind.INT, 1_048_588, "Default of `max.message.bytes`.", low=0, high=125_829_120
)
COMPRESSION_TYPE = setting(
    "compression.type", Kind.STRING, "producer", "Default of the topic config `compression.type`.",
    choices=("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"),
)  # fmt: skip
COMPRESSION_GZIP_LEVEL = setting(
    "compression.gzip.level", Kind.INT, -1, "Default of the topic config `compression.gzip.level`.", low=-1, high=9
)
COMPRESSION_LZ4_LEVEL = setting(
    "compression.lz4.level", Kind.INT, 9, "Default of the topic config `compression.lz4.level`.", low=1, high=17
)
COMPRESSION_ZSTD_LEVEL = setting(
    "compression.zstd.level", Kind.INT, 3, "Default of the topic config `compression.zstd.level`.",
    low=-131_072, high=22,
)  # fmt: skip
LOG_CLEANUP_POLICY = setting(
    "log.cleanup.policy", Kind.LIST, ("delete",), "Default of `cleanup.policy`.",
    choices=("delete", "compact"),
)
LOG_CLEANER_MIN_CLEANABLE_RATIO = setting(
    "log.cleaner.min.cleanable.ratio", Kind.DOUBLE, 0.5, "Default of `min.cleanable.dirty.ratio`.", low=0, high=1
)
LOG_CLEANER_DELETE_RETENTION_MS = setting(
    "log.cleaner.delete.retention.ms", Kind.LONG, 86_400_000, "Default of `delete.retention.ms`.", low=0
)
LOG_CLEANER_MIN_COMPACTION_LAG_MS = setting(
    "log.cleaner.min.compaction.lag.ms", Kind.LONG, 0, "Default of `min.compaction.lag.ms`.", low=0
)
LOG_CLEANER_MAX_COMPACTION_LAG_MS = setting(
    "log.cleaner.max.compaction.lag.ms", Kind.LONG, _LONG_MAX, "Default of `max.compaction.lag.ms`.", low=1
)
LOG_ROLL_MS = setting(
    "log.roll.ms", Kind.LONG, None, "Default of `segment.ms`; without it: `log.roll.hours`.", low=1
)
LOG_ROLL_HOURS = setting("log.roll.hours", Kind.INT, 168, "Default of `segment.ms` in hours.", low=1)
LOG_MESSAGE_TIMESTAMP_TYPE = setting(
    "log.message.timestamp.type", Kind.STRING, "CreateTime", "Default of `message.timestamp.type`.",
    choices=("CreateTime", "LogAppendTime"),
)  # fmt: skip
LOG_MESSAGE_TIMESTAMP_BEFORE_MAX_MS = setting(
    "log.message.timestamp.before.max.ms", Kind.LONG, _LONG_MAX, "Default of `message.timestamp.before.max.ms`.",
    low=0,
)  # fmt: skip
LOG_MESSAGE_TIMESTAMP_AFTER_MAX_MS = setting(
    "log.message.timestamp.after.max.ms", Kind.LONG, 3_600_000, "Default of `message.timestamp.after.max.ms`.",
    low=0,
)  # fmt: skip
LOG_RETENTION_MS = setting(
    "log.retention.ms", Kind.LONG, None, "Default of `retention.ms`; without it: `log.retention.minutes`.", low=-1
)
LOG_RETENTION_MINUTES = setting(
    "log.retention.minutes", Kind.INT, None,
    "Default of `retention.ms` in minutes; without it: `log.retention.hours`.",
    low=-1,
)  # fmt: skip
LOG_RETENTION_HOURS = setting(
    "log.retention.hours", Kind.INT, 168, "Default of `retention.ms` in hours.", low=-1
)
LOG_RETENTION_BYTES = setting("log.retention.bytes", Kind.LONG, -1, "Default of `retention.bytes`.")
