"""The benchmark of sorted tables in small: it measures what it says."""

from tests.benchmarks.merging import measure


def test_figures_of_a_few_rows_are_there() -> None:
    found = list(measure(rows=3000, lookups=50))
    assert len(found) == 9
    assert all(one.cpu_us > 0 and one.what in str(one) for one in found)
