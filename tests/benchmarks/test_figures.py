"""Medians, percentiles, ratios and marks of a benchmark."""

from hypothesis import given
from hypothesis import strategies as st

from tests.benchmarks.figures import KAFKA, KAFKA_FLUSH, MEGABYTES, OURS, P50, Results, Run, percentile
from tests.benchmarks.marks import MARKS, Mark, at_least, at_most, verdicts
from tests.benchmarks.suite import WORKLOADS


def test_percentile_is_a_value_that_was_measured() -> None:
    assert percentile([30.0, 10.0, 20.0, 40.0], 50) == 20.0
    assert percentile([30.0, 10.0, 20.0, 40.0], 75) == 30.0
    assert percentile([30.0, 10.0, 20.0, 40.0], 99) == 40.0
    assert percentile([7.0], 1) == 7.0


@given(st.lists(st.floats(allow_nan=False), min_size=1), st.integers(1, 100))
def test_percentile_is_the_least_value_that_so_many_are_not_above(values: list[float], percent: int) -> None:
    found = percentile(values, percent)
    assert sum(value <= found for value in values) * 100 >= percent * len(values)
    assert sum(value < found for value in values) * 100 < percent * len(values)


def test_the_median_is_over_the_runs_of_one_workload_and_system() -> None:
    results = Results([_run(OURS, 1.0), _run(OURS, 9.0), _run(OURS, 2.0), _run(KAFKA, 100.0), _run(OURS, 50.0, "b")])
    assert results.median("a", OURS, MEGABYTES) == 2.0
    assert results.median("b", OURS, MEGABYTES) == 50.0


def test_the_ratio_is_that_of_medians() -> None:
    results = Results([_run(OURS, 1.0), _run(OURS, 3.0), _run(OURS, 8.0), _run(KAFKA, 2.0)])
    assert results.ratio("a", MEGABYTES, KAFKA) == 1.5


def test_a_ratio_needs_both_sides_and_no_zero() -> None:
    results = Results([_run(OURS, 1.0), _run(KAFKA, 0.0)])
    assert results.ratio("a", MEGABYTES, KAFKA) is None
    assert results.ratio("a", MEGABYTES, KAFKA_FLUSH) is None
    assert results.ratio("a", P50, KAFKA) is None


def test_systems_stand_in_one_order_and_only_if_they_ran() -> None:
    assert Results([_run(KAFKA, 1.0), _run(OURS, 1.0)]).systems() == [OURS, KAFKA]


def test_a_mark_from_below_is_met_at_its_limit_and_missed_under_it() -> None:
    mark = at_least(1.2, "a", MEGABYTES, KAFKA)
    assert _word(mark, ours=12.0, kafka=10.0) == "PASS"
    assert _word(mark, ours=11.9, kafka=10.0) == "MISS"


def test_a_mark_from_above_is_met_at_its_limit_and_missed_over_it() -> None:
    mark = at_most(1.2, "a", MEGABYTES, KAFKA)
    assert _word(mark, ours=12.0, kafka=10.0) == "PASS"
    assert _word(mark, ours=12.1, kafka=10.0) == "MISS"


def test_a_mark_that_was_not_measured_is_neither() -> None:
    [verdict] = verdicts(Results([_run(OURS, 1.0)]), [at_least(1.0, "a", MEGABYTES, KAFKA)])
    assert verdict.word == "-"


def test_every_mark_names_a_workload_that_runs_on_both_systems() -> None:
    systems = {workload.name: workload.systems for workload in WORKLOADS}
    for mark in MARKS:
        assert {OURS, mark.against} <= set(systems[mark.workload])


def _run(system: str, megabytes: float, workload: str = "a") -> Run:
    return Run(workload, system, {MEGABYTES: megabytes})


def _word(mark: Mark, *, ours: float, kafka: float) -> str:
    [verdict] = verdicts(Results([_run(OURS, ours), _run(KAFKA, kafka)]), [mark])
    return verdict.word
