"""The engine's own rows: what they hold reads back, and what is wrong in them is seen."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pqbroker.storage.disk import index_rows
from pqbroker.storage.disk.segments import Location
from pqbroker.storage.engine import BlobCorrupt, EngineError
from tests.storage.cells import blob_key

BLOB = blob_key(1)
LONG = st.integers(0, (1 << 64) - 1)
INT = st.integers(0, (1 << 32) - 1)


def ring_after(last: int) -> list[bytes | None]:
    """The ring of commit numbers once `last` commits were made."""
    ring: dict[bytes, bytes] = dict(index_rows.number_row(number) for number in range(1, last + 1))
    return [ring.get(key) for key in index_rows.number_keys()]


@given(st.lists(st.binary(), min_size=1).filter(any))
def test_an_inline_row_holds_the_blob(buffers: list[bytes]) -> None:
    row = index_rows.inline_row(buffers)
    assert bytes(index_rows.inline_payload(BLOB, row)) == b"".join(buffers)
    assert index_rows.location(row) is None
    assert index_rows.blob_size(row) == len(b"".join(buffers))


def test_a_flipped_byte_in_an_inline_row_is_never_served() -> None:
    row = index_rows.inline_row([b"some content"])
    for position in range(1, len(row)):
        damaged = row[:position] + bytes([row[position] ^ 4]) + row[position + 1 :]
        with pytest.raises(BlobCorrupt, match=BLOB.hex()):
            index_rows.inline_payload(BLOB, damaged)


@given(st.text(min_size=1), LONG, INT, LONG, INT)
def test_a_located_row_holds_the_location(pool: str, generation: int, sequence: int, position: int, size: int) -> None:
    at = Location(pool, generation, sequence, position, size)
    assert index_rows.location(index_rows.located_row(at)) == at
    assert index_rows.blob_size(index_rows.located_row(at)) == size


@given(st.text(min_size=1), LONG, INT, LONG, LONG)
def test_a_segment_row_reads_back(pool: str, generation: int, sequence: int, end: int, live: int) -> None:
    key, row = index_rows.segment_key(pool, generation, sequence), index_rows.segment_row(end, live)
    assert index_rows.parse_segment(key, row) == (pool, generation, sequence, end, live)


@pytest.mark.parametrize("last", [0, 1, 5, index_rows.NUMBERS - 1, index_rows.NUMBERS, 3 * index_rows.NUMBERS + 7])
def test_the_ring_tells_the_last_commit(last: int) -> None:
    assert index_rows.last_number(ring_after(last)) == last


@pytest.mark.parametrize("last", [2, 2 * index_rows.NUMBERS + 7])
def test_a_hole_in_the_ring_is_refused(last: int) -> None:
    rows = ring_after(last)
    rows[(last - 1) % index_rows.NUMBERS] = ring_after(last - 2)[(last - 1) % index_rows.NUMBERS]
    with pytest.raises(EngineError, match=f"commit {last - 1} is missing"):
        index_rows.last_number(rows)
