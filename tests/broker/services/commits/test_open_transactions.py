"""Transactions that clients have open: rules without a node."""

import pytest

from pqbroker.broker.ground.access import ANONYMOUS, Principal
from pqbroker.broker.services.commits.open_transactions import (
    OpenTransaction,
    OpenTransactions,
    StartedBy,
    TransactionLimits,
    TransactionState,
    check_open,
    number_of,
)
from pqbroker.tables.refusals import TableError

LIMITS = TransactionLimits(transactions_max=16, timeout_ms_max=60_000, age_ms_max=100_000, kept_ms=600_000)
CLIENT = StartedBy(ANONYMOUS, "192.0.2.1")


def _start(some: OpenTransactions, client: StartedBy = CLIENT) -> OpenTransaction:
    some.check_room(client, LIMITS)
    return some.start(client, 7, timeout_ms=1000, now_ms=0)


def test_a_transaction_without_a_ping_is_aborted_at_its_timeout() -> None:
    some = OpenTransactions()
    one = _start(some)
    assert some.next_expiry_ms(LIMITS) == 1000
    assert some.expire(999, LIMITS) == []
    assert some.expire(1000, LIMITS) == [one]
    assert one.state is TransactionState.ABORTED
    assert "no ping for 1000 ms" in one.cause
    assert some.open_count == 0


def test_a_ping_keeps_it_open_for_its_timeout_again() -> None:
    some = OpenTransactions()
    one = _start(some)
    one.pinged_ms = 900
    assert some.expire(1899, LIMITS) == []
    assert some.expire(1900, LIMITS) == [one]


def test_pings_do_not_keep_it_open_for_ever() -> None:
    some = OpenTransactions()
    one = _start(some)
    one.pinged_ms = 99_999
    assert some.next_expiry_ms(LIMITS) == 100_000
    assert some.expire(100_000, LIMITS) == [one]
    assert "pqbroker.transaction.age.ms.max" in one.cause


def test_one_that_is_being_committed_is_not_aborted_by_its_timeout() -> None:
    some = OpenTransactions()
    one = _start(some)
    one.state = TransactionState.COMMITTING
    assert some.expire(1_000_000, LIMITS) == []
    assert some.next_expiry_ms(LIMITS) is None


def test_an_end_is_kept_and_then_forgotten() -> None:
    some = OpenTransactions()
    one = _start(some)
    some.end(one, TransactionState.COMMITTED, 500)
    assert some.expire(500 + LIMITS.kept_ms - 1, LIMITS) == []
    assert some.get(one.number) is one
    some.expire(500 + LIMITS.kept_ms, LIMITS)
    assert not some.known()


def test_one_client_has_all_but_the_reserve_and_another_still_starts_one() -> None:
    some = OpenTransactions()
    for _ in range(14):
        _start(some)
    with pytest.raises(TableError, match="14 transactions are open, 14 of this client"):
        _start(some)
    _start(some, StartedBy(ANONYMOUS, "192.0.2.2"))


def test_what_has_ended_makes_room() -> None:
    some = OpenTransactions()
    begun = [_start(some) for _ in range(14)]
    some.end(begun[0], TransactionState.ABORTED, 5)
    some.forget(begun[1])
    assert some.open_count == 12
    _start(some)


@pytest.mark.parametrize("name", ["", "no hex", "ab" * 15, "AB" * 16, "ab" * 16 + " ", "ab" * 17])
def test_a_name_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(TableError, match="no name of a transaction") as refusal:
        number_of(name)
    assert refusal.value.code == "NO_TRANSACTION"


def test_numbers_are_not_given_twice() -> None:
    some = OpenTransactions()
    assert _start(some).name != _start(some, StartedBy(Principal("User", "other"), "192.0.2.2")).name


def test_what_has_ended_says_how() -> None:
    some = OpenTransactions()
    one = _start(some)
    assert check_open(one, one.name) is one
    one.state = TransactionState.COMMITTING
    with pytest.raises(TableError, match="is being committed"):
        check_open(one, one.name)
    some.end(one, TransactionState.ABORTED, 1, "an operator aborted it")
    with pytest.raises(TableError, match="is aborted: an operator aborted it"):
        check_open(one, one.name)
    with pytest.raises(TableError, match="is not open"):
        check_open(None, "00" * 16)
