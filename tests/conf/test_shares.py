import pytest
from hypothesis import given
from hypothesis import strategies as st

from pqbroker.conf.shares import Shares, first_of, holder_of, may_take, reserve_of

SIZE = 640
RESERVE = 80
FIRST = 10


@pytest.mark.parametrize(
    ("host", "holder"),
    [
        ("192.0.2.7", "192.0.2.7"), ("127.0.0.2", "127.0.0.2"), ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"), ("2001:db8:1:2::9", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"), ("127.0.0.1", "127.0.0.1#5"), ("::1", "::1#5"),
        ("::ffff:127.0.0.1", "127.0.0.1#5"), ("", ""),
    ],
)  # fmt: skip
def test_a_holder_is_an_address_a_64_or_a_connection_of_loopback(host: str, holder: str) -> None:
    assert holder_of(host, 5) == holder


def test_a_lone_holder_may_take_all_but_the_reserve() -> None:
    assert (reserve_of(SIZE), first_of(SIZE)) == (RESERVE, FIRST)
    assert may_take(SIZE, SIZE - RESERVE - 1, SIZE - RESERVE - 1)
    assert not may_take(SIZE, SIZE - RESERVE, SIZE - RESERVE)


def test_one_that_comes_late_takes_its_first_part_from_the_reserve() -> None:
    full = SIZE - RESERVE
    assert may_take(SIZE, full, 0, FIRST)
    assert not may_take(SIZE, full, 0, FIRST + 1)
    assert not may_take(SIZE, full + FIRST, FIRST)
    assert may_take(SIZE, full, 0, FIRST + 5, first=FIRST + 5)


def test_nobody_takes_more_than_the_pool() -> None:
    assert may_take(SIZE, SIZE - 1, 0)
    assert not may_take(SIZE, SIZE, 0)


def test_a_pool_too_small_for_a_reserve_is_taken_whole() -> None:
    assert may_take(1, 0, 0)
    assert not may_take(1, 1, 0)


def test_who_holds_most_gives_way_and_who_holds_nothing_is_forgotten() -> None:
    shares = Shares[str]()
    assert shares.largest() == frozenset()
    for key, count in (("a", 2), ("b", 3), ("c", 3)):
        shares.take(key, count)
    assert shares.largest() == {"b", "c"}
    shares.give_back("b", 2)
    assert shares.largest() == {"c"}
    shares.give_back("c", 3)
    assert (shares.held, shares.total) == ({"a": 2, "b": 1}, 3)


@given(st.lists(st.tuples(st.sampled_from("abcdefgh"), st.integers(1, 40), st.booleans())))
def test_by_the_rule_no_pool_runs_over_and_each_of_eight_gets_its_first_part(
    steps: list[tuple[str, int, bool]]
) -> None:
    shares = Shares[str]()
    for key, count, gives_back in steps:
        if gives_back and shares.of(key) >= count:
            shares.give_back(key, count)
        elif shares.may_take(SIZE, key, count):
            shares.take(key, count)
        assert shares.total == sum(shares.held.values()) <= SIZE
    for key in "abcdefgh":
        for _ in range(FIRST - shares.of(key)):
            assert shares.may_take(SIZE, key)
            shares.take(key)
