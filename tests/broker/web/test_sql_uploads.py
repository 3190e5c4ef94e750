"""Files that come with a query over HTTP: read as those of the directory are, for that query alone."""

import base64
import io
import json
from collections.abc import Iterator
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from pqbroker.testing import memory_broker
from tests.broker.web.test_sql import Sql, record

PRICES = "article,price\nfig,1.5\nnut,2\n"


@pytest.fixture(scope="module")
def sql() -> Iterator[Sql]:
    """Topic `orders` of three rows, on a broker without a directory of files."""
    settings = {
        "pqbroker.sql.worker.idle.ms": "600000", "pqbroker.sql.uploads.max": "2",
        "pqbroker.sql.files.bytes.max": "10000",
    }  # fmt: skip
    with memory_broker(settings) as running:
        sql = Sql(running)
        sql.post("/v1/topics", {"name": "orders"})
        sql.produce("orders", *(record(n, {"article": each}) for n, each in enumerate(("fig", "nut", "fig"))))
        yield sql


def refused(sql: Sql, query: str, files: Any) -> tuple[int, str, str]:
    status, data = sql.ask(query, files=files)
    error = json.loads(data)["error"]
    return status, error["code"], error["message"]


def rows(sql: Sql, query: str, **fields: Any) -> list[dict[str, Any]]:
    status, data = sql.ask(query, **fields)
    assert status == 200, data
    return [json.loads(line) for line in data.splitlines()]


def test_a_topic_is_joined_with_files_that_come_with_the_query(sql: Sql) -> None:
    colors = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table({"article": ["fig", "nut"], "color": ["red", None]}), colors)
    files = {"prices.csv": PRICES, "the colors.parquet": {"base64": base64.b64encode(colors.getvalue()).decode()}}
    query = (
        "SELECT p.article, sum(p.price) AS sum, any_value(c.color) AS color FROM orders o"
        " JOIN files.prices.csv p ON decode(o.value)->>'article' = p.article"
        ' LEFT JOIN files."the colors.parquet" c USING (article) GROUP BY 1 ORDER BY 1'
    )
    assert rows(sql, query, files=files) == [
        {"article": "fig", "sum": 3.0, "color": "red"}, {"article": "nut", "sum": 2.0, "color": None},
    ]  # fmt: skip
    twice = "SELECT count(*) AS n FROM files.prices.csv a, files.prices.csv b"
    assert rows(sql, twice, files=files) == [{"n": 4}]


def test_a_file_is_gone_with_its_query(sql: Sql) -> None:
    query = "SELECT count(*) AS n FROM files.prices.csv"
    assert rows(sql, query, files={"prices.csv": PRICES}) == [{"n": 2}]
    assert rows(sql, query, files={"prices.csv": "article\nplum\n"}) == [{"n": 1}]
    status, _ = sql.ask(query)
    assert status == 404


def test_files_that_came_are_listed_and_described(sql: Sql) -> None:
    files = {"prices.csv": PRICES}
    assert {"name": "files.prices.csv", "kind": "file"} in rows(sql, "SHOW TABLES", files=files)
    shown = rows(sql, "DESCRIBE files.prices.csv", files=files)
    assert [(row["column_name"], row["column_type"]) for row in shown] == [("article", "VARCHAR"), ("price", "DOUBLE")]


@pytest.mark.parametrize(
    ("files", "status", "code", "words"),
    [
        (dict.fromkeys(("a.csv", "b.csv", "c.csv"), "x\n"), 400, "INVALID_QUERY", "pqbroker.sql.uploads.max = 2"),
        ({"a.csv": "x" * 10_001}, 413, "FILE_TOO_LARGE", "pqbroker.sql.files.bytes.max = 10000"),
        ({"../a.csv": "x\n"}, 400, "INVALID_QUERY", "'../a.csv' is no name of a file"),
        ({"a.exe": "x\n"}, 400, "INVALID_QUERY", "'a.exe' is no name of a file"),
        ({"a.csv": {"base64": "?"}}, 400, "INVALID_REQUEST", "a.csv"),
        ({"a.csv": 7}, 400, "INVALID_BODY", "body.files"),
        ({"a.csv": None}, 400, "INVALID_FILE", "it is empty"),
        ({"a.csv": "x,X\n1,2\n"}, 400, "INVALID_FILE", "one name"),
    ],
)  # fmt: skip
def test_files_beyond_their_limits_are_refused_by_name(
    sql: Sql, files: Any, status: int, code: str, words: str
) -> None:
    found = refused(sql, "SELECT * FROM files.a.csv", files)
    assert (found[:2], words in found[2]) == ((status, code), True), found


def test_a_damaged_file_is_refused_and_costs_no_worker(sql: Sql) -> None:
    damaged = base64.b64encode(b"PAR1" + bytes(40) + b"PAR1").decode()
    found = refused(sql, "SELECT * FROM files.p.parquet", {"p.parquet": {"base64": damaged}})
    assert found[1] == "INVALID_FILE"
    assert rows(sql, "SELECT count(*) AS n FROM orders") == [{"n": 3}]
