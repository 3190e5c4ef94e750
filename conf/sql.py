"""Settings of SQL over topics: how many queries, how long, how much. `broker.BrokerSettings` lists them."""

from pqbroker.conf.declare import Kind, setting

MIB = 1 << 20

QUERIES_MAX = setting(
    "pqbroker.sql.queries.max", Kind.INT, 2,
    "SQL queries at once, each in a worker process of its own. More wait, `pqbroker.sql.queries.waiting.max` at most, "
    "and are answered 503 after the time that they may take. Addresses that wait take turns; one place (of many an "
    "eighth) is for addresses that have none. "
    "0: no SQL.",
    low=0, high=64,
)  # fmt: skip
QUERIES_WAITING_MAX = setting(
    "pqbroker.sql.queries.waiting.max", Kind.INT, 100,
    "SQL queries that wait for one of `pqbroker.sql.queries.max` to end; more are answered 503 at once. An eighth of "
    "these places, one at least of two, is for addresses of which no query waits. 0: none waits.",
    low=0, high=10_000,
)  # fmt: skip
DEPTH_MAX = setting(
    "pqbroker.sql.depth.max", Kind.INT, 100,
    "Levels of brackets, subqueries and CASE within one another in an SQL query; a deeper one is refused.",
    low=10, high=200,
)  # fmt: skip
PARAMS_MAX = setting(
    "pqbroker.sql.params.max", Kind.INT, 1000,
    "Values of parameters (`$1`, `$name`) of an SQL query; more are refused.",
    low=0, high=10_000,
)  # fmt: skip
PARAMS_BYTES_MAX = setting(
    "pqbroker.sql.params.bytes.max", Kind.INT, 256 << 10,
    "Bytes of JSON of all parameters of an SQL query; more are refused.", low=0, high=MIB,
)  # fmt: skip
TIME_MS_MAX = setting(
    "pqbroker.sql.time.ms.max", Kind.INT, 60_000,
    "Time that an SQL query may take, the client's reading included, or encoding rows that came in Arrow; then the "
    "query is stopped.", low=1,
)  # fmt: skip
MEMORY_BYTES_MAX = setting(
    "pqbroker.sql.memory.bytes.max", Kind.LONG, 1024 * MIB,
    "Memory of a worker that runs an SQL query, or encodes rows that came in Arrow, at most. A worker above it ends, "
    "and its query or rows are refused.", low=128 * MIB,
)  # fmt: skip
COLUMNS_BYTES_MAX = setting(
    "pqbroker.sql.columns.bytes.max", Kind.LONG, 256 * MIB,
    "Memory in which a worker keeps columns that it has decoded, for later SQL queries, at most, and at most a quarter "
    "of `pqbroker.sql.memory.bytes.max`.", low=0,
)  # fmt: skip
RESULT_BYTES_MAX = setting(
    "pqbroker.sql.result.bytes.max", Kind.LONG, 256 * MIB, "Bytes of the answer to an SQL query at most.", low=1024
)
SQL_FILES_DIRECTORY = setting(
    "pqbroker.sql.files.directory", Kind.STRING, "",
    "Directory whose files SQL reads as relations: `files.prices.csv` is the file prices.csv in it. CSV with a line of "
    "names, and Parquet; no links, no subdirectories. Read on the topic of that name is needed. Empty: no files.",
)  # fmt: skip
SQL_UPLOADS_MAX = setting(
    "pqbroker.sql.uploads.max", Kind.INT, 16,
    "Files that may come with an SQL query, CSV or Parquet; a query with more is refused. They lie in memory until it "
    "ends, and are a part of its request (`pqbroker.http.body.bytes.max`). 0: none.", low=0, high=1000,
)  # fmt: skip
SQL_FILES_MAX = setting(
    "pqbroker.sql.files.max", Kind.INT, 1000,
    "Entries of `pqbroker.sql.files.directory` that lists of tables look at. A file beyond them can still be queried "
    "by its name.", low=0, high=10_000,
)  # fmt: skip
SQL_FILES_BYTES_MAX = setting(
    "pqbroker.sql.files.bytes.max", Kind.LONG, 256 * MIB,
    "Size of a local file that an SQL query reads, or that comes with it, at most; queries with a larger one are "
    "refused.", low=0,
)  # fmt: skip
WORKER_IDLE_MS = setting(
    "pqbroker.sql.worker.idle.ms", Kind.INT, 60_000,
    "Time that a worker waits for another SQL query before it is ended; the first query after that waits for a start.",
    low=0,
)  # fmt: skip
