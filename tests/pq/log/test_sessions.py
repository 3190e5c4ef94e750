"""Sessions of inserted rows: what is stored of them, and when they are forgotten."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pqbroker.pq.log.keys import foreign_ranges, parse_session_key, renumbered, session_key, session_range
from pqbroker.pq.log.sessions import (
    ProducerState,
    SessionBatch,
    Sessions,
    glued,
    producer_session,
    read_producer_session,
)

NUMBERS = st.integers(0, (1 << 62) - 1)


@given(NUMBERS, NUMBERS, NUMBERS, st.integers(1, 1 << 31))
def test_a_session_reads_back(sequence: int, written_ms: int, offset: int, count: int) -> None:
    session = SessionBatch(sequence, written_ms, offset, count)
    assert SessionBatch.decode(session.encode()) == session


@given(st.text(min_size=1), st.integers(0, 10**10 - 2))
def test_a_session_key_reads_back_and_moves_with_its_partition(name: str, partition: int) -> None:
    if name.encode(errors="replace").decode() != name:
        return
    key = session_key(partition, name)
    lo, hi = session_range(partition)
    assert lo <= key < hi
    assert parse_session_key(key) == name
    assert any(low <= key < high for low, high in foreign_ranges(partition + 1))
    assert renumbered(key, partition + 1) == session_key(partition + 1, name)


@given(st.integers(-1, (1 << 63) - 1), NUMBERS, NUMBERS, NUMBERS, st.integers(0, 1 << 31), st.binary(max_size=99))
def test_a_session_of_a_producer_reads_back(
    sequence: int, written_ms: int, offset: int, epoch: int, count: int, meta: bytes
) -> None:
    session = SessionBatch(sequence, written_ms, offset, count, producer=ProducerState(epoch, meta))
    assert SessionBatch.decode(session.encode()) == session
    for wrong in (session.encode()[:-1], session.encode() + b"1"):
        with pytest.raises(ValueError, match=r"it (has|is)"):
            SessionBatch.decode(wrong)


def test_the_name_of_a_producers_session_has_both_names() -> None:
    assert read_producer_session(producer_session("p", "s")) == ("p", "s")
    assert read_producer_session("p/s") is None


@pytest.mark.parametrize("is_later_first", [False, True])
def test_of_glued_sessions_of_a_producer_the_greatest_number_and_the_latest_owner_stay(is_later_first: bool) -> None:
    rows = SessionBatch(9, 100, 5, 2, producer=ProducerState(1, b"old"))
    taken = SessionBatch(9, 200, 0, 0, producer=ProducerState(2, b"new"))
    batch, known = (taken, rows) if is_later_first else (rows, taken)
    found = glued(batch, known) or known
    assert (found.sequence, found.producer) == (9, ProducerState(2, b"new"))
    assert found.row_count == 2


STORED = SessionBatch(1, 1, 1, 1).encode()
NO_PLACE = b"\1" + SessionBatch(1, 1, 1, 0).encode()[1:]


@pytest.mark.parametrize(
    "stored", [
        b"", b"\2" + STORED[1:], b"\3" + STORED[1:], STORED[:-1], SessionBatch(1, 1, 1, -1).encode(), NO_PLACE,
    ],
)  # fmt: skip
def test_what_is_no_session_is_refused(stored: bytes) -> None:
    with pytest.raises(ValueError, match=r"it (has|is)|version"):
        SessionBatch.decode(stored)


def test_sessions_are_forgotten_when_idle_without_rows_and_over_the_limit_the_oldest() -> None:
    sessions = Sessions([("b", SessionBatch(7, 200, 10, 5)), ("a", SessionBatch(1, 100, 0, 5))])
    assert sessions.expired(5, 1099, 1000) == []
    assert sessions.expired(4, 1100, 1000) == []
    assert sessions.expired(5, 1100, 1000) == ["a"]
    assert sessions.expired(15, 5000, 1000) == ["a", "b"]
    assert sessions.displaced("c", 2) == ["a"]
    assert sessions.displaced("a", 2) == []
    sessions.take({"a": SessionBatch(2, 300, 15, 1)})
    assert sessions.displaced("c", 2) == ["b"]
    sessions.forget(["b"])
    assert list(sessions) == [("a", SessionBatch(2, 300, 15, 1))]
    assert sessions.get("b") is None


def test_a_batch_moves_with_its_rows_and_has_no_place_where_they_were_trimmed() -> None:
    batch = SessionBatch(7, 200, 10, 5)
    assert batch.moved(90, 10) == SessionBatch(7, 200, 100, 5)
    assert batch.moved(90, 12) == SessionBatch(7, 200, 102, 3)
    assert batch.moved(90, 15) == SessionBatch(7, 200, 0, 0)
    assert SessionBatch.decode(batch.moved(90, 15).encode()) == SessionBatch(7, 200, 0, 0)
    assert batch.moved(90, 15).encode()[0] == 2, "versions that want a place say so"


def test_of_a_session_in_two_glued_partitions_the_later_batch_is_remembered() -> None:
    first, second = SessionBatch(7, 200, 10, 5), SessionBatch(8, 100, 20, 1)
    assert glued(second, None) == second
    assert glued(second, first) == second
    assert glued(first, second) is None
    same = glued(SessionBatch(7, 201, 20, 2), first)
    assert same == SessionBatch(7, 201, 22, 0), "in two stretches: no place, and remembered while rows are there"
    assert not same.is_over(21, 9999, 0)
    assert same.is_over(22, 9999, 0)
    assert glued(SessionBatch(7, 300, 0, 0), first) is None
    assert glued(first, SessionBatch(7, 300, 0, 0)) == first


def test_the_oldest_session_is_displaced_though_gluing_gave_it_the_last_rows() -> None:
    stored = [("late", SessionBatch(1, 300, 0, 1)), ("early", SessionBatch(1, 100, 50, 1))]
    assert Sessions(stored).displaced("new", 2) == ["early"]
