"""The rows of a disk engine's index: key prefixes, and the values the engine itself keeps. Not how they are stored.

    "r" + key                                   a row of the floors above
    "b" + blob id                               kind 0: crc32c of the payload, payload · kind 1: location
    "s" + pool + 0 + generation, sequence       bytes of records in a segment, bytes of them alive
    "n" + commit number modulo NUMBERS          the commit number; a ring, so that a hole among the last rounds shows
"""

import struct
from collections.abc import Sequence

from crc32c import crc32c

from pqbroker.storage.disk.segments import Location
from pqbroker.storage.engine import INDEX, BlobCorrupt, BlobKey, Buffer, EngineError

ROW = b"r"
BLOB = b"b"
SEGMENT = b"s"
NUMBERS = 1024
SEGMENT_ROWS = (b"s", b"t")

_INLINE = 0
_LOCATED = 1
_LOCATION = struct.Struct(">BQIQI")
_SEGMENT_ID = struct.Struct(">QI")
_SEGMENT_BYTES = struct.Struct(">QQ")
_NUMBER = struct.Struct(">Q")
_SLOTS = [b"n" + slot.to_bytes(2, "big") for slot in range(NUMBERS)]
_INLINE_HEAD_BYTES = 5


def inline_row(buffers: Sequence[Buffer]) -> bytes:
    """The index row of a blob that is kept whole in it."""
    payload = buffers[0] if len(buffers) == 1 else b"".join(buffers)
    return b"".join((b"\0", crc32c(payload).to_bytes(4, "big"), payload))


def located_row(at: Location) -> bytes:
    """The index row of a blob in a segment."""
    return _LOCATION.pack(_LOCATED, at.generation, at.sequence, at.position, at.size) + at.pool.encode()


def location(row: bytes) -> Location | None:
    """Return where the blob is; None when the row itself holds it. Raises ValueError for a row of neither kind."""
    if row[0] == _INLINE:
        return None
    if row[0] != _LOCATED or len(row) <= _LOCATION.size:
        raise ValueError(f"its row in the index is damaged or written by a newer version (kind {row[0]})")
    _, generation, sequence, position, size = _LOCATION.unpack_from(row)
    return Location(row[_LOCATION.size :].decode(), generation, sequence, position, size)


def place(row: bytes) -> str | None:
    """The pool that the blob is in, or INDEX; None for a row that is of neither kind."""
    if not is_known(row):
        return None
    at = location(row)
    return INDEX if at is None else at.pool


def is_known(row: bytes) -> bool:
    """Return True if a blob's row is of a kind that is known here."""
    return row[0] in (_INLINE, _LOCATED)


def blob_size(row: bytes) -> int:
    """Bytes of the blob that the row is about; ValueError as `location`."""
    at = location(row)
    return len(row) - _INLINE_HEAD_BYTES if at is None else at.size


def inline_payload(blob: BlobKey, row: bytes) -> memoryview:
    """The blob kept in the row; BlobCorrupt when it does not match its checksum."""
    payload = memoryview(row)[_INLINE_HEAD_BYTES:]
    if crc32c(payload) != int.from_bytes(row[1:_INLINE_HEAD_BYTES], "big"):
        raise BlobCorrupt(blob, 0, "its index row")
    return payload


def segment_key(pool: str, generation: int, sequence: int) -> bytes:
    return SEGMENT + pool.encode() + b"\0" + _SEGMENT_ID.pack(generation, sequence)


def segment_row(end: int, live: int) -> bytes:
    return _SEGMENT_BYTES.pack(end, live)


def parse_segment(key: bytes, row: bytes) -> tuple[str, int, int, int, int]:
    """Pool, generation, sequence, end and live bytes of a segment's row; EngineError. Its form is its version."""
    try:
        generation, sequence = _SEGMENT_ID.unpack_from(key, len(key) - _SEGMENT_ID.size)
        end, live = _SEGMENT_BYTES.unpack(row)
        return key[1 : -_SEGMENT_ID.size - 1].decode(), generation, sequence, end, live
    except (struct.error, UnicodeDecodeError) as bad:
        raise EngineError(
            f"row {key.hex()} of the index, about a segment, is damaged or written by a newer version ({bad}): run the"
            " version that wrote it, or restore a copy of the directory"
        ) from bad


def number_row(number: int) -> tuple[bytes, bytes]:
    """Key and value that record one round's commit number."""
    return _SLOTS[number % NUMBERS], _NUMBER.pack(number)


def number_keys() -> list[bytes]:
    return _SLOTS


def last_number(rows: Sequence[bytes | None]) -> int:
    """The last commit number in the ring (0: none yet). EngineError when one before it is missing."""
    numbers = [0 if row is None else int.from_bytes(row, "big") for row in rows]
    last = newest_number(rows)
    for number in range(max(1, last - NUMBERS + 1), last + 1):
        if numbers[number % NUMBERS] != number:
            raise EngineError(
                f"commit {number} is missing from the index, though {last} is there: acknowledged rows are lost;"
                " restore a copy of the directory"
            )
    return last


def newest_number(rows: Sequence[bytes | None]) -> int:
    """The last commit number in the ring, whatever is missing before it."""
    return max(int.from_bytes(row or b"", "big") for row in rows)
