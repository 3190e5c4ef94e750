"""The benchmark of SQL beside DuckDB in small: it measures what it says."""

from pathlib import Path

from tests.benchmarks.query_shares import measure


def test_figures_of_small_tables_are_there(tmp_path: Path) -> None:
    found = measure(tmp_path, 2_000, 1)
    assert len(found.rates) == 5
    assert min(found.scan, found.scan_falling_back, found.answer) > 0
    assert "of DuckDB's rate" in str(found)
