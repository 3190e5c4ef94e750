"""Settings of searches in topics: how many, how long, how much. `broker.BrokerSettings` lists them."""

from pqbroker.conf.declare import Kind, setting

MIB = 1 << 20

SEARCHES_MAX = setting(
    "pqbroker.search.searches.max", Kind.INT, 2,
    "Searches in topics at once, each in a worker process of its own. More wait, "
    "`pqbroker.search.searches.waiting.max` at most, and are answered 503 after the time that they may take. Addresses "
    "that wait take turns; one place (of many an eighth) is for addresses that have none. 0: no searches.",
    low=0, high=64,
)  # fmt: skip
SEARCHES_WAITING_MAX = setting(
    "pqbroker.search.searches.waiting.max", Kind.INT, 100,
    "Searches in topics that wait for one of `pqbroker.search.searches.max` to end; more are answered 503 at once. An "
    "eighth of these places, one at least of two, is for addresses of which no search waits. 0: none waits.",
    low=0, high=10_000,
)  # fmt: skip
SEARCH_TIME_MS_MAX = setting(
    "pqbroker.search.time.ms.max", Kind.INT, 60_000,
    "Time that a search may take, the client's reading included; then it ends, and says where another one continues.",
    low=1,
)  # fmt: skip
SEARCH_BYTES_MAX = setting(
    "pqbroker.search.bytes.max", Kind.LONG, 65_536 * MIB,
    "Stored bytes that a search reads at most; then it ends, and says where another one continues.", low=MIB,
)  # fmt: skip
SEARCH_DECOMPRESSED_BYTES_MAX = setting(
    "pqbroker.search.decompressed.bytes.max", Kind.LONG, 262_144 * MIB,
    "Bytes of records, decompressed, that a search looks at, at most; then it ends, and says where another one "
    "continues.", low=MIB,
)  # fmt: skip
SEARCH_BATCH_BYTES_MAX = setting(
    "pqbroker.search.batch.bytes.max", Kind.INT, 128 * MIB,
    "Bytes of the records of one batch, decompressed, at most. A search passes over a larger batch, and says so.",
    low=1024,
)  # fmt: skip
SEARCH_DECODED_BYTES_MAX = setting(
    "pqbroker.search.decoded.bytes.max", Kind.INT, 16 * MIB,
    "Bytes that a key or a value decoded by a schema registry takes as JSON in a search, about, at most. A search "
    "looks at the stored bytes of a larger one, and counts its record as not decoded.", low=1024,
)  # fmt: skip
SEARCH_MATCHES_MAX = setting(
    "pqbroker.search.matches.max", Kind.INT, 100_000,
    "Records that a search finds at most; then it ends, and says where another one continues.", low=1,
)  # fmt: skip
SEARCH_ANSWER_BYTES_MAX = setting(
    "pqbroker.search.answer.bytes.max", Kind.LONG, 256 * MIB,
    "Bytes of the records that a search finds, about, at most, but one record in any case; then it ends, and says "
    "where another one continues.", low=1024,
)  # fmt: skip
SEARCH_MEMORY_BYTES_MAX = setting(
    "pqbroker.search.memory.bytes.max", Kind.LONG, 1024 * MIB,
    "Memory of a worker that searches, at most. A worker above it ends, and its search is refused.", low=128 * MIB,
)  # fmt: skip
