"""Settings of transactions over tables. `broker.BrokerSettings` lists them."""

from pqbroker.conf.declare import Kind, setting

TRANSACTIONS_MAX = setting(
    "pqbroker.transactions.max", Kind.INT, 1000,
    "Transactions over tables that are open at once; a client's address has at most all but an eighth of them.",
    low=8, high=100_000,
)  # fmt: skip
TRANSACTION_TIMEOUT_MS_MAX = setting(
    "pqbroker.transaction.timeout.ms.max", Kind.INT, 60_000,
    "Longest timeout of a transaction over tables; after it, without a ping, the transaction is aborted.", low=1000,
)  # fmt: skip
TRANSACTION_AGE_MS_MAX = setting(
    "pqbroker.transaction.age.ms.max", Kind.LONG, 3_600_000,
    "Time after which a transaction over tables is aborted, pings or not: it keeps the versions that it may read.",
    low=1000,
)  # fmt: skip
TRANSACTION_ROWS_MAX = setting(
    "pqbroker.transaction.rows.max", Kind.INT, 100_000, "Rows that one transaction over tables writes at most.",
    low=1, high=10_000_000,
)  # fmt: skip
TRANSACTION_PARTICIPANTS_MAX = setting(
    "pqbroker.transaction.participants.max", Kind.INT, 100,
    "Tablets that one transaction over tables, or one insertion, writes to at most.", low=1, high=1000,
)  # fmt: skip
TRANSACTION_PREPARE_MS_MAX = setting(
    "pqbroker.transaction.prepare.ms.max", Kind.INT, 5000,
    "Time that the commit of a transaction keeps other writes waiting before it is decided; then it is aborted. Writes "
    "and reads of rows that a commit has locked wait as long.", low=100,
)  # fmt: skip
TRANSACTION_KEPT_MS = setting(
    "pqbroker.transaction.kept.ms", Kind.LONG, 600_000,
    "Time that the outcome of a transaction is kept for a client that sends its commit again.", low=1000,
)  # fmt: skip
