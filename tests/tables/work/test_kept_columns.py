"""Columns that a worker keeps: what is found is what was kept, within a budget, least recently used first."""

from collections.abc import Sequence

import pyarrow
from hypothesis import given
from hypothesis import strategies as st

from pqbroker.tables.work.kept_columns import KeptColumns, Stretch

KEY = ("topic", "", 0)
ROW_BYTES = 8


def stretch(start: int, end: int, *columns: str) -> Stretch:
    """Rows whose values are their numbers."""
    rows = pyarrow.array(range(start, end), pyarrow.int64())
    return Stretch(start, end, 1, pyarrow.RecordBatch.from_arrays([rows] * len(columns), list(columns)))


def begun(rows_max: int) -> KeptColumns:
    kept = KeptColumns()
    kept.begin(rows_max * ROW_BYTES)
    return kept


def found(kept: KeptColumns, row: int, columns: Sequence[str] = ("a",)) -> Stretch | None:
    return kept.find(KEY, row, columns)


def test_rows_are_found_from_any_of_them_on() -> None:
    kept = begun(100)
    kept.keep(KEY, stretch(10, 20, "a", "b"))
    there = found(kept, 15, ("b",))
    assert there is not None
    assert there.rows(15, 18, ("b",)).to_pydict() == {"b": [15, 16, 17]}
    assert there.rows(10, 99, ("a",)).num_rows == 10
    assert found(kept, 9) is found(kept, 20) is found(kept, 15, ("a", "c")) is None
    assert kept.find(("topic", "", 1), 15, ("a",)) is None


def test_columns_join_those_of_the_same_rows() -> None:
    kept = begun(100)
    kept.keep(KEY, stretch(0, 10, "a"))
    kept.keep(KEY, stretch(0, 10, "b"))
    assert found(kept, 0, ("a", "b")) is not None
    kept.keep(KEY, stretch(0, 12, "b"))
    assert found(kept, 0, ("a", "b")) is None
    assert found(kept, 11, ("b",)) is not None


def test_the_least_recently_used_go_first() -> None:
    kept = begun(20)
    kept.keep(KEY, stretch(0, 10, "a"))
    kept.keep(KEY, stretch(10, 20, "a"))
    kept.begin(20 * ROW_BYTES)
    found(kept, 0)
    kept.keep(KEY, stretch(20, 30, "a"))
    assert [found(kept, row) is not None for row in (0, 10, 20)] == [True, False, True]


def test_a_scan_of_more_than_there_is_room_for_keeps_its_part() -> None:
    kept = begun(30)
    for start in range(0, 100, 10):
        kept.keep(KEY, stretch(start, start + 10, "a"))
    assert [found(kept, row) is not None for row in range(0, 100, 10)] == [True] * 3 + [False] * 7


def test_rows_with_gaps_are_not_kept() -> None:
    kept = begun(100)
    kept.keep(KEY, stretch(0, 10, "a")._replace(end=11))
    assert found(kept, 0) is None


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(1, 9), st.booleans(), st.booleans())), st.integers(0, 40))
def test_the_budget_holds(steps: list[tuple[int, int, bool, bool]], rows_max: int) -> None:
    kept = begun(rows_max)
    for start, count, is_new, has_two in steps:
        if is_new:
            kept.begin(rows_max * ROW_BYTES)
        kept.keep(KEY, stretch(start, start + count, *(("a", "b") if has_two else ("a",))))
        held = [each.batch.nbytes for each, _ in kept._stretches.values()]
        assert sum(held) == kept._bytes <= kept.bytes_max
        assert sorted(start for _, start in kept._stretches) == kept._starts.get(KEY, [])
        for row in range(30):
            there = found(kept, row)
            if there is not None:
                assert there.rows(row, row + 1, ("a",)).to_pydict() == {"a": [row]}
