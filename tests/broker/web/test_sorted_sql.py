"""SQL over sorted tables: typed rows at one timestamp, of memory and chunks, joined, pruned by key, refused by name."""

import json
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
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
    assert tables.rows("SELECT \"$tablet_index\" AS t, count(*) AS n FROM first.stock GROUP BY ALL") == [{"t": 0, "n": 2}]


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
