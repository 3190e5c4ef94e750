"""Stored forms of transactions: what is written is read back, and anything else is refused."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pqbroker.pq.transactions.coordinator_decisions import DECISION_ROWS
from pqbroker.pq.transactions.stored_forms import (
    PARTICIPANTS_MAX,
    CommitDecision,
    ParticipantId,
    PreparedHead,
    PreparedRows,
    TransactionId,
)
from pqbroker.storage.ids import TabletId
from pqbroker.storage.tablets.scheme_layout import FIRST_TABLET_ID

NUMBERS = st.integers(0, (1 << 64) - 1)
TABLETS = (NUMBERS | st.integers(0, 1 << 17)).map(TabletId)
TRANSACTIONS = st.binary(min_size=16, max_size=16).map(TransactionId)
PARTICIPANTS: Any = st.builds(ParticipantId, TABLETS, st.integers(0, (1 << 32) - 1))
HEADS: Any = st.builds(PreparedHead, TRANSACTIONS, PARTICIPANTS, NUMBERS, NUMBERS)
DECISIONS: Any = st.builds(
    CommitDecision, TRANSACTIONS, NUMBERS, NUMBERS, st.binary(min_size=16, max_size=16),
    st.integers(0, (1 << 32) - 1), st.lists(PARTICIPANTS, max_size=5).map(tuple),
)  # fmt: skip


@given(HEADS, st.binary(max_size=50))
def test_prepared_rows_are_read_back(head: PreparedHead, rows: bytes) -> None:
    assert PreparedRows.decode(head.encode() + rows) == PreparedRows(head, rows)


@given(DECISIONS)
def test_a_decision_is_read_back(decision: CommitDecision) -> None:
    assert CommitDecision.decode(decision.encode()) == decision
    assert CommitDecision.decode(decision.finished.encode()) == decision.finished


@given(DECISIONS, st.data())
def test_a_decision_that_is_cut_or_longer_is_refused(decision: CommitDecision, data: st.DataObject) -> None:
    stored = decision.encode()
    cut = data.draw(st.integers(0, len(stored) - 1))
    for wrong in (stored[:cut], stored + b"\0"):
        with pytest.raises(ValueError, match="a decision"):
            CommitDecision.decode(wrong)


def test_a_decision_with_more_participants_than_there_may_be_is_refused() -> None:
    many = tuple(ParticipantId(TabletId(number)) for number in range(PARTICIPANTS_MAX + 1))
    with pytest.raises(ValueError, match="1001 participants"):
        CommitDecision.decode(CommitDecision(TransactionId(bytes(16)), 1, 2, bytes(16), 3, many).encode())


@pytest.mark.parametrize("wrong", [b"", b"PQT1", bytes(48), b"PQD1" + bytes(60)])
def test_bytes_that_are_no_prepared_rows_are_refused(wrong: bytes) -> None:
    with pytest.raises(ValueError, match="prepared rows"):
        PreparedRows.decode(wrong)


@pytest.mark.parametrize("wrong", [b"", b"PQD1", bytes(60), b"PQT1" + bytes(60)])
def test_bytes_that_are_no_decision_are_refused(wrong: bytes) -> None:
    with pytest.raises(ValueError, match="a decision"):
        CommitDecision.decode(wrong)


@given(HEADS)
def test_rows_whose_decision_is_a_coordinator_s_begin_as_no_earlier_release_reads_them(head: PreparedHead) -> None:
    is_old = head.home.tablet_id >= FIRST_TABLET_ID
    stored = head.encode()
    assert stored[:4] == (b"PQT1" if is_old else b"PQT2")
    with pytest.raises(ValueError, match="prepared rows begin with"):
        PreparedRows.decode((b"PQT2" if is_old else b"PQT1") + stored[4:])


@given(DECISIONS, TRANSACTIONS)
def test_a_decision_in_a_coordinator_is_read_back_under_its_own_name(
    decision: CommitDecision, other: TransactionId
) -> None:
    row = {"stored": decision.encode()}
    assert DECISION_ROWS.read(decision.transaction.hex(), row) == decision
    if other != decision.transaction:
        with pytest.raises(ValueError, match="the decision about transaction"):
            DECISION_ROWS.read(other.hex(), row)
