"""Which tablets a range becomes: the examples of E.9, and rules for any numbers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pqbroker.tables.refusals import TableError
from pqbroker.tables.resharding import affected, plan_reshard

pytestmark = pytest.mark.spec("E.9")


def test_new_tablets_follow_the_range_and_begin_where_they_are_told_to() -> None:
    plan = plan_reshard(5, 1, 3, 5, [10, 20])
    assert list(plan.origins) == [0, 1, 2, 3, None, None, 4]
    assert list(plan.first_rows) == [10, 20]
    assert affected(plan, 5, 1, 3) == range(1, 5)


def test_new_tablets_begin_at_0_unless_told_otherwise() -> None:
    assert list(plan_reshard(1, 0, 0, 3, None).first_rows) == [0, 0]


def test_the_last_tablets_of_the_range_join_the_last_one_that_stays() -> None:
    plan = plan_reshard(5, 1, 3, 1, None)
    assert (list(plan.origins), list(plan.removed), plan.survivor) == ([0, 1, 4], [2, 3], 1)
    assert plan.is_change
    assert affected(plan, 5, 1, 3) == range(1, 5)


def test_the_same_count_changes_nothing() -> None:
    plan = plan_reshard(5, 1, 3, 3, [])
    assert not plan.is_change
    assert affected(plan, 5, 1, 3) == range(1, 4)


@pytest.mark.parametrize(
    ("count", "first_rows", "word"),
    [(0, None, "tablet_count is 0"), (5, [10], "has 1 numbers, and 2"), (2, [1], "has 1 numbers, and 0")],
)
def test_what_cannot_be_is_refused_by_name(count: int, first_rows: list[int] | None, word: str) -> None:
    with pytest.raises(TableError, match=word) as refusal:
        plan_reshard(5, 1, 3, count, first_rows)
    assert refusal.value.code == "INVALID_RESHARD"


@given(st.data())
def test_every_tablet_stays_once_or_is_removed(data: st.DataObject) -> None:
    present = data.draw(st.integers(1, 9))
    first = data.draw(st.integers(0, present - 1))
    last = data.draw(st.integers(first, present - 1))
    count = data.draw(st.integers(1, 9))
    plan = plan_reshard(present, first, last, count, None)
    kept = [origin for origin in plan.origins if origin is not None]
    assert kept == sorted(kept)
    assert sorted([*kept, *plan.removed]) == list(range(present))
    assert len(plan.origins) == present - (last - first + 1) + count
    assert len(plan.first_rows) == plan.origins.count(None)
