"""Parameters of SQL over HTTP, bound by DuckDB."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from pqbroker.testing import memory_broker
from tests.broker.web.test_sql import Sql, record


@pytest.fixture(scope="module")
def sql() -> Iterator[Sql]:
    """Topic `t` of ten rows; two values at most, of 1000 bytes."""
    settings = {
        "pqbroker.sql.worker.idle.ms": "600000", "pqbroker.sql.params.max": "2",
        "pqbroker.sql.params.bytes.max": "1000",
    }  # fmt: skip
    with memory_broker(settings) as running:
        sql = Sql(running)
        sql.post("/v1/topics", {"name": "t"})
        sql.produce("t", *(record(number, {"n": number}) for number in range(10)))
        yield sql


def rows(sql: Sql, query: str, params: Any) -> list[Any]:
    status, data = sql.ask(query, params=params)
    assert status == 200, data
    return [json.loads(line) for line in data.splitlines()]


def refusal(sql: Sql, query: str, params: Any) -> str:
    status, data = sql.ask(query, params=params)
    error = json.loads(data)["error"]
    assert (status, error["code"]) == (400, "INVALID_QUERY"), data
    return str(error["message"])


@pytest.mark.parametrize("value", [None, True, -5, 2**64, 1.5, "", "'; DROP TABLE t --", "a\0b", [], [1, None], ["x"]])
def test_a_value_comes_back_as_it_was_given(sql: Sql, value: Any) -> None:
    assert rows(sql, "SELECT $1 AS v", [value]) == [{"v": value}]
    assert rows(sql, "SELECT $v AS v", {"V": value}) == [{"v": value}]


def test_a_parameter_may_stand_where_a_value_may(sql: Sql) -> None:
    query = 'SELECT "$row_index" AS n FROM t WHERE "$row_index" IN $wanted ORDER BY 1 LIMIT $most'
    assert rows(sql, query, {"wanted": [7, 3, 5], "most": 2}) == [{"n": 3}, {"n": 5}]
    assert rows(sql, "SELECT decode(key) AS k FROM t WHERE key = encode($1)", ["k4"]) == [{"k": "k4"}]
    assert rows(sql, "SELECT ($1::JSON)->'a' AS a", ['{"a": [1]}']) == [{"a": [1]}]


def test_a_number_in_a_condition_prunes_and_loses_no_row(sql: Sql) -> None:
    query = 'SELECT count(*) AS n FROM t WHERE "$row_index" >= $1'
    assert rows(sql, query, [8]) == [{"n": 2}]
    assert rows(sql, query, [7.5]) == [{"n": 2}]
    assert rows(sql, query, ["8"]) == [{"n": 2}]
    assert rows(sql, query, [-1]) == [{"n": 10}]
    assert rows(sql, query, [None]) == [{"n": 0}]
    assert rows(sql, 'SELECT count(*) AS n FROM t WHERE "$row_index" > -$1', [3]) == [{"n": 10}]
    status, data = sql.ask(query, params=[10], explain=True)
    assert (status, json.loads(data)["rows_read"]) == (200, 0)


@pytest.mark.parametrize(
    ("query", "params", "said"),
    [
        ("SELECT $1", None, "no value for $1"),
        ("SELECT $1, $2", [1], "no value for $2"),
        ("SELECT $a", {"b": 1}, "no value for $a"),
        ("SELECT 1", [1], "a value for $1, which the query does not name"),
        ('SELECT "$row_index" FROM t WHERE $row_index = 1', {"row_index": 1}, "$row_index is a column"),
        ("SELECT ?", [1], "without a name"),
        ("SELECT $1", [{}], "an object for $1"),
        ("SELECT $1", [[[1]]], "within the array for $1"),
        ("SELECT $1", [2**127], "128 bits"),
        ("SELECT $1", ["\ud800"], "surrogate"),
        ("SELECT $a", {"a": 1, "A": 2}, "upper and lower case"),
        ("SELECT * FROM $1", ["t"], "stands where a topic does"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(sql: Sql, query: str, params: Any, said: str) -> None:
    assert said in refusal(sql, query, params)


def test_parameters_beyond_their_limits_are_refused(sql: Sql) -> None:
    assert "pqbroker.sql.params.max = 2" in refusal(sql, "SELECT 1", [1, 2, 3])
    assert "pqbroker.sql.params.bytes.max = 1000" in refusal(sql, "SELECT $1", ["x" * 1000])
    assert sql.ask("SELECT 1", params="x")[0] == 400
