"""The tables a benchmark prints, and the metric it reads."""

import pytest

from tests.benchmarks import report
from tests.benchmarks.figures import EARLIER, KAFKA, KAFKA_FLUSH, LOOP_LAG, MEGABYTES, OURS, P50, Results, Run
from tests.benchmarks.marks import at_least, no_worse, verdicts
from tests.benchmarks.meter import Memory
from tests.benchmarks.systems import worst_lag_ms

RESULTS = Results([
    Run("a", OURS, {MEGABYTES: 300.0, LOOP_LAG: 2.0}),
    Run("a", KAFKA_FLUSH, {MEGABYTES: 100.0}),
    Run("a", KAFKA, {MEGABYTES: 400.0}),
    Run("a", OURS, {MEGABYTES: 500.0, LOOP_LAG: 3.5}),
])  # fmt: skip


def test_a_text_table_is_aligned_left_in_its_first_column_and_right_in_the_others() -> None:
    assert report.text_table(["what", "n"], [["a", "1 000"], ["longer", "2"]]).splitlines() == [
        "what        n",
        "------  -----",
        "a       1 000",
        "longer      2",
    ]


def test_a_markdown_table_has_a_rule_under_its_header() -> None:
    assert report.markdown_table(["what", "n"], [["a", "1"]]).splitlines() == [
        "| what | n |",
        "| --- | --: |",
        "| a | 1 |",
    ]


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "-"), (0.1234, "0.12"), (9.994, "9.99"), (12.34, "12.3"), (123.4, "123"), (20_000.0, "20 000")],
)
def test_numbers_have_about_three_digits(value: float | None, text: str) -> None:
    assert report.number(value) == text


def test_the_summary_has_medians_and_both_ratios() -> None:
    header, rows = report.summary(RESULTS)
    assert header == [
        "workload", "figure", OURS, KAFKA_FLUSH, KAFKA, f"ratio to {KAFKA_FLUSH}", f"ratio to {KAFKA}",
    ]  # fmt: skip
    assert rows == [["a", MEGABYTES, "400", "100", "400", "4.00", "1.00"]]


def test_without_our_broker_there_are_no_ratios() -> None:
    header, rows = report.summary(Results([Run("a", KAFKA, {MEGABYTES: 1.0})]))
    assert header == ["workload", "figure", KAFKA]
    assert rows == [["a", MEGABYTES, "1.00"]]


def test_every_run_is_told_in_the_order_run() -> None:
    _, rows = report.every_figure(RESULTS)
    assert rows[0] == ["a", MEGABYTES, OURS, "300 500"]
    assert ["a", LOOP_LAG, OURS, "2.00 3.50"] in rows


def test_the_memory_table_tells_the_worst_lag_of_all_runs() -> None:
    _, rows = report.memory({OURS: Memory(60, 80), KAFKA: Memory(900, 1000)}, RESULTS)
    assert rows == [[OURS, "60.0", "80.0", "3.50"], [KAFKA, "900", "1 000", "-"]]


def test_the_marks_table_tells_what_was_asked_and_reached() -> None:
    _, rows = report.marks(verdicts(RESULTS, [at_least(1.2, "a", MEGABYTES, KAFKA)]))
    assert rows == [["a", MEGABYTES, f"at least 1.2 × {KAFKA}", "1.00", "MISS"]]


def test_the_loop_lag_is_the_greatest_sample_that_is_one() -> None:
    metrics = """\
# HELP pqbroker_loop_lag_seconds_max how late the loop was
pqbroker_loop_lag_seconds_max 0.004
pqbroker_loop_lag_seconds_bucket{le="1.0"} 900
pqbroker_loop_lag_seconds_sum 12.5
pqbroker_other 7
pqbroker_loop_lag_seconds{when="now"} 0.001
"""
    assert worst_lag_ms(metrics) == 4.0


def test_a_loop_lag_in_ms_is_taken_as_it_is() -> None:
    assert worst_lag_ms("pqbroker_loop_lag_ms_max 4.5\n") == 4.5


def test_a_broker_without_the_metric_has_no_lag() -> None:
    assert worst_lag_ms("pqbroker_requests_total 5\n") is None


def test_beside_an_earlier_commit_a_rate_may_fall_and_a_time_may_grow_by_seven_parts_in_a_hundred() -> None:
    results = Results([
        Run("a", OURS, {MEGABYTES: 94.0, P50: 1.06}),
        Run("a", EARLIER, {MEGABYTES: 100.0, P50: 1.0}),
        Run("b", OURS, {MEGABYTES: 92.0, P50: 1.08}),
        Run("b", EARLIER, {MEGABYTES: 100.0, P50: 1.0}),
    ])  # fmt: skip
    assert [verdict.word for verdict in verdicts(results, no_worse(results))] == ["PASS", "PASS", "MISS", "MISS"]
