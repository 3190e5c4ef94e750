"""One record of the commit log: every byte of its header counts, and no other cell's is taken for one."""

from pqbroker.storage.disk.commits.commit_record import (
    COMMIT_HEADER_BYTES,
    CommitHeader,
    cell_seed,
    encode_commit,
    parse_commit,
    record_bytes_told,
)

SEED = cell_seed("0000000000000000000000000000000c")
CONTENT = b"rows" * 100


def header() -> bytes:
    return encode_commit(SEED, CONTENT, generation=3, number=17, flags=1, payload_bytes=5_000)


def test_a_header_says_what_was_written() -> None:
    found = parse_commit(header() + CONTENT, SEED)
    assert found is not None
    assert found == CommitHeader(400, 1, 3, 17, 5_000, found.crc, 0, SEED)
    assert found.record_bytes == COMMIT_HEADER_BYTES + 400 == record_bytes_told(header())


def test_a_header_with_any_bit_flipped_is_none() -> None:
    whole = header()
    for position in range(len(whole)):
        assert parse_commit(whole[:position] + bytes([whole[position] ^ 1]) + whole[position + 1 :], SEED) is None


def test_a_header_of_another_cell_or_cut_short_is_none() -> None:
    assert parse_commit(header(), cell_seed("d")) is None
    assert parse_commit(header()[:-1], SEED) is None
    assert record_bytes_told(header()[:-1]) is None
    assert record_bytes_told(b"PQB1" + bytes(100)) is None
