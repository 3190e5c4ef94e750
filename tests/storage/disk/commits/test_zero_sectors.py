"""Sectors of a round that are zeros are found, and named in a map without a zero byte."""

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pqbroker.storage.disk.commits.zero_sectors import (
    SECTOR_BYTES,
    decode_runs,
    encode_runs,
    find_zero_sectors,
    may_have_zero_sectors,
)

PIECES = st.lists(
    st.tuples(st.sampled_from([b"\0", b"\1", b"PQC2", b"\0\0\1"]), st.integers(1, 3 * SECTOR_BYTES)),
    min_size=1,
    max_size=12,
)


def slowly(data: bytes, position: int) -> Iterator[int]:
    """The sectors of which the data fills a part with zeros, one after the other."""
    first = position // SECTOR_BYTES
    for sector in range(first, (position + len(data) - 1) // SECTOR_BYTES + 1):
        begin = max(sector * SECTOR_BYTES - position, 0)
        if not any(data[begin : (sector + 1) * SECTOR_BYTES - position]):
            yield sector - first


def numbers(runs: list[tuple[int, int]]) -> list[int]:
    return [number for first, count in runs for number in range(first, first + count)]


@given(PIECES, st.integers(0, 200_000))
def test_what_is_found_is_what_a_look_at_each_sector_finds(pieces: list[tuple[bytes, int]], position: int) -> None:
    buffers = [b"head", *(piece * count for piece, count in pieces)]
    data = b"".join(buffers)
    found = find_zero_sectors([memoryview(buffer) for buffer in buffers], position)
    assert numbers(found) == list(slowly(data, position))
    if not may_have_zero_sectors(buffers[-1], buffers[:-1]):
        inside = range(1, (position + len(data)) // SECTOR_BYTES - position // SECTOR_BYTES)
        assert not set(numbers(found)) & set(inside)


@pytest.mark.parametrize("position", [0, 1, 511, 512, 65_535, 65_536, 65_537])
def test_long_zeros_across_chunks_and_buffers_are_one_run(position: int) -> None:
    data = b"head" + bytes(300_000) + b"end"
    for cut in (4, 300, 65_536, 131_072 - position % 1024):
        found = find_zero_sectors([data[:cut], memoryview(data)[cut:]], position)
        assert numbers(found) == list(slowly(data, position))
        assert len(found) == 1
        assert may_have_zero_sectors(b"end", [data[:cut], memoryview(data)[cut:]])


def test_zeros_that_two_buffers_share_are_found() -> None:
    assert may_have_zero_sectors(b"rows", [b"a" + bytes(300), bytes(212) + b"b"])
    assert not may_have_zero_sectors(b"rows", [b"a" + bytes(300), b"b" + bytes(300)])


def test_rows_that_end_in_zeros_may_have_a_last_sector_of_zeros() -> None:
    assert may_have_zero_sectors(b"rows\0")
    assert find_zero_sectors([b"a" * 510, b"b\1\0\0"], 0) == [(1, 1)]


@given(st.lists(st.tuples(st.integers(1, 70_000), st.integers(1, 70_000)), max_size=50), st.integers(0, 40))
def test_a_map_survives_its_form_and_has_no_zero(gaps: list[tuple[int, int]], more: int) -> None:
    runs, behind = [], 0
    for gap, count in gaps:
        runs.append((behind + gap, count))
        behind += gap + count
    encoded = encode_runs(runs)
    assert decode_runs(encoded) == runs
    assert 0 not in encoded
    longer = encode_runs(runs, len(encoded) + more)
    assert (len(longer), decode_runs(longer)) == (len(encoded) + more, runs)


def test_a_map_that_ends_early_is_refused() -> None:
    with pytest.raises(ValueError, match="ends early"):
        decode_runs(encode_runs([(3, 4), (9, 1)])[:3])
