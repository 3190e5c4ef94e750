"""Settings of the cleaner of compacted topics. `broker.BrokerSettings` lists them."""

from pqbroker.conf.declare import Kind, setting

MIB = 1 << 20

ENABLE = setting(
    "log.cleaner.enable", Kind.BOOLEAN, True,
    "Clean compacted topics; if false every record of them stays, and a cleaning that is asked for is refused.",
)  # fmt: skip
THREADS = setting(
    "log.cleaner.threads", Kind.INT, 1, "Partitions that are cleaned at once, each in a process; 0: none.", low=0
)  # fmt: skip
IO_RATE = setting(
    "log.cleaner.io.max.bytes.per.second", Kind.DOUBLE, 1.7976931348623157e308,
    "Bytes that cleanings read and write in a second at most, together. What they write counts for "
    "`pqbroker.table.merge.bytes.per.second` too.", low=1024,
)  # fmt: skip
BUFFER_BYTES = setting(
    "log.cleaner.dedupe.buffer.size", Kind.LONG, 128 * MIB,
    "Memory for the keys of one cleaning, 24 bytes each at a load factor of 1. A partition with more keys that were "
    "not looked at yet is cleaned in several passes.", low=1024,
)  # fmt: skip
LOAD_FACTOR = setting(
    "log.cleaner.io.buffer.load.factor", Kind.DOUBLE, 0.9,
    "Part of `log.cleaner.dedupe.buffer.size` that keys may fill.", low=0.01, high=1,
)  # fmt: skip
LOOK_PERIOD_MS = setting(
    "log.cleaner.backoff.ms", Kind.LONG, 15_000,
    "Time between looks for partitions that are to be cleaned; less than 10 acts as 10.", low=0,
)  # fmt: skip  # fmt: skip
CLEANED_BATCH_BYTES_MAX = setting(
    "pqbroker.cleaner.batch.bytes.max", Kind.INT, 32 * MIB,
    "Unpacked bytes of a record batch that a cleaning takes apart, a record counting as 64 at least; a larger one stays"
    " as it is.", low=1024, high=1 << 30,
)  # fmt: skip
