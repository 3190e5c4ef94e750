"""Record batches: headers, checks, stamps, and records, against batches made by clients."""

import contextlib
import struct
from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AiokafkaBuilder
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.protocol.produced_batches import check_produced
from pqbroker.protocol.records import (
    CONTROL,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    Record,
    batches,
    decode_records,
    encode_batch,
    read_header,
    stamp,
    stamp_log_append_time,
)
from tests.protocol.strategies import record_batches, records
from tests.support.depth import examples

BYTES_MAX = 1 << 20
MODEST = settings(max_examples=examples(100), deadline=None, database=None)
RECORDS = [
    Record(timestamp=1000, key=b"k", value=b"v" * 100, headers=(("h", b"1"), ("null", None))),
    Record(timestamp=900, key=None, value=b""),
    Record(timestamp=2000, key=b"tombstone", value=None),
]


def with_crc(batch: bytearray) -> memoryview:
    struct.pack_into(">I", batch, 17, crc32c(memoryview(batch)[21:]))
    return memoryview(batch)


def changed(layout: str, position: int, value: int) -> memoryview:
    """A sound batch but for one field of its header."""
    batch = encode_batch(RECORDS, producer_id=5, producer_epoch=0, base_sequence=0)
    struct.pack_into(layout, batch, position, value)
    return with_crc(batch)


def refusal(data: bytes | bytearray | memoryview, bytes_max: int = BYTES_MAX) -> ErrorCode:
    with pytest.raises(KafkaError) as raised:
        check_produced(memoryview(data), bytes_max)
    return raised.value.code


@MODEST
@given(sent=st.lists(records, min_size=1, max_size=8), codec=st.integers(0, 4), base_offset=st.integers(0, 1 << 50))
def test_records_come_back_with_offsets_from_the_base(sent: list[Record], codec: int, base_offset: int) -> None:
    batch = encode_batch(sent, codec=codec, base_offset=base_offset)
    expected = [record._replace(offset=base_offset + index) for index, record in enumerate(sent)]
    assert list(decode_records(batch)) == expected


@MODEST
@given(sent=st.lists(records, min_size=1, max_size=8), codec=st.integers(0, 4))
def test_kafka_python_reads_our_batches(sent: list[Record], codec: int) -> None:
    theirs = DefaultRecordBatch(bytes(encode_batch(sent, codec=codec)))
    assert theirs.validate_crc()
    found = [(item.offset, item.timestamp, item.key, item.value, item.headers) for item in theirs]
    expected = [(at, item.timestamp, item.key, item.value, list(item.headers)) for at, item in enumerate(sent)]
    assert found == expected


@pytest.mark.parametrize("builder", [DefaultRecordBatchBuilder, AiokafkaBuilder])
@pytest.mark.parametrize("codec", range(5))
def test_we_read_the_batches_of_clients(builder: Any, codec: int) -> None:
    made = builder(2, codec, False, 5, 1, 0x7FFF_FFFF, 1 << 20)
    for offset, record in enumerate(RECORDS):
        made.append(offset, record.timestamp, record.key, record.value, list(record.headers))
    batch = memoryview(bytearray(made.build()))
    header = check_produced(batch, BYTES_MAX)
    assert (header.codec, header.producer_id, header.producer_epoch, header.base_sequence) == (codec, 5, 1, 0x7FFF_FFFF)
    assert (header.record_count, header.max_timestamp, header.size_bytes) == (3, 2000, len(batch))
    assert list(decode_records(batch)) == [record._replace(offset=at) for at, record in enumerate(RECORDS)]


def test_the_header_is_read_where_it_lies() -> None:
    batch = encode_batch(
        RECORDS,
        base_offset=70,
        leader_epoch=3,
        attributes=TRANSACTIONAL,
        producer_id=9,
        producer_epoch=2,
        base_sequence=4,
    )
    header = read_header(b"12345" + bytes(batch), 5)
    assert (header.base_offset, header.last_offset, header.partition_leader_epoch) == (70, 72, 3)
    assert (header.is_transactional, header.is_control, header.is_log_append_time) == (True, False, False)
    assert (header.producer_id, header.producer_epoch, header.last_sequence) == (9, 2, 6)


def test_sequences_wrap_to_zero() -> None:
    header = read_header(encode_batch(RECORDS, producer_id=1, producer_epoch=0, base_sequence=0x7FFF_FFFF))
    assert header.last_sequence == 1


@pytest.mark.parametrize(
    ("layout", "position", "value", "code"),
    [
        (">i", 57, 0, ErrorCode.INVALID_RECORD),
        (">i", 57, -1, ErrorCode.INVALID_RECORD),
        (">i", 57, 2, ErrorCode.INVALID_RECORD),
        (">i", 23, 5, ErrorCode.INVALID_RECORD),
        (">i", 53, -1, ErrorCode.INVALID_RECORD),
        (">h", 51, -1, ErrorCode.INVALID_RECORD),
        (">h", 21, CONTROL, ErrorCode.INVALID_RECORD),
        (">h", 21, LOG_APPEND_TIME, ErrorCode.INVALID_TIMESTAMP),
        (">h", 21, 5, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        (">h", 21, 7, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        (">b", 16, 1, ErrorCode.INVALID_RECORD),
        (">b", 16, 0, ErrorCode.INVALID_RECORD),
        (">b", 16, 3, ErrorCode.INVALID_RECORD),
        (">i", 8, 48, ErrorCode.CORRUPT_MESSAGE),
        (">i", 8, -1, ErrorCode.CORRUPT_MESSAGE),
        (">i", 8, 0x7FFF_FFFF, ErrorCode.CORRUPT_MESSAGE),
    ],
)
def test_a_batch_that_says_what_cannot_be_is_refused(layout: str, position: int, value: int, code: ErrorCode) -> None:
    assert refusal(changed(layout, position, value)) is code


@MODEST
@given(batch=record_batches, data=st.data())
def test_one_flipped_bit_under_the_checksum_is_corrupt(batch: bytearray, data: st.DataObject) -> None:
    batch[data.draw(st.integers(17, len(batch) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    assert refusal(batch) is ErrorCode.CORRUPT_MESSAGE


def test_a_cut_batch_is_corrupt() -> None:
    batch = encode_batch(RECORDS)
    assert [refusal(batch[:size]) for size in (1, 16, 17, 60, len(batch) - 1)] == [ErrorCode.CORRUPT_MESSAGE] * 5


def test_no_batch_and_two_batches_are_invalid() -> None:
    assert refusal(b"") is ErrorCode.INVALID_RECORD
    assert refusal(encode_batch(RECORDS) + encode_batch(RECORDS)) is ErrorCode.INVALID_RECORD


def test_a_batch_of_the_limit_is_taken_and_a_larger_one_is_too_large() -> None:
    batch = encode_batch(RECORDS)
    assert check_produced(memoryview(batch), len(batch)).record_count == 3
    assert refusal(batch, len(batch) - 1) is ErrorCode.MESSAGE_TOO_LARGE


def test_stamping_keeps_the_checksum() -> None:
    batch = encode_batch(RECORDS)
    stamp(memoryview(batch), 1 << 40, 12)
    header = check_produced(memoryview(batch), BYTES_MAX)
    assert (header.base_offset, header.partition_leader_epoch) == (1 << 40, 12)


@pytest.mark.parametrize("codec", range(5))
def test_log_append_time_is_the_time_of_every_record(codec: int) -> None:
    batch = encode_batch(RECORDS, codec=codec)
    stamp_log_append_time(memoryview(batch), 123_456)
    theirs = DefaultRecordBatch(bytes(batch))
    assert theirs.validate_crc()
    assert theirs.timestamp_type == 1
    assert read_header(batch).codec == codec
    assert [record.timestamp for record in decode_records(batch)] == [123_456] * 3


@MODEST
@given(made=st.lists(record_batches, max_size=5))
def test_a_run_of_batches_is_walked_in_order(made: list[bytearray]) -> None:
    run = b"".join(made)
    found = list(batches(run))
    assert [bytes(run[at : at + header.size_bytes]) for at, header in found] == [bytes(batch) for batch in made]


def test_a_run_that_ends_within_a_batch_is_corrupt() -> None:
    batch = bytes(encode_batch(RECORDS))
    for rest in (batch[:10], batch[:-1], batch[:8] + b"\0\0\0\0" + batch[12:]):
        with pytest.raises(KafkaError) as raised:
            list(batches(batch + rest))
        assert raised.value.code is ErrorCode.CORRUPT_MESSAGE


@MODEST
@given(batch=record_batches, data=st.data())
def test_damaged_content_decodes_or_is_a_kafka_error(batch: bytearray, data: st.DataObject) -> None:
    for _ in range(data.draw(st.integers(1, 3))):
        batch[data.draw(st.integers(61, len(batch) - 1))] = data.draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF]))
    with contextlib.suppress(KafkaError):
        list(decode_records(batch, 100_000))


@pytest.mark.parametrize(
    "content",
    [
        pytest.param("12 00 00 00 02 61 02 62 00 00", id="longer than its fields"),
        pytest.param("0a 00 00 00 08 61 01 00" + "00" * 8, id="a key past the record's end"),
        pytest.param("0c 00 00 00 01 01 02 01 00", id="a header without a name"),
        pytest.param("0a 00 00 00 01 01 7e 00", id="headers past the end"),
        pytest.param("0a 00 00 00 01 01 01 00", id="a negative number of headers"),
        pytest.param("00", id="of no bytes"),
        pytest.param("01", id="of negative size"),
        pytest.param("7e 00", id="past the end of the batch"),
        pytest.param("ff" * 11, id="a number without an end"),
    ],
)
def test_a_malformed_record_is_an_invalid_record(content: str) -> None:
    batch = encode_batch([Record()])[:61] + bytes.fromhex(content)
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    with pytest.raises(KafkaError, match="holds no records") as raised:
        list(decode_records(batch))
    assert raised.value.code is ErrorCode.INVALID_RECORD


def test_more_bytes_than_records_are_an_invalid_record() -> None:
    batch = encode_batch(RECORDS)
    struct.pack_into(">i", batch, 57, 2)
    with pytest.raises(KafkaError, match="more than its records"):
        list(decode_records(batch))


def test_a_batch_that_decompresses_to_too_much_is_an_invalid_record() -> None:
    batch = encode_batch([Record(value=bytes(50_000))], codec=1)
    with pytest.raises(KafkaError, match="more than 10000 bytes"):
        list(decode_records(batch, 10_000))
