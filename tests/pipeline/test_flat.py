"""`land --flatten` as far as no Spark is needed, and the query for DuckDB that the page has for what landed."""

import re
from datetime import UTC, datetime
from pathlib import Path

import duckdb
import pyarrow
import pyarrow.parquet
import pytest

from pqbroker.pipeline.__main__ import main
from pqbroker.pipeline.lakes.lake import LANDED, Lake, LakeError
from pqbroker.pipeline.schema_text import read_columns
from tests.house.sources import ROOT


def test_names_of_fields_are_those_of_the_top() -> None:
    schema = "id BIGINT NOT NULL, `a, b``c` STRING, at STRUCT<key: STRING, n: DECIMAL(3, 2)>,m MAP<STRING,INT>"
    assert [column.name for column in read_columns(schema)] == ["id", "a, b`c", "at", "m"]


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ([], "give --format json and --schema too"),
        (["--format", "json", "--schema", "id INT, Key STRING"], "the field Key has the name of a column of every row"),
        (["--format", "json", "--schema", "date STRING", "--by-date"], "the field date has the name"),
    ],
)
def test_a_flat_row_without_columns_of_its_own_is_refused(
    words: list[str], reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["land", "t", "--to", str(tmp_path), "--once", "--flatten", *words])
    assert ended.value.code == 2
    assert reason in capsys.readouterr().err


def test_a_directory_is_flat_or_not(tmp_path: Path) -> None:
    flat, nested = Lake(tmp_path / "flat", LANDED), Lake(tmp_path / "nested", LANDED)
    for lake, is_flat in ((flat, True), (nested, False)):
        lake.clear()
        lake.claim("t", "id", is_flat=is_flat)
        lake.claim("t", "id", is_flat=is_flat)
        with pytest.raises(LakeError, match="rows with" + ("" if is_flat else "out") + " --flatten; go on so"):
            lake.claim("t", "id", is_flat=not is_flat)


def test_duckdb_reads_what_landed_by_the_query_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (ROOT / "docs" / "pipeline.md").read_text(encoding="utf-8")
    (query,) = re.findall(r"```sql\n(.*?)```", page, re.DOTALL)
    for batch, names in ((0, ["a", "b"]), (1, ["a"])):
        place = tmp_path / "lake" / "data" / f"batch={batch}"
        place.mkdir(parents=True)
        rows = [
            {"partition": 0, "offset": 10 * batch + at, "timestamp": datetime(2026, 1, 1, batch, tzinfo=UTC),
             "value": {"name": name}}
            for at, name in enumerate(names)
        ]  # fmt: skip
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), place / "part-0.parquet")
        (place / "_landed.json").write_text("{}")
    monkeypatch.chdir(tmp_path)
    found = duckdb.connect().execute(query).fetchall()
    assert [row[:2] for row in found] == [("a", 2), ("b", 1)]
