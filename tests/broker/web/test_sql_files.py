"""Local files in SQL: joins, lists, and what a directory may hold besides; one broker for all, over HTTP."""

import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from pqbroker.testing import memory_broker
from tests.broker.web.test_sql import Sql, record, worker_pids

BYTES_MAX = 20_000


class FilesSql(Sql):
    """Queries of a broker whose files lie in `directory`."""

    directory: Path


@pytest.fixture(scope="module")
def sql(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FilesSql]:
    """Topic `orders` of three rows; prices of their articles in CSV and in Parquet."""
    directory = tmp_path_factory.mktemp("files")
    settings = {
        "pqbroker.sql.worker.idle.ms": "600000", "pqbroker.sql.files.directory": str(directory),
        "pqbroker.sql.files.bytes.max": str(BYTES_MAX), "pqbroker.table.columns.max": "20",
    }  # fmt: skip
    (directory / "prices.csv").write_text('article,price,note\nfig,1.5,"a, b\nc"\nnut,2,\nplum,3,""\n')
    rows = {"article": ["fig", "nut"], "Color": ["red", None], "a.b": [1, 2], "tags": [["x"], []]}
    pyarrow.parquet.write_table(pyarrow.table(rows), directory / "colors.parquet")
    with memory_broker(settings) as running:
        sql = FilesSql(running)
        sql.directory = directory
        sql.post("/v1/topics", {"name": "orders"})
        sql.produce("orders", *(record(n, {"article": each}) for n, each in enumerate(("fig", "nut", "fig"))))
        yield sql


def refused(sql: Sql, query: str) -> tuple[int, str, str]:
    status, data = sql.ask(query)
    error = json.loads(data)["error"]
    return status, error["code"], error["message"]


def test_a_topic_is_joined_with_files(sql: FilesSql) -> None:
    assert sql.rows(
        "SELECT p.article, sum(p.price) AS sum, any_value(c.color) AS color FROM orders o"
        " JOIN files.prices.csv p ON decode(o.value)->>'article' = p.article"
        ' LEFT JOIN files."colors.parquet" c USING (article) GROUP BY 1 ORDER BY 1'
    ) == [{"article": "fig", "sum": 3.0, "color": "red"}, {"article": "nut", "sum": 2.0, "color": None}]


def test_csv_has_types_nulls_quotes_and_lines_within_values(sql: FilesSql) -> None:
    assert sql.rows('SELECT * FROM "files.prices.csv"') == [
        {"article": "fig", "price": 1.5, "note": "a, b\nc"}, {"article": "nut", "price": 2.0, "note": None},
        {"article": "plum", "price": 3.0, "note": ""},
    ]  # fmt: skip
    (sql.directory / "semicolons.csv").write_text("\ufeffn;day;\n1;2024-01-02;x\n2;;y\n")
    assert sql.rows("SELECT * FROM files.semicolons.csv") == [
        {"n": 1, "day": "2024-01-02", "column2": "x"}, {"n": 2, "day": None, "column2": "y"},
    ]  # fmt: skip


def test_parquet_makes_only_the_columns_that_are_named(sql: FilesSql) -> None:
    assert sql.rows("SELECT tags FROM files.colors.parquet") == [{"tags": ["x"]}, {"tags": []}]
    assert sql.rows('SELECT "a.b" AS n FROM files.colors.parquet ORDER BY n DESC') == [{"n": 2}, {"n": 1}]
    explained = sql.explained("SELECT count(*) FROM files.colors.parquet WHERE COLOR = 'red'")
    (scan,) = explained["scans"]
    assert scan == {"topic": "files.colors.parquet", "tablets": [], "columns": ["Color"], "file": "colors.parquet"}
    assert explained["rows_read"] == 2


def test_a_file_may_be_read_twice_in_one_query(sql: FilesSql) -> None:
    query = "SELECT count(*) AS n FROM files.{0} a, files.{0} b WHERE a.article <> b.article"
    assert sql.rows(query.format("prices.csv")) == [{"n": 6}]
    assert sql.rows(query.format("colors.parquet")) == [{"n": 2}]
    assert sql.rows("WITH f AS (SELECT * FROM files.prices.csv) SELECT count(*) AS n FROM f, f AS g") == [{"n": 9}]


def test_lists_have_files_and_describe_their_columns(sql: FilesSql) -> None:
    listed = sql.rows("SHOW TABLES")
    assert {"name": "files.prices.csv", "kind": "file"} in listed
    assert {"name": "files.colors.parquet", "kind": "file"} in listed
    shown = [(row["column_name"], row["column_type"]) for row in sql.rows("DESCRIBE files.prices.csv")]
    assert shown == [("article", "VARCHAR"), ("price", "DOUBLE"), ("note", "VARCHAR")]
    assert [row["column_type"] for row in sql.rows('DESCRIBE "files.colors.parquet"')][-1] == "VARCHAR[]"
    assert refused(sql, "DESCRIBE files.missing.csv")[:2] == (404, "NO_FILE")
    for kind in ("tables", "columns"):
        query = f"SELECT * FROM information_schema.{kind} WHERE table_name IN ('files.missing.csv', 'orders', 'nobody')"
        assert {row["table_name"] for row in sql.rows(query)} == {"orders"}
    query = "SELECT table_name AS name, table_kind AS kind FROM information_schema.tables WHERE table_name = '{}'"
    assert sql.rows(query.format("files.prices.csv")) == [{"name": "files.prices.csv", "kind": "file"}]
    query = "SELECT count(*) AS n FROM information_schema.columns WHERE starts_with(table_name, 'files.')"
    assert sql.rows(query) == [{"n": 0}]


def test_a_topic_of_the_same_name_comes_first(sql: FilesSql) -> None:
    (sql.directory / "both.csv").write_text("a\n1\n")
    assert sql.rows("SELECT * FROM files.both.csv") == [{"a": 1}]
    sql.post("/v1/topics", {"name": "files.both.csv"})
    assert sql.rows("SELECT count(*) AS n, count(key) AS k FROM files.both.csv") == [{"n": 0, "k": 0}]
    assert [row for row in sql.rows("SHOW TABLES") if row["name"] == "files.both.csv"] == [
        {"name": "files.both.csv", "kind": "topic"}
    ]


def _hostile(directory: Path) -> dict[str, str]:
    """Make what no query may read; return words of the refusal by relation."""
    outside = directory.parent / "outside.csv"
    outside.write_text("secret\n42\n")
    os.symlink(outside, directory / "link.csv")
    os.symlink("/dev/zero", directory / "zero.csv")
    os.mkfifo(directory / "fifo.csv")
    (directory / "folder.csv").mkdir()
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(directory / "socket.csv"))
    listener.close()
    return dict.fromkeys((f"files.{each}.csv" for each in ("link", "zero", "fifo", "folder", "socket")), "no regular")


def test_links_devices_pipes_and_folders_lead_nowhere(sql: FilesSql) -> None:
    hostile = _hostile(sql.directory)
    before = worker_pids()
    for relation, words in hostile.items():
        status, code, message = refused(sql, f"SELECT * FROM {relation}")
        assert (status, code) == (400, "INVALID_FILE")
        assert relation in message
        assert words in message
    for path in ("../outside.csv", "..", "/etc/passwd.csv", "folder.csv/a.csv", ".hidden.csv", "a\\0b.csv", "x.txt"):
        assert refused(sql, f'SELECT * FROM "files.{path}"')[0] in (400, 404), path
    assert not {row["name"] for row in sql.rows("SHOW TABLES")} & hostile.keys()
    assert worker_pids() == before


def _written(directory: Path) -> Iterator[tuple[str, bytes, str]]:
    whole = (directory / "colors.parquet").read_bytes()
    names = ",".join(f"c{number}" for number in range(21))
    yield "wide.csv", f"{names}\n".encode(), "21 columns, more than pqbroker.table.columns.max = 20"
    yield "twice.csv", b"A,b,a\n1,2,3\n", "'A' and 'a' have one name"
    yield "same.csv", b"a,a\n1,2\n", "'a' and 'a' have one name"
    yield "empty.csv", b"", "it is empty"
    yield "ragged.csv", b"a,b\n1,2\n1,2,3\n", "Expected 2 columns, got 3"
    yield "large.csv", b"a\n" + b"1\n" * BYTES_MAX, f"more than pqbroker.sql.files.bytes.max = {BYTES_MAX}"
    yield "short.parquet", b"PAR1", "too short"
    yield "text.parquet", b"a,b\n1,2\n" * 9, "no Parquet file"
    yield "lying.parquet", whole[:-8] + b"\xff\xff\xff\x7fPAR1", "footer claims 2147483647 bytes"
    yield "cut.parquet", whole[: len(whole) // 2], "no Parquet file"
    yield "footer.parquet", whole[:-200] + bytes(192) + whole[-8:], "cannot be read"
    for name, rows in (("case.parquet", ["A", "a"]), ("same.parquet", ["a", "a"])):
        sink = pyarrow.BufferOutputStream()
        pyarrow.parquet.write_table(pyarrow.Table.from_arrays([pyarrow.array([1])] * 2, names=rows), sink)
        yield name, sink.getvalue().to_pybytes(), "have one name"
    sink = pyarrow.BufferOutputStream()
    pyarrow.parquet.write_table(pyarrow.table({f"c{n}": [1] for n in range(21)}), sink)
    yield "wide.parquet", sink.getvalue().to_pybytes(), "21 columns, more than"


def test_damaged_and_hostile_files_are_refused_by_name_and_cost_no_worker(sql: FilesSql) -> None:
    sql.rows("SELECT 1")
    before = worker_pids()
    for name, data, words in _written(sql.directory):
        (sql.directory / name).write_bytes(data)
        status, code, message = refused(sql, f'SELECT * FROM "files.{name}"')
        assert (status, code) in ((400, "INVALID_FILE"), (413, "FILE_TOO_LARGE")), (name, message)
        assert f"files.{name}" in message
        assert words in message
    assert worker_pids() == before


def test_flipped_bytes_of_parquet_cost_no_worker(sql: FilesSql) -> None:
    sql.rows("SELECT 1")
    before = worker_pids()
    whole = (sql.directory / "colors.parquet").read_bytes()
    for position in range(4, len(whole), max(1, len(whole) // 60)):
        data = bytearray(whole)
        data[position] ^= 0xFF
        (sql.directory / "flipped.parquet").write_bytes(data)
        status, answer = sql.ask("SELECT * FROM files.flipped.parquet")
        error: Any = None if status == 200 else json.loads(answer)["error"]
        assert error is None or (error["code"], "files.flipped.parquet" in error["message"]) == ("INVALID_FILE", True)
    assert worker_pids() == before
