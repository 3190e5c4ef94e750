"""Staged rows: the total of a batch, and the keys and names of what waits for its commit."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pqbroker.pq.log.keys import foreign_ranges, renumbered
from pqbroker.pq.log.sessions import SessionBatch
from pqbroker.pq.log.staged_rows import (
    NO_ROWS,
    Decision,
    Piece,
    Total,
    batch_of,
    check_key,
    decision,
    decision_range,
    staged_before,
    staged_range,
    total_of,
)

PARTS = st.none() | st.binary(max_size=6)
ROWS = st.lists(st.tuples(PARTS, PARTS), max_size=12)
TOTALS = st.builds(Total, st.integers(0, 10**10 - 1), st.integers(0, (1 << 128) - 1))
PIECES = st.builds(Piece, st.integers(0, 20_000), TOTALS, st.from_regex(r"[0-9a-f]{16}", fullmatch=True))
SEQUENCES = st.integers(0, (1 << 63) - 2)


@given(ROWS, st.randoms(), st.integers(0, 12))
def test_the_total_is_that_of_the_rows_in_any_order_and_split(
    rows: list[tuple[bytes | None, bytes | None]], dice: object, cut: int
) -> None:
    shuffled = dice.sample(rows, len(rows))  # type: ignore[attr-defined]
    split = total_of(shuffled[:cut], None).plus(total_of(shuffled[cut:], None))
    assert split == total_of(rows, None)
    assert split.row_count == len(rows)


@pytest.mark.parametrize(
    "other", [
        [(b"k", b"v")], [(b"k", b"v")] * 3, [(b"k", b"v"), (b"k", b"w")], [(b"kv", b""), (b"k", b"v")],
        [(None, b"kv"), (b"k", b"v")], [(b"", b"kv"), (b"k", b"v")],
    ],
)  # fmt: skip
def test_other_rows_have_another_total(other: list[tuple[bytes | None, bytes | None]]) -> None:
    assert total_of(other, None) != total_of([(b"k", b"v")] * 2, None)


def test_the_tablet_that_rows_name_is_part_of_them() -> None:
    totals = {total_of([(b"k", b"v")], tablet) for tablet in (None, 0, 1, 11)}
    assert len(totals) == 4


@given(PIECES, SEQUENCES, st.text(max_size=20).filter(lambda text: text.isprintable()))
def test_keys_tell_a_piece_its_batch_and_its_partition(piece: Piece, sequence: int, session: str) -> None:
    session = session.encode(errors="replace").decode()
    key = piece.key(session, sequence)
    check_key(key)
    assert Piece.named(piece.name) == piece
    lo, hi = staged_range(piece.partition)
    assert lo <= key < hi
    lo, hi = staged_before(piece.partition, session, sequence)
    assert lo <= key < hi
    assert not key < staged_before(piece.partition, session, sequence - 1)[1] if sequence else True
    assert not lo <= piece.key(session + "x", sequence) < hi
    decided = decision(session, sequence, [piece])
    check_key(decided.key)
    lo, hi = decision_range(piece.partition)
    assert lo <= decided.key < hi
    assert batch_of(key) == batch_of(decided.key)
    assert any(low <= key < high for low, high in foreign_ranges(piece.partition + 1))
    assert renumbered(key, piece.partition + 1) == piece._replace(partition=piece.partition + 1).key(session, sequence)


@given(st.lists(PIECES, min_size=1, max_size=5), SEQUENCES)
def test_a_decision_reads_back_with_its_total(pieces: list[Piece], sequence: int) -> None:
    decided = decision("q", sequence, pieces)
    assert Decision.decode(decided.encode()) == decided
    assert decided.total.row_count == sum(piece.total.row_count for piece in pieces)
    assert decided.home == pieces[0].partition


@pytest.mark.parametrize(
    "stored", [
        b"", b"[]", b"{}", b'{"version":2,"session":"q","sequence":1,"pieces":["x"]}',
        b'{"version":1,"session":"q","sequence":1,"pieces":[]}',
        b'{"version":1,"session":1,"sequence":1,"pieces":["x"]}',
        b'{"version":1,"session":"q","sequence":1,"pieces":["x"]}', b"\xff",
    ],
)  # fmt: skip
def test_what_is_no_decision_is_refused(stored: bytes) -> None:
    with pytest.raises(ValueError, match=r"decision|piece|Expecting|decode"):
        Decision.decode(stored)


@pytest.mark.parametrize("key", [b"s", b"s0000000000_x", b"t0000000000_" + b"0" * 32, b"d0000000000_"])
def test_what_is_no_key_of_staged_rows_is_refused(key: bytes) -> None:
    with pytest.raises(ValueError, match="no key of staged rows"):
        check_key(key)


@given(SEQUENCES, st.integers(0, 1 << 40), st.integers(0, 1 << 40), TOTALS)
def test_a_session_remembers_the_total_of_its_batch(sequence: int, base: int, count: int, total: Total) -> None:
    for place in (count, 0):
        batch = SessionBatch(sequence, 5, base, place, total)
        assert SessionBatch.decode(batch.encode()) == batch
        assert SessionBatch.decode(batch.moved(3, 0).encode()).total == total
    assert SessionBatch(sequence, 5, base, 1).total is None
    for stored in (batch.encode()[:-1], batch.encode() + b"\0", SessionBatch(-1, 5, 0, 0, NO_ROWS).encode()):
        with pytest.raises(ValueError, match=r"it (has|is)"):
            SessionBatch.decode(stored)
