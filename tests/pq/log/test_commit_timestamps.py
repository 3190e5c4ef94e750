"""Timestamps of commits: unique and rising whatever the clock does, given only where they are reserved."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pqbroker.pq.log.commit_timestamps import (
    COUNTER_VALUES,
    RESERVED_AHEAD,
    RESERVED_VALUES,
    CommitTimestamps,
    timestamp_of,
)

NOW_MS = 1_700_000_000_123


def reserved(now_ms: int = NOW_MS, start: int = 0) -> CommitTimestamps:
    found = CommitTimestamps(start)
    wanted = found.wanted(now_ms)
    assert wanted is not None
    found.take_reservation(wanted)
    return found


def test_a_new_node_gives_none_before_its_reservation_is_durable() -> None:
    timestamps = CommitTimestamps()
    assert not timestamps.can_give
    assert timestamps.wanted(NOW_MS) == timestamp_of(NOW_MS) + RESERVED_AHEAD
    with pytest.raises(AssertionError):
        timestamps.give(NOW_MS)


def test_a_commit_has_the_time_of_the_clock_and_those_of_one_millisecond_are_counted() -> None:
    timestamps = reserved()
    now = timestamp_of(NOW_MS)
    assert [timestamps.give(ms) for ms in (NOW_MS, NOW_MS, NOW_MS - 9999, NOW_MS + 1)] == [
        now, now + 1, now + 2, timestamp_of(NOW_MS + 1),
    ]  # fmt: skip


def test_the_next_reservation_is_wanted_when_half_of_the_last_one_is_left() -> None:
    timestamps = reserved()
    assert timestamps.wanted(NOW_MS + 5000) is None
    assert timestamps.wanted(NOW_MS + 5001) == timestamp_of(NOW_MS + 5001) + RESERVED_AHEAD
    assert timestamps.is_reserved(NOW_MS + 9000)


def test_a_clock_that_jumps_ahead_waits_for_its_reservation_and_one_without_it_is_not_followed() -> None:
    timestamps = reserved()
    last, later = timestamps.give(NOW_MS), NOW_MS + 3_600_000
    assert not timestamps.is_reserved(later)
    assert timestamps.can_give
    assert timestamps.give(later) == last + 1, "the reservation failed: below it there are values"
    wanted = timestamps.wanted(later)
    assert wanted is not None
    timestamps.take_reservation(wanted)
    assert timestamps.give(later) == timestamp_of(later)
    assert timestamps.give(NOW_MS) == timestamp_of(later) + 1, "and back"


def test_a_start_begins_at_the_reservation_it_finds_and_starts_do_not_add_up() -> None:
    timestamps = reserved()
    timestamps.give(NOW_MS)
    for _ in range(100):
        before = timestamps.reserved
        timestamps = reserved(NOW_MS, before)
        assert timestamps.give(NOW_MS) == before
    assert timestamps.reserved <= timestamp_of(NOW_MS) + RESERVED_AHEAD + 101 * RESERVED_VALUES


def test_a_stored_row_is_never_reached_again_though_no_reservation_says_so() -> None:
    timestamps = reserved()
    stored = timestamp_of(NOW_MS + 60_000)
    timestamps.saw(stored)
    timestamps.saw(5)
    assert not timestamps.can_give
    wanted = timestamps.wanted(NOW_MS)
    assert wanted is not None
    timestamps.take_reservation(wanted)
    assert timestamps.give(NOW_MS) == stored + 1


def test_values_that_are_nearly_used_up_are_not_begun() -> None:
    timestamps = CommitTimestamps(COUNTER_VALUES)
    timestamps.take_reservation(2 * COUNTER_VALUES)
    assert timestamps.can_give
    timestamps.saw(COUNTER_VALUES)
    assert not timestamps.can_give
    timestamps.take_reservation(3 * COUNTER_VALUES)
    timestamps.take_reservation(2 * COUNTER_VALUES)
    assert timestamps.reserved == 3 * COUNTER_VALUES, "a reservation never shrinks"


EVENTS = st.lists(
    st.tuples(st.sampled_from(["commit", "commit", "restart", "fail"]), st.integers(-(10**8), 10**8)), max_size=40
)


@given(EVENTS)
def test_values_rise_over_restarts_and_jumps_and_all_are_below_what_is_durable(
    events: list[tuple[str, int]],
) -> None:
    """The model: the greatest value so far, and the row on disk."""
    timestamps, row, greatest, now_ms = CommitTimestamps(), 0, 0, NOW_MS
    for event, jump in events:
        now_ms += jump
        if event == "restart":
            timestamps = CommitTimestamps(row)
        wanted = timestamps.wanted(now_ms)
        if wanted is not None and event != "fail":
            row = max(row, wanted)
            timestamps.take_reservation(wanted)
        if event in ("commit", "fail") and timestamps.can_give:
            given_now = timestamps.give(now_ms)
            assert greatest < given_now < row
            greatest = given_now
            assert event == "fail" or given_now >= timestamp_of(now_ms)
