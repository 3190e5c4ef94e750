"""The benchmark of checked rows in small: it measures what it says."""

from pathlib import Path

from tests.benchmarks.typed import measure


def test_figures_of_a_few_rows_are_there(tmp_path: Path) -> None:
    found = measure(tmp_path, rows=500, note_bytes=10, rounds=1)
    assert found.raw > 0
    assert found.typed > 0
    assert "checked" in str(found)
