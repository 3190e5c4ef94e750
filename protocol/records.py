"""Record batches (magic 2): the header, the stamps a broker sets, and the records inside. Checks: produced_batches.py.

A batch is a slice of what was received; only `decode_records` and `encode_batch` look at or make single records.
"""

import struct
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from crc32c import crc32c

from pqbroker.protocol.compression import compress, decompress
from pqbroker.protocol.errors import ErrorCode, KafkaError, ProtocolError
from pqbroker.protocol.primitives import Buffer, read_varlong, varlong

BATCH_HEADER_BYTES: Final = 61
BATCH_MAGIC: Final = 2
MAGIC_AT: Final = 16
CRC_END: Final = 21
"""The checksum covers what follows."""
DECOMPRESSED_BYTES_MAX: Final = 128 << 20
"""Decompressed bytes of one batch's records at most, unless the caller says otherwise."""

_HEADER: Final = struct.Struct(">qiibIhiqqqhii")
LENGTH_END: Final = 12
_BATCH_LENGTH_AT: Final = 8
_LEADER_EPOCH_AT: Final = 12
_CRC_AT: Final = 17
_MAX_TIMESTAMP_AT: Final = 35
_INT32: Final = struct.Struct(">i")
_INT64: Final = struct.Struct(">q")
_UINT32: Final = struct.Struct(">I")
_ATTRIBUTES: Final = struct.Struct(">h")

CODEC_MASK: Final = 0x07
LOG_APPEND_TIME: Final = 0x08
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20
DELETE_HORIZON: Final = 0x40
"""The base timestamp is when tombstones of the batch may go (KIP-534); records' times are counted from it as ever."""


class BatchHeader(NamedTuple):
    """The fixed part of a batch, as on the wire. `crc` covers everything from `attributes` on."""

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size_bytes(self) -> int:
        return self.batch_length + LENGTH_END

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def last_sequence(self) -> int:
        """Sequence of the last record; sequences wrap to 0 after 2^31 - 1."""
        return (self.base_sequence + self.last_offset_delta) & 0x7FFF_FFFF

    @property
    def codec(self) -> int:
        return self.attributes & CODEC_MASK

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def is_log_append_time(self) -> bool:
        return bool(self.attributes & LOG_APPEND_TIME)


class Record(NamedTuple):
    """One record. Timestamps are milliseconds since 1970; a None value is a tombstone."""

    offset: int = 0
    timestamp: int = 0
    key: bytes | None = None
    value: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """The header of the batch at `position`; KafkaError CORRUPT_MESSAGE when there is no room for one."""
    try:
        return tuple.__new__(BatchHeader, _HEADER.unpack_from(buffer, position))  # `_make` is a call more
    except struct.error:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, "a record batch is shorter than its header") from None


def stamp(batch: memoryview, base_offset: int, leader_epoch: int) -> None:
    """Give a batch its place in the log. Both numbers lie before what the checksum covers."""
    _INT64.pack_into(batch, 0, base_offset)
    _INT32.pack_into(batch, _LEADER_EPOCH_AT, leader_epoch)


def stamp_log_append_time(batch: memoryview, now_ms: int) -> None:
    """Make every record's timestamp `now_ms` (`message.timestamp.type=LogAppendTime`), with a new checksum."""
    (attributes,) = _ATTRIBUTES.unpack_from(batch, CRC_END)
    _ATTRIBUTES.pack_into(batch, CRC_END, attributes | LOG_APPEND_TIME)
    _INT64.pack_into(batch, _MAX_TIMESTAMP_AT, now_ms)
    _UINT32.pack_into(batch, _CRC_AT, crc32c(batch[CRC_END:]))


def batches(buffer: Buffer) -> Iterator[tuple[int, BatchHeader]]:
    """Position and header of each batch in a run of whole batches; KafkaError CORRUPT_MESSAGE where one is cut off."""
    position, end = 0, len(buffer)
    while position < end:
        header = read_header(buffer, position)
        if not BATCH_HEADER_BYTES <= header.size_bytes <= end - position:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"the batch at byte {position} is not as long as it says")
        yield position, header
        position += header.size_bytes


def decode_records(batch: Buffer, bytes_max: int = DECOMPRESSED_BYTES_MAX) -> Iterator[Record]:
    """The records of one batch, decompressed to at most `bytes_max` bytes; the checksum is not verified again.

    KafkaError INVALID_RECORD where the producer's bytes are no records: a retry would not make them so.
    """
    header = read_header(batch)
    data = decompress(header.codec, memoryview(batch)[BATCH_HEADER_BYTES : header.size_bytes], bytes_max)
    position = 0
    try:
        for _ in range(header.record_count):
            record, position = decode_record(data, position, header)
            yield record
    except (IndexError, ProtocolError, UnicodeDecodeError):
        raise KafkaError(ErrorCode.INVALID_RECORD, f"the batch at {header.base_offset} holds no records") from None
    if position != len(data):
        raise KafkaError(ErrorCode.INVALID_RECORD, f"the batch at {header.base_offset} holds more than its records")


def decode_times(batch: Buffer, bytes_max: int = DECOMPRESSED_BYTES_MAX) -> Iterator[tuple[int, int]]:
    """Offset and timestamp of each record of a batch, as `decode_records`; what else a record holds is skipped."""
    header = read_header(batch)
    data = decompress(header.codec, memoryview(batch)[BATCH_HEADER_BYTES : header.size_bytes], bytes_max)
    position = 0
    try:
        for _ in range(header.record_count):
            offset, timestamp, _, end = _decode_place(data, position, header)
            yield offset, timestamp
            position = end
    except (IndexError, ProtocolError):
        raise KafkaError(ErrorCode.INVALID_RECORD, f"the batch at {header.base_offset} holds no records") from None


def encode_batch(
    records: Sequence[Record],
    *,
    base_offset: int = 0,
    codec: int = 0,
    attributes: int = 0,
    leader_epoch: int = -1,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
) -> bytearray:
    """A batch of the records in order; their own offsets do not matter. `attributes` are those besides the codec."""
    base_timestamp = records[0].timestamp
    max_timestamp = max(record.timestamp for record in records)
    encoded = [_encode_record(delta, record, base_timestamp) for delta, record in enumerate(records)]
    body = compress(codec, b"".join(encoded))
    batch = bytearray(
        _HEADER.pack(
            base_offset, BATCH_HEADER_BYTES + len(body) - LENGTH_END, leader_epoch, BATCH_MAGIC, 0,
            attributes | codec, len(records) - 1, base_timestamp, max_timestamp, producer_id, producer_epoch,
            base_sequence, len(records),
        )
    )  # fmt: skip
    batch += body
    _UINT32.pack_into(batch, _CRC_AT, crc32c(memoryview(batch)[CRC_END:]))
    return batch


def recompressed(
    batch: memoryview, codec: int, level: int | None, bytes_max: int = DECOMPRESSED_BYTES_MAX
) -> bytearray:
    """The batch with its records, of at most `bytes_max` bytes, under another codec; all else that it says stays.

    KafkaError INVALID_RECORD where its records do not decompress.
    """
    header = read_header(batch)
    records = decompress(header.codec, batch[BATCH_HEADER_BYTES : header.size_bytes], bytes_max)
    changed = bytearray(batch[:BATCH_HEADER_BYTES])
    changed += compress(codec, records, level)
    _INT32.pack_into(changed, _BATCH_LENGTH_AT, len(changed) - LENGTH_END)
    _ATTRIBUTES.pack_into(changed, CRC_END, header.attributes & ~CODEC_MASK | codec)
    _UINT32.pack_into(changed, _CRC_AT, crc32c(memoryview(changed)[CRC_END:]))
    return changed


def _decode_place(data: Buffer, position: int, header: BatchHeader) -> tuple[int, int, int, int]:
    """A record's offset and timestamp, where its key begins, and where it ends."""
    size, position = read_varlong(data, position)
    end = position + size
    if not position < end <= len(data):
        raise ProtocolError("a record runs past the end")
    timestamp_delta, position = read_varlong(data, position + 1)
    offset_delta, position = read_varlong(data, position)
    if not 0 <= offset_delta <= header.last_offset_delta:
        raise ProtocolError("a record lies outside its batch")
    timestamp = header.max_timestamp if header.is_log_append_time else header.base_timestamp + timestamp_delta
    if not -1 << 63 <= timestamp < 1 << 63:
        raise ProtocolError("a record's timestamp is none")
    return header.base_offset + offset_delta, timestamp, position, end


def decode_record(data: Buffer, position: int, header: BatchHeader) -> tuple[Record, int]:
    """The record at a position, and where it ends; IndexError, ProtocolError, UnicodeDecodeError."""
    offset, timestamp, position, end = _decode_place(data, position, header)
    key, position = _decode_bytes(data, position, end)
    value, position = _decode_bytes(data, position, end)
    count, position = read_varlong(data, position)
    if not 0 <= 2 * count <= end - position:
        raise ProtocolError("a record's headers run past the end")
    headers = []
    for _ in range(count):
        name, position = _decode_bytes(data, position, end)
        content, position = _decode_bytes(data, position, end)
        if name is None:
            raise ProtocolError("a record header has no name")
        headers.append((name.decode(), content))
    if position != end:
        raise ProtocolError("a record is not as long as it says")
    return Record(offset, timestamp, key, value, tuple(headers)), end


def _decode_bytes(data: Buffer, position: int, end: int) -> tuple[bytes | None, int]:
    size, position = read_varlong(data, position)
    if size < 0:
        return None, position
    stop = position + size
    if stop > end:
        raise ProtocolError("a record's content runs past its end")
    return bytes(data[position:stop]), stop


def _encode_record(offset_delta: int, record: Record, base_timestamp: int) -> bytes:
    parts = [b"\0", varlong(record.timestamp - base_timestamp), varlong(offset_delta)]
    parts += _encode_bytes(record.key)
    parts += _encode_bytes(record.value)
    parts.append(varlong(len(record.headers)))
    for name, content in record.headers:
        parts += _encode_bytes(name.encode())
        parts += _encode_bytes(content)
    body = b"".join(parts)
    return varlong(len(body)) + body


def _encode_bytes(content: bytes | None) -> tuple[bytes, bytes]:
    return (varlong(-1), b"") if content is None else (varlong(len(content)), content)
