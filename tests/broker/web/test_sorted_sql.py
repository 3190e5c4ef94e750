"""SQL over sorted tables: typed rows at one timestamp, of memory and chunks, joined, pruned by key, refused by name."""

import json
from collections.abc import Iterator
from http.client import HTTPConnection
from typing import Any

import pytest

from pqbroker.testing import Broker, broker

SCHEMA: list[dict[str, Any]] = [
    {"name": "shop", "type": "utf8", "sort_order": "ascending"},
    {"name": "id", "type": "int64", "sort_order": "ascending"},
    {"name": "note", "type": "utf8"},
    {"name": "count", "type": "int64"},
]


class Tables:
    """Sorted tables and queries of a broker."""

    def __init__(self, running: Broker) -> None:
        self.http = running.http

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        connection = HTTPConnection(self.http, timeout=60)
        try:
            connection.request(method, path, json.dumps(body), {"Content-Type": "application/json"})
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def done(self, method: str, path: str, body: Any = None) -> Any:
        status, data = self.ask(method, path, body)
        assert status < 300, data
        return json.loads(data) if data else None

    def create(self, name: str, schema: Any = None, **more: Any) -> None:
        path = f"//{name.replace('.', '/')}"
        self.done("POST", "/v1/tables", {"path": path, "schema": schema or SCHEMA, **more})

    def insert(self, name: str, *rows: Any, update: bool = False) -> int:
        query = "?update=true" if update else ""
        timestamp: int = self.done("POST", f"/v1/tables/{name}/rows{query}", {"rows": rows})["timestamp"]
        return timestamp

    def delete(self, name: str, *keys: Any) -> None:
        self.done("DELETE", f"/v1/tables/{name}/rows", {"keys": keys})

    def flush(self, name: str) -> None:
        """Have all rows written to chunks."""
        self.done("POST", f"/v1/tables/{name}/freeze", {})
        self.done("POST", f"/v1/tables/{name}/unfreeze", {})

    def rows(self, query: str, **body: Any) -> list[Any]:
        status, data = self.ask("POST", "/v1/sql", {"query": query, **body})
        assert status == 200, data
        return [json.loads(line) for line in data.splitlines()]

    def explained(self, query: str, **body: Any) -> Any:
        return self.done("POST", "/v1/sql", {"query": query, "explain": True, **body})

    def refusal(self, query: str, **body: Any) -> tuple[int, str, str]:
        status, data = self.ask("POST", "/v1/sql", {"query": query, **body})
        error = json.loads(data)["error"]
        return status, error["code"], f"{error['message']} | {error['cure']}"


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tables]:
    with broker(tmp_path_factory.mktemp("sorted-sql")) as running:
        yield Tables(running)


def row(shop: str | None, number: int | None, **values: Any) -> dict[str, Any]:
    return {"shop": shop, "id": number, **values}


def test_a_table_shows_its_columns_keys_first_by_name_and_by_path(tables: Tables) -> None:
    tables.create("first.stock")
    tables.insert("first.stock", row("a", 2, count=5), row("a", 1, note="one"))
    whole = [row("a", 1, note="one", count=None), row("a", 2, note=None, count=5)]
    assert tables.rows('SELECT * FROM "first.stock" ORDER BY id') == whole
    assert tables.rows("* from [//first/stock] where id = 2") == whole[1:]
    by_tablet = 'SELECT "$tablet_index" AS t, count(*) AS n FROM first.stock GROUP BY ALL'
    assert tables.rows(by_tablet) == [{"t": 0, "n": 2}]


def test_rows_of_memory_and_of_chunks_are_seen_together(tables: Tables) -> None:
    tables.create("both", pivot_keys=[[], ["m"]])
    tables.insert("both", row("a", 1, count=1), row("a", 2, count=1), row("z", 1, count=1))
    tables.flush("both")
    tables.insert("both", row("a", 1, note="x"), update=True)
    tables.delete("both", row("a", 2))
    tables.insert("both", row("z", 9, count=7))
    assert tables.rows("SELECT * FROM both ORDER BY ALL") == [
        row("a", 1, note="x", count=1), row("z", 1, note=None, count=1), row("z", 9, note=None, count=7),
    ]  # fmt: skip


def test_a_timestamp_reads_the_past_until_it_is_cleaned_up(tables: Tables) -> None:
    tables.create("past")
    before = tables.insert("past", row("a", 1, count=1))
    tables.flush("past")
    after = tables.insert("past", row("a", 1, count=2))
    tables.flush("past")
    query = "SELECT count FROM past"
    assert tables.rows(query) == tables.rows(query, timestamp=after) == [{"count": 2}]
    assert tables.rows(query, timestamp=before) == [{"count": 1}]
    assert tables.rows(query, timestamp=before - 1) == []


def test_tables_are_joined_with_topics_and_with_each_other_at_one_timestamp(tables: Tables) -> None:
    tables.create("left", pivot_keys=[[], ["m"]])
    tables.create("right")
    tables.insert("left", row("a", 1, count=1), row("z", 2, count=2))
    tables.flush("left")
    at = tables.insert("right", row("a", 1, note="r1"))
    tables.insert("left", row("a", 1, count=9))
    tables.done("POST", "/v1/topics", {"name": "orders"})
    records = [{"key": "a", "value": '{"id": 1}'}, {"key": "q", "value": '{"id": 2}'}]
    tables.done("POST", "/v1/topics/orders/records", {"records": records})
    query = (
        "SELECT l.count, r.note FROM left l LEFT JOIN right r ON l.shop = r.shop AND l.id = r.id"
        " JOIN orders o ON decode(o.value)->>'$.id' = l.id::VARCHAR ORDER BY 1"
    )
    assert tables.rows(query) == [{"count": 2, "note": None}, {"count": 9, "note": "r1"}]
    assert tables.rows(query, timestamp=at) == [{"count": 1, "note": "r1"}, {"count": 2, "note": None}]
    explained = tables.explained(query, timestamp=at)
    assert {scan["timestamp"] for scan in explained["scans"] if "timestamp" in scan} == {at}


def test_keys_choose_tablets_chunks_and_blocks_which_explain_names(tables: Tables) -> None:
    tables.create("pruned", pivot_keys=[[], ["b"], ["c"]])
    for shop in ("a", "b", "c"):
        tables.insert("pruned", *(row(shop, number, note="x" * 1000) for number in range(1000)))
    tables.flush("pruned")
    tables.insert("pruned", row("b", 5000))
    tables.flush("pruned")
    query = "SELECT count(*) AS n, sum(id) AS s FROM pruned WHERE shop = 'b' AND id BETWEEN 10 AND 12"
    assert tables.rows(query) == [{"n": 3, "s": 33}]
    (scan,) = tables.explained(query)["scans"]
    assert (scan["tablets"], scan["tablet_count"], scan["key_ranges"]) == ([1], 3, 1)
    assert (scan["chunks_read"], scan["chunks"]) == (1, 2)
    assert 1 <= scan["blocks_read"] <= 2 < scan["blocks"]
    (scan,) = tables.explained("SELECT count(*) AS n FROM pruned WHERE id = 3")["scans"]
    assert scan["tablets"] == [0, 1, 2]
    assert scan["blocks_read"] == scan["blocks"] > 20
    (scan,) = tables.explained("SELECT shop FROM pruned WHERE \"$tablet_index\" = 2 AND shop > 'c'")["scans"]
    assert (scan["tablets"], scan["blocks_read"]) == ([2], 0)


def test_tablets_that_are_not_read_may_be_unmounted_and_others_name_the_verb(tables: Tables) -> None:
    tables.create("closed", pivot_keys=[[], ["m"]])
    tables.insert("closed", row("a", 1), row("z", 1))
    tables.done("POST", "/v1/tables/closed/unmount", {"first_tablet_index": 1, "last_tablet_index": 1})
    assert tables.rows("SELECT id FROM closed WHERE shop < 'm'") == [{"id": 1}]
    status, code, text = tables.refusal("SELECT id FROM closed")
    assert (status, code) == (409, "WRONG_STATE")
    assert "unmounted: 1" in text
    assert "pqbroker table mount closed" in text


@pytest.mark.parametrize(
    ("query", "body", "status", "code", "part"),
    [
        ("SELECT nothing FROM refused", {}, 400, "QUERY_FAILED", "there is no column 'nothing'"),
        ("SELECT idd FROM refused", {}, 400, "QUERY_FAILED", "Did you mean 'id'"),
        ("SELECT 1 AS one", {"timestamp": 5}, 400, "INVALID_QUERY", "names no sorted table"),
        ("SELECT id FROM refused", {"timestamp": -1}, 400, "INVALID_BODY", "timestamp"),
        ("SELECT id FROM refused", {"timestamp": 1 << 64}, 400, "INVALID_BODY", "timestamp"),
        ("DELETE FROM refused", {}, 400, "NOT_A_QUERY", "SELECT"),
    ],
)
def test_what_cannot_be_read_is_refused(
    tables: Tables, query: str, body: Any, status: int, code: str, part: str
) -> None:
    if tables.ask("GET", "/v1/tables/refused")[0] == 404:
        tables.create("refused")
    found = tables.refusal(query, **body)
    assert found[:2] == (status, code), found
    assert part in found[2]


def test_a_timestamp_ahead_of_now_reads_what_is_there(tables: Tables) -> None:
    tables.create("ahead")
    tables.insert("ahead", row("a", 1))
    (scan,) = tables.explained("SELECT id FROM ahead", timestamp=(1 << 64) - 1)["scans"]
    assert scan["timestamp"] < 1 << 63
    assert tables.rows("SELECT id FROM ahead", timestamp=(1 << 64) - 1) == [{"id": 1}]
