"""What a table knows of its rows beside their records (E.7, E.8): commit timestamps, weights, a limit on these."""

from typing import Any

import pytest

from pqbroker.pq.log.commit_timestamps import timestamp_of
from pqbroker.protocol.errors import ErrorCode
from tests.broker.web.conftest import Web
from tests.broker.web.test_tables import NAME, create, insert, keep_what_is_no_row, reopened, select, tablets

TEXT = {"name": "test", "type": "string"}
WEIGHT = {"name": "$cumulative_data_weight", "type": "int64"}
TIMESTAMP = {"name": "$timestamp", "type": "uint64"}


async def weights(web: Web, **query: Any) -> list[int | None]:
    return [row["$cumulative_data_weight"] for row in await select(web, **query)]


async def change(web: Web, verb: str) -> None:
    status, answer = await web.ask("POST", f"/v1/tables/{NAME}/{verb}", {})
    assert status == 200, answer


async def trim(web: Web, count: int) -> None:
    status, _ = await web.ask("POST", f"/v1/tables/{NAME}/trim", {"tablet_index": 0, "trimmed_row_count": count})
    assert status == 200


async def set_limit(web: Web, weight: int | None) -> None:
    attributes = {"max_ordered_tablet_data_weight": weight}
    assert (await web.ask("PATCH", f"/v1/tables/{NAME}", {"attributes": attributes}))[0] == 200
    await change(web, "remount")


@pytest.mark.spec("E.8")
async def test_weights_are_those_of_the_seed(web: Web) -> None:
    await create(web, schema=[TEXT, WEIGHT])
    assert (await insert(web, {"test": "aaa"}))["data_weight"] == 12
    await insert(web, {"test": "bb"})
    assert await weights(web) == [12, 23]


@pytest.mark.spec("E.8")
async def test_a_timestamp_weighs_too(web: Web) -> None:
    await create(web, schema=[TIMESTAMP, TEXT, WEIGHT])
    await insert(web, {"test": "hey you"}, {"test": "hello world!"})
    assert await weights(web) == [24, 53]
    assert await weights(web, first_row_index=1) == [53]


@pytest.mark.spec("E.8")
async def test_weights_go_on_over_flush_remount_trim_and_restart(web: Web) -> None:
    await create(web, schema=[TEXT, WEIGHT])
    await insert(web, {"test": "aaa"}, {"test": "bb"})
    for verb in ("freeze", "unfreeze", "remount", "unmount", "mount"):
        await change(web, verb)
    assert await weights(web) == [12, 23]
    await insert(web, {"test": ""})
    await trim(web, 1)
    assert await weights(web) == [23, 32]
    await trim(web, 3)
    await insert(web, {"test": "aaa"})
    await trim(web, 4)
    await reopened(web)
    assert await weights(web) == []
    await insert(web, {"test": "aaa"})
    assert await weights(web) == [56]


async def test_timestamps_are_of_the_commit_and_rise_when_the_clock_does_not(web: Web) -> None:
    await create(web, schema=[TEXT, TIMESTAMP])
    now = timestamp_of(web.node.clock.now_ms)
    await insert(web, {"test": "a"}, {"test": "b"})
    await insert(web, {"test": "c"})
    await reopened(web)
    web.node.clock.now_ms -= 5000
    await insert(web, {"test": "d"})
    assert [row["$timestamp"] for row in await select(web)] == [now, now, now + 1, now + (10 << 30)]


async def test_rows_of_both_doors_weigh_the_same(web: Web) -> None:
    more = [{"name": "n", "type": "any", "from": "key"}, {"name": "b", "type": "boolean"}]
    await create(web, schema=[TEXT, *more, WEIGHT])
    await insert(web, {"test": "ä", "n": {"x": [1.5]}, "b": True})
    records = [{"key": '{"n": {"x":  [1.5]}}', "value": '{"b":true, "test":"ä", "more": 1}'}]
    assert (await web.ask("POST", f"/v1/topics/{NAME}/records", {"records": records}))[0] == 201
    await insert(web, {"test": {"base64": "/w=="}})
    assert await weights(web) == [23, 46, 56]


async def test_what_is_no_row_weighs_its_bytes(web: Web) -> None:
    await create(web, schema=[TEXT, WEIGHT])
    await keep_what_is_no_row(web)
    await web.node.produce(NAME, b"no row", b'{"test":"a"}')
    rows = await select(web)
    assert [row["$cumulative_data_weight"] for row in rows] == [15, 25]
    assert "$error" in rows[0]


async def test_columns_that_come_later_begin_with_the_stored_bytes(web: Web) -> None:
    await create(web, schema=[TEXT])
    await insert(web, {"test": "aaa"})
    await change(web, "unmount")
    stored = (await tablets(web, "statistics"))[0]["compressed_data_size"]
    assert (await web.ask("POST", f"/v1/tables/{NAME}/alter", {"schema": [TEXT, WEIGHT]}))[0] == 200
    await change(web, "mount")
    await insert(web, {"test": "bb"})
    assert await weights(web) == [None, stored + 11]


@pytest.mark.spec("E.7")
async def test_over_the_limit_nothing_is_written_until_rows_go_or_the_limit_does(web: Web) -> None:
    await create(web, schema=[TEXT], attributes={"max_ordered_tablet_data_weight": 16})
    await insert(web, {"test": "aaaa"})
    await insert(web, {"test": "bbbbbbbbbb"})
    refused = await web.refusal("POST", f"/v1/tables/{NAME}/rows", {"rows": [{"test": "c"}]})
    assert "max_ordered_tablet_data_weight" in refused[2]
    assert (await web.node.produce(NAME, b'{"test":"c"}')).error_code == ErrorCode.POLICY_VIOLATION
    for verb in ("freeze", "unfreeze"):
        await change(web, verb)
    await trim(web, 1)
    assert (await web.node.produce(NAME, b'{"test":"c"}')).error_code == ErrorCode.POLICY_VIOLATION
    await trim(web, 2)
    await insert(web, {"test": "c"})
    await insert(web, {"test": "d" * 20})
    await reopened(web)
    assert (await web.node.produce(NAME, b'{"test":"e"}')).error_code == ErrorCode.POLICY_VIOLATION
    await set_limit(web, None)
    await insert(web, {"test": "e"})


@pytest.mark.parametrize("weight", [0, -1, True, "9", 1.5])
async def test_a_limit_is_a_number_of_bytes(web: Web, weight: Any) -> None:
    body = {"path": "//a", "schema": [TEXT], "attributes": {"max_ordered_tablet_data_weight": weight}}
    status, code, _ = await web.refusal("POST", "/v1/tables", body)
    assert (status, code) == (400, "INVALID_ATTRIBUTE")


async def test_columns_that_the_table_fills_are_given_by_nobody(web: Web) -> None:
    await create(web, schema=[TEXT, TIMESTAMP])
    body = {"rows": [{"test": "a", "$timestamp": 5}]}
    status, code, message = await web.refusal("POST", f"/v1/tables/{NAME}/rows", body)
    assert (status, code) == (400, "INVALID_ROW")
    assert "$timestamp" in message


async def test_topics_that_are_no_tables_fill_no_columns(web: Web) -> None:
    await web.node.create_topic("plain")
    refused = await web.refusal("POST", "/v1/tables/plain/alter", {"schema": [TEXT, TIMESTAMP]})
    assert "$timestamp" in refused[2]
