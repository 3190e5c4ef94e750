"""Records of topics that name a registry: decoded over HTTP, and raw with the reason where that fails."""

import io
import json
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pytest

from pqbroker.protocol.records import Record
from tests.broker.web.conftest import Web
from tests.broker.web.test_records import write
from tests.support.schema_registry import TestRegistry, framed, serving

ORDER: dict[str, Any] = {
    "type": "record", "name": "Order", "fields": [
        {"name": "id", "type": "long"}, {"name": "note", "type": ["null", "string"]},
    ],
}  # fmt: skip

LATER: list[Any] = [
    {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
    {"name": "raw", "type": "bytes"},
    {"name": "tags", "type": {"type": "array", "items": "string"}},
]


@pytest.fixture
def registry() -> Iterator[TestRegistry]:
    with serving() as running:
        yield running


@pytest.fixture
async def web(serve: Callable[..., Awaitable[Web]], registry: TestRegistry) -> Web:
    return await serve(registries=(f"main={registry.address}",), registry_failure_ms=0)


def order(number: int, note: str | None = None) -> bytes:
    return encoded(ORDER, {"id": number, "note": note})


def encoded(schema: dict[str, Any], value: dict[str, Any]) -> bytes:
    content = io.BytesIO()
    fastavro.schemaless_writer(content, fastavro.parse_schema(schema), value)
    return content.getvalue()


async def decoded(web: Web, topic: str = "t", query: str = "") -> list[Any]:
    status, document = await web.ask("GET", f"/v1/topics/{topic}/records{query}")
    assert status == 200, document
    return [record.get("decoded") for record in document["records"]]


async def test_values_are_shown_by_the_schema_of_the_registry(web: Web, registry: TestRegistry) -> None:
    await web.node.create_topic("t", value_registry="main")
    number = registry.add("t-value", ORDER)
    await web.node.produce("t", framed(number, order(7, "ü")), b"no frame", framed(99, b""))
    good, unframed, unknown = await decoded(web)
    assert good == {"value": {"schema": number, "type": "AVRO", "content": {"id": 7, "note": "ü"}}}
    assert unframed["value"]["code"] == "NOT_FRAMED"
    assert unknown["value"]["code"] == "SCHEMA_UNKNOWN"
    assert await decoded(web, query="?decode=false") == [None] * 3
    asked = len(registry.paths)
    assert (await decoded(web, query="?limit=1"))[0] == good
    assert len(registry.paths) == asked, "a schema is fetched once"


async def test_records_stay_raw_with_the_reason_while_the_registry_is_down(web: Web, registry: TestRegistry) -> None:
    await web.node.create_topic("t", value_registry="main")
    await web.node.create_topic("lost", value_registry="other")
    number = registry.add("t-value", ORDER)
    registry.is_down = True
    await web.node.produce("t", framed(number, order(1)))
    await web.node.produce("lost", framed(number, order(1)))
    (found,) = await decoded(web)
    assert found["value"]["code"] == "REGISTRY_UNAVAILABLE"
    assert "the registry main: it answered 503" in found["value"]["reason"]
    (found,) = await decoded(web, "lost")
    assert "the registry other: no registry of this name stands in pqbroker.registries" in found["value"]["reason"]
    registry.is_down = False
    (found,) = await decoded(web)
    assert found["value"]["content"] == {"id": 1, "note": None}


async def test_a_registry_gets_the_credentials_of_its_file(
    serve: Callable[..., Awaitable[Web]], registry: TestRegistry, tmp_path: Path
) -> None:
    file = tmp_path / "registry.properties"
    web = await serve(
        registries=(f"main={registry.address}",), registry_config_files=(f"main={file}",), registry_failure_ms=0
    )
    await web.node.create_topic("t", value_registry="main")
    number = registry.add("t-value", ORDER)
    registry.authorization = "Basic bWU6c2VjcmV0"
    await web.node.produce("t", framed(number, order(1)))
    (found,) = await decoded(web)
    assert "cannot read" in found["value"]["reason"]
    file.write_text("basic.auth.user.info = me:wrong")
    (found,) = await decoded(web)
    assert "it answered 401" in found["value"]["reason"]
    assert "wrong" not in str(found)
    file.write_text("basic.auth.user.info = me:secret")
    (found,) = await decoded(web)
    assert found["value"]["content"]["id"] == 1


async def test_more_answers_than_may_be_decoded_at_once_stay_raw(
    serve: Callable[..., Awaitable[Web]], registry: TestRegistry
) -> None:
    web = await serve(registries=(f"main={registry.address}",), registry_decodings_max=0)
    await web.node.create_topic("t", value_registry="main")
    await web.node.produce("t", framed(registry.add("t-value", ORDER), order(1)))
    (found,) = await decoded(web)
    assert found["value"]["code"] == "TOO_MANY_DECODINGS"
    assert "pqbroker.registry.decodings.max = 0" in found["value"]["reason"]


async def rows(web: Web, query: str) -> list[Any]:
    status, answer = await web.ask("POST", "/v1/sql", {"query": query, "format": "json"})
    assert status == 200, answer
    return [json.loads(line) for line in answer.splitlines()] if isinstance(answer, str) else [answer]


async def test_sql_has_the_columns_of_the_latest_schema(web: Web, registry: TestRegistry) -> None:
    await web.node.create_topic("t", value_registry="main", key_registry="main")
    first = registry.add("t-value", ORDER)
    key = registry.add("t-key", '"string"')
    await web.node.produce("t", framed(first, order(1)), b"no frame")
    later: dict[str, Any] = {**ORDER, "fields": [*ORDER["fields"], *LATER]}
    second = registry.add("t-value", later)
    value = {
        "id": 2, "note": "b", "at": datetime(2026, 1, 1, tzinfo=UTC), "price": Decimal("1.50"), "raw": b"\xff",
        "tags": ["x", "y"],
    }  # fmt: skip
    await write(web, Record(0, 5, framed(key, b"\x04ab"), framed(second, encoded(later, value))))
    shown = "id, note, price, at, json_array_length(tags) AS n, octet_length(raw) AS o, key"
    (found,) = await rows(web, f"SELECT {shown} FROM t WHERE \"$error\" IS NULL AND price > 1")
    assert found == {
        "id": 2, "note": "b", "price": 1.5, "at": found["at"], "n": 2, "o": 1, "key": "ab",
    }  # fmt: skip
    assert "2026-01-01" in str(found["at"])
    (found,) = await rows(web, "SELECT count(*) AS n, max(id) AS id, count(\"$error\") AS wrong FROM t")
    assert found == {"n": 3, "id": 2, "wrong": 1}


async def test_sql_has_the_columns_of_the_subject_that_the_topic_names(web: Web, registry: TestRegistry) -> None:
    await web.node.create_topic("t", value_registry="main", value_registry_subject="shop.Order")
    await web.node.produce("t", framed(registry.add("shop.Order", ORDER), order(1)))
    assert await rows(web, "SELECT id FROM t") == [{"id": 1}]
    assert not [path for path in registry.paths if "t-value" in path]


async def test_sql_has_raw_columns_and_the_reason_while_the_registry_is_down(
    web: Web, registry: TestRegistry
) -> None:
    await web.node.create_topic("t", value_registry="main")
    await web.node.produce("t", framed(registry.add("t-value", ORDER), order(1)))
    registry.is_down = True
    (found,) = await rows(web, 'SELECT octet_length(value) AS size, "$error" AS why FROM t')
    assert found["size"] == 5 + len(order(1))
    assert "it answered 503" in found["why"]
    _, code, message = await web.refusal("POST", "/v1/sql", {"query": "SELECT id FROM t", "format": "json"})
    assert code == "QUERY_FAILED"
    assert "there is no column 'id'; the values of t have no columns: the registry main: it answered 503" in message
    registry.is_down = False
    assert await rows(web, "SELECT id FROM t") == [{"id": 1}]


async def test_what_was_not_decoded_is_not_kept(web: Web, registry: TestRegistry) -> None:
    await web.node.create_topic("t", value_registry="main")
    await web.node.produce("t", framed(registry.add("t-value", ORDER) + 1, order(7)))
    query = "SELECT id FROM t"
    assert await rows(web, query) == [{"id": None}]
    registry.add("other-value", ORDER)  # the latest schema of the topic, which kept columns are of, stays
    assert await rows(web, query) == [{"id": 7}]


FORMATS: list[tuple[str, str, bytes, Any]] = [
    ("PROTOBUF", 'syntax = "proto3"; message Order { int64 id = 1; string note = 2; }', b"\0\x08\x05\x12\x01a",
     {"id": 5, "note": "a"}),
    ("JSON", '{"properties": {"id": {"type": "integer"}, "note": {"type": "string"}}}', b'{"id":5,"note":"a"}',
     {"id": 5, "note": "a"}),
]  # fmt: skip


async def test_protobuf_and_json_schema_are_decoded_too(web: Web, registry: TestRegistry) -> None:
    for kind, schema, body, content in FORMATS:
        topic = f"t-{kind.lower()}"
        await web.node.create_topic(topic, value_registry="main")
        number = registry.add(f"{topic}-value", schema, kind)
        await web.node.produce(topic, framed(number, body))
        (found,) = await decoded(web, topic)
        assert found == {"value": {"schema": number, "type": kind, "content": content}}
        assert await rows(web, f'SELECT id, note FROM "{topic}"') == [content]


async def test_hostile_records_end_no_worker(web: Web, registry: TestRegistry) -> None:
    await web.node.create_topic("t", value_registry="main")
    list_of: dict[str, Any] = {"type": "record", "name": "L", "fields": [{"name": "next", "type": ["null", "L"]}]}
    nulls = {"type": "array", "items": "null"}
    numbers = [registry.add("t-value", each) for each in (list_of, nulls, "[" * 100_000, ["null"] * 10_001)]
    bodies = (b"\x02" * 500_000, b"\xfe" + b"\xff" * 7 + b"\x7f", b"", b"\0")
    for number, body in zip(numbers, bodies, strict=True):
        await web.node.produce("t", framed(number, body))
    codes = [each["value"]["code"] for each in await decoded(web)]
    assert codes == ["VALUE_TOO_DEEP", "VALUE_TOO_LARGE", "SCHEMA_TOO_DEEP", "SCHEMA_TOO_LARGE"]
    registry.add("t-value", ORDER)
    (found,) = await rows(web, 'SELECT count(*) AS n, count("$error") AS wrong FROM t')
    assert found == {"n": 4, "wrong": 4}
    counters = web.node.server.node.workers.counters
    assert (counters.workers_started, counters.workers_lost) == (1, 0)


async def test_a_value_that_is_large_as_json_alone_stays_raw(web: Web, registry: TestRegistry) -> None:
    await web.node.create_topic("t", value_registry="main")
    fields = [{"name": f"n{at}" + "x" * 1000, "type": "null"} for at in range(200)]
    number = registry.add("t-value", {"type": "array", "items": {"type": "record", "name": "N", "fields": fields}})
    good = registry.add("t-value", ORDER)
    await web.node.produce("t", framed(good, order(1)), framed(number, b"\xc8\x4c\0"), framed(good, order(2)))
    first, large, last = await decoded(web)  # 4 900 records of 200 names: a GiB
    assert large["value"]["code"] == "ANSWER_TOO_LARGE"
    assert (first["value"]["content"]["id"], last["value"]["content"]["id"]) == (1, 2)
    counters = web.node.server.node.workers.counters
    assert (counters.workers_started, counters.workers_lost) == (1, 0)


async def test_a_search_sees_what_the_registry_decodes(web: Web, registry: TestRegistry) -> None:
    await web.node.create_topic("t", 2, value_registry="main")
    number = registry.add("t-value", ORDER)
    await web.node.produce("t", *[framed(number, order(each)) for each in range(9)], codec=4)
    await web.node.produce("t", framed(number, order(7, "seven")), b"no frame", partition=1)
    *lines, last = await web.lines("/v1/topics/t/search", {"where": ["id = 7"]})
    matches = [line["match"] for line in lines if "match" in line]
    assert [(each["partition"], each["offset"], each["decoded"]["value"]["content"]["note"]) for each in matches] == [
        (0, 7, None), (1, 0, "seven")
    ]  # fmt: skip
    end = last["end"]
    assert (end["reason"], end["records"], end["undecoded"]["records"]) == ("end", 11, 1)
    assert (end["undecoded"]["code"], end["undecoded"]["offset"]) == ("NOT_FRAMED", 1)
    *lines, last = await web.lines("/v1/topics/t/search", {"text": "seven", "decode": False})
    (raw,) = [line["match"] for line in lines if "match" in line]
    assert "decoded" not in raw
    assert "undecoded" not in last["end"]


async def test_a_follower_gets_decoded_records(web: Web, registry: TestRegistry) -> None:
    await web.node.create_topic("t", value_registry="main")
    number = registry.add("t-value", ORDER)
    await web.node.produce("t", framed(number, order(7)))
    text = await web.text("/v1/topics/t/records?follow=true&limit=1")
    assert json.loads(text)["decoded"]["value"]["content"] == {"id": 7, "note": None}
