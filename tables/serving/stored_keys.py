"""Keys of a sorted tablet in its KV tablet.

    f                                facts of the tablet (`tablet_facts`)
    l  store 8  entry 8              a log entry, or several end to end (`log_entries`)
    c  chunk 8                       the record of a chunk
    d  chunk 8                       the chunk itself
    t  task 8  piece 4               a piece that a task has staged

Numbers are big endian, so that keys sort as they do.
"""

from struct import Struct
from typing import Final

FACTS_KEY: Final = b"f"
LOG_KEYS: Final = b"l"
_NUMBER = Struct(">cQ")
_LOG = Struct(">cQQ")
_PIECE = Struct(">cQI")


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
    return _NUMBER.pack(b"c", chunk)


def chunk_data_key(chunk: int) -> bytes:
    """Return the key of a chunk itself."""
    return _NUMBER.pack(b"d", chunk)


def piece_key(task: int, piece: int) -> bytes:
    """Return the key of a staged piece."""
    return _PIECE.pack(b"t", task, piece)
