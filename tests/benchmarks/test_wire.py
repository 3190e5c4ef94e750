"""The requests of the raw drivers, read back by another implementation; answers read as they were laid out."""

import struct

import pytest
from aiokafka.record.memory_records import MemoryRecords

from tests.benchmarks.wire import (
    WireError,
    check_produced,
    fetch_request,
    produce_request,
    produced_size,
    read_fetched,
    record_batch,
)


def test_a_batch_is_what_aiokafka_reads() -> None:
    batches = MemoryRecords(record_batch([b"one", b"", b"x" * 5000], timestamp_ms=1234))
    batch = batches.next_batch()
    assert batch.validate_crc()
    records = list(batch)
    assert [record.value for record in records] == [b"one", b"", b"x" * 5000]
    assert [record.offset for record in records] == [0, 1, 2]
    assert {record.timestamp for record in records} == {1234}
    assert not batches.has_next()


def test_a_request_tells_its_length() -> None:
    for request in (produce_request("t", [(0, b"batch")]), fetch_request("t", 0, 5, 1000)):
        assert struct.unpack_from(">i", request)[0] == len(request) - 4


def test_a_produce_answer_with_an_error_is_refused() -> None:
    assert produced_size("t", 2) == 4 + len(_produce_answer(0, 0))
    check_produced(_produce_answer(0, 0), "t")
    with pytest.raises(WireError, match="t-1: error 6"):
        check_produced(_produce_answer(0, 6), "t")


def test_a_fetch_answer_gives_whole_batches_and_the_offset_after_them() -> None:
    batch = record_batch([b"a", b"b"], timestamp_ms=0)
    second = struct.pack(">q", 2) + batch[8:]
    fetched = read_fetched(memoryview(_fetch_answer(batch + second + batch[:70])), "t")
    assert fetched.next_offset == 4
    assert bytes(fetched.records) == batch + second


def test_an_empty_fetch_answer_has_no_next_offset() -> None:
    assert read_fetched(memoryview(_fetch_answer(b"")), "t").next_offset is None


def test_a_fetch_answer_with_an_error_is_refused() -> None:
    with pytest.raises(WireError, match="error 1"):
        read_fetched(memoryview(_fetch_answer(b"", error=1)), "t")


def _produce_answer(*errors: int) -> bytes:
    partitions = b"".join(struct.pack(">ihqqq", index, error, 0, -1, 0) for index, error in enumerate(errors))
    return struct.pack(">iih1si", 7, 1, 1, b"t", len(errors)) + partitions + struct.pack(">i", 0)


def _fetch_answer(records: bytes, error: int = 0) -> bytes:
    head = struct.pack(">iihiih1si", 7, 0, 0, 0, 1, 1, b"t", 1)
    return head + struct.pack(">ihqqqiii", 0, error, 9, 9, 0, -1, -1, len(records)) + records
