"""One record of the commit log: a round's rows under a header, the same in a log file and behind a payload.

    magic "PQC1" · size u32 · flags u32 · generation u64 · number u64 · payload bytes u32 · crc u32 · header crc u32
    content: `size` bytes, the rows of round `number`; in a BEGIN record the last number taken from earlier generations

`payload bytes` are those of the round's blobs right before the record, 0 in a log file. `crc` is the content's, `header
crc` that of the fields before it; both begin from a seed that is the cell's own, so that bytes which a client sent, or
which another cell wrote, are not taken for a record.
"""

import struct
from typing import NamedTuple

from crc32c import crc32c

from pqbroker.storage.engine import Buffer

COMMIT_MAGIC = b"PQC1"
_FIELDS = struct.Struct(">4sIIQQII")
_CRC = struct.Struct(">I")
COMMIT_HEADER_BYTES = _FIELDS.size + _CRC.size
TAKEN = struct.Struct(">Q")

NOT_SYNCED = 1
"""Flag of a round that was acknowledged before it was synced (durability interval or none)."""
BEGIN = 2
"""Flag of a log file's first record: `number` is the cell's last one when the file began."""


class CommitHeader(NamedTuple):
    """What a record says of itself."""

    size: int
    flags: int
    generation: int
    number: int
    payload_bytes: int
    crc: int

    @property
    def record_bytes(self) -> int:
        return COMMIT_HEADER_BYTES + self.size


def cell_seed(cell: str) -> int:
    """Where the checksums of a cell's records begin; `cell` is the id in its facts."""
    return crc32c(cell.encode())


def encode_commit(
    seed: int, content: Buffer, *, generation: int, number: int, flags: int = 0, payload_bytes: int = 0
) -> bytes:
    """The header of a record, which `content` follows."""
    crc = crc32c(content, seed)
    fields = _FIELDS.pack(COMMIT_MAGIC, len(content), flags, generation, number, payload_bytes, crc)
    return fields + _CRC.pack(crc32c(fields, seed))


def parse_commit(head: Buffer, seed: int) -> CommitHeader | None:
    """The header that the bytes begin with; None when it does not verify."""
    if len(head) < COMMIT_HEADER_BYTES:
        return None
    magic, *fields = _FIELDS.unpack_from(head)
    if magic != COMMIT_MAGIC or crc32c(head[: _FIELDS.size], seed) != _CRC.unpack_from(head, _FIELDS.size)[0]:
        return None
    return CommitHeader(*fields)


def record_bytes_told(head: Buffer) -> int | None:
    """How long the record is that the bytes begin with, as it says unverified; None when they begin none."""
    if len(head) < COMMIT_HEADER_BYTES or head[: len(COMMIT_MAGIC)] != COMMIT_MAGIC:
        return None
    return COMMIT_HEADER_BYTES + int(_FIELDS.unpack_from(head)[1])
