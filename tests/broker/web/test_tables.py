"""Tables over HTTP: made, listed, described, filled, read back by every door, trimmed, altered, deleted."""

import subprocess
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition

from pqbroker.pq.serving.offsets import nobody_knows
from pqbroker.protocol.errors import ErrorCode
from pqbroker.protocol.records import Record, encode_batch
from tests.broker.conftest import produce_request, until
from tests.broker.web.conftest import Web

SCHEMA = [{"name": "id", "type": "int64", "required": True}, {"name": "note", "type": "utf8"}]
SHOWN = [
    {"name": "id", "type": "int64", "required": True, "from": "value"},
    {"name": "note", "type": "utf8", "required": False, "from": "value"},
]
SORTED = {"name": "id", "type": "int64", "sort_order": "ascending"}
NAME = "shop.orders"


async def create(web: Web, **more: Any) -> Any:
    status, table = await web.ask("POST", "/v1/tables", {"path": "//shop/orders", "schema": SCHEMA, **more})
    assert status == 201, table
    return table


async def insert(web: Web, *rows: dict[str, Any]) -> Any:
    status, answer = await web.ask("POST", f"/v1/tables/{NAME}/rows", {"rows": list(rows)})
    assert status == 200, answer
    return answer


async def select(web: Web, name: str = NAME, **query: Any) -> Any:
    text = "&".join(f"{key}={value}" for key, value in query.items())
    status, answer = await web.ask("GET", f"/v1/tables/{name}/rows?{text}")
    assert status == 200, answer
    return answer["rows"]


async def tablets(web: Web, *names: str) -> Any:
    """A value of each tablet, or a tuple of them."""
    _, answer = await web.ask("GET", f"/v1/tables/{NAME}/tablets")
    return [tuple(one[name] for name in names) if names[1:] else one[names[0]] for one in answer["tablets"]]


async def test_a_table_is_created_described_listed_and_deleted(web: Web) -> None:
    created = await create(web, tablet_count=3)
    facts = {
        "name": NAME, "path": "//shop/orders", "dynamic": True, "sorted": False, "tablet_count": 3, "state": "mounted",
        "bundle": "default",
    }  # fmt: skip
    assert {key: created[key] for key in facts} == facts
    assert created["schema"] == SHOWN
    assert await web.ask("GET", f"/v1/tables/{NAME}") == (200, created)
    await web.node.create_topic("plain")
    assert await web.ask("GET", "/v1/tables") == (200, {"tables": [facts], "next": None})
    _, topic = await web.ask("GET", f"/v1/topics/{NAME}")
    assert len({one["tablet"] for one in topic["partitions"]}) == 3
    assert await web.ask("DELETE", f"/v1/tables/{NAME}") == (204, None)
    assert await web.ask("GET", "/v1/tables") == (200, {"tables": [], "next": None})


@pytest.mark.spec("K.5")
async def test_inserted_rows_are_a_topic_for_kafka_clients(web: Web) -> None:
    schema = [*SCHEMA, {"name": "customer", "type": "string", "from": "key"}]
    await create(web, schema=schema)
    answer = await insert(web, {"id": 1, "customer": "ä", "note": "first"}, {"id": 2})
    assert answer == {
        "tablets": [{"tablet_index": 0, "first_row_index": 0, "row_count": 2}], "data_weight": 1 + 8 + 2 + 5 + 1 + 8,
        "duplicate": False,
    }  # fmt: skip
    address = web.node.server.kafka_address
    consumer = AIOKafkaConsumer(bootstrap_servers=f"{address.host}:{address.port}", auto_offset_reset="earliest")
    async with consumer:
        consumer.assign([TopicPartition(NAME, 0)])
        records = [await consumer.getone() for _ in range(2)]
    assert [(one.offset, one.key, one.value) for one in records] == [
        (0, '{"customer":"ä"}'.encode(), b'{"id":1,"note":"first"}'), (1, b"{}", b'{"id":2}'),
    ]  # fmt: skip
    assert [one.timestamp for one in records] == [web.node.clock.now_ms] * 2


@pytest.mark.spec("K.5")
async def test_rows_of_both_doors_are_read_typed_and_raw(web: Web) -> None:
    await create(web)
    await keep_what_is_no_row(web)
    await insert(web, {"id": 1, "note": "a"})
    await web.node.produce(NAME, b'{"id":2}')
    await web.node.produce(NAME, b"no row")
    typed = await select(web)
    assert typed[:2] == [
        {"$tablet_index": 0, "$row_index": 0, "id": 1, "note": "a"},
        {"$tablet_index": 0, "$row_index": 1, "id": 2, "note": None},
    ]
    assert typed[2] == {"$tablet_index": 0, "$row_index": 2, "id": None, "note": None, "$error": "the value is no JSON"}
    raw = await select(web, view="raw", first_row_index=2)
    assert raw == [
        {
            "$tablet_index": 0, "$row_index": 2, "timestamp_ms": 1_700_000_000_000, "key": None, "value": "no row",
            "headers": [],
        }
    ]  # fmt: skip


async def test_any_topic_is_read_raw(web: Web) -> None:
    await web.node.create_topic("plain", 2)
    await web.node.produce("plain", b"a", partition=1)
    assert [row["value"] for row in await select(web, "plain", tablet_index=1)] == ["a"]
    refused = await web.refusal("GET", "/v1/tables/plain/rows?view=typed")
    assert refused[:2] == (400, "NO_SCHEMA")


@pytest.mark.spec("E.3")
async def test_selecting_goes_by_ranges_and_what_lies_outside_is_empty(web: Web) -> None:
    await create(web)
    await insert(web, *({"id": number} for number in range(5)))
    assert [row["id"] for row in await select(web, first_row_index=2, limit=2)] == [2, 3]
    assert [row["id"] for row in await select(web, first_row_index=-3, limit=1)] == [0]
    assert await select(web, first_row_index=5) == []
    assert await select(web, tablet_index=1) == []


async def test_rows_go_to_the_tablet_they_name_or_to_any_mounted_one(web: Web) -> None:
    await create(web, tablet_count=3)
    await insert(web, {"id": 1, "$tablet_index": 2}, {"id": 2, "$tablet_index": 2})
    assert [row["id"] for row in await select(web, tablet_index=2)] == [1, 2]
    await web.ask("POST", f"/v1/tables/{NAME}/freeze", {"first_tablet_index": 1})
    for number in range(8):
        await insert(web, {"id": number})
    assert await tablets(web, "total_row_count") == [8, 0, 2]


async def test_a_batch_with_a_row_that_does_not_fit_is_refused_whole(web: Web) -> None:
    await create(web)
    refused = await web.refusal("POST", f"/v1/tables/{NAME}/rows", {"rows": [{"id": 1}, {"id": "x"}]})
    assert refused == (400, "INVALID_ROW", "body.rows[1].id is no int64")
    assert await select(web) == []


async def test_rows_come_as_json_lines_too(web: Web) -> None:
    await create(web)
    rows, lines = f"/v1/tables/{NAME}/rows", "application/x-ndjson"
    body = b'{"id": 1}\r\n\n' + b'{"id": 2, "note": "%s"}\n' % (b"x" * 20_000)
    status, answer = await web.ask("POST", rows, body, Content_Type=lines)
    assert (status, answer["tablets"][0]["row_count"]) == (200, 2)
    assert [row["id"] for row in await select(web)] == [1, 2]
    refused = await web.refusal("POST", rows, b'{"id": 3}\n{"id": 4', Content_Type=lines)
    assert refused[:2] == (400, "INVALID_BODY")
    assert "line 2" in refused[2]
    assert (await web.refusal("POST", rows, b"[]", Content_Type=lines))[:2] == (400, "INVALID_BODY")
    assert (await web.refusal("POST", rows, b"", Content_Type=lines))[:2] == (400, "INVALID_REQUEST")
    assert (await web.refusal("POST", "/v1/tables", body, Content_Type=lines))[:2] == (415, "NOT_JSON")
    assert len(await select(web)) == 2


@pytest.mark.spec("K.5")
async def test_creation_with_trimmed_row_counts_begins_tablets_there(web: Web) -> None:
    await create(web, tablet_count=5, trimmed_row_counts=[10, 20, 30, 40, 50])
    counts = ("trimmed_row_count", "flushed_row_count", "total_row_count")
    assert await tablets(web, *counts) == [(row, row, row) for row in (10, 20, 30, 40, 50)]
    answer = await insert(web, {"id": 1, "$tablet_index": 1})
    assert answer["tablets"][0]["first_row_index"] == 20
    await reopened(web)
    assert await tablets(web, *counts) == [
        (10, 10, 10), (20, 20, 21), (30, 30, 30), (40, 40, 40), (50, 50, 50),
    ]  # fmt: skip
    assert [row["$row_index"] for row in await select(web, tablet_index=1)] == [20]


@pytest.mark.spec("E.4")
async def test_a_trim_is_absolute_and_never_taken_back(web: Web) -> None:
    await create(web)
    await insert(web, *({"id": number} for number in range(30)))
    trim = f"/v1/tables/{NAME}/trim"
    for count, trimmed in ((10, 10), (30, 30), (10, 30), (-1, 30)):
        status, answer = await web.ask("POST", trim, {"tablet_index": 0, "trimmed_row_count": count})
        assert (status, answer) == (200, {"tablet_index": 0, "trimmed_row_count": trimmed})
        assert [row["$row_index"] for row in await select(web)] == list(range(trimmed, 30))
    refused = await web.refusal("POST", trim, {"tablet_index": 0, "trimmed_row_count": 31})
    assert refused[:2] == (400, "CANNOT_TRIM")
    assert "cannot trim tablet 0" in refused[2]


@pytest.mark.spec("E.10", "K.5")
async def test_a_schema_is_altered_while_the_table_is_unmounted(web: Web) -> None:
    await create(web)
    await insert(web, {"id": 1})
    wider = {"schema": [*SCHEMA, {"name": "size", "type": "double"}]}
    refused = await web.refusal("POST", f"/v1/tables/{NAME}/alter", wider)
    assert refused[:2] == (409, "WRONG_STATE")
    await web.ask("POST", f"/v1/tables/{NAME}/unmount", {})
    refused = await web.refusal("POST", f"/v1/tables/{NAME}/alter", {"schema": SCHEMA[:1]})
    assert refused[:2] == (409, "INCOMPATIBLE_SCHEMA")
    status, altered = await web.ask("POST", f"/v1/tables/{NAME}/alter", wider)
    assert status == 200
    assert [column["name"] for column in altered["schema"]] == ["id", "note", "size"]
    await reopened(web)
    await web.ask("POST", f"/v1/tables/{NAME}/mount", {})
    assert [row["size"] for row in await select(web)] == [None]


@pytest.mark.spec("E.6", "K.4")
async def test_attributes_act_at_the_next_remount(web: Web) -> None:
    await create(web)
    await insert(web, {"id": 1})
    for verb in ("freeze", "unfreeze"):  # only rows of the body go by age
        await web.ask("POST", f"/v1/tables/{NAME}/{verb}", {})
    await insert(web, {"id": 2})
    attributes = {"min_data_versions": 0, "max_data_versions": 0, "min_data_ttl": 1000}
    _, table = await web.ask("PATCH", f"/v1/tables/{NAME}", {"attributes": attributes})
    assert table["attributes"]["min_data_ttl"] == 1000
    assert table["mounted_attributes"]["min_data_ttl"] == 1_800_000
    web.node.clock.now_ms += 1000
    topics = web.node.server.node.cell.current.topics
    await topics.retain(nobody_knows)
    assert len(await select(web)) == 2
    _, table = await web.ask("POST", f"/v1/tables/{NAME}/remount", {})
    assert table["mounted_attributes"] == table["attributes"]
    await topics.retain(nobody_knows)
    assert [row["id"] for row in await select(web)] == [2]
    assert await tablets(web, "trimmed_row_count") == [1]


async def test_retention_is_an_attribute_by_another_name(web: Web) -> None:
    await create(web)
    await insert(web, {"id": 1})
    configs = f"/v1/topics/{NAME}/configs"
    for text, versions, age in ((1000, 0, 1000), (-1, 1, 1000), (None, 0, 604_800_000), (500, 0, 500)):
        assert (await web.ask("PATCH", configs, {"configs": {"retention.ms": text}}))[0] == 200
        _, table = await web.ask("GET", f"/v1/tables/{NAME}")
        assert table["attributes"] == table["mounted_attributes"]
        assert (table["attributes"]["min_data_versions"], table["attributes"]["max_data_ttl"]) == (versions, age)
        await reopened(web)
    await web.ask("PATCH", f"/v1/tables/{NAME}", {"attributes": {"max_data_ttl": 9}})
    await web.ask("PATCH", configs, {"configs": {"pq.low.watermark.bytes": 4096}})
    _, table = await web.ask("GET", f"/v1/tables/{NAME}")
    assert (table["attributes"]["max_data_ttl"], table["mounted_attributes"]["max_data_ttl"]) == (9, 500)
    await web.ask("POST", f"/v1/tables/{NAME}/remount", {})
    _, found = await web.ask("GET", configs)
    assert [one["value"] for one in found["configs"] if one["name"] == "retention.ms"] == ["500"], "min_data_ttl"


async def test_kafka_grows_a_table_and_trims_it(web: Web) -> None:
    await create(web)
    await insert(web, {"id": 1})
    assert (await web.ask("POST", f"/v1/topics/{NAME}/partitions", {"count": 3}))[0] == 200
    assert await tablets(web, "state") == ["mounted"] * 3
    await reopened(web)
    assert await tablets(web, "state", "total_row_count") == [("mounted", 1), ("mounted", 0), ("mounted", 0)]


@pytest.mark.parametrize(
    ("path", "body", "status", "code", "word"),
    [
        ("", {"path": "//t", "schema": []}, 400, "INVALID_SCHEMA", "0 columns"),
        ("", {"path": "//t", "schema": [SORTED]}, 400, "INVALID_SCHEMA", "key columns alone"),
        ("", {"path": "//t", "schema": SCHEMA, "pivot_keys": [[]]}, 400, "INVALID_TABLE", "sort_order"),
        (f"/{NAME}/lookup", {"keys": [{"id": 1}]}, 409, "NOT_SORTED", "no sorted table"),
        ("", {"path": "t", "schema": SCHEMA}, 400, "INVALID_PATH", "'t'"),
        ("", {"path": "//a b", "schema": SCHEMA}, 400, "INVALID_TOPIC_EXCEPTION", "ASCII"),
        ("", {"path": "//shop/orders", "schema": SCHEMA}, 409, "TOPIC_ALREADY_EXISTS", NAME),
        ("", {"path": "//plain", "schema": SCHEMA}, 409, "TOPIC_ALREADY_EXISTS", "plain"),
        ("", {"path": "//shop_orders", "schema": SCHEMA}, 400, "INVALID_TOPIC_EXCEPTION", "collides"),
        ("", {"path": "//t", "schema": SCHEMA, "bundle": "fast"}, 404, "NO_BUNDLE", "fast"),
        ("", {"path": "//t", "schema": SCHEMA, "attributes": {"x": 1}}, 400, "INVALID_ATTRIBUTE", "'x'"),
        ("", {"path": "//t", "schema": SCHEMA, "trimmed_row_counts": [1]}, 400, "INVALID_TABLE", "tablet_count"),
        ("", {"path": "//t", "schema": SCHEMA, "tablet_count": 2, "trimmed_row_counts": []}, 400, "INVALID_TABLE", "2"),
        ("", {"path": "//t", "schema": SCHEMA, "tablet_count": 0}, 400, "INVALID_BODY", "tablet_count"),
        ("", {"path": "//t", "schema": SCHEMA, "tablet_count": 9}, 400, "INVALID_PARTITIONS", "8"),
        ("/plain/rows", {"rows": [{}]}, 404, "NO_TABLE", "plain"),
        ("/none/rows", {"rows": [{}]}, 404, "UNKNOWN_TOPIC_OR_PARTITION", "topic"),
        (f"/{NAME}/rows", {"rows": []}, 400, "INVALID_REQUEST", "body.rows"),
        (f"/{NAME}/rows", {"rows": [{"id": 1, "$tablet_index": 2}]}, 404, "NO_TABLET", "0 to 1"),
        (f"/{NAME}/rows", {"rows": [{"id": 1, "$tablet_index": -1}]}, 404, "NO_TABLET", "-1"),
        (f"/{NAME}/trim", {"tablet_index": 2, "trimmed_row_count": 0}, 404, "NO_TABLET", "2"),
        (f"/{NAME}/mount", {"first_tablet_index": 2}, 404, "NO_TABLET", "first_tablet_index"),
        (f"/{NAME}/mount", {"first_tablet_index": 1, "last_tablet_index": 0}, 404, "NO_TABLET", "last_tablet_index"),
        (f"/{NAME}/mount", {"cell_id": "x"}, 404, "NO_CELL", "x"),
    ],
)
async def test_what_cannot_be_is_refused_by_name(
    serve: Callable[..., Awaitable[Web]], path: str, body: Any, status: int, code: str, word: str
) -> None:
    web = await serve(topic_partitions_max=8)
    await create(web, tablet_count=2)
    await web.node.create_topic("plain")
    refused = await web.refusal("POST", f"/v1/tables{path}", body)
    assert refused[:2] == (status, code), refused
    assert word in refused[2]


async def test_a_table_has_a_limit_of_columns(serve: Callable[..., Awaitable[Web]]) -> None:
    web = await serve(table_columns_max=1)
    refused = await web.refusal("POST", "/v1/tables", {"path": "//t", "schema": SCHEMA})
    assert refused[:2] == (400, "INVALID_SCHEMA")


async def keep_what_is_no_row(web: Web) -> None:
    kept = {"configs": {"value.invalid": "keep"}}
    assert (await web.ask("PATCH", f"/v1/topics/{NAME}/configs", kept))[0] == 200


async def test_a_record_that_is_no_row_is_refused_by_its_number_and_field(web: Web) -> None:
    await create(web)
    told = await web.node.produce(NAME, b'{"id":1}', b'{"id":"2"}', b'{"id":3}', b"x")
    assert (told.error_code, told.base_offset) == (ErrorCode.INVALID_RECORD, -1)
    assert told.error_message == f"record 1 of the batch is no row of the schema of {NAME}: id: give an integer"
    assert [(one.batch_index, one.batch_index_error_message) for one in told.record_errors] == [
        (1, "id: give an integer"), (3, "the value is no JSON"),
    ]  # fmt: skip
    assert (await web.node.produce(NAME, b'{"id":1}')).base_offset == 0
    status, code, message = await web.refusal("POST", f"/v1/topics/{NAME}/records", {"records": [{"value": "x"}]})
    assert (status, code) == (400, "INVALID_RECORD")
    assert "no row" in message


async def test_the_check_follows_the_schema_and_the_config(web: Web) -> None:
    await create(web)
    client = await web.node.connect()
    assert (await web.node.produce(NAME, b'{"id":1,"more":"x"}')).error_code == ErrorCode.NONE
    await web.ask("POST", f"/v1/tables/{NAME}/unmount", {})
    wider = {"schema": [*SCHEMA, {"name": "more", "type": "int8"}]}
    assert (await web.ask("POST", f"/v1/tables/{NAME}/alter", wider))[0] == 200
    await web.ask("POST", f"/v1/tables/{NAME}/mount", {})
    for number in range(3):  # the same words again and again: a lane must not pass over the check
        batch = encode_batch([Record(0, 0, None, b'{"id":1,"more":"x"}')])
        (topic,) = (await client.ask(produce_request(NAME, batch), 12)).responses
        expected = ErrorCode.NONE if number else ErrorCode.INVALID_RECORD
        assert topic.partition_responses[0].error_code == expected
        await keep_what_is_no_row(web)
    refusing = {"configs": {"value.invalid": "refuse"}}
    assert (await web.ask("PATCH", f"/v1/topics/{NAME}/configs", refusing))[0] == 200
    (topic,) = (await client.ask(produce_request(NAME, batch), 12)).responses
    assert topic.partition_responses[0].error_code == ErrorCode.INVALID_RECORD


def test_a_node_without_tables_loads_none_of_their_rules_and_libraries() -> None:
    text = "import sys, pqbroker.broker.node.server, pqbroker.broker.web.endpoints\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert loaded.isdisjoint(("duckdb", "numpy", "pyarrow", "sqlglot"))
    tables = {name.removeprefix("pqbroker.tables.") for name in loaded if ".tables." in name}
    declared = {"pqbroker.broker.services.tables.callers", "pqbroker.broker.web.tables.routes"}
    declared |= {"local_files", "paths", "refusals", "serving"}
    declared |= {f"serving.{name}" for name in ("open_reads", "share", "spent_stores", "tables", "tasks")}
    routes = ("inside_schemas", "materialization_routes", "transaction_routes")
    declared |= {f"pqbroker.broker.web.tables.{name}" for name in routes}
    assert {name for name in tables if not name.startswith("work")} == declared
    assert tables.isdisjoint(("work.query", "work.parsing"))


async def reopened(web: Web, topic: str = NAME) -> None:
    """The store fails; the node opens its cell again."""
    owner = web.node.server.node.cell
    before = owner.current
    web.node.engine.faults.lose_next()
    await web.ask("POST", "/v1/topics", {"name": "lost"})
    await until(lambda: owner.current is not before and topic in owner.current.topics.names())
