"""A stream of a table stops where it should, a task reads its rows, wrong options are refused: without Spark."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import LongType, NullType, StructType

from pqbroker.client import ClientError, Column, RowRanges
from pqbroker.pipeline.errors import JobError
from pqbroker.pipeline.ordered_tables.columns import check_insertable
from pqbroker.pipeline.ordered_tables.options import Options
from pqbroker.pipeline.ordered_tables.own_line import HIDE, RUNTIME, WORKER, own_line_first
from pqbroker.pipeline.ordered_tables.reading import RowRange, planned
from pqbroker.pipeline.ordered_tables.streaming import ends_within

RANGES = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), max_size=5).map(
    lambda pairs: RowRanges("id", tuple((first, first + count) for first, count in pairs))
)


@given(RANGES, st.none() | st.integers(1, 100))
def test_a_trigger_reads_no_more_rows_than_it_may_and_all_if_it_may(found: RowRanges, most: int | None) -> None:
    begins = {tablet: first for tablet, (first, _) in enumerate(found.ranges)}
    ends = ends_within(begins, found, most)
    counts = {tablet: ends[tablet] - begins[tablet] for tablet in begins}
    rest = {tablet: last - first for tablet, (first, last) in enumerate(found.ranges)}
    assert all(0 <= counts[tablet] <= rest[tablet] for tablet in begins)
    total = sum(rest.values())
    assert sum(counts.values()) == (total if most is None else min(most, total))


@given(RANGES, st.integers(1, 30))
def test_tasks_cover_each_row_once(found: RowRanges, rows_per_partition: int) -> None:
    options = Options("t", rows_per_partition=rows_per_partition)
    spans = [RowRange(tablet, first, last) for tablet, (first, last) in enumerate(found.ranges)]
    tasks = planned(spans, found, options)
    assert all(0 < task.end - task.start <= rows_per_partition for task in tasks)
    rows = [(task.tablet, row) for task in tasks for row in range(task.start, task.end)]
    assert rows == [(span.tablet, row) for span in spans for row in range(span.start, span.end)]


def test_rows_that_are_gone_are_an_error_or_left_out() -> None:
    found = RowRanges("id", ((5, 10),))
    with pytest.raises(JobError, match="rows 3 to 4 of tablet 0 of t are gone"):
        planned([RowRange(0, 3, 8)], found, Options("t"))
    assert planned([RowRange(0, 3, 8)], found, Options("t", fails_on_data_loss=False)) == [RowRange(0, 5, 8)]
    assert planned([RowRange(0, 3, 3)], found, Options("t")) == [], "no row was asked for"


def test_a_required_column_that_is_always_null_is_refused_while_planning() -> None:
    columns = [Column("n", "int64", is_required=True), Column("m", "int64")]
    check_insertable("t", columns, StructType().add("n", LongType()).add("m", NullType()))
    with pytest.raises(JobError, match="column 'n' of t is required, and in all rows it is null"):
        check_insertable("t", columns, StructType().add("n", NullType()))
    with pytest.raises(JobError, match="column 'n' of t is required, and the rows have none"):
        check_insertable("t", columns, StructType().add("m", LongType()))


@pytest.mark.parametrize(
    ("error", "runtime", "is_hidden"),
    [
        (JobError("no"), WORKER, True), (ClientError("NO", "no", "no"), WORKER, True),
        (JobError("no"), "", False), (ZeroDivisionError(), WORKER, False),
    ],
)  # fmt: skip
def test_the_traceback_is_left_out_of_an_error_with_a_cure_in_a_worker_alone(
    monkeypatch: pytest.MonkeyPatch, error: Exception, runtime: str, is_hidden: bool
) -> None:
    monkeypatch.setenv(RUNTIME, runtime)
    monkeypatch.setenv(HIDE, "")
    with pytest.raises(type(error)), own_line_first():
        raise error
    assert os.environ[HIDE] == ("1" if is_hidden else "")
