"""Record batches (magic 2): the header, its checks, the stamps a broker sets, and the records inside.

A batch is a slice of what was received; only `decode_records` and `encode_batch` look at or make single records.
"""

import struct
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from crc32c import crc32c

from pqbroker.protocol.compression import BEGINNINGS, CODECS, GROWTH_MAX, SNAPPY, compress, decompress
from pqbroker.protocol.errors import ErrorCode, KafkaError, ProtocolError, RecordsRefused
from pqbroker.protocol.primitives import Buffer, read_varlong, varlong

HEADER_BYTES: Final = 61
RECORD_BYTES_MIN: Final = 7
"""A record of nothing: its length, attributes, time, offset, no key, no value, no headers."""
DECOMPRESSED_BYTES_MAX: Final = 128 << 20
"""What the records of one batch may take decompressed, unless the caller says otherwise."""

_HEADER: Final = struct.Struct(">qiibIhiqqqhii")
_LENGTH_END: Final = 12
_LEADER_EPOCH_AT: Final = 12
_CRC_AT: Final = 17
_CRC_END: Final = 21
_MAX_TIMESTAMP_AT: Final = 35
_INT32: Final = struct.Struct(">i")
_INT64: Final = struct.Struct(">q")
_UINT32: Final = struct.Struct(">I")
_ATTRIBUTES: Final = struct.Struct(">h")
_BATCH_MAGIC: Final = 2
_LOCK_KEPT_BYTES: Final = 1 << 20
"""Checksums of up to 0.1 ms keep the interpreter lock: to have it back may take longer than that."""

CODEC_MASK: Final = 0x07
LOG_APPEND_TIME: Final = 0x08
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20


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
        return self.batch_length + _LENGTH_END

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
        return BatchHeader._make(_HEADER.unpack_from(buffer, position))
    except struct.error:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, "a record batch is shorter than its header") from None


def check_produced(records: memoryview, bytes_max: int) -> BatchHeader:
    """Check what a client wants appended to a partition: exactly one sound batch of at most `bytes_max` bytes.

    Raises KafkaError with Kafka's codes (its `ProduceRequest` and `LogValidator`): MESSAGE_TOO_LARGE, CORRUPT_MESSAGE,
    INVALID_RECORD, INVALID_TIMESTAMP, UNSUPPORTED_COMPRESSION_TYPE. Whether zstd may be used (Produce 7) and what the
    producer's sequence means is for the caller.
    """
    if not records:
        raise KafkaError(ErrorCode.INVALID_RECORD, "a partition was sent no record batch")
    if len(records) > _CRC_AT - 1 and records[_CRC_AT - 1] != _BATCH_MAGIC:
        raise KafkaError(ErrorCode.INVALID_RECORD, "only record batches of magic 2 are taken")
    header = read_header(records)
    size = header.size_bytes
    if not HEADER_BYTES <= size <= len(records):
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, "the record batch is not as long as it says")
    if size < len(records):
        raise KafkaError(ErrorCode.INVALID_RECORD, "a partition was sent more than one record batch")
    if size > bytes_max:
        raise KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE, f"the record batch has {size} bytes; the most allowed is {bytes_max}"
        )
    if crc32c(records[_CRC_END:], 0, size > _LOCK_KEPT_BYTES) != header.crc:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, "the record batch does not match its checksum")
    _check_meaning(header)
    if header.attributes & CODEC_MASK:
        _check_compressed(header, records)
    else:
        _check_first_record(records, header.record_count)
    return header


def check_keys(records: memoryview, bytes_max: int = DECOMPRESSED_BYTES_MAX) -> None:
    """Check that every record of a checked batch has a key, as a compacted topic wants it; RecordsRefused.

    KafkaError INVALID_RECORD where its bytes are not the records that it counts.
    """
    base_offset = read_header(records).base_offset
    keyless = []
    for index, record in enumerate(decode_records(records, bytes_max)):
        if record.offset != base_offset + index:
            text = f"record {index} of the batch says that it is record {record.offset - base_offset}"
            raise KafkaError(ErrorCode.INVALID_RECORD, text)
        if record.key is None:
            keyless.append(index)
    if keyless:
        raise RecordsRefused(
            ErrorCode.INVALID_RECORD,
            "One or more records have been rejected: a compacted topic takes records with a key only",
            dict.fromkeys(keyless, "Compacted topic cannot accept message without key."),
        )


def stamp(batch: memoryview, base_offset: int, leader_epoch: int) -> None:
    """Give a batch its place in the log. Both numbers lie before what the checksum covers."""
    _INT64.pack_into(batch, 0, base_offset)
    _INT32.pack_into(batch, _LEADER_EPOCH_AT, leader_epoch)


def stamp_log_append_time(batch: memoryview, now_ms: int) -> None:
    """Make every record's timestamp `now_ms` (`message.timestamp.type=LogAppendTime`), with a new checksum."""
    (attributes,) = _ATTRIBUTES.unpack_from(batch, _CRC_END)
    _ATTRIBUTES.pack_into(batch, _CRC_END, attributes | LOG_APPEND_TIME)
    _INT64.pack_into(batch, _MAX_TIMESTAMP_AT, now_ms)
    _UINT32.pack_into(batch, _CRC_AT, crc32c(batch[_CRC_END:]))


def batches(buffer: Buffer) -> Iterator[tuple[int, BatchHeader]]:
    """Position and header of each batch in a run of whole batches; KafkaError CORRUPT_MESSAGE where one is cut off."""
    position, end = 0, len(buffer)
    while position < end:
        header = read_header(buffer, position)
        if not HEADER_BYTES <= header.size_bytes <= end - position:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"the batch at byte {position} is not as long as it says")
        yield position, header
        position += header.size_bytes


def decode_records(batch: Buffer, bytes_max: int = DECOMPRESSED_BYTES_MAX) -> Iterator[Record]:
    """The records of one batch, decompressed to at most `bytes_max` bytes; the checksum is not verified again.

    KafkaError INVALID_RECORD where the producer's bytes are no records: a retry would not make them so.
    """
    header = read_header(batch)
    data = decompress(header.codec, memoryview(batch)[HEADER_BYTES : header.size_bytes], bytes_max)
    position = 0
    try:
        for _ in range(header.record_count):
            record, position = _decode_record(data, position, header)
            yield record
    except (IndexError, ProtocolError, UnicodeDecodeError):
        raise KafkaError(ErrorCode.INVALID_RECORD, f"the batch at {header.base_offset} holds no records") from None
    if position != len(data):
        raise KafkaError(ErrorCode.INVALID_RECORD, f"the batch at {header.base_offset} holds more than its records")


def decode_times(batch: Buffer, bytes_max: int = DECOMPRESSED_BYTES_MAX) -> Iterator[tuple[int, int]]:
    """Offset and timestamp of each record of a batch, as `decode_records`; what else a record holds is skipped."""
    header = read_header(batch)
    data = decompress(header.codec, memoryview(batch)[HEADER_BYTES : header.size_bytes], bytes_max)
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
            base_offset, HEADER_BYTES + len(body) - _LENGTH_END, leader_epoch, _BATCH_MAGIC, 0, attributes | codec,
            len(records) - 1, base_timestamp, max_timestamp, producer_id, producer_epoch, base_sequence, len(records),
        )
    )  # fmt: skip
    batch += body
    _UINT32.pack_into(batch, _CRC_AT, crc32c(memoryview(batch)[_CRC_END:]))
    return batch


def _check_meaning(header: BatchHeader) -> None:
    """What a sound batch from a client must not say."""
    if header.record_count <= 0 or header.last_offset_delta != header.record_count - 1:
        raise KafkaError(
            ErrorCode.INVALID_RECORD,
            f"the record batch counts {header.record_count} records up to offset {header.last_offset_delta}",
        )
    if header.is_control:
        raise KafkaError(ErrorCode.INVALID_RECORD, "clients may not write control records")
    if header.producer_id >= 0 and (header.base_sequence < 0 or header.producer_epoch < 0):
        raise KafkaError(ErrorCode.INVALID_RECORD, "an idempotent producer's batch has no sequence or no epoch")
    if header.is_log_append_time:
        raise KafkaError(ErrorCode.INVALID_TIMESTAMP, "only the broker may set LogAppendTime")
    if header.codec not in CODECS:
        raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"compression codec {header.codec} is unknown")


def _check_compressed(header: BatchHeader, records: memoryview) -> None:
    """What can be seen of compressed records as they are: that their bytes can stand for as many as the header counts,
    and that they begin as the codec does. INVALID_RECORD."""
    codec, count, size = header.codec, header.record_count, len(records) - HEADER_BYTES
    if count * RECORD_BYTES_MIN > size * GROWTH_MAX[codec]:
        raise KafkaError(ErrorCode.INVALID_RECORD, f"the record batch counts {count} records in {size} bytes")
    if codec != SNAPPY and records[HEADER_BYTES : HEADER_BYTES + 3] != BEGINNINGS[codec]:
        raise KafkaError(ErrorCode.INVALID_RECORD, "the record batch is not compressed as it says")


def _check_first_record(records: memoryview, count: int) -> None:
    """The first of `count` uncompressed records has offset delta 0, and leaves room for the others, but no more than
    they fill: nothing, where it is the only one. INVALID_RECORD."""
    size = len(records) - HEADER_BYTES
    if count * RECORD_BYTES_MIN > size:
        raise KafkaError(ErrorCode.INVALID_RECORD, f"the record batch counts {count} records in {size} bytes")
    length, at, shift = records[HEADER_BYTES], HEADER_BYTES + 1, 7
    while length >> shift and shift < 35 and at < len(records):  # a varint: bytes over 127 have one behind them
        length += (records[at] - 1) << shift
        at += 1
        shift += 7
    delta_at = at + 2  # behind the attributes and the last byte of the time
    while delta_at < len(records) and records[delta_at - 1] > 127:
        delta_at += 1
    rest = len(records) - at - (length >> 1)
    is_last = count == 1
    if (
        length & 1
        or length < 2 * (RECORD_BYTES_MIN - 1)
        or (rest if is_last else rest < (count - 1) * RECORD_BYTES_MIN)
        or delta_at >= len(records)
        or records[delta_at]
    ):
        raise KafkaError(ErrorCode.INVALID_RECORD, f"the record batch does not begin with the first of {count} records")


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


def _decode_record(data: Buffer, position: int, header: BatchHeader) -> tuple[Record, int]:
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
