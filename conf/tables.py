"""Settings of tables. `broker.BrokerSettings` lists them."""

from pqbroker.conf.declare import Kind, setting

MIB = 1 << 20

COLUMNS_MAX = setting(
    "pqbroker.table.columns.max", Kind.INT, 1024, "Columns of a table at most.", low=1, high=100_000
)  # fmt: skip
ATTRIBUTE_SETS_MAX = setting(
    "pqbroker.table.attribute.sets.max", Kind.INT, 100,
    "Different sets of attributes that act in tablets of one table at most.", low=1, high=1_000,
)  # fmt: skip
STORES_BYTES_MAX = setting(
    "pqbroker.table.stores.bytes.max", Kind.LONG, 256 * MIB,
    "Memory of the rows of all sorted tables that are in no chunk yet, at most, prepared rows included; "
    "one table has half of it. Near it the largest stores are flushed, and at it writes are refused. "
    "Several nodes share it.", low=MIB,
)  # fmt: skip
BLOCKS_BYTES_MAX = setting(
    "pqbroker.table.blocks.bytes.max", Kind.LONG, 64 * MIB,
    "Memory of the blocks and indexes of chunks of sorted tables that are kept for lookups, at most. "
    "Several nodes share it.", low=0,
)  # fmt: skip
FLUSHES_MAX = setting(
    "pqbroker.table.flushes.max", Kind.INT, 2,
    "Flushes of sorted tables at once, each in a process. Several nodes share it.", low=1, high=16,
)  # fmt: skip
COMPACTIONS_MAX = setting(
    "pqbroker.table.compactions.max", Kind.INT, 1,
    "Compactions of sorted tables at once, each in a process; 0: none. Several nodes share it.", low=0, high=16,
)  # fmt: skip
PARTITIONINGS_MAX = setting(
    "pqbroker.table.partitionings.max", Kind.INT, 1,
    "Partitionings of sorted tables at once, each in a process; 0: none. Several nodes share it.", low=0, high=16,
)  # fmt: skip
MERGE_RATE = setting(
    "pqbroker.table.merge.bytes.per.second", Kind.LONG, 64 * MIB,
    "Bytes of chunks that flushes, compactions and partitionings write in a second at most, together. "
    "Several nodes share it.", low=64 << 10,
)  # fmt: skip
MERGE_MEMORY = setting(
    "pqbroker.table.merge.memory.bytes.max", Kind.LONG, 1024 * MIB,
    "Memory of a process that flushes, compacts or partitions at most; one above it ends, and its task is tried again "
    "later. Rows in memory become a chunk when they take a quarter of it.", low=256 * MIB,
)  # fmt: skip
CHUNK_BYTES_MAX = setting(
    "pqbroker.table.chunk.bytes.max", Kind.LONG, 512 * MIB,
    "Compressed bytes from which a chunk ends at the next key.", low=MIB,
)  # fmt: skip
FEEDS_MAX = setting(
    "pqbroker.table.feeds.max", Kind.INT, 2,
    "Materializations whose records become rows at once, each in a process; others wait for their turn.",
    low=1, high=16,
)  # fmt: skip
FEED_RATE = setting(
    "pqbroker.table.feed.records.per.second", Kind.INT, 100_000,
    "Records of topics that become rows of sorted tables in a second at most, together.", low=100, high=10_000_000,
)  # fmt: skip
BACKOFF_MS = setting(
    "pqbroker.table.backoff.ms", Kind.INT, 60_000,
    "Time after a failed flush, compaction, split or merge of a sorted tablet before it is tried again.", low=1,
)  # fmt: skip
QUEUE_CONSUMERS_MAX = setting(
    "pqbroker.queue.consumers.max", Kind.INT, 200, "Consumers registered with one queue at most.", low=1, high=1_000
)
QUEUE_TRIM_INTERVAL_MS = setting(
    "pqbroker.queue.trim.interval.ms", Kind.LONG, 5_000,
    "Time between two looks for records that `pq.auto.trim` deletes.", low=10,
)  # fmt: skip
QUEUE_META_BYTES_MAX = setting(
    "pqbroker.queue.session.meta.bytes.max", Kind.INT, 4_096,
    "Bytes of the document that a queue's producer keeps with its session, as compact JSON, at most.",
    low=4, high=65_536,
)  # fmt: skip
