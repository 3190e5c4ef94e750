"""The one wrong bit of a record is found by its checksums, wherever it is; damage of two bits is never mended."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from pqbroker.storage.disk.commits.commit_record import BEGIN, COMMIT_HEADER_BYTES, TAKEN, cell_seed, encode_commit
from pqbroker.storage.disk.commits.index_changes import IndexChanges
from pqbroker.storage.disk.commits.zero_sectors import encode_runs
from pqbroker.storage.disk.index_rows import number_row
from pqbroker.storage.disk.mending.one_bit import SEARCHED_BYTES_MAX, find_wrong_bit

SEED = cell_seed("c")
VALUES = st.one_of(st.binary(max_size=600), st.sampled_from([bytes(512), b"PQC1" * 100, b"\xff" * 300]))


def record_of(value: bytes, number: int = 7, zeros: bytes = b"") -> bytes:
    changes = IndexChanges()
    changes.put(b"rK", value)
    changes.put(*number_row(number))
    content = changes.encoded()
    return encode_commit(SEED, content, generation=3, number=number, zeros=zeros) + content + zeros


def flipped(record: bytes, bit: int) -> bytes:
    damaged = bytearray(record)
    damaged[bit // 8] ^= 1 << bit % 8
    return bytes(damaged)


@pytest.mark.parametrize("zeros", [b"", encode_runs([(1, 2), (700, 9)])])
def test_every_bit_of_a_record_is_found(zeros: bytes) -> None:
    record = record_of(bytes(64), zeros=zeros)
    for bit in range(8 * len(record)):
        wrong = find_wrong_bit(flipped(record, bit) + b"behind", SEED)
        assert wrong is not None, bit
        assert (wrong.position, wrong.byte) == (bit // 8, record[bit // 8]), bit
        assert wrong.header.number == 7


@given(VALUES, st.data())
def test_a_wrong_bit_is_found_and_two_are_not_taken_for_one(value: bytes, data: st.DataObject) -> None:
    record = record_of(value)
    bits = st.integers(0, 8 * len(record) - 1)
    first, second = data.draw(bits), data.draw(bits)
    assume(first != second)
    once = find_wrong_bit(flipped(record, first), SEED)
    assert once is not None
    assert (once.position, once.byte) == (first // 8, record[first // 8])
    is_head = first // 8 < COMMIT_HEADER_BYTES
    if is_head == (second // 8 < COMMIT_HEADER_BYTES):
        assert find_wrong_bit(flipped(flipped(record, first), second), SEED) is None


def test_a_bit_in_the_header_and_one_in_the_rows_are_not_mended() -> None:
    record = record_of(b"value")
    for byte in (record.index(b"value"), len(record) - 1):
        assert find_wrong_bit(flipped(flipped(record, 100), 8 * byte + 3), SEED) is None


def test_a_record_that_is_cut_off_is_not_mended() -> None:
    record = record_of(b"value")
    assert find_wrong_bit(flipped(record, 400)[:-1], SEED) is None


def test_rows_of_another_round_are_not_mended() -> None:
    changes = IndexChanges()
    changes.put(*number_row(8))
    content = changes.encoded()
    record = encode_commit(SEED, content, generation=3, number=7) + content
    assert find_wrong_bit(flipped(record, 8 * len(record) - 1), SEED) is None


def test_a_content_above_the_limit_is_not_searched() -> None:
    record = record_of(bytes(SEARCHED_BYTES_MAX))
    assert find_wrong_bit(flipped(record, 8 * len(record) - 1), SEED) is None


def test_a_files_first_record_is_mended() -> None:
    content = TAKEN.pack(5)
    record = encode_commit(SEED, content, generation=3, number=5, flags=BEGIN) + content
    for bit in range(8 * len(record)):
        wrong = find_wrong_bit(flipped(record, bit), SEED)
        assert wrong is not None, bit
        assert wrong.content == content
