"""SQL over topics, by a worker with DuckDB: one broker and one worker for all tests, since a start takes a second."""

import io
import json
import time
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.ipc
import pytest
from jsonschema import Draft202012Validator

from pqbroker.broker.web.resources.sql import ROUTES
from pqbroker.pq.log.commit_timestamps import timestamp_of
from pqbroker.tables.work import process
from pqbroker.testing import Broker, memory_broker
from tests.support.forked_workers import executed_workers

NOW_MS = 1_700_000_000_000


class Sql:
    """Queries of a broker."""

    def __init__(self, running: Broker) -> None:
        self.http = running.http

    def ask(self, query: str, **body: Any) -> tuple[int, bytes]:
        return self.post("/v1/sql", {"query": query, **body})

    def rows(self, query: str) -> list[Any]:
        status, data = self.ask(query)
        assert status == 200, data
        return [json.loads(line) for line in data.splitlines()]

    def explained(self, query: str) -> Any:
        status, data = self.ask(query, explain=True)
        assert status == 200, data
        return json.loads(data)

    def produce(self, topic: str, *records: Any) -> None:
        status, data = self.post(f"/v1/topics/{topic}/records", {"records": records})
        assert status == 201, data

    def post(self, path: str, body: Any) -> tuple[int, bytes]:
        return self._request("POST", path, json.dumps(body))

    def get(self, path: str) -> tuple[int, bytes]:
        return self._request("GET", path, None)

    def patch(self, path: str, body: Any) -> None:
        status, data = self._request("PATCH", path, json.dumps(body))
        assert status == 200, data

    def _request(self, method: str, path: str, body: str | None) -> tuple[int, bytes]:
        connection = HTTPConnection(self.http, timeout=60)
        try:
            connection.request(method, path, body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()


@pytest.fixture(scope="module")
def sql() -> Iterator[Sql]:
    """Topic `a.orders` of two partitions, ten JSON rows each; `people`, which names their customers."""
    with executed_workers(), memory_broker({"pqbroker.sql.worker.idle.ms": "600000"}) as running:
        sql = Sql(running)
        sql.post("/v1/topics", {"name": "a.orders", "partitions": 2})
        sql.post("/v1/topics", {"name": "people"})
        for partition in (0, 1):
            orders = [{"id": 10 * partition + n, "by": f"p{n % 3}"} for n in range(10)]
            sql.produce("a.orders", *(record(n, row, partition) for n, row in enumerate(orders)))
        sql.produce("people", *(record(n, {"name": f"p{n}", "age": 30 + n}) for n in range(3)))
        yield sql


def worker_pids() -> set[str]:
    """Of the workers that this process has started, whose broker runs on a thread."""
    lists = [path.read_text() for path in Path("/proc/self/task").glob("*/children")]
    pids = {pid for text in lists for pid in text.split()}
    return {pid for pid in pids if "pqbroker.tables.work" in Path(f"/proc/{pid}/cmdline").read_text()}


def record(number: int, row: Any, partition: int = 0) -> Any:
    value = json.dumps(row)
    return {"partition": partition, "timestamp": NOW_MS + number, "key": f"k{number}", "value": value}


def test_a_topic_is_a_table(sql: Sql) -> None:
    query = "* from [//a/orders] where [$tablet_index] = 1 and [$row_index] between 3 and 4"
    assert sql.rows(query) == [
        {
            "$tablet_index": 1, "$row_index": n, "$timestamp": NOW_MS // 1000 << 30 | 9 << 20,
            "timestamp_ms": NOW_MS + n, "key": f"k{n}", "value": json.dumps({"id": 10 + n, "by": f"p{n % 3}"}),
            "headers": [],
        }
        for n in (3, 4)
    ]  # fmt: skip


SCHEMA = [
    {"name": "id", "type": "int64", "required": True}, {"name": "name", "type": "utf8"},
    {"name": "more", "type": "any"}, {"name": "raw", "type": "string"},
    {"name": "region", "type": "utf8", "from": "key"},
]  # fmt: skip


def test_a_table_has_its_columns_whoever_wrote_the_rows(sql: Sql) -> None:
    assert sql.post("/v1/tables", {"path": "//shop/t", "schema": SCHEMA})[0] == 201
    rows: list[dict[str, Any]] = [
        {"id": 2**62, "name": "ü", "more": {"a": [1, None]}, "raw": {"base64": "/w=="}, "region": "eu"},
        {"id": 2, "name": None, "more": None, "raw": "text", "region": None},
    ]
    assert sql.post("/v1/tables/shop.t/rows", {"rows": rows})[0] == 200
    sql.patch("/v1/topics/shop.t/configs", {"configs": {"value.invalid": "keep"}})
    sql.produce("shop.t", {"key": '{"region": "us"}', "value": '{"id": 3, "other": 1}'}, {"key": "{}", "value": "none"})
    expected = [
        {"$tablet_index": 0, "$row_index": number, **dict.fromkeys(rows[0]), **row}
        for number, row in enumerate((*rows, {"id": 3, "region": "us"}, {}))
    ]
    assert sql.rows("* from [//shop/t]") == expected
    _, read = sql.get("/v1/tables/shop.t/rows")
    typed = [{name: row[name] for name in expected[0]} for row in json.loads(read)["rows"]]
    assert typed == expected
    assert sql.rows("SELECT region, sum(id) AS n FROM shop.t WHERE id < 9 GROUP BY ALL ORDER BY 2") == [
        {"region": None, "n": 2}, {"region": "us", "n": 3},
    ]  # fmt: skip
    assert sql.rows('SELECT "$error", decode(value) AS said FROM shop.t WHERE $error IS NOT NULL') == [
        {"$error": "the value is no JSON", "said": "none"}
    ]
    assert sql.rows("SELECT more->'a' AS a, timestamp_ms > 0 AS is_timed FROM shop.t LIMIT 1") == [
        {"a": [1, None], "is_timed": True}
    ]


def test_columns_that_the_table_fills_are_columns_of_sql(sql: Sql) -> None:
    schema = [{"name": "$timestamp", "type": "uint64"}, {"name": "test", "type": "string"}]
    schema.append({"name": "$cumulative_data_weight", "type": "int64"})
    assert sql.post("/v1/tables", {"path": "//weighed", "schema": schema})[0] == 201
    texts = ["hey you", "hello world!", *("x" * n for n in range(50))]
    for text in texts:
        assert sql.post("/v1/tables/weighed/rows", {"rows": [{"test": text}]})[0] == 200
    _, data = sql.get("/v1/tables/weighed/rows")
    rows = json.loads(data)["rows"]
    assert [row["$cumulative_data_weight"] for row in rows[:2]] == [24, 53]
    assert sql.rows("* from [//weighed]") == rows
    assert sql.rows('SELECT "$cumulative_data_weight" AS w FROM weighed WHERE "$row_index" = 1') == [{"w": 53}]
    assert sql.post("/v1/tables/weighed/freeze", {})[0] == 200
    assert sql.rows("SELECT * FROM weighed") == rows
    stamps = sql.rows('SELECT "$timestamp" AS t FROM weighed')
    assert [each["t"] for each in stamps] == sorted({row["$timestamp"] for row in rows})


def test_ranges_of_commit_times_read_only_bodies_that_have_them(sql: Sql) -> None:
    """Three bodies of ten rows, a commit each."""
    schema = [{"name": "$timestamp", "type": "uint64"}, {"name": "n", "type": "int64"}]
    assert sql.post("/v1/tables", {"path": "//timed", "schema": schema})[0] == 201
    stamps = []
    for body in range(3):
        for n in range(10 * body, 10 * body + 10):
            assert sql.post("/v1/tables/timed/rows", {"rows": [{"n": n}]})[0] == 200
        assert sql.post("/v1/tables/timed/freeze", {})[0] == 200
        assert sql.post("/v1/tables/timed/unfreeze", {})[0] == 200
        stamps = [row["t"] for row in sql.rows("SELECT [$timestamp] AS t FROM timed ORDER BY n")]
    for least, most in ((0, 9), (12, 17), (8, 11), (25, 29)):
        where = f"WHERE [$timestamp] BETWEEN {stamps[least]} AND {stamps[most]}"
        assert sql.rows(f"SELECT n FROM timed {where}") == [{"n": n} for n in range(least, most + 1)]
        explained, bodies = sql.explained(f"SELECT n FROM timed {where}"), most // 10 - least // 10 + 1
        assert (explained["blobs_read"], explained["rows_read"]) == (bodies, 10 * bodies)
    none = sql.explained(f"SELECT [$row_index] FROM timed WHERE [$timestamp] > {stamps[-1]}")
    assert (none["blobs_read"], none["bytes_read"]) == (0, 0)


def test_rows_from_before_the_table_kept_commit_times_are_left_out_by_their_own(sql: Sql) -> None:
    """They stand in one stretch with later rows, whose times are known."""
    schema = [{"name": "n", "type": "int64"}]
    assert sql.post("/v1/tables", {"path": "//later", "schema": schema})[0] == 201
    sql.produce("later", {"partition": 0, "timestamp": NOW_MS, "value": json.dumps({"n": 0})})
    assert sql.post("/v1/tables/later/unmount", {})[0] == 200
    schema.append({"name": "$timestamp", "type": "uint64"})
    assert sql.post("/v1/tables/later/alter", {"schema": schema})[0] == 200
    assert sql.post("/v1/tables/later/mount", {})[0] == 200
    assert sql.post("/v1/tables/later/rows", {"rows": [{"n": 1}]})[0] == 200
    end = timestamp_of(NOW_MS + 1)
    assert sql.rows(f"SELECT n FROM later WHERE [$timestamp] < {end}") == [{"n": 0}]
    assert sql.rows(f"SELECT n FROM later WHERE [$timestamp] >= {end}") == [{"n": 1}]


def test_the_least_commit_time_leaves_out_bodies_of_any_topic(sql: Sql) -> None:
    assert sql.post("/v1/tables", {"path": "//plain", "schema": [{"name": "n", "type": "int64"}]})[0] == 201
    for n in range(3):
        sql.produce("plain", {"partition": 0, "timestamp": NOW_MS + n, "value": json.dumps({"n": n})})
        assert sql.post("/v1/tables/plain/freeze", {})[0] == 200
        assert sql.post("/v1/tables/plain/unfreeze", {})[0] == 200
    query = f"SELECT n FROM plain WHERE [$timestamp] >= {timestamp_of(NOW_MS + 1)}"
    assert sql.rows(query) == [{"n": 1}, {"n": 2}]
    assert sql.explained(query)["rows_read"] == 2


def test_topics_are_joined_and_summed(sql: Sql) -> None:
    query = """
        SELECT decode(p.value)->>'$.name' AS name, count(*) AS orders, max((decode(p.value)->>'$.age')::INT) AS age
        FROM a.orders AS o JOIN people AS p ON decode(o.value)->>'$.by' = decode(p.value)->>'$.name'
        GROUP BY 1 ORDER BY 1
    """
    assert sql.rows(query) == [
        {"name": "p0", "orders": 8, "age": 30}, {"name": "p1", "orders": 6, "age": 31},
        {"name": "p2", "orders": 6, "age": 32},
    ]  # fmt: skip


@pytest.mark.parametrize(
    "query",
    [
        "SELECT count(*) AS n FROM people AS a, people AS b",
        "WITH p AS (FROM people) SELECT count(*) AS n FROM p AS a, p AS b",
        "SELECT count(*) AS n FROM (FROM people) AS a, (FROM people) AS b",
        "SELECT (SELECT count(*) FROM people) * (SELECT count(*) FROM people) AS n",
        "WITH people AS (FROM people) SELECT count(*) * 3 AS n FROM people",
        "SELECT sum(c) AS n FROM (SELECT count(*) OVER (PARTITION BY 1) AS c FROM people)",
        "SELECT 3 * count(*) AS n FROM people AS a WHERE a.key IN (SELECT key FROM people)",
        "SELECT sum(n) AS n FROM (SELECT count(*) * 2 AS n FROM people UNION ALL SELECT count(*) FROM people)",
        "WITH RECURSIVE r AS (SELECT 0 AS d UNION ALL SELECT d + 1 FROM r, people WHERE d < 2) "
        "SELECT count(*) - 4 AS n FROM r",
    ],
)
def test_one_topic_may_be_read_more_than_once(sql: Sql, query: str) -> None:
    assert sql.rows(query) == [{"n": 9}]


def test_a_row_of_a_topic_is_a_struct_with_all_columns(sql: Sql) -> None:
    (found,) = sql.rows('SELECT people AS row FROM people WHERE "$row_index" = 0')
    assert (found["row"]["key"], found["row"]["$row_index"]) == ("k0", 0)


def test_bytes_that_are_no_text_are_base64_and_integers_are_exact(sql: Sql) -> None:
    sql.post("/v1/topics", {"name": "bytes"})
    sql.produce("bytes", {"value": {"base64": "/w=="}, "headers": [{"key": "h", "value": {"base64": "/w=="}}]})
    assert sql.rows("SELECT key, value, headers FROM bytes") == [
        {"key": None, "value": {"base64": "/w=="}, "headers": [{"key": "h", "value": {"base64": "/w=="}}]}
    ]
    assert sql.rows("SELECT 9223372036854775807 AS n, 18446744073709551615::UBIGINT AS u") == [
        {"n": 2**63 - 1, "u": 2**64 - 1}
    ]


def test_a_query_sees_what_was_written_before_it(sql: Sql) -> None:
    sql.post("/v1/topics", {"name": "growing"})
    for count in range(3):
        assert sql.rows("SELECT count(*) AS n FROM growing") == [{"n": count}]
        sql.produce("growing", {"value": "v"})


def test_times_and_keys_select_rows(sql: Sql) -> None:
    found = sql.rows(f"SELECT key FROM people WHERE timestamp_ms >= {NOW_MS + 1} AND key <> 'k2'")
    assert found == [{"key": "k1"}]


def test_csv_and_arrow(sql: Sql) -> None:
    query = 'SELECT "$row_index" AS n, key FROM people ORDER BY n'
    assert sql.ask(query, format="csv") == (200, b"n,key\n0,k0\n1,k1\n2,k2\n")
    status, data = sql.ask(query, format="arrow")
    assert status == 200
    table = pyarrow.ipc.open_stream(io.BytesIO(data)).read_all()
    assert table.to_pydict() == {"n": [0, 1, 2], "key": [b"k0", b"k1", b"k2"]}


def test_an_explanation_says_what_was_read(sql: Sql) -> None:
    query = 'SELECT key FROM a.orders WHERE "$tablet_index" = 1 AND "$row_index" >= 4'
    status, data = sql.ask(query, explain=True)
    found = json.loads(data)
    assert status == 200
    assert ROUTES[0].answer is not None
    Draft202012Validator(dict(ROUTES[0].answer)).validate(found)
    assert found["plan"]
    assert (found["blobs_read"], found["rows_read"]) == (1, 6)
    assert found["scans"] == [{"topic": "a.orders", "tablets": [1], "columns": ["$tablet_index", "$row_index", "key"]}]


@pytest.mark.parametrize(
    ("query", "status", "code", "named"),
    [
        ("SELECT * FROM nobody", 404, "UNKNOWN_TOPIC_OR_PARTITION", "'nobody'"),
        ("SELECT * FROM peple", 404, "UNKNOWN_TOPIC_OR_PARTITION", "did you mean 'people'?"),
        ("SELECT nothing FROM people", 400, "QUERY_FAILED", "no column 'nothing'"),
        ("SELECT p.nothing FROM people AS p", 400, "QUERY_FAILED", "no column 'nothing'"),
        ("SELECT * FROM files.p.csv", 404, "UNKNOWN_TOPIC_OR_PARTITION", "pqbroker.sql.files.directory, which holds"),
        ("SELECT * FROM read_csv('/etc/passwd')", 400, "NOT_A_QUERY", "function read_csv"),
        ("SELEC * FROM people", 400, "INVALID_QUERY", ""),
        ("SELECT", 400, "QUERY_FAILED", ""),
        ("DROP TABLE people", 400, "NOT_A_QUERY", "DROP"),
        ("SELECT * FROM read_text('/etc/passwd')", 400, "NOT_A_QUERY", "read_text"),
        ("SELECT * FROM '/etc/passwd'", 404, "UNKNOWN_TOPIC_OR_PARTITION", ""),
        ("SELECT decode(value)::INT FROM people", 400, "QUERY_FAILED", ""),
    ],
)
def test_what_cannot_be_answered_is_refused(sql: Sql, query: str, status: int, code: str, named: str) -> None:
    answered, data = sql.ask(query)
    error = json.loads(data)["error"]
    assert (answered, error["code"]) == (status, code)
    assert named in error["message"]
    assert error["cure"]


@pytest.mark.parametrize("query", ['SELECT "north" FROM people', 'SELECT key FROM people WHERE key = "north"'])
def test_a_text_in_double_quotes_is_said_to_be_a_column_and_how_a_text_is_written(sql: Sql, query: str) -> None:
    error = json.loads(sql.ask(query)[1])["error"]
    assert error["message"] == "there is no column 'north'"
    assert error["cure"].endswith("A text has single quotes: 'north'.")
    assert "single quotes" not in json.loads(sql.ask("SELECT north FROM people")[1])["error"]["cure"]


LONG = {
    "3 000 ANDs": ("SELECT count(*) AS n FROM people WHERE " + " AND ".join(f"key <> 'x{n}'" for n in range(3000)), 3),
    "ranges in 3 000 ANDs": ("SELECT count(*) AS n FROM people WHERE " + ' AND "$row_index" < 9' * 3000, 3),
    "3 000 ORs": ("SELECT count(*) AS n FROM people WHERE " + " OR ".join(f"key = 'k{n}'" for n in range(3000)), 3),
    "3 000 UNIONs": (f"SELECT count(*) AS n FROM ({' UNION ALL '.join(['SELECT 1'] * 3000)})", 3000),
    "100 brackets": (f"SELECT {'(' * 100}7{')' * 100} AS n", 7),
    "90 subqueries": (f"SELECT count(*) AS n FROM {'(SELECT * FROM ' * 90}people{')' * 90}", 3),
    "90 CASEs": (f"SELECT {'CASE WHEN true THEN ' * 90}7{' END' * 90} AS n", 7),
}
DEEP = {
    "101 brackets": f"SELECT {'(' * 101}7{')' * 101}",
    "3 000 brackets": f"SELECT {'(' * 3000}7{')' * 3000}",
    "3 000 subqueries": f"SELECT * FROM {'(SELECT * FROM ' * 3000}people{')' * 3000}",
    "3 000 CASEs": f"SELECT {'CASE WHEN true THEN ' * 3000}7{' END' * 3000}",
    "3 000 NOTs": f"SELECT {'NOT ' * 3000}true",
    "3 000 sums": f"SELECT {'1 + ' * 3000}1",
    "2 000 joins": f"SELECT 1 FROM people{', people' * 2000}",
}


@pytest.mark.parametrize("case", LONG)
def test_a_long_query_is_answered(sql: Sql, case: str) -> None:
    query, number = LONG[case]
    assert sql.rows(query.replace("WHERE  AND", "WHERE")) == [{"n": number}]


@pytest.mark.parametrize("case", DEEP)
def test_a_query_that_is_nested_too_deeply_is_refused_and_costs_no_worker(
    sql: Sql, case: str, capfd: pytest.CaptureFixture[str]
) -> None:
    sql.ask("SELECT 1")
    before = worker_pids()
    status, data = sql.ask(DEEP[case])
    error = json.loads(data)["error"]
    assert (status, error["code"]) == (400, "INVALID_QUERY"), error
    assert "pqbroker.sql.depth.max = 100" in error["message"] or "1000" in error["message"]
    assert before
    assert worker_pids() == before
    assert "Traceback" not in capfd.readouterr().err


SLOW = "SELECT count(*) FROM range(100000000) AS a(n), range(1000) AS b(m) WHERE hash(n) % 7 = hash(m) % 5"


def test_an_unknown_topic_costs_no_worker(sql: Sql, capfd: pytest.CaptureFixture[str]) -> None:
    sql.ask("SELECT 1")
    before = worker_pids()
    assert len(before) == 1
    for _ in range(3):
        assert sql.ask("SELECT * FROM nobody")[0] == 404
        assert sql.rows("SELECT count(*) AS n FROM people") == [{"n": 3}]
    assert worker_pids() == before
    assert "Traceback" not in capfd.readouterr().err


@pytest.mark.parametrize("query", ["SELECT DATE 'infinity' AS d", "SELECT [DATE '0044-03-15 (BC)'] AS d"])
def test_a_date_that_json_has_no_form_for_is_refused_by_name_and_costs_no_worker(sql: Sql, query: str) -> None:
    assert sql.rows("SELECT MAP {'a': [INTERVAL '3000000 hours']} AS m") == [{"m": {"a": ["3000000:00:00"]}}]
    before = worker_pids()
    status, data = sql.ask(query)
    assert (status, json.loads(data)["error"]["code"]) == (400, "QUERY_FAILED"), data
    assert b"column 'd' has a date or time before year 1" in data
    assert sql.ask(query, format="arrow")[0] == 200
    assert worker_pids() == before


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that does not leave its query within two seconds is killed; on a busy machine it may take longer."""
    monkeypatch.setattr(process, "STOP_S", 60.0)


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("query", [SLOW, "SELECT n, repeat('x', 1000) AS x FROM range(100000000) AS r(n)"])
def test_a_query_whose_client_goes_costs_no_worker(sql: Sql, query: str, capfd: pytest.CaptureFixture[str]) -> None:
    sql.ask("SELECT 1")
    before = worker_pids()
    assert 1 <= len(before) <= 2  # an earlier test may have left one that rests, and ends by itself
    for _ in range(3):
        connection = HTTPConnection(sql.http, timeout=60)
        connection.request("POST", "/v1/sql", json.dumps({"query": query}), {"Content-Type": "application/json"})
        assert connection.sock is not None
        if query != SLOW:
            connection.sock.recv(100)
        connection.close()
        deadline = time.monotonic() + 30
        while (answer := sql.ask("SELECT count(*) AS n FROM people"))[0] == 503 and time.monotonic() < deadline:
            time.sleep(0.05)  # its place is taken until the worker has left the query
        assert json.loads(answer[1]) == {"n": 3}
    deadline = time.monotonic() + 30
    while len(idle := worker_pids()) > 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert before <= idle
    assert "Traceback" not in capfd.readouterr().err


@pytest.mark.usefixtures("patient")
def test_a_query_over_its_time_or_bytes_costs_no_worker(sql: Sql) -> None:
    sql.ask("SELECT 1")
    before = worker_pids()
    status, data = sql.ask(SLOW, timeout_ms=300)
    assert (status, json.loads(data)["error"]["code"]) == (504, "QUERY_TOO_LONG")
    assert sql.rows("SELECT count(*) AS n FROM people") == [{"n": 3}]
    assert worker_pids() == before


def test_a_column_that_was_meant_is_named(sql: Sql) -> None:
    assert json.loads(sql.ask("SELECT valu FROM people")[1])["error"]["cure"] == "Did you mean 'value'?"


def test_an_error_in_the_middle_is_the_last_line(sql: Sql) -> None:
    query = "SELECT CASE WHEN n = 150000 THEN error('too far') ELSE n END AS n FROM range(200000) AS r(n)"
    status, data = sql.ask(query)
    lines = data.splitlines()
    if status == 200:
        assert json.loads(lines[0]) == {"n": 0}
    error = json.loads(lines[-1])["error"]
    assert error["code"] == "QUERY_FAILED"
    assert "too far" in error["message"]


def test_without_the_libraries_they_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "duckdb.py").write_text("raise ModuleNotFoundError('none', name='duckdb')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    with memory_broker({}) as running:
        status, data = Sql(running).ask("SELECT 1")
    error = json.loads(data)["error"]
    assert (status, error["code"]) == (501, "TABLES_NOT_INSTALLED")
    assert "pip install duckdb numpy pyarrow sqlglot" in error["cure"]


def test_a_list_of_tablets_and_rows_reads_only_what_it_names(sql: Sql) -> None:
    sql.post("/v1/topics", {"name": "apart", "partitions": 4})
    for tablet in range(4):
        sql.produce("apart", *(record(n, n, tablet) for n in range(3)))
    where = '"$tablet_index" IN (3, 0) AND "$row_index" IN (1)'
    query = f'SELECT "$tablet_index" AS t, "$row_index" AS r FROM apart WHERE {where}'
    assert sql.rows(query) == [{"t": 0, "r": 1}, {"t": 3, "r": 1}]
    explained = sql.explained(query)
    assert explained["scans"][0]["tablets"] == [0, 3]
    assert explained["rows_read"] == 2


def test_a_limit_reads_little_more_than_it_answers(sql: Sql) -> None:
    sql.post("/v1/topics", {"name": "long", "partitions": 2})
    for number in range(24):
        sql.produce("long", record(number, "x" * 16_000, number % 2))
    explained = sql.explained("SELECT * FROM long LIMIT 1")
    assert explained["rows_read"] < 8
    assert explained["bytes_read"] < 128 << 10
    assert len(sql.rows("SELECT * FROM long LIMIT 20")) == 20
    assert sql.rows("SELECT count(*) AS n, count(DISTINCT timestamp_ms) AS d FROM long") == [{"n": 24, "d": 24}]


def test_a_wrong_operand_is_refused_without_the_list_of_all_right_ones(sql: Sql) -> None:
    _, data = sql.ask("SELECT value + 1 FROM people")
    message = json.loads(data)["error"]["message"]
    assert "'+(BLOB, INTEGER_LITERAL)'" in message
    assert message.endswith(" explicit type casts")
