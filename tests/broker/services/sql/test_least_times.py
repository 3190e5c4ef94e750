"""Least times of spans of rows, beside a list with the time of each row."""

from hypothesis import given, settings
from hypothesis import strategies as st

from pqbroker.broker.services.sql.least_times import LeastTimes
from tests.support.depth import examples

ROWS = 40
KEY = (b"t", 0)
SPANS = st.lists(st.tuples(st.integers(0, ROWS), st.integers(0, ROWS), st.integers(0, 2)), max_size=12)


@settings(max_examples=examples(800))
@given(st.lists(st.integers(0, 9), min_size=ROWS, max_size=ROWS), SPANS, st.integers(0, 9), st.integers(0, ROWS))
def test_no_row_that_may_be_wanted_is_left_out(
    times: list[int], spans: list[tuple[int, int, int]], most: int, offset: int
) -> None:
    known = LeastTimes()
    for start, end, less in spans:
        known.learn(KEY, start, end, min(times[start:end], default=0) - less)
    read: set[int] = set()
    at = offset
    while at < ROWS:
        first, end = known.narrowed(KEY, at, ROWS, most)
        assert at <= first <= end <= ROWS
        assert end > at
        read.update(range(first, end))
        at = end
    assert {row for row in range(offset, ROWS) if times[row] <= most} <= read


def test_spans_leave_out_what_lies_behind_the_bound() -> None:
    known = LeastTimes()
    for start in range(0, 40, 10):
        known.learn(KEY, start, start + 10, 100 * start)
    assert known.narrowed(KEY, 0, 40, 1000) == (0, 20)
    assert known.narrowed(KEY, 5, 40, 999) == (5, 10)
    assert known.narrowed(KEY, 15, 40, 999) == (40, 40)
    assert known.narrowed(KEY, 15, 35, -1) == (35, 35)
    assert known.narrowed((b"t", 1), 0, 40, -1) == (0, 40)
    known.learn(KEY, 0, 50, 0)
    assert known.narrowed(KEY, 0, 50, 999) == (0, 50)


def test_a_span_takes_the_place_of_those_within_it_and_leaves_others_their_ends() -> None:
    known = LeastTimes(spans_max=3)
    known.learn(KEY, 0, 10, 5)
    known.learn(KEY, 20, 30, 5)
    known.learn(KEY, 5, 25, 7)
    assert known.narrowed(KEY, 0, 40, 6) == (0, 10)
    assert known.narrowed(KEY, 10, 40, 6) == (20, 40)
    known.learn(KEY, 0, 30, 9)
    known.learn(KEY, 40, 50, 9)
    known.learn(KEY, 60, 70, 9)
    assert known.narrowed(KEY, 0, 40, 8) == (30, 40)


def test_beyond_their_limit_the_partitions_used_least_recently_are_forgotten() -> None:
    known = LeastTimes(spans_max=2)
    other = (b"u", 0)
    known.learn(KEY, 0, 10, 5)
    known.learn(other, 0, 10, 5)
    known.narrowed(KEY, 0, 10, 0)
    known.learn(KEY, 10, 20, 5)
    assert known.narrowed(other, 0, 10, 0) == (0, 10)
    assert known.narrowed(KEY, 0, 20, 0) == (20, 20)
    known.learn(KEY, 20, 30, 5)
    assert known.narrowed(KEY, 0, 30, 0) == (0, 30)
