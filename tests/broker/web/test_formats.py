"""Tables and topics in Avro and raw: rows through every door, and formats that cannot be."""

import io
import json
from typing import Any

import fastavro
import pyarrow as pa

from pqbroker.broker.web.routing.stream_forms import ARROW_STREAM
from pqbroker.protocol.errors import ErrorCode
from tests.broker.web.conftest import Web
from tests.broker.web.test_arrow_rows import stream
from tests.broker.web.test_tables import reopened, select

NAME = "shop.orders"
SCHEMA = [
    {"name": "id", "type": "int64", "required": True},
    {"name": "note", "type": "utf8"},
    {"name": "region", "type": "string", "from": "key"},
]
AVRO: dict[str, Any] = {"value.format": "avro", "key.format": "raw"}
OWN = {
    "type": "record", "name": "Order", "namespace": "shop", "fields": [
        {"name": "id", "type": "long"}, {"name": "note", "type": ["null", "string"], "default": None},
    ],
}  # fmt: skip
REGISTRY = b"\0\0\0\0\x07"


async def made(web: Web, **body: Any) -> Any:
    status, table = await web.ask("POST", "/v1/tables", {"path": "//shop/orders", "schema": SCHEMA, **body})
    assert status == 201, table
    return table


def encoded(row: dict[str, Any]) -> bytes:
    content = io.BytesIO()
    fastavro.schemaless_writer(content, fastavro.parse_schema(OWN), row)
    return content.getvalue()


async def asked(web: Web, query: str) -> list[Any]:
    status, answer = await web.ask("POST", "/v1/sql", {"query": query, "format": "json"})
    assert status == 200, answer
    return [json.loads(line) for line in answer.splitlines()] if isinstance(answer, str) else [answer]


async def test_every_door_writes_and_reads_the_same_rows(web: Web) -> None:
    table = await made(web, config=AVRO)
    derived = json.loads(table["formats"]["value.avro.schema"])
    assert [field["name"] for field in derived["fields"]] == ["id", "note"]
    rows = f"/v1/tables/{NAME}/rows"
    status, answer = await web.ask("POST", rows, {"rows": [{"id": 1, "note": "ü", "region": "eu"}]})
    assert (status, answer["data_weight"]) == (200, 1 + 8 + 2 + 2), answer
    arrow = stream(id=pa.array([2, 3]), note=pa.array(["a", None]), region=pa.array([b"\xff", None]))
    status, answer = await web.ask("POST", rows, arrow, Content_Type=ARROW_STREAM)
    assert (status, answer["data_weight"]) == (200, 9 + 1 + 1 + 9), answer
    produced = [encoded({"id": 4, "note": "p"}), REGISTRY + encoded({"id": 5, "note": None})]
    assert (await web.node.produce(NAME, *produced)).error_code == ErrorCode.NONE
    for _ in range(2):
        shown = [(row["id"], row["note"], row["region"]) for row in await select(web)]
        assert shown == [(1, "ü", "eu"), (2, "a", {"base64": "/w=="}), (3, None, None), (4, "p", None), (5, None, None)]
        raw = await select(web, view="raw")
        assert raw[0]["key"] == "eu"
        await reopened(web)
    query = 'SELECT count(*) AS n, sum(id) AS s FROM "shop.orders" WHERE "$error" IS NULL'
    assert await asked(web, query) == [{"n": 5, "s": 15}]


async def test_what_is_no_row_is_refused_with_its_batch(web: Web) -> None:
    await made(web, config=AVRO)
    refused = await web.node.produce(NAME, encoded({"id": 4, "note": "p"}), b'{"id": 5}')
    assert refused.error_code == ErrorCode.INVALID_RECORD
    assert refused.error_message is not None
    assert "record 1 of the batch is no row" in refused.error_message
    assert "no Avro of value.avro.schema" in refused.error_message
    assert await select(web) == []


async def test_a_schema_of_ones_own_may_be_given_as_json(web: Web) -> None:
    for own in (OWN, json.dumps(OWN)):
        await made(web, config={"value.format": "avro", "value.avro.schema": own})
        await web.node.produce(NAME, encoded({"id": 4, "note": "p"}))
        assert [row["id"] for row in await select(web)] == [4]
        await web.ask("DELETE", f"/v1/tables/{NAME}")


async def test_formats_that_cannot_be_are_refused_and_nothing_is_made(web: Web) -> None:
    for config, code, words in (
        ({"value.format": "protobuf"}, "INVALID_CONFIG", "json, avro"),
        ({"value.format": "raw"}, "INVALID_SCHEMA", "value.format is raw"),
        ({"value.format": "avro", "value.avro.schema": "{"}, "INVALID_SCHEMA", "value.avro.schema is no JSON"),
        ({"value.format": "avro", "value.avro.schema": {**OWN, "fields": []}}, "INVALID_SCHEMA", "no field 'id'"),
        ({"retention.ms": 1}, "INVALID_TABLE", "retention.ms"),
        ({"pq.schema": "[]"}, "INVALID_TABLE", "pq.schema"),
        ({"no.such": 1}, "INVALID_CONFIG", "no.such"),
    ):
        body: dict[str, Any] = {"path": "//shop/orders", "schema": SCHEMA, "config": config}
        status, told, message = await web.refusal("POST", "/v1/tables", body)
        assert (status, told) == (400, code), message
        assert words in message
    assert (await web.refusal("GET", f"/v1/tables/{NAME}"))[0] == 404


async def test_a_tables_formats_stay(web: Web) -> None:
    await made(web, config=AVRO)
    configs = f"/v1/topics/{NAME}/configs"
    for name, value in (("value.format", "json"), ("key.format", None), ("value.avro.schema", "{}")):
        status, code, message = await web.refusal("PATCH", configs, {"configs": {name: value}})
        assert (status, code) == (400, "INVALID_CONFIG"), message
        assert f"{name} is fixed" in message
    assert (await web.ask("PATCH", configs, {"configs": {"value.format": "avro", "value.invalid": "keep"}}))[0] == 200
    await web.ask("POST", f"/v1/tables/{NAME}/unmount", {})
    altered = [*SCHEMA, {"name": "more", "type": "utf8", "from": "key"}]
    status, code, message = await web.refusal("POST", f"/v1/tables/{NAME}/alter", {"schema": altered})
    assert (status, code) == (400, "INVALID_SCHEMA")
    assert "key.format is raw" in message
    status, _ = await web.ask("POST", f"/v1/tables/{NAME}/alter", {"schema": [*SCHEMA, {"name": "m", "type": "any"}]})
    assert status == 200
    await web.ask("POST", f"/v1/tables/{NAME}/mount", {})
    status, code, message = await web.refusal("POST", f"/v1/tables/{NAME}/rows", {"rows": [{"id": 1, "m": 2}]})
    assert (status, code) == (400, "INVALID_ROW")
    assert "body.rows[0]: value.avro.schema has no field m" in message


async def test_a_topic_with_a_schema_changes_its_formats_while_it_is_served(web: Web) -> None:
    await web.node.create_topic("clicks", 1)
    configs = "/v1/topics/clicks/configs"
    await web.ask("POST", "/v1/tables/clicks/alter", {"schema": SCHEMA[:2]})
    await web.node.produce("clicks", encoded({"id": 4, "note": "p"}))
    assert (await select(web, "clicks"))[0]["$error"] == "the value is no JSON"
    await web.ask("PATCH", configs, {"configs": {"value.format": "avro", "value.invalid": "refuse"}})
    (row,) = await select(web, "clicks")
    assert (row["id"], row["note"]) == (4, "p")
    assert (await web.node.produce("clicks", b"{}")).error_code == ErrorCode.INVALID_RECORD
    for change, words in (
        ({"value.format": "raw"}, "value.format is raw"),
        ({"value.avro.schema": "{"}, "value.avro.schema is no JSON"),
        ({"key.avro.schema": "7"}, "key.avro.schema is no record"),
    ):
        status, code, message = await web.refusal("PATCH", configs, {"configs": change})
        assert (status, code) == (400, "INVALID_CONFIG"), message
        assert words in message
    await web.ask("POST", "/v1/tables/clicks/alter", {"schema": [{"name": "all", "type": "string"}]})
    await web.ask("PATCH", configs, {"configs": {"value.format": "raw"}})
    (row,) = await select(web, "clicks")
    assert row["all"].startswith("\x08")
    stored = encoded({"id": 4, "note": "p"})
    assert await asked(web, 'SELECT octet_length("all") AS n FROM clicks') == [{"n": len(stored)}]
