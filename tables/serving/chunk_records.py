"""Records of a tablet's chunks and of its partitions, as they are stored: JSON under keys of their own."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

CHUNK_RECORD_FORMAT = 1
PARTITIONS_FORMAT = 1


class ChunkRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One chunk. Sizes in bytes, times in milliseconds since 1970, keys hexadecimal."""

    created_ms: int
    revision: int
    """Revision of the table when the chunk was made: a forced compaction takes those below its own."""
    size: int
    index_bytes: int
    """Last bytes of the chunk, which say where its rows lie."""
    unpacked_bytes: int
    rows: int
    keys: int
    deletes: int
    least_timestamp: int
    greatest_timestamp: int
    first_key: str
    last_key: str
    format: int = CHUNK_RECORD_FORMAT

    @classmethod
    def made(cls, facts: Mapping[str, Any], created_ms: int, revision: int) -> "ChunkRecord":
        """Return the record of a chunk, given what a worker says of it."""
        names = {field.name for field in msgspec.structs.fields(cls)}
        said = {name: value for name, value in facts.items() if name in names}
        return cls(created_ms=created_ms, revision=revision, **said)

    def encode(self) -> bytes:
        return msgspec.json.encode(self)

    @classmethod
    def decode(cls, value: bytes) -> "ChunkRecord":
        """ValueError for bytes that are none of this version."""
        record = msgspec.json.decode(value, type=cls)
        if record.format != CHUNK_RECORD_FORMAT:
            raise ValueError(f"a chunk's record has format {record.format}; this version reads {CHUNK_RECORD_FORMAT}")
        bytes.fromhex(record.first_key + record.last_key)
        return record


class _Partitions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    pivots: tuple[str, ...]
    format: int = PARTITIONS_FORMAT


def encode_pivots(pivots: Sequence[bytes]) -> bytes:
    """Return the pivots of a tablet's partitions as they are stored."""
    return msgspec.json.encode(_Partitions(tuple(pivot.hex() for pivot in pivots)))


def decode_pivots(value: bytes) -> list[bytes]:
    """ValueError for bytes that are none of this version."""
    stored = msgspec.json.decode(value, type=_Partitions)
    pivots = [bytes.fromhex(pivot) for pivot in stored.pivots]
    if stored.format != PARTITIONS_FORMAT or not pivots or sorted(set(pivots)) != pivots:
        raise ValueError(f"pivots of a tablet's partitions are {value[:100]!r}")
    return pivots
