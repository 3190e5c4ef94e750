"""CSV and Parquet as columns: limits of their forms, and values that look like something else."""

import io
from typing import Any

import pytest

from pqbroker.tables.work.files.formats import HEAD_BYTES_MAX, LINE_BYTES_MAX, FileDamaged, columns_of


def csv_rows(data: bytes) -> list[dict[str, Any]]:
    found = columns_of(io.BytesIO(data), "a.csv", 10)
    return [row for batch in found.read(list(found.types)) for row in batch.to_pylist()]


def test_a_row_beyond_its_bytes_is_refused_and_so_is_a_quote_without_end() -> None:
    for data in (b"a\n" + b"x" * (3 * LINE_BYTES_MAX) + b"\n", b'a\n"' + b"x\n" * LINE_BYTES_MAX):
        with pytest.raises(FileDamaged, match="a quote has no end"):
            csv_rows(data)


def test_names_beyond_the_bytes_of_the_head_are_refused() -> None:
    with pytest.raises(FileDamaged, match="line of names"):
        csv_rows(b'"' + b"a" * (HEAD_BYTES_MAX + 10) + b'",b\n1,2\n')
    with pytest.raises(FileDamaged, match="11 columns"):
        csv_rows(b"," * 10 + b"\n")


@pytest.mark.parametrize(
    ("data", "rows"),
    [
        (b"a|b\n1|x\n", [{"a": 1, "b": "x"}]),
        (b"a\tb\r\n1\tx\r\n", [{"a": 1, "b": "x"}]),
        (b"\n\na\n1\n", [{"a": 1}]),
        (b"a\n1\n" + b"2\n" * 5 + b"x\n", [{"a": each} for each in ("1", *["2"] * 5, "x")]),
        (b"a,b\n,NULL\n\"\",NA\n", [{"a": None, "b": "NULL"}, {"a": "", "b": "NA"}]),
        (b"a\n\xff\n", [{"a": b"\xff"}]),
        (b"a\n", []),
        (b"\n\na;b\n1;2\n", [{"a": 1, "b": 2}]),
        ("é;naïve\n1;2".encode(), [{"é": 1, "naïve": 2}]),
    ],
)
def test_values_are_what_the_file_says(data: bytes, rows: list[dict[str, Any]]) -> None:
    assert csv_rows(data) == rows
