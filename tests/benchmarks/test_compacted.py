"""The benchmark of Produce to compacted topics runs, and names each codec."""

from pathlib import Path

from tests.benchmarks.compacted import CODECS, measure


def test_it_measures_each_codec(tmp_path: Path) -> None:
    found = list(measure(tmp_path, 300, 1000, rounds=1))
    assert [each.codec for each in found] == list(CODECS)
    assert all(each.plain > 0 and each.compacted > 0 and "% " not in str(each) for each in found)
