"""How many files a batch is planned into."""

import pytest
from hypothesis import given
from hypothesis.strategies import floats, integers

from pqbroker.pipeline.lakes.file_sizes import Files, plan_files, rows_between

MB = 1 << 20


@pytest.mark.parametrize(
    ("rows", "row_bytes", "files"),
    [
        (1000, 1024.0, Files(1, 1024)),
        (1024, 1024.0, Files(1, 1024)),
        (1025, 1024.0, Files(2, 1024)),
        (0, 1024.0, Files(1, 1024)),
        (3, 8.0 * MB, Files(3, 1)),
        (10_486, None, Files(2, 10_485)),
    ],
)
def test_a_batch_has_as_many_files_as_its_rows_fill(rows: int, row_bytes: float | None, files: Files) -> None:
    assert plan_files(rows, row_bytes, MB) == files


@given(rows=integers(0, 10**9), row_bytes=floats(0.1, 1e7), file_bytes=integers(1, 1 << 32))
def test_planned_files_hold_all_rows(rows: int, row_bytes: float, file_bytes: int) -> None:
    files = plan_files(rows, row_bytes, file_bytes)
    assert (files.count - 1) * files.rows_max < max(rows, 1) <= max(files.count * files.rows_max, 1)


def test_rows_between_offsets_count_new_partitions_from_their_start() -> None:
    assert rows_between({}, {"a": {"0": 5}}) == 5
    assert rows_between({"a": {"0": 5}}, {"a": {"0": 7, "1": 3}}) == 5
