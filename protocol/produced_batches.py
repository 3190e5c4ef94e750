"""Checks of the record batches that clients send: header and first record at once, every key if asked."""

from typing import Final

from crc32c import crc32c

from pqbroker.protocol.compression import BEGINNINGS, CODECS, GROWTH_MAX, SNAPPY
from pqbroker.protocol.errors import ErrorCode, KafkaError, RecordsRefused
from pqbroker.protocol.record_parts import keyless_records
from pqbroker.protocol.records import (
    BATCH_HEADER_BYTES,
    BATCH_MAGIC,
    CODEC_MASK,
    CRC_END,
    DECOMPRESSED_BYTES_MAX,
    DELETE_HORIZON,
    LENGTH_END,
    MAGIC_AT,
    BatchHeader,
    read_header,
)

RECORD_BYTES_MIN: Final = 7
"""A record of nothing: its length, attributes, time, offset, no key, no value, no headers."""
_LOCK_KEPT_BYTES: Final = 1 << 20
"""Checksums of up to 0.1 ms keep the interpreter lock: to have it back may take longer than that."""


def check_produced(records: memoryview, bytes_max: int) -> BatchHeader:
    """Check what a client wants appended to a partition: exactly one sound batch of at most `bytes_max` bytes.

    Raises KafkaError with Kafka's codes (its `ProduceRequest` and `LogValidator`): MESSAGE_TOO_LARGE, CORRUPT_MESSAGE,
    INVALID_RECORD, INVALID_TIMESTAMP, UNSUPPORTED_COMPRESSION_TYPE. Whether zstd may be used (Produce 7) and what the
    producer's sequence means is for the caller.
    """
    if not records:
        raise KafkaError(ErrorCode.INVALID_RECORD, "a partition was sent no record batch")
    if len(records) > MAGIC_AT and records[MAGIC_AT] != BATCH_MAGIC:
        raise KafkaError(ErrorCode.INVALID_RECORD, "only record batches of magic 2 are taken")
    header = read_header(records)
    size = header.batch_length + LENGTH_END
    if not BATCH_HEADER_BYTES <= size <= len(records):
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, "the record batch is not as long as it says")
    if size < len(records):
        raise KafkaError(ErrorCode.INVALID_RECORD, "a partition was sent more than one record batch")
    if size > bytes_max:
        raise _too_large(size, bytes_max)
    if crc32c(records[CRC_END:], 0, size > _LOCK_KEPT_BYTES) != header.crc:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, "the record batch does not match its checksum")
    count = header.record_count
    if (
        header.attributes & ~CODEC_MASK
        or count <= 0
        or header.last_offset_delta != count - 1
        or (header.producer_id >= 0 and (header.base_sequence < 0 or header.producer_epoch < 0))
    ):
        _check_meaning(header)
    if header.attributes & CODEC_MASK:
        _check_compressed(header, records)
    else:
        _check_first_record(records, count)
    return header


def check_size(batch: memoryview, bytes_max: int) -> None:
    """Check the size of a batch that the broker recompressed; MESSAGE_TOO_LARGE."""
    if len(batch) > bytes_max:
        raise _too_large(len(batch), bytes_max)


def _too_large(size: int, bytes_max: int) -> KafkaError:
    text = f"the record batch has {size} bytes; the most allowed is {bytes_max}"
    return KafkaError(ErrorCode.MESSAGE_TOO_LARGE, text)


def check_keys(records: memoryview, bytes_max: int = DECOMPRESSED_BYTES_MAX) -> None:
    """Check that every record of a checked batch has a key, as a compacted topic wants it; RecordsRefused.

    KafkaError INVALID_RECORD where its bytes are not the records that it counts.
    """
    keyless = keyless_records(records, bytes_max)
    if keyless:
        raise RecordsRefused(
            ErrorCode.INVALID_RECORD,
            "One or more records have been rejected: a compacted topic takes records with a key only",
            dict.fromkeys(keyless, "Compacted topic cannot accept message without key."),
        )


def _check_meaning(header: BatchHeader) -> None:
    """Refuse what a sound batch from a client must not say."""
    if header.record_count <= 0 or header.last_offset_delta != header.record_count - 1:
        raise KafkaError(
            ErrorCode.INVALID_RECORD,
            f"the record batch counts {header.record_count} records up to offset {header.last_offset_delta}",
        )
    if header.is_control:
        raise KafkaError(ErrorCode.INVALID_RECORD, "clients may not write control records")
    if header.attributes & DELETE_HORIZON:
        raise KafkaError(ErrorCode.INVALID_RECORD, "only the broker may set a delete horizon")
    if header.producer_id >= 0 and (header.base_sequence < 0 or header.producer_epoch < 0):
        raise KafkaError(ErrorCode.INVALID_RECORD, "an idempotent producer's batch has no sequence or no epoch")
    if header.is_transactional and header.producer_id < 0:
        raise KafkaError(ErrorCode.INVALID_RECORD, "a transactional batch has no producer id")
    if header.is_log_append_time:
        raise KafkaError(ErrorCode.INVALID_TIMESTAMP, "only the broker may set LogAppendTime")


def _check_compressed(header: BatchHeader, records: memoryview) -> None:
    """Check what can be seen of compressed records as they are: that their bytes can stand for as many as the header
    counts, and that they begin as the codec does. INVALID_RECORD."""
    codec, count, size = header.codec, header.record_count, len(records) - BATCH_HEADER_BYTES
    if codec not in CODECS:
        raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"compression codec {codec} is unknown")
    if count * RECORD_BYTES_MIN > size * GROWTH_MAX[codec]:
        raise KafkaError(ErrorCode.INVALID_RECORD, f"the record batch counts {count} records in {size} bytes")
    if codec != SNAPPY and records[BATCH_HEADER_BYTES : BATCH_HEADER_BYTES + 3] != BEGINNINGS[codec]:
        raise KafkaError(ErrorCode.INVALID_RECORD, "the record batch is not compressed as it says")


def _check_first_record(records: memoryview, count: int) -> None:
    """The first of `count` uncompressed records has offset delta 0, and leaves room for the others, but no more than
    they fill: nothing, where it is the only one. INVALID_RECORD."""
    size = len(records) - BATCH_HEADER_BYTES
    if count * RECORD_BYTES_MIN > size:
        raise KafkaError(ErrorCode.INVALID_RECORD, f"the record batch counts {count} records in {size} bytes")
    length, at, shift = records[BATCH_HEADER_BYTES], BATCH_HEADER_BYTES + 1, 7
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
