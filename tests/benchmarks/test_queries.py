"""The benchmark of SQL in small: it measures what it says."""

from pathlib import Path

from tests.benchmarks.queries import Size, measure


def test_figures_of_a_small_scan_are_there(tmp_path: Path) -> None:
    found = measure(tmp_path, Size(rows=2_000, bulk_bytes=2_000_000, produced_bytes=1_000_000, rounds=1))
    assert found.first > 0
    assert found.next > 0
    assert found.share > 0
    assert "rows a second" in str(found)
