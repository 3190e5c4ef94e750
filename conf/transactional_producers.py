"""Settings of transactional producers: times, and how much a transaction and all of them may hold."""

from pqbroker.conf.declare import Kind, setting

TRANSACTION_MAX_TIMEOUT_MS = setting(
    "transaction.max.timeout.ms", Kind.INT, 900_000,
    "Longest timeout of a producer's transaction, which is aborted after it; above: INVALID_TRANSACTION_TIMEOUT.",
    low=1,
)  # fmt: skip
TRANSACTIONAL_ID_EXPIRATION_MS = setting(
    "transactional.id.expiration.ms", Kind.INT, 604_800_000,
    "Time after which an unused transactional id is forgotten, at the next `log.retention.check.interval.ms`.", low=1,
)  # fmt: skip
ADD_PARTITIONS_WAIT_MS = setting(
    "add.partitions.to.txn.retry.backoff.max.ms", Kind.INT, 100,
    "Time that a producer's next transaction waits for the end of the one before; then CONCURRENT_TRANSACTIONS, after "
    "which clients retry.", low=0,
)  # fmt: skip
TRANSACTIONAL_ID_BYTES_MAX = setting(
    "pqbroker.transactional.id.bytes.max", Kind.INT, 1 << 20,
    "Bytes of one producer's transaction at most: 64 for each partition, 192 and its texts for each offset; above: "
    "POLICY_VIOLATION.", low=4096, high=4 << 20,
)  # fmt: skip
TRANSACTIONAL_IDS_BYTES_MAX = setting(
    "pqbroker.transactional.ids.bytes.max", Kind.LONG, 64 << 20,
    "Bytes of all transactional ids at most, counted as pqbroker.transactional.id.bytes.max, and 1 KiB for each; "
    "above: POLICY_VIOLATION. The last eighth is kept for addresses with few.", low=65_536,
)  # fmt: skip
