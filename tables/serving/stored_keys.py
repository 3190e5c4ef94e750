"""Keys of a sorted tablet in its KV tablet.

    f                                facts of the tablet (`tablet_facts`)
    p                                pivots of its partitions
    l  store 8  entry 8              a log entry, or several end to end (`log_entries`)
    c  chunk 8                       the record of a chunk
    d  chunk 8                       the chunk itself
    t  task 8  piece 4               a piece that a task has staged
    s  partition 4                   progress in a partition of the topic that feeds the table (`feed_progress`)
    e                                dead letters of that topic
    x  transaction 16                rows that a transaction has prepared (`stored_forms.PreparedRows`, log entries)
    y  transaction 16                the decision of a transaction, of which the tablet is the home

Numbers are big endian, so that keys sort as they do.
"""

from struct import Struct
from typing import Final

from pqbroker.pq.transactions.stored_forms import TRANSACTION_BYTES, TransactionId

FACTS_KEY: Final = b"f"
PIVOTS_KEY: Final = b"p"
LOG_KEYS: Final = b"l"
CHUNK_KEYS: Final = b"c"
CHUNK_DATA_KEYS: Final = b"d"
PIECE_KEYS: Final = b"t"
FEED_KEYS: Final = b"s"
LETTERS_KEY: Final = b"e"
PREPARED_KEYS: Final = b"x"
DECISION_KEYS: Final = b"y"
CHUNK_CHANNEL: Final = 1
"""The KV tablet's channel of chunks; log entries go to the first one."""
_NUMBER = Struct(">cQ")
_LOG = Struct(">cQQ")
_PIECE = Struct(">cQI")
_FEED = Struct(">cI")


def log_key(store: int, entry: int) -> bytes:
    """Return the key of a log entry."""
    return _LOG.pack(LOG_KEYS, store, entry)


def log_bounds(store: int) -> tuple[bytes, bytes]:
    """Return the keys of a store's log: from the first to before the second."""
    return _NUMBER.pack(LOG_KEYS, store), _NUMBER.pack(LOG_KEYS, store + 1)


def read_log_key(key: bytes) -> tuple[int, int]:
    """Return store and entry of a log entry's key. ValueError."""
    if len(key) != _LOG.size:
        raise ValueError(f"{key.hex()} is no key of a log entry")
    _, store, entry = _LOG.unpack(key)
    return store, entry


def chunk_key(chunk: int) -> bytes:
    """Return the key of a chunk's record."""
    return _NUMBER.pack(CHUNK_KEYS, chunk)


def read_chunk_key(key: bytes) -> int:
    """Return the chunk of a record's key. ValueError."""
    if len(key) != _NUMBER.size:
        raise ValueError(f"{key.hex()} is no key of a chunk")
    number: int = _NUMBER.unpack(key)[1]
    return number


def chunk_data_key(chunk: int) -> bytes:
    """Return the key of a chunk itself."""
    return _NUMBER.pack(CHUNK_DATA_KEYS, chunk)


def piece_key(task: int, piece: int) -> bytes:
    """Return the key of a staged piece."""
    return _PIECE.pack(PIECE_KEYS, task, piece)


def read_piece_key(key: bytes) -> tuple[int, int]:
    """Return task and piece of a staged piece's key. ValueError."""
    if len(key) != _PIECE.size:
        raise ValueError(f"{key.hex()} is no key of a piece")
    _, task, piece = _PIECE.unpack(key)
    return task, piece


def pieces_of(task: int) -> tuple[bytes, bytes]:
    """Return the keys of a task's pieces: from the first to before the second."""
    return _NUMBER.pack(PIECE_KEYS, task), _NUMBER.pack(PIECE_KEYS, task + 1)


def feed_key(partition: int) -> bytes:
    """Return the key of the progress in a partition."""
    return _FEED.pack(FEED_KEYS, partition)


def read_feed_key(key: bytes) -> int:
    """Return the partition of a progress. ValueError."""
    if len(key) != _FEED.size:
        raise ValueError(f"{key.hex()} is no key of a feed's progress")
    partition: int = _FEED.unpack(key)[1]
    return partition


def prepared_key(transaction: TransactionId) -> bytes:
    """Return the key of the rows that a transaction has prepared."""
    return PREPARED_KEYS + transaction


def decision_key(transaction: TransactionId) -> bytes:
    """Return the key of a transaction's decision."""
    return DECISION_KEYS + transaction


def read_transaction_key(key: bytes) -> TransactionId:
    """Return the transaction of prepared rows or a decision. ValueError."""
    if len(key) != 1 + TRANSACTION_BYTES:
        raise ValueError(f"{key.hex()} is no key of a transaction")
    return TransactionId(key[1:])
