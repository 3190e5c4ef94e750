"""The engine's own rows: what they hold reads back, and what is wrong in them is seen."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pqbroker.storage import indexrows
from pqbroker.storage.engine import BlobCorrupt, EngineError
from pqbroker.storage.segments import Location
from tests.storage.cells import blob_key

BLOB = blob_key(1)
LONG = st.integers(0, (1 << 64) - 1)
INT = st.integers(0, (1 << 32) - 1)


def ring_after(last: int) -> list[bytes | None]:
    """The ring of commit numbers once `last` commits were made."""
    ring: dict[bytes, bytes] = dict(indexrows.number_row(number) for number in range(1, last + 1))
    return [ring.get(key) for key in indexrows.number_keys()]


@given(st.lists(st.binary(), min_size=1).filter(any))
def test_an_inline_row_holds_the_blob(buffers: list[bytes]) -> None:
    row = indexrows.inline_row(buffers)
    assert bytes(indexrows.inline_payload(BLOB, row)) == b"".join(buffers)
    assert indexrows.location(row) is None
    assert indexrows.blob_size(row) == len(b"".join(buffers))


def test_a_flipped_byte_in_an_inline_row_is_never_served() -> None:
    row = indexrows.inline_row([b"some content"])
    for position in range(1, len(row)):
        damaged = row[:position] + bytes([row[position] ^ 4]) + row[position + 1 :]
        with pytest.raises(BlobCorrupt, match=BLOB.hex()):
            indexrows.inline_payload(BLOB, damaged)


@given(st.text(min_size=1), LONG, INT, LONG, INT)
def test_a_located_row_holds_the_location(pool: str, generation: int, sequence: int, position: int, size: int) -> None:
    at = Location(pool, generation, sequence, position, size)
    assert indexrows.location(indexrows.located_row(at)) == at
    assert indexrows.blob_size(indexrows.located_row(at)) == size


@given(st.text(min_size=1), LONG, INT, LONG, LONG)
def test_a_segment_row_reads_back(pool: str, generation: int, sequence: int, end: int, live: int) -> None:
    key, row = indexrows.segment_key(pool, generation, sequence), indexrows.segment_row(end, live)
    assert indexrows.parse_segment(key, row) == (pool, generation, sequence, end, live)


@pytest.mark.parametrize("last", [0, 1, 5, indexrows.NUMBERS - 1, indexrows.NUMBERS, 3 * indexrows.NUMBERS + 7])
def test_the_ring_tells_the_last_commit(last: int) -> None:
    assert indexrows.last_number(ring_after(last)) == last


@pytest.mark.parametrize("last", [2, 2 * indexrows.NUMBERS + 7])
def test_a_hole_in_the_ring_is_refused(last: int) -> None:
    rows = ring_after(last)
    rows[(last - 1) % indexrows.NUMBERS] = ring_after(last - 2)[(last - 1) % indexrows.NUMBERS]
    with pytest.raises(EngineError, match=f"commit {last - 1} is missing"):
        indexrows.last_number(rows)
