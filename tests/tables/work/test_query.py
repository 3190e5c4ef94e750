"""DuckDB as queries find it: the second lock, behind the parser, that keeps them to the rows they are given."""

from pathlib import Path

import duckdb
import pyarrow
import pytest

from pqbroker.tables.work.database import LOCK, connect, forget_database, open_for_query

rows_of_this_module = pyarrow.table({"n": [1]})


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT * FROM read_text('{file}')", "SELECT * FROM '{file}'", "FROM glob('{file}')", "FROM read_csv('{file}')",
        "COPY (SELECT 1) TO '{file}'", "ATTACH '{file}'", "INSTALL httpfs", "LOAD httpfs", "SET threads = 4",
        "SET enable_external_access = true", "SET lock_configuration = false", "PRAGMA enable_profiling",
        "SELECT getenv('HOME')", "FROM rows_of_this_module",
    ],
)  # fmt: skip
def test_no_file_extension_setting_or_variable_is_reached(tmp_path: Path, statement: str) -> None:
    file = tmp_path / "secret.csv"
    file.write_text("a\n1\n")
    with connect(128 << 20) as connection:
        connection.execute(LOCK)
        with pytest.raises(duckdb.Error):
            connection.execute(statement.format(file=file)).fetchall()
    assert file.read_text() == "a\n1\n"


def test_what_is_registered_is_reached_and_what_needs_more_memory_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is swapped to files."""
    monkeypatch.chdir(tmp_path)
    with connect(32 << 20) as connection:
        connection.register("given", pyarrow.table({"n": [1, 2]}))
        connection.execute(LOCK)
        assert connection.execute("SELECT sum(n) FROM given").fetchall() == [(3,)]
        with pytest.raises(duckdb.OutOfMemoryException):
            connection.execute("SELECT n FROM range(10000000) AS r(n) ORDER BY hash(n)").fetchmany(1)
    assert list(tmp_path.iterdir()) == []


def test_one_query_sees_nothing_of_another_in_the_same_database() -> None:
    forget_database()
    with open_for_query(64 << 20) as first:
        first.register("given", pyarrow.table({"n": [1]}))
        first.execute("SET VARIABLE told = 1")
        assert first.execute("SELECT n, getvariable('told') FROM given").fetchall() == [(1, 1)]
    with open_for_query(64 << 20) as second:
        assert second.execute("SELECT getvariable('told')").fetchall() == [(None,)]
        with pytest.raises(duckdb.CatalogException):
            second.execute("SELECT n FROM given")
        with pytest.raises(duckdb.InvalidInputException, match="locked"):
            second.execute("SET threads = 2")
    forget_database()
