"""One record of the commit log: a round's rows under a header, the same in a log file and behind a payload.

    magic "PQC2" · size u32 · flags u32 · generation u64 · number u64 · payload bytes u32 · crc u32
        · map bytes u32 · map crc u32 · header crc u32
    content: `size` bytes, the rows of round `number`; in a BEGIN record the last number taken from earlier generations
    map: `map bytes` that name the sectors of the round which are zeros (`zero_sectors`); none where no sector is

`payload bytes` are those of the round's blobs right before the record, 0 in a log file. `crc` is the content's, `map
crc` the map's, `header crc` that of the fields before it; all begin from a seed that is the cell's own, so that bytes
which a client sent, or which another cell wrote, are not taken for a record.

The earlier form, "PQC1", has no map and its two fields are missing. Cells of format 2 wrote it.
"""

import struct
from typing import NamedTuple

from crc32c import crc32c

from pqbroker.storage.engine import Buffer

COMMIT_MAGICS = b"PQC"
"""The magics of both forms begin so."""
_MAGIC, _EARLIER_MAGIC = b"PQC2", b"PQC1"
_FIELDS = struct.Struct(">4sIIQQIIII")
_EARLIER_FIELDS = struct.Struct(">4sIIQQII")
_CRC = struct.Struct(">I")
COMMIT_HEADER_BYTES = _FIELDS.size + _CRC.size
EARLIER_HEADER_BYTES = _EARLIER_FIELDS.size + _CRC.size
TAKEN = struct.Struct(">Q")

NOT_SYNCED = 1
"""Flag of a round that was acknowledged before it was synced (durability interval or none)."""
BEGIN = 2
"""Flag of a log file's first record: `number` is the cell's last one when the file began."""


class CommitHeader(NamedTuple):
    """Header of a commit record."""

    size: int
    flags: int
    generation: int
    number: int
    payload_bytes: int
    crc: int
    map_bytes: int = 0
    map_crc: int = 0
    has_earlier_form: bool = False
    """The record does not say which sectors are zeros."""

    @property
    def header_bytes(self) -> int:
        return EARLIER_HEADER_BYTES if self.has_earlier_form else COMMIT_HEADER_BYTES

    @property
    def record_bytes(self) -> int:
        return self.header_bytes + self.size + self.map_bytes


def cell_seed(cell: str) -> int:
    """Return the value that the checksums of a cell's records begin with; `cell` is the id in its facts."""
    return crc32c(cell.encode())


def encode_commit(
    seed: int, content: Buffer, *, generation: int, number: int, flags: int = 0, payload_bytes: int = 0,
    zeros: bytes = b"",
) -> bytes:
    """The header of a record, which `content` follows and then `zeros`, the map of its zero sectors."""
    crc, map_crc = crc32c(content, seed), crc32c(zeros, seed)
    fields = _FIELDS.pack(
        _MAGIC, len(content), flags, generation, number, payload_bytes, crc, len(zeros), map_crc
    )
    return fields + _CRC.pack(crc32c(fields, seed))


def parse_commit(head: Buffer, seed: int) -> CommitHeader | None:
    """The header that the bytes begin with; None when it does not verify."""
    form = _EARLIER_FIELDS if head[: len(_MAGIC)] == _EARLIER_MAGIC else _FIELDS
    if len(head) < form.size + _CRC.size:
        return None
    magic, *fields = form.unpack_from(head)
    if magic not in (_MAGIC, _EARLIER_MAGIC):
        return None
    if crc32c(head[: form.size], seed) != _CRC.unpack_from(head, form.size)[0]:
        return None
    header = CommitHeader(*fields)
    return header if form is _FIELDS else header._replace(has_earlier_form=True)


def record_bytes_told(head: Buffer) -> int | None:
    """Return the length of the record that the bytes begin with, unverified; None when they begin with none."""
    if head[: len(_MAGIC)] == _MAGIC and len(head) >= COMMIT_HEADER_BYTES:
        _, size, *_, map_bytes, _ = _FIELDS.unpack_from(head)
        return COMMIT_HEADER_BYTES + int(size) + int(map_bytes)
    if head[: len(_MAGIC)] == _EARLIER_MAGIC and len(head) >= EARLIER_HEADER_BYTES:
        return EARLIER_HEADER_BYTES + int(_EARLIER_FIELDS.unpack_from(head)[1])
    return None
