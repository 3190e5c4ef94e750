"""Names of local files in SQL, and lists of them."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from pqbroker.broker.services.sql.files import list_files, place_of
from pqbroker.conf.broker import BrokerSettings


@pytest.mark.parametrize("name", ["a.csv", "A.PARQUET", "new prices.csv", "a.b.parquet", "csv.csv"])
def test_a_name_with_the_prefix_is_a_file(name: str, tmp_path: Path) -> None:
    settings = BrokerSettings(sql_files_directory=str(tmp_path))
    place = place_of(f"files.{name}", settings)
    assert place is not None
    assert (place["directory"], place["name"]) == (str(tmp_path), name)
    assert place_of(f"files.{name}", replace(settings, sql_files_directory="")) is None


@pytest.mark.parametrize(
    "relation",
    [
        "a.csv", "Files.a.csv", "files.a.txt", "files.", "files.csv", "files..csv", "files...csv", "files./a.csv",
        "files.b/a.csv", "files...", "files.../a.csv", "files.a\0.csv", "xfiles.a.csv",
        "files.a\n.csv", "files.\x1b[31m.csv", "files.\udcff.csv", f"files.{'x' * 252}.csv",
    ],
)  # fmt: skip
def test_other_names_are_no_file(relation: str, tmp_path: Path) -> None:
    assert place_of(relation, BrokerSettings(sql_files_directory=str(tmp_path))) is None


def test_a_list_looks_at_the_first_entries_alone(tmp_path: Path) -> None:
    for number in range(5):
        (tmp_path / f"{number}.csv").write_text("n\n1\n")
    settings = BrokerSettings(sql_files_directory=str(tmp_path))
    assert sorted(list_files(settings)) == [f"files.{number}.csv" for number in range(5)]
    assert len(list_files(replace(settings, sql_files_max=2))) == 2
    assert list_files(replace(settings, sql_files_directory=str(tmp_path / "missing"))) == ()
    assert list_files(BrokerSettings()) == ()


def test_a_list_has_files_of_the_formats_alone(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("")
    (tmp_path / "b.csv").symlink_to(tmp_path / "a.csv")
    (tmp_path / "c.csv").mkdir()
    (tmp_path / ".d.csv").write_text("")
    (tmp_path / "e.txt").write_text("")
    (tmp_path / "f\n.csv").write_text("")
    (tmp_path / os.fsdecode(b"\xff.csv")).write_text("")
    assert list_files(BrokerSettings(sql_files_directory=str(tmp_path))) == ["files.a.csv"]
