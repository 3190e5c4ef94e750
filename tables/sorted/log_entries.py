"""Entries of a sorted tablet's log: the versions that one commit wrote, in the order of their arrival.

    0   4 bytes  magic "PQL1"
    4   uint16   value columns that the rows have
    6   uint16   zero
    8   uint32   rows
    12  uint32   bytes of the rows
    16  of each row: uint32 bytes of the version, uint16 bytes of the key; the key; the version (`packed_rows`)

Numbers are little endian. Several entries may stand end to end in one value.
"""

from collections.abc import Iterator, Sequence
from struct import Struct
from typing import Final, NamedTuple

from pqbroker.tables.sorted.packed_rows import HEAD_BYTES, KIND_AT, TIMESTAMP, Kind

MAGIC: Final = b"PQL1"
ENTRY_HEAD: Final = Struct("<4sHHII")
ROW_HEAD: Final = Struct("<IH")
_KINDS = frozenset(Kind)


class EntryDamaged(ValueError):
    """Bytes are no log entry; the text says what is wrong."""


class NewRow(NamedTuple):
    """One row of a write: its encoded key, and its version but for the timestamp."""

    key: bytes
    body: bytes


class LoggedRow(NamedTuple):
    """One row of an entry. `columns`: value columns that its version has."""

    key: bytes
    version: bytes
    columns: int


def encode_entry(columns: int, writes: Sequence[tuple[int, Sequence[NewRow]]]) -> bytes:
    """Encode writes, each the timestamp of its commit and its rows, with `columns` value columns."""
    parts = [b""]
    rows = size = 0
    for timestamp, some in writes:
        stamp = TIMESTAMP.pack(timestamp)
        for key, body in some:
            version_bytes = KIND_AT + len(body)
            parts += (ROW_HEAD.pack(version_bytes, len(key)), key, stamp, body)
            size += ROW_HEAD.size + len(key) + version_bytes
        rows += len(some)
    parts[0] = ENTRY_HEAD.pack(MAGIC, columns, 0, rows, size)
    return b"".join(parts)


def decode_entries(value: bytes) -> Iterator[LoggedRow]:
    """Yield the rows of entries that stand end to end. EntryDamaged."""
    position = 0
    while position < len(value):
        if position + ENTRY_HEAD.size > len(value):
            raise EntryDamaged(f"{len(value) - position} bytes are less than the head of an entry")
        magic, columns, zero, rows, size = ENTRY_HEAD.unpack_from(value, position)
        position += ENTRY_HEAD.size
        end = position + size
        if magic != MAGIC or zero or end > len(value):
            raise EntryDamaged(f"an entry begins with {magic.hex()}, and {size} bytes follow where {len(value)} are")
        for _ in range(rows):
            position, row = _row(value, position, end, columns)
            yield row
        if position != end:
            raise EntryDamaged(f"{end - position} bytes stand behind the {rows} rows of an entry")


def _row(value: bytes, position: int, end: int, columns: int) -> tuple[int, LoggedRow]:
    begin = position + ROW_HEAD.size
    if begin > end:
        raise EntryDamaged("an entry ends within the head of a row")
    version_bytes, key_bytes = ROW_HEAD.unpack_from(value, position)
    middle = begin + key_bytes
    after = middle + version_bytes
    if after > end or version_bytes < HEAD_BYTES or value[middle + KIND_AT] not in _KINDS:
        raise EntryDamaged(f"a row of {key_bytes} and {version_bytes} bytes does not fit its entry")
    return after, LoggedRow(value[begin:middle], value[middle:after], columns)
