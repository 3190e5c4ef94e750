"""A schema on any topic: its records are rows through every door, and what they are stays as it was."""

import json
from typing import Any

import pytest

from pqbroker.protocol.errors import ErrorCode
from tests.broker.web.conftest import Web
from tests.broker.web.test_tables import reopened, select

SCHEMA = [{"name": "id", "type": "int64"}, {"name": "who", "type": "utf8", "from": "key"}]
SHOWN = [
    {"name": "id", "type": "int64", "required": False, "from": "value"},
    {"name": "who", "type": "utf8", "required": False, "from": "key"},
]
ALTER = "/v1/tables/clicks/alter"


async def with_topic(web: Web, **config: str) -> None:
    await web.node.create_topic("clicks", 3, **config)




async def test_a_schema_makes_rows_of_the_records_of_a_topic_that_is_served(web: Web) -> None:
    await with_topic(web)
    await web.node.produce("clicks", b'{"id":1,"more":2}', partition=2)
    await web.node.produce("clicks", b"no row", partition=2)
    status, table = await web.ask("POST", ALTER, {"schema": SCHEMA})
    assert (status, table["schema"], table["state"], table["attributes"]) == (200, SHOWN, "mounted", {})
    for _ in range(2):
        rows = await select(web, "clicks", tablet_index=2)
        assert [(row["id"], row["who"], row.get("$error")) for row in rows] == [
            (1, None, None), (None, None, "the value is no JSON"),
        ]  # fmt: skip
        assert [row["value"] for row in await select(web, "clicks", tablet_index=2, view="raw")][1] == "no row"
        assert (await web.ask("GET", "/v1/tables/clicks"))[1] == table
        assert [one["name"] for one in (await web.ask("GET", "/v1/tables"))[1]["tables"]] == ["clicks"]
        assert len((await web.ask("GET", "/v1/tables/clicks/tablets"))[1]["tablets"]) == 3
        assert (await web.ask("GET", "/v1/tree/clicks/@schema"))[1] == SHOWN
        await reopened_topic(web)


async def reopened_topic(web: Web) -> None:
    await web.ask("POST", "/v1/tables", {"path": "//shop/orders", "schema": SCHEMA})
    await reopened(web)
    await web.ask("DELETE", "/v1/tables/shop.orders")


async def test_rows_are_inserted_into_a_topic_with_a_schema_over_partitions_of_one_tablet(web: Web) -> None:
    await with_topic(web)
    refused = await web.refusal("POST", "/v1/tables/clicks/rows", {"rows": [{"id": 1}]})
    assert refused[:2] == (404, "NO_TABLE")
    await web.ask("POST", ALTER, {"schema": SCHEMA})
    rows = [{"id": number, "who": "a", "$tablet_index": number} for number in range(3)]
    status, answer = await web.ask("POST", "/v1/tables/clicks/rows", {"rows": rows, "session": "s", "sequence": 1})
    assert (status, len(answer["tablets"])) == (200, 3), answer
    for index in range(3):
        (row,) = await select(web, "clicks", tablet_index=index)
        assert (row["id"], row["who"]) == (index, "a")


async def test_records_that_are_no_rows_are_refused_where_that_is_wanted(web: Web) -> None:
    await with_topic(web, value_invalid="refuse")
    assert (await web.node.produce("clicks", b"no row")).error_code == ErrorCode.NONE
    await web.ask("POST", ALTER, {"schema": SCHEMA})
    assert (await web.node.produce("clicks", b"no row")).error_code == ErrorCode.INVALID_RECORD
    assert (await web.node.produce("clicks", b'{"id":2}')).error_code == ErrorCode.NONE
    await web.ask("POST", ALTER, {"schema": [{"name": "id", "type": "utf8"}]})
    assert (await web.node.produce("clicks", b'{"id":2}')).error_code == ErrorCode.INVALID_RECORD
    await web.ask("POST", ALTER, {"schema": []})
    assert (await web.node.produce("clicks", b"no row")).error_code == ErrorCode.NONE
    assert (await web.refusal("GET", "/v1/tables/clicks"))[:2] == (404, "NO_TABLE")


async def test_it_is_a_config_for_kafkas_tools_too(web: Web) -> None:
    await with_topic(web, pq_schema=json.dumps(SCHEMA))
    assert (await web.ask("GET", "/v1/tables/clicks"))[1]["schema"] == SHOWN
    configs = "/v1/topics/clicks/configs"
    assert (await web.ask("PATCH", configs, {"configs": {"pq.schema": None}}))[0] == 200
    assert (await web.refusal("GET", "/v1/tables/clicks"))[:2] == (404, "NO_TABLE")
    for text, told in (
        ("{", "no JSON array of columns"), ("{}", "no JSON array"), ("[]", "has 0 columns"), ("[7]", "schema[0]"),
        ("[" * 100_000, "no JSON array"), ('[{"name":"a","type":"int"}]', "int8"),
    ):  # fmt: skip
        status, code, message = await web.refusal("PATCH", configs, {"configs": {"pq.schema": text}})
        assert (status, code) == (400, "INVALID_CONFIG"), text
        assert told in message, text
    wrong = {"name": "other", "partitions": 1, "config": {"pq.schema": "[7]"}}
    assert (await web.refusal("POST", "/v1/topics", wrong))[:2] == (400, "INVALID_CONFIG")


TWINS = [{"name": "a", "type": "int64"}, {"name": "A", "type": "int64"}]


async def test_columns_that_differ_by_case_alone_are_refused_wherever_a_schema_is_set(web: Web) -> None:
    await with_topic(web, pq_schema=json.dumps(TWINS[:1]))
    named = "'a' and 'A'"
    body: Any = {"path": "//shop/twins", "schema": TWINS}
    assert named in (await web.refusal("POST", "/v1/tables", body))[2]
    body = {"name": "twins", "partitions": 1, "config": {"pq.schema": json.dumps(TWINS)}}
    assert named in (await web.refusal("POST", "/v1/topics", body))[2]
    body = {"configs": {"pq.schema": json.dumps(TWINS)}}
    assert named in (await web.refusal("PATCH", "/v1/topics/clicks/configs", body))[2]
    assert named in (await web.refusal("POST", ALTER, {"schema": TWINS}))[2]
    await web.ask("POST", "/v1/tables", {"path": "//shop/orders", "schema": TWINS[:1], "mount": False})
    status, code, message = await web.refusal("POST", "/v1/tables/shop.orders/alter", {"schema": TWINS})
    assert (status, code) == (400, "INVALID_SCHEMA")
    assert named in message


async def test_a_topic_with_such_columns_from_before_is_served_and_takes_other_configs(
    web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as earlier:
        earlier.setattr("pqbroker.tables.schema.check_names", lambda *_: None)
        await with_topic(web, pq_schema=json.dumps(TWINS))
    await web.node.produce("clicks", b'{"a":1,"A":2}')
    (row,) = await select(web, "clicks", tablet_index=0)
    assert (row["a"], row["A"]) == (1, 2)
    columns = [*TWINS, {"name": "k", "type": "int64", "from": "key"}]
    body: Any = {"configs": {"key.format": "avro", "pq.schema": json.dumps(columns)}}
    assert (await web.ask("PATCH", "/v1/topics/clicks/configs", body))[0] == 200


async def test_a_tables_schema_is_no_config(web: Web) -> None:
    await web.ask("POST", "/v1/tables", {"path": "//shop/orders", "schema": SCHEMA})
    body = {"configs": {"pq.schema": json.dumps(SCHEMA[:1])}}
    status, code, message = await web.refusal("PATCH", "/v1/topics/shop.orders/configs", body)
    assert (status, code) == (409, "POLICY_VIOLATION")
    assert "pqbroker table alter" in message


@pytest.mark.parametrize("verb", ["mount", "unmount", "freeze", "unfreeze", "remount", "reshard", "trim"])
async def test_what_only_tables_can_says_so(web: Web, verb: str) -> None:
    await with_topic(web)
    await web.ask("POST", ALTER, {"schema": SCHEMA})
    body = {"reshard": {"tablet_count": 2}, "trim": {"tablet_index": 0, "trimmed_row_count": 0}}.get(verb, {})
    status, code, message = await web.refusal("POST", f"/v1/tables/clicks/{verb}", body)
    assert (status, code) == (404, "NO_TABLE")
    assert "was not made as a table" in message


async def test_sql_has_the_columns(web: Web) -> None:
    await with_topic(web)
    await web.node.produce("clicks", b'{"id":7}')
    await web.ask("POST", ALTER, {"schema": SCHEMA})
    async with web._session.post(web.url("/v1/sql"), json={"query": "SELECT id, who FROM clicks"}) as response:
        assert json.loads(await response.text()) == {"id": 7, "who": None}
    await web.ask("POST", ALTER, {"schema": [{"name": "id", "type": "double"}]})
    async with web._session.post(web.url("/v1/sql"), json={"query": "SELECT id / 2 AS half FROM clicks"}) as response:
        assert json.loads(await response.text()) == {"half": 3.5}
