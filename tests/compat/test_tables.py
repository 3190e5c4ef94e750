"""A table and a topic are one thing to every client: what one door took the other gives, headers and times too."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pqbroker.client import Client, Column
from tests.compat.test_records import messages
from tests.support.drivers.driver import Driver, Message
from tests.support.drivers.kcat_driver import KcatDriver
from tests.support.serving import Served, is_ours

pytestmark = pytest.mark.skipif(not is_ours(), reason="tables are ours alone")

ROWS: list[dict[str, Any]] = [
    {"id": number, "name": f"name ü {number}", "region": "eu" if number % 2 else None} for number in range(30)
]


@pytest.fixture
def tables(suite_broker: Served) -> Iterator[Client]:
    assert suite_broker.http is not None
    with Client(suite_broker.http) as client:
        yield client


@pytest.fixture
def filled(tables: Client, fresh_name: Callable[[], str]) -> str:
    """A table with rows, those of a region with a key."""
    table = tables.table(fresh_name())
    table.create([Column("id", "int64"), Column("name", "utf8"), Column("region", "utf8", part="key")])
    table.insert(ROWS)
    return table.name


def documents(row: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Of the key, of the value."""
    key = {"region": row["region"]} if row["region"] is not None else {}
    return key, {"id": row["id"], "name": row["name"]}


def shown(found: list[tuple[int, Message]]) -> list[tuple[int, Any, Any]]:
    return [(offset, json.loads(one.key or b"null"), json.loads(one.value or b"null")) for offset, one in found]


def test_every_client_reads_the_rows_of_a_table(client: Driver, filled: str) -> None:
    found = client.read(filled, count=len(ROWS))
    assert shown(found) == [(number, *documents(row)) for number, row in enumerate(ROWS)]
    assert len({one.timestamp_ms for _, one in found}) == 1


def test_kcat_reads_the_rows_of_a_table(kafka: str, filled: str) -> None:
    found = KcatDriver(kafka).read(filled, count=len(ROWS))
    assert shown(found) == [(number, *documents(row)) for number, row in enumerate(ROWS)]


def test_sql_reads_what_every_client_wrote(client: Driver, tables: Client, topic: str) -> None:
    written = messages(40)
    client.produce(topic, written, codec="lz4")
    columns = '"$row_index" AS number, key, value, headers, timestamp_ms'
    found = tables.sql(f'SELECT {columns} FROM "{topic}" ORDER BY 1').arrow().to_pylist()
    assert [row["number"] for row in found] == list(range(40))
    for row, one in zip(found, written, strict=True):
        headers = tuple((header["key"], header["value"]) for header in row["headers"])
        assert Message(row["value"], row["key"], headers, row["timestamp_ms"]) == one


def test_every_clients_records_are_rows_of_a_table(
    client: Driver, tables: Client, fresh_name: Callable[[], str]
) -> None:
    table = tables.table(fresh_name())
    table.create([Column("id", "int64"), Column("name", "utf8"), Column("region", "utf8", part="key")])
    parts = [documents(row) for row in ROWS]
    client.produce(table.name, [Message(json.dumps(value).encode(), json.dumps(key).encode()) for key, value in parts])
    found = tables.sql(f'SELECT id, name, region FROM "{table.name}" ORDER BY "$row_index"').rows()
    assert list(found) == ROWS
