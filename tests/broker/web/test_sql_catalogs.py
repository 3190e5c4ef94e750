"""SHOW TABLES, DESCRIBE and information_schema: what the caller may read, without reading a record."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from pqbroker.broker.ground.access import AclOperation, AclResource, is_allowed
from pqbroker.broker.services.sql import listing
from pqbroker.testing import memory_broker
from tests.broker.web.test_sql import SCHEMA, Sql

RAW = ["$tablet_index", "$row_index", "$timestamp", "timestamp_ms", "key", "value", "headers"]


@dataclass
class Rights:
    """Names that nobody may read."""

    hidden: frozenset[str] = frozenset()


@pytest.fixture(scope="module")
def sql() -> Iterator[Sql]:
    """Two topics, table `shop.t`, sorted table `shop.s`."""
    with memory_broker({"pqbroker.sql.worker.idle.ms": "600000"}) as running:
        sql = Sql(running)
        sql.post("/v1/topics", {"name": "plain", "partitions": 3})
        sql.post("/v1/topics", {"name": "information_schema.tables"})
        assert sql.post("/v1/tables", {"path": "//shop/t", "schema": SCHEMA})[0] == 201
        columns = [
            {"name": "id", "type": "int64", "sort_order": "ascending"}, {"name": "n", "type": "double"},
        ]  # fmt: skip
        assert sql.post("/v1/tables", {"path": "//shop/s", "schema": columns})[0] == 201
        yield sql


@pytest.fixture
def rights(monkeypatch: pytest.MonkeyPatch) -> Rights:
    """Rights of the listing, and names that they hide from now on."""
    rights = Rights()

    def is_seen(caller: Any, operation: AclOperation, resource: AclResource) -> bool:
        return resource.name not in rights.hidden and is_allowed(caller, operation, resource)

    monkeypatch.setattr(listing, "is_allowed", is_seen)
    return rights


NAMES = ["information_schema.tables", "plain", "shop.s", "shop.t"]


def test_show_tables_lists_topics_and_tables_by_name(sql: Sql) -> None:
    shown = sql.rows("SHOW TABLES")
    assert [row["name"] for row in shown] == NAMES
    assert [row["kind"] for row in shown] == ["topic", "topic", "sorted table", "table"]
    assert sql.rows("show tables;") == shown


def test_information_schema_is_a_relation_as_others(sql: Sql) -> None:
    query = "SELECT table_name AS name, tablet_count AS n FROM information_schema.tables WHERE table_kind = 'topic'"
    assert sql.rows(f"{query} AND name LIKE 'p%'") == [{"name": "plain", "n": 3}]
    joined = (
        "SELECT t.table_name AS name, count(*) AS n FROM INFORMATION_SCHEMA.Tables AS t"
        " LEFT JOIN information_schema.columns AS c USING (table_name) GROUP BY ALL ORDER BY 1"
    )
    assert [row["name"] for row in sql.rows(joined)] == NAMES
    assert sql.rows('SELECT count(*) AS n FROM "information_schema.tables"') == [{"n": 0}]  # the topic of that name
    for name in ("tables", "columns", "main.tables"):
        assert refusal(sql, f"SELECT * FROM {name}")[:2] == (404, "UNKNOWN_TOPIC_OR_PARTITION")


def test_a_description_has_every_column_that_can_be_named(sql: Sql) -> None:
    described = sql.rows("DESCRIBE plain")
    assert [row["column_name"] for row in described] == RAW
    assert described[0] == {
        "column_name": "$tablet_index", "column_type": "BIGINT", "null": "NO", "key": None, "extra": None,
    }  # fmt: skip
    assert described[-1]["column_type"] == 'STRUCT("key" VARCHAR, "value" BLOB)[]'
    for form in ("DESCRIBE shop.t", "DESCRIBE [//shop/t]", 'describe "shop.t"'):
        types = {row["column_name"]: (row["column_type"], row["extra"]) for row in sql.rows(form)}
        assert types["name"] == ("VARCHAR", None)
        assert types["more"] == ("JSON", None)
        assert types["key"] == ("BLOB", "not in *")
    keys = {row["column_name"]: row["key"] for row in sql.rows("DESCRIBE shop.s")}
    assert keys == {"id": "PRI", "n": None, "$tablet_index": None}


def test_described_types_are_those_of_answers(sql: Sql) -> None:
    for name in ("plain", "shop.t", "shop.s"):
        query = "SELECT column_name AS c, data_type AS t FROM information_schema.columns WHERE table_name = $name"
        status, data = sql.ask(query, params={"name": name})
        assert status == 200, data
        for row in map(json.loads, data.splitlines()):
            quoted = '"' + row["c"].replace('"', '""') + '"'
            found = sql.rows(f"SELECT typeof(any_value({quoted})) AS t FROM {name}")
            assert found == [{"t": row["t"]}]


@pytest.mark.parametrize("query", ["SHOW TABLES", "SELECT DISTINCT table_name AS name FROM information_schema.columns"])
def test_what_the_caller_may_not_read_is_not_listed(sql: Sql, rights: Rights, query: str) -> None:
    rights.hidden = frozenset(("shop.s", "plain"))
    assert sorted(row["name"] for row in sql.rows(query)) == ["information_schema.tables", "shop.t"]


def test_a_list_comes_in_pages(sql: Sql, rights: Rights, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "PAGE_NAMES", 1)
    assert [row["name"] for row in sql.rows("SHOW TABLES")] == NAMES
    rights.hidden = frozenset(("shop.t", "plain"))
    assert [row["name"] for row in sql.rows("SHOW TABLES")] == ["information_schema.tables", "shop.s"]


def refusal(sql: Sql, query: str) -> tuple[int, str, str]:
    status, data = sql.ask(query)
    error: Any = json.loads(data)["error"]
    return status, error["code"], error["message"]


def test_a_description_of_no_topic_is_refused_with_a_near_name(sql: Sql) -> None:
    status, code, message = refusal(sql, "DESCRIBE plian")
    assert (status, code) == (404, "UNKNOWN_TOPIC_OR_PARTITION")
    assert "'plain'" in message


@pytest.mark.parametrize("query", ["DESCRIBE SELECT 1", "SHOW ALL TABLES", "SHOW TABLES FROM x", "DESCRIBE range(3)"])
def test_other_statements_of_their_kind_are_refused(sql: Sql, query: str) -> None:
    assert refusal(sql, query)[:2] in {(400, "NOT_A_QUERY"), (400, "INVALID_QUERY")}


def test_a_wrong_column_of_a_catalog_is_refused_with_a_near_name(sql: Sql) -> None:
    status, data = sql.ask("SELECT table_nam FROM information_schema.tables")
    assert (status, json.loads(data)["error"]["cure"]) == (400, "Did you mean 'table_name'?")
