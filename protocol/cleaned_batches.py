"""Record batches as a cleaner leaves them: with some of their records, or none, and the offsets that they had.

A batch keeps base offset, last offset, producer and codec; a record keeps its offset and time. With a delete horizon
(KIP-534) the base timestamp is that horizon, and times are counted from it.
"""

from collections.abc import Sequence
from struct import Struct
from typing import Final, NamedTuple

from crc32c import crc32c

from pqbroker.protocol.compression import compress, decompress
from pqbroker.protocol.errors import ErrorCode, KafkaError, ProtocolError
from pqbroker.protocol.primitives import read_varlong, varlong
from pqbroker.protocol.records import (
    BATCH_HEADER_BYTES,
    CODEC_MASK,
    CONTROL,
    CRC_END,
    DELETE_HORIZON,
    LENGTH_END,
    TRANSACTIONAL,
    BatchHeader,
    read_header,
)

_HEADER: Final = Struct(">qiibIhiqqqhii")
_CRC: Final = Struct(">I")
_CRC_AT: Final = 17
_NO_TIMESTAMP: Final = -1
_OF_RECORDS: Final = CODEC_MASK | DELETE_HORIZON | TRANSACTIONAL | CONTROL
"""Attributes that a batch without records does not have."""


class PlacedRecord(NamedTuple):
    """One record where it lies in its batch's decompressed bytes: [start, end), its content behind `content`."""

    offset: int
    timestamp: int
    key: bytes | None
    is_tombstone: bool
    start: int
    content: int
    end: int


class PlacedRecords(NamedTuple):
    """A batch taken apart: its header, its records' bytes, and the records in them."""

    header: BatchHeader
    data: bytes
    records: Sequence[PlacedRecord]


def delete_horizon(header: BatchHeader) -> int | None:
    """Return when tombstones of the batch may go, milliseconds since 1970; None: no cleaning has decided that."""
    return header.base_timestamp if header.attributes & DELETE_HORIZON else None


def place_records(batch: memoryview, bytes_max: int) -> PlacedRecords:
    """Take a batch apart; its checksum is verified. KafkaError where it is damaged, decompresses to more than
    `bytes_max` bytes, or holds no records in the order of their offsets."""
    header = read_header(batch)
    if header.size_bytes != len(batch) or crc32c(batch[CRC_END:]) != header.crc:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"the batch at {header.base_offset} does not match its checksum")
    data = bytes(decompress(header.codec, batch[BATCH_HEADER_BYTES:], bytes_max))  # faster to read than a view
    found: list[PlacedRecord] = []
    position, following = 0, header.base_offset
    try:
        for _ in range(header.record_count):
            record = _place_record(data, position, header)
            if record.offset < following:
                raise ProtocolError("records stand in another order than their offsets")
            found.append(record)
            position, following = record.end, record.offset + 1
    except (IndexError, ProtocolError):
        raise KafkaError(ErrorCode.INVALID_RECORD, f"the batch at {header.base_offset} holds no records") from None
    if position != len(data) or following > header.last_offset + 1:
        raise KafkaError(ErrorCode.INVALID_RECORD, f"the batch at {header.base_offset} holds more than its records")
    return PlacedRecords(header, data, found)


def batch_of(placed: PlacedRecords, kept: Sequence[PlacedRecord], horizon_ms: int | None) -> bytes:
    """The batch with some of its records, one at least: clients do not take compressed nothing.

    `horizon_ms`: the delete horizon that it gets; None: it stays as it is.
    """
    assert kept, "a batch without records is made by `empty_batch`"
    header, data = placed.header, memoryview(placed.data)
    max_timestamp = header.max_timestamp
    if not header.is_log_append_time:
        max_timestamp = max(record.timestamp for record in kept)
    if horizon_ms is None:
        body = b"".join([data[record.start : record.end] for record in kept])
    else:
        header = header._replace(attributes=header.attributes | DELETE_HORIZON, base_timestamp=horizon_ms)
        body = b"".join([_retimed(data, record, horizon_ms) for record in kept])
    return _encode(header._replace(max_timestamp=max_timestamp, record_count=len(kept)), compress(header.codec, body))


def empty_batch(header: BatchHeader, base_offset: int, last_offset: int) -> bytes:
    """A batch of these offsets and no record, by the same producer and in the same epoch as another. It is no marker,
    and of no transaction: clients expect a record in a control batch."""
    empty = header._replace(
        base_offset=base_offset, last_offset_delta=last_offset - base_offset, record_count=0,
        attributes=header.attributes & ~_OF_RECORDS, base_timestamp=_NO_TIMESTAMP, max_timestamp=_NO_TIMESTAMP,
    )  # fmt: skip
    return _encode(empty, b"")


def _place_record(data: bytes, start: int, header: BatchHeader) -> PlacedRecord:
    """The record at a position; IndexError, ProtocolError."""
    size, position = read_varlong(data, start)
    end = position + size
    if not position < end <= len(data):
        raise ProtocolError("a record runs past the end")
    delta, content = read_varlong(data, position + 1)
    offset_delta, position = read_varlong(data, content)
    timestamp = header.max_timestamp if header.is_log_append_time else header.base_timestamp + delta
    key_bytes, position = read_varlong(data, position)
    key = None
    if key_bytes >= 0:
        key = data[position : position + key_bytes]
        position += key_bytes
    value_bytes, position = read_varlong(data, position)
    if position + max(value_bytes, 0) >= end or offset_delta < 0 or not -1 << 63 <= timestamp < 1 << 63:
        raise ProtocolError("a record is not as long as it says")
    found = header.base_offset + offset_delta, timestamp, key, value_bytes < 0, start, content, end
    return tuple.__new__(PlacedRecord, found)  # faster than a call of the class


def _retimed(data: memoryview, record: PlacedRecord, base_timestamp: int) -> bytes:
    """The record's bytes with its time counted from another one."""
    _, position = read_varlong(data, record.start)
    time = varlong(record.timestamp - base_timestamp)
    size = 1 + len(time) + record.end - record.content
    return b"".join((varlong(size), data[position : position + 1], time, data[record.content : record.end]))


def _encode(header: BatchHeader, body: bytes) -> bytes:
    """The batch of a header and its records; length and checksum are made here."""
    batch = bytearray(_HEADER.pack(*header._replace(batch_length=BATCH_HEADER_BYTES + len(body) - LENGTH_END, crc=0)))
    batch += body
    _CRC.pack_into(batch, _CRC_AT, crc32c(memoryview(batch)[CRC_END:]))
    return bytes(batch)
