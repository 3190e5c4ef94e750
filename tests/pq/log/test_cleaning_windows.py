"""The cleaner's choice: whether a log is due, up to where, and in which windows."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pqbroker.pq.log.body import Bodies
from pqbroker.pq.log.cleaned_log import CleanedLog
from pqbroker.pq.log.cleaning_windows import (
    CleaningLimits,
    Dirt,
    Due,
    Window,
    WindowLimits,
    extend,
    when_due,
    windows,
)
from pqbroker.pq.log.keys import COUNT_MAX
from tests.pq.rig import KIB, MIB

NEVER = 1 << 62
LIMITS = CleaningLimits(0.5, 0, NEVER)


def bodies_of(*sizes: int, created_ms: int = 0, span: int = 10) -> Bodies:
    """A body a second, of `span` offsets each."""
    found = Bodies()
    for number, size in enumerate(sizes):
        found.append(number * span, (number + 1) * span, size, created_ms + 1000 * number)
    return found


@pytest.mark.parametrize(
    ("sizes", "count"),
    [
        ([KIB, MIB, 10 * MIB], 3),
        ([10 * MIB, 20 * MIB, 50 * MIB, 150 * MIB], 4),
        ([MIB, 10 * MIB, 100 * MIB], 2),
        ([MIB, 31 * MIB // 2, 156 * MIB // 10], 1),
        ([100 * MIB, MIB], 2),
    ],
)
@pytest.mark.spec("C.5")
def test_bodies_are_taken_together_by_their_sizes(sizes: list[int], count: int) -> None:
    assert extend(sizes, WindowLimits(bytes_max=1 << 40)) == count


@given(st.lists(st.integers(1, 40 * MIB), min_size=1, max_size=40), st.integers(1, 5))
def test_windows_have_each_body_once_and_stay_within_their_limits(sizes: list[int], count_max: int) -> None:
    limits = WindowLimits(count_max=count_max, bytes_max=50 * MIB)
    found = windows(bodies_of(*sizes), len(sizes), limits)
    assert [number for first, last in found for number in range(first, last)] == list(range(len(sizes)))
    for first, last in found:
        assert last - first <= count_max
        assert last - first == 1 or sum(sizes[first:last]) <= limits.bytes_max


def test_a_window_has_no_more_offsets_than_a_key_can_say() -> None:
    wide = bodies_of(1, 1, 1, 1, span=COUNT_MAX // 2)
    assert windows(wide, 4, WindowLimits()) == [Window(0, 2), Window(2, 4)]
    assert windows(wide, 3, WindowLimits()) == [Window(0, 2), Window(2, 3)]
    assert windows(wide, 0, WindowLimits()) == []


@pytest.mark.spec("G.3")
def test_a_log_is_due_when_more_than_its_ratio_is_dirty() -> None:
    bodies = bodies_of(100, 100, 50, 60)
    half = when_due(bodies, CleanedLog(20, 0), 40, LIMITS, NEVER - 1)
    assert half == Due(Dirt.BELOW_RATIO, 40, 4, 110, 310)
    assert not half.is_due
    more = when_due(bodies, CleanedLog(10, 0), 40, LIMITS, NEVER - 1)
    assert (more.reason, more.is_due, more.dirty_bytes) == (Dirt.DIRTY, True, 210)
    exact = when_due(bodies_of(100, 100), CleanedLog(10, 0), 20, LIMITS, NEVER - 1)
    assert (exact.dirty_ratio, exact.reason) == (0.5, Dirt.BELOW_RATIO)
    assert when_due(bodies, CleanedLog(40, 0), 40, LIMITS, NEVER - 1).reason is Dirt.CLEAN
    assert when_due(bodies, CleanedLog(40, 0), 40, LIMITS, NEVER - 1, is_forced=True).is_due
    assert when_due(Bodies(), CleanedLog(0, 0), 0, LIMITS, 0, is_forced=True) == Due(Dirt.CLEAN, 0, 0, 0, 0)


def test_nothing_above_the_last_stable_offset_or_too_young_is_cleaned() -> None:
    bodies = bodies_of(10, 10, 10, 10, created_ms=5000)
    assert when_due(bodies, CleanedLog(0, 0), 39, LIMITS, 1 << 40)[:3] == (Dirt.DIRTY, 30, 3)
    young = CleaningLimits(0.5, 3000, NEVER)
    assert when_due(bodies, CleanedLog(0, 0), 40, young, 9000)[:3] == (Dirt.DIRTY, 20, 2)
    assert when_due(bodies, CleanedLog(20, 0), 40, young, 9000).reason is Dirt.YOUNG
    assert when_due(bodies, CleanedLog(0, 0), 40, young, 7999).reason is Dirt.YOUNG
    assert when_due(bodies, CleanedLog(0, 0), 40, young, 7999, is_forced=True).reason is Dirt.YOUNG


def test_a_dirty_body_does_not_wait_longer_than_the_greatest_lag() -> None:
    bodies = bodies_of(1000, 10, 10)
    late = CleaningLimits(0.5, 0, 5000)
    assert when_due(bodies, CleanedLog(10, 0), 30, late, 5999).reason is Dirt.BELOW_RATIO
    assert when_due(bodies, CleanedLog(10, 0), 30, late, 6000).reason is Dirt.LATE
    assert when_due(bodies, CleanedLog(30, 0), 30, late, 1 << 40).reason is Dirt.CLEAN


@given(st.lists(st.integers(0, 9), max_size=12), st.integers(0, 130), st.integers(0, 9), st.integers(0, 9))
def test_bodies_up_to_the_first_that_is_young_or_unstable_may_be_cleaned(
    created: list[int], stable_end: int, now_ms: int, lag_ms: int
) -> None:
    bodies, count = Bodies(), 0
    for number, created_ms in enumerate(created):
        bodies.append(10 * number, 10 * number + 10, 100, created_ms)
    while count < len(created) and 10 * count + 10 <= stable_end and created[count] <= now_ms - lag_ms:
        count += 1
    assert when_due(bodies, CleanedLog(0, 0), stable_end, CleaningLimits(0.5, lag_ms, NEVER), now_ms)[1:3] == (
        10 * count, count,
    )  # fmt: skip
