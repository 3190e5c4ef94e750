"""Topics that feed sorted tables, over HTTP."""

import asyncio
import json
import os
import signal
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from pqbroker.broker.ground.access import AclKind, AclOperation
from pqbroker.broker.services.access.rules import AclPattern, AclPermission, AclRule
from pqbroker.broker.services.materializing import making
from pqbroker.conf.access import STANDARD_AUTHORIZER
from pqbroker.pq.log.batch_run import Batches
from pqbroker.pq.reading.query import ReadQuery
from pqbroker.pq.serving.partition_server import PartitionServer
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.protocol.records import TRANSACTIONAL, Record, encode_batch, read_header
from pqbroker.storage.tablets.scheme_objects import MATERIALIZATIONS
from pqbroker.tables.refusals import TableError
from pqbroker.tables.serving.feed_progress import FeedMove
from pqbroker.tables.serving.writes import write
from tests.broker.conftest import until
from tests.broker.web.conftest import Web

COLUMNS: list[dict[str, Any]] = [
    {"name": "key", "type": "utf8", "sort_order": "ascending", "required": True},
    {"name": "value", "type": "string"},
    {"name": "timestamp_ms", "type": "int64"},
]
TYPED: list[dict[str, Any]] = [
    {"name": "id", "type": "int64", "sort_order": "ascending", "required": True},
    {"name": "note", "type": "utf8"},
]
ONE = "/v1/materializations/latest"
SCHEMA = json.dumps([{"name": "id", "type": "int64", "from": "key"}, {"name": "note", "type": "utf8"}])


async def create(web: Web, schema: Any = COLUMNS, config: Any = None, **more: Any) -> Any:
    """Create topic and table, and have the one feed the other."""
    status, made = await web.ask("POST", "/v1/topics", {"name": "orders", "config": config or {}})
    assert status == 201, made
    status, made = await web.ask("POST", "/v1/tables", {"path": "//latest", "schema": schema})
    assert status == 201, made
    return await feed(web, **more)


async def feed(web: Web, **more: Any) -> Any:
    status, made = await web.ask("POST", "/v1/materializations", {"topic": "orders", "table": "latest", **more})
    assert status == 201, made
    return made


async def produce(web: Web, *pairs: tuple[str | None, Any], topic: str = "orders") -> None:
    records = [{"key": key, "value": value, "timestamp": 5} for key, value in pairs]
    status, answer = await web.ask("POST", f"/v1/topics/{topic}/records", {"records": records})
    assert status == 201, answer


async def caught_up(web: Web) -> Any:
    """Wait until all that the topic has is in the table: the materialization then."""
    return await shown(web, lambda found: found["lag"] == 0)


async def shown(web: Web, is_so: Callable[[Any], bool]) -> Any:
    """Wait until the materialization is shown so."""
    async with asyncio.timeout(20):
        while True:
            _, found = await web.ask("GET", ONE)
            if is_so(found):
                return found


async def rows_of(web: Web, *keys: Any) -> Any:
    status, answer = await web.ask("POST", "/v1/tables/latest/lookup", {"keys": list(keys)})
    assert status == 200, answer
    return answer["rows"]


async def test_a_table_keeps_the_latest_value_of_each_key(web: Web) -> None:
    await create(web)
    await produce(web, ("a", "1"), ("b", "1"), ("a", "2"), ("c", "1"), ("b", None))
    found = await caught_up(web)
    assert (found["state"], found["reason"], found["topic"]) == ("running", None, "orders")
    keys = [{"key": key} for key in "abcd"]
    assert await rows_of(web, *keys) == [
        {"key": "a", "value": "2", "timestamp_ms": 5}, None, {"key": "c", "value": "1", "timestamp_ms": 5}, None,
    ]  # fmt: skip
    await produce(web, ("b", "3"), ("c", None))
    await caught_up(web)
    assert [row and row["value"] for row in await rows_of(web, *keys)] == ["2", "3", None, None]


async def test_they_are_listed_by_table_and_topic(web: Web) -> None:
    await create(web)
    await web.ask("POST", "/v1/topics", {"name": "bills"})
    for name in ("bills", "another"):
        await web.ask("POST", "/v1/tables", {"path": f"//{name}-table", "schema": COLUMNS})
        await web.ask("POST", "/v1/materializations", {"topic": "bills", "table": f"//{name}-table"})

    async def listed(query: str) -> list[str]:
        _, answer = await web.ask("GET", f"/v1/materializations{query}")
        return [one["table"] for one in answer["materializations"]]

    assert await listed("") == ["another-table", "bills-table", "latest"]
    assert await listed("?topic=bills") == ["another-table", "bills-table"]
    assert await listed("?table=latest") == ["latest"]
    assert await listed("?table=latest&topic=bills") == []
    assert await listed("?limit=1&after=another-table") == ["bills-table"]


async def test_columns_come_from_the_topics_schema(web: Web) -> None:
    await create(web, TYPED, {"pq.schema": SCHEMA})
    await produce(web, ('{"id": 1}', '{"note": "one"}'), ('{"id": 2}', '{"note": "two"}'), ('{"id": 1}', None))
    await caught_up(web)
    assert await rows_of(web, {"id": 1}, {"id": 2}) == [None, {"id": 2, "note": "two"}]


async def test_a_refused_value_is_a_dead_letter_with_its_reason(web: Web) -> None:
    await create(web, TYPED, {"pq.schema": SCHEMA})
    await produce(
        web, (None, '{"note": "no key"}'), ('{"id": 1}', '{"note": 5}'), ('{"id": 1}', "no json"),
        ('{"id": "x"}', '{"note": "n"}'), ("{}", '{"note": "n"}'), ('{"id": 2}', '{"note": "fine"}'),
    )  # fmt: skip
    found = await caught_up(web)
    assert found["dead_letter_count"] == 5
    assert [(one["partition"], one["offset"]) for one in found["dead_letters"]] == [(0, each) for each in range(5)]
    assert [one["reason"] for one in found["dead_letters"]] == [
        "the record has no key, and the table's key comes from it", "row.note is no utf8", "the value is no JSON",
        "row.id is no int64", "row.id is missing, or null",
    ]  # fmt: skip
    assert await rows_of(web, {"id": 1}, {"id": 2}) == [None, {"id": 2, "note": "fine"}]
    await reopen(web)
    again = await caught_up(web)
    assert again["dead_letters"] == found["dead_letters"], "they are durable with the progress"


async def test_the_last_hundred_dead_letters_are_kept_and_all_counted(web: Web) -> None:
    await create(web)
    await produce(web, *[(None, str(number)) for number in range(250)])
    await caught_up(web)
    await produce(web, (None, "one more"), ("a", "fine"))
    found = await caught_up(web)
    assert found["dead_letter_count"] == 251
    assert [one["offset"] for one in found["dead_letters"]] == list(range(151, 251))


async def test_dead_letters_go_to_a_topic_with_reason_and_place(web: Web) -> None:
    await web.ask("POST", "/v1/topics", {"name": "dead"})
    await create(web, dead_letter_topic="dead")
    await produce(web, ("a", "1"), (None, "lost"), (None, "too"))
    await caught_up(web)
    _, answer = await web.ask("GET", "/v1/topics/dead/records")
    found = [(one["key"], one["value"], {each["key"]: each["value"] for each in one["headers"]})
             for one in answer["records"]]
    reason = "the record has no key, and the table's key comes from it"
    assert [one[:2] for one in found] == [(None, "lost"), (None, "too")]
    assert [one[2] for one in found] == [
        {"pqbroker.reason": reason, "pqbroker.topic": "orders", "pqbroker.partition": "0", "pqbroker.offset": offset}
        for offset in ("1", "2")
    ]  # fmt: skip


async def test_without_its_topic_of_dead_letters_it_stops_until_there_is_one(web: Web) -> None:
    await web.ask("POST", "/v1/topics", {"name": "dead"})
    await create(web, dead_letter_topic="dead")
    await web.ask("DELETE", "/v1/topics/dead")
    await produce(web, (None, "lost"), ("a", "1"))
    found = await shown(web, is_stopped)
    assert (found["reason"]["code"], found["lag"]) == ("NO_LETTER_TOPIC", 2)
    await web.ask("POST", "/v1/topics", {"name": "dead"})
    assert (await caught_up(web))["dead_letter_count"] == 1


async def test_a_table_keyed_by_the_value_takes_no_deletes(web: Web) -> None:
    schema = json.dumps([{"name": "id", "type": "int64"}, {"name": "note", "type": "utf8"}])
    await create(web, TYPED, {"pq.schema": schema})
    await produce(web, (None, '{"id": 1, "note": "one"}'), ("k", None), ("k", '{"id": 2, "note": "two"}'))
    found = await caught_up(web)
    assert [one["reason"] for one in found["dead_letters"]] == [
        "the value is null, and the table's key comes from the value: no row can be found for it"
    ]
    assert [row["note"] for row in await rows_of(web, {"id": 1}, {"id": 2})] == ["one", "two"]


async def test_columns_are_declared_with_their_origins(web: Web) -> None:
    columns = [
        {"name": "id", "type": "string", "sort_order": "ascending"}, {"name": "order", "type": "utf8"},
        {"name": "written", "type": "timestamp"}, {"name": "at", "type": "uint64"}, {"name": "part", "type": "int64"},
        {"name": "nothing", "type": "int64"},
    ]  # fmt: skip
    origins = {"id": "key", "order": "value", "written": "timestamp_ms", "at": "$row_index", "part": "$tablet_index"}
    made = await create(web, columns, columns=origins)
    assert made["columns"] == origins
    await produce(web, ("a", "x"), ("a", "y"))
    await caught_up(web)
    assert await rows_of(web, {"id": "a"}) == [
        {"id": "a", "order": "y", "written": 5000, "at": 1, "part": 0, "nothing": None}
    ]


def is_stopped(found: Any) -> bool:
    return bool(found["state"] == "stopped")


def is_running(found: Any) -> bool:
    return bool(found["state"] == "running" and found["lag"] == 0)


async def reopen(web: Web) -> None:
    """The store fails; the node opens its cells again."""
    owner = web.node.server.node.cell
    before = owner.current
    web.node.engine.faults.lose_next()
    await web.ask("POST", "/v1/topics", {"name": "lost"})
    await until(lambda: owner.current is not before)


async def test_rows_and_progress_outlive_the_loss_of_the_cell(web: Web) -> None:
    await create(web)
    await produce(web, *[(str(number % 7), str(number)) for number in range(100)])
    before = await caught_up(web)
    await reopen(web)
    await produce(web, ("0", "later"))
    after = await caught_up(web)
    assert (before["partitions"][0]["offset"], after["partitions"][0]["offset"]) == (100, 101)
    assert web.node.server.node.feeding.counters.records == 101, "nothing is read again"
    found = await rows_of(web, *({"key": str(number)} for number in range(7)))
    assert [row["value"] for row in found] == ["later", *map(str, (99, 93, 94, 95, 96, 97))]


async def test_a_paused_one_reads_nothing_until_it_is_resumed(web: Web) -> None:
    await create(web)
    status, paused = await web.ask("POST", f"{ONE}/pause", {})
    assert (status, paused["state"]) == (200, "paused")
    await produce(web, ("a", "1"))
    await reopen(web)
    _, found = await web.ask("GET", ONE)
    assert (found["state"], found["lag"]) == ("paused", 1)
    await web.ask("POST", f"{ONE}/resume", {})
    await caught_up(web)
    assert [row["value"] for row in await rows_of(web, {"key": "a"})] == ["1"]


async def test_a_dropped_one_reads_no_more_and_may_be_made_again(web: Web) -> None:
    await create(web)
    await produce(web, ("a", "1"))
    await caught_up(web)
    assert await web.ask("DELETE", ONE) == (204, None)
    assert (await web.refusal("GET", ONE))[:2] == (404, "NO_MATERIALIZATION")
    await produce(web, ("a", "2"))
    await web.ask("DELETE", "/v1/tables/latest/rows", {"keys": [{"key": "a"}]})
    await feed(web)
    await caught_up(web)
    assert [row["value"] for row in await rows_of(web, {"key": "a"})] == ["2"], "it was read from its start"


@pytest.mark.parametrize(
    ("verb", "state", "back"), [("unmount", "unmounted", "mount"), ("freeze", "frozen", "unfreeze")]
)
async def test_it_stops_while_the_table_is_not_mounted(web: Web, verb: str, state: str, back: str) -> None:
    await create(web)
    await web.ask("POST", f"/v1/tables/latest/{verb}", {})
    await produce(web, ("a", "1"))
    found = await shown(web, is_stopped)
    assert (found["reason"]["code"], found["lag"]) == ("WRONG_STATE", 1)
    assert state in found["reason"]["message"]
    assert back in found["reason"]["cure"]
    await web.ask("POST", f"/v1/tables/latest/{back}", {})
    await shown(web, is_running)
    assert [row["value"] for row in await rows_of(web, {"key": "a"})] == ["1"]


async def test_it_stops_when_the_topic_is_deleted_and_continues_with_another_from_its_start(web: Web) -> None:
    await create(web)
    await produce(web, ("a", "1"), ("b", "1"), ("c", "1"))
    await caught_up(web)
    await web.ask("DELETE", "/v1/topics/orders")
    assert (await shown(web, is_stopped))["reason"]["code"] == "TOPIC_DELETED"
    assert (await web.refusal("POST", f"{ONE}/resume", {}))[0] == 404
    await web.ask("POST", "/v1/topics", {"name": "orders"})
    await produce(web, ("a", "2"))
    found = await shown(web, lambda found: is_stopped(found) and found["reason"]["code"] == "TOPIC_REPLACED")
    assert "--from-start" in found["reason"]["cure"]
    assert (await web.refusal("POST", f"{ONE}/resume", {}))[:2] == (409, "TOPIC_REPLACED")
    await web.ask("POST", f"{ONE}/resume", {"from_start": True})
    await shown(web, is_running)
    assert [row["value"] for row in await rows_of(web, {"key": "a"}, {"key": "b"})] == ["2", "1"]


async def test_it_stops_when_records_were_trimmed_that_it_has_not_read(web: Web) -> None:
    await create(web)
    await produce(web, ("a", "1"))
    await caught_up(web)
    await web.ask("POST", f"{ONE}/pause", {})
    await produce(web, ("a", "2"), ("b", "1"), ("c", "1"))
    topic = web.node.server.node.cell.current.topics.get("orders")
    assert topic is not None
    await topic.partitions[0].retention.delete_before(3)
    await web.ask("POST", f"{ONE}/resume", {})
    found = await shown(web, is_stopped)
    assert found["reason"]["code"] == "TRIMMED"
    assert "read up to 1, and begins with 3" in found["reason"]["message"]
    await web.ask("POST", f"{ONE}/resume", {"from_start": True})
    await shown(web, is_running)
    assert [row and row["value"] for row in await rows_of(web, *({"key": key} for key in "abc"))] == ["1", None, "1"]


async def test_it_stops_when_the_table_is_altered_and_finds_its_sources_again(web: Web) -> None:
    await create(web, TYPED, {"pq.schema": SCHEMA})
    await produce(web, ('{"id": 1}', '{"note": "one"}'))
    await caught_up(web)
    await web.ask("POST", "/v1/tables/latest/unmount", {})
    more = [*TYPED, {"name": "timestamp_ms", "type": "int64"}]
    assert (await web.ask("POST", "/v1/tables/latest/alter", {"schema": more}))[0] == 200
    await web.ask("POST", "/v1/tables/latest/mount", {})
    found = await shown(web, lambda found: is_stopped(found) and found["reason"]["code"] == "TABLE_ALTERED")
    assert "resume-materialization" in found["reason"]["cure"]
    await produce(web, ('{"id": 2}', '{"note": "two"}'))
    await web.ask("POST", f"{ONE}/resume", {})
    await shown(web, is_running)
    assert [row["timestamp_ms"] for row in await rows_of(web, {"id": 1}, {"id": 2})] == [None, 5]


async def test_it_stops_when_the_topics_schema_has_a_source_no_more(web: Web) -> None:
    await create(web, TYPED, {"pq.schema": SCHEMA})
    other = json.dumps([{"name": "id", "type": "int64", "from": "key"}, {"name": "text", "type": "utf8"}])
    status, answer = await web.ask("PATCH", "/v1/topics/orders/configs", {"configs": {"pq.schema": other}})
    assert status == 200, answer
    found = await shown(web, is_stopped)
    assert found["reason"]["code"] == "TOPIC_ALTERED"
    assert "'note'" in found["reason"]["message"]
    await web.ask("PATCH", "/v1/topics/orders/configs", {"configs": {"pq.schema": SCHEMA}})
    await shown(web, is_running)


async def test_it_ends_with_its_table(web: Web) -> None:
    await create(web)
    await web.ask("DELETE", "/v1/tables/latest")
    assert (await web.ask("GET", "/v1/materializations"))[1] == {"materializations": [], "next": None}
    await web.ask("POST", "/v1/tables", {"path": "//latest", "schema": COLUMNS})
    assert (await web.refusal("GET", ONE))[:2] == (404, "NO_MATERIALIZATION")
    await until(lambda: not web.node.server.node.feeding.feeds)


async def test_it_waits_while_the_table_refuses_writes(web: Web) -> None:
    await create(web)
    tables = web.node.server.node.cell.current.sorted_tables
    await tables.background.stop()  # its next look would find memory again
    (tablet,) = tables.tables["latest"].tablets
    tablet.memory_refusal = TableError("OUT_OF_TABLET_MEMORY", "Node is out of tablet memory", "Wait.")
    await produce(web, ("a", "1"))
    found = await shown(web, lambda found: found["state"] == "waiting")
    assert (found["reason"]["code"], found["lag"]) == ("OUT_OF_TABLET_MEMORY", 1)
    tablet.memory_refusal = None
    await shown(web, is_running)


async def test_partitions_and_tablets_of_a_cell_are_one_commit_each(web: Web) -> None:
    await web.ask("POST", "/v1/topics", {"name": "orders", "partitions": 3})
    pivots: list[Any] = [[], ["3"], ["6"]]
    await web.ask("POST", "/v1/tables", {"path": "//latest", "schema": COLUMNS, "pivot_keys": pivots})
    await feed(web)
    await produce(web, *[(str(number % 9), str(number)) for number in range(300)])
    found = await caught_up(web)
    assert sum(one["offset"] for one in found["partitions"]) == 300
    rows = await rows_of(web, *({"key": str(number)} for number in range(9)))
    assert [int(row["value"]) % 9 for row in rows] == list(range(9))
    assert all(int(row["value"]) >= 291 for row in rows)


async def test_rows_for_tablets_of_several_cells_and_their_progress_are_one_commit(web: Web) -> None:
    await web.ask("POST", "/v1/topics", {"name": "orders"})
    pivots: list[Any] = [[], ["m"], ["t"]]
    await web.ask("POST", "/v1/tables", {"path": "//latest", "schema": COLUMNS, "pivot_keys": pivots})
    await feed(web)
    _, cell = await web.ask("POST", "/v1/cells", {})
    await web.ask("POST", "/v1/tables/latest/unmount", {})
    status, answer = await web.ask(
        "POST", "/v1/tables/latest/mount", {"cell_id": str(cell["id"]), "first_tablet_index": 1}
    )
    assert status == 200, answer
    await web.ask("POST", "/v1/tables/latest/mount", {})
    for number in range(5):
        await produce(web, ("z", f"z{number}"), ("n", f"n{number}"))
        await caught_up(web)
    await produce(web, ("a", "a9"), ("n", None), ("u", "u9"))
    found = await caught_up(web)
    assert found["partitions"][0]["offset"] == 13
    rows = await rows_of(web, *({"key": key} for key in ("a", "n", "u", "z")))
    assert [row and row["value"] for row in rows] == ["a9", None, "u9", "z4"]
    assert (await web.ask("GET", "/v1/transactions/unfinished"))[1]["unfinished"] == []


async def test_what_cannot_feed_a_table_is_refused_by_name(web: Web) -> None:
    await web.ask("POST", "/v1/topics", {"name": "orders"})
    await web.ask("POST", "/v1/tables", {"path": "//latest", "schema": TYPED})
    wanted = {"topic": "orders", "table": "latest"}

    async def refused(**more: Any) -> str:
        _, code, message = await web.refusal("POST", "/v1/materializations", {**wanted, **more})
        return f"{code} {message}"

    assert await refused() == "INVALID_ORIGINS column 'id' comes from 'id', which the topic has not"
    assert "'id' is int64, and comes from the record's key" in await refused(columns={"id": "key"})
    assert "no origin of 'id', which is part of the key" in await refused(columns={"note": "key"})
    assert "no such column" in await refused(columns={"nota": "key"})
    assert "INVALID_LETTER_TOPIC" in await refused(columns={"id": "$row_index"}, dead_letter_topic="orders")
    assert (await web.refusal("POST", "/v1/materializations", {**wanted, "topic": "none"}))[0] == 404
    assert (await web.refusal("POST", "/v1/materializations", {**wanted, "table": "none"}))[:2] == (404, "NO_TABLE")
    assert (await web.refusal("POST", f"{ONE}/pause", {}))[:2] == (404, "NO_MATERIALIZATION")
    await feed(web, columns={"id": "$row_index"})
    assert (await refused(columns={"id": "$row_index"})).startswith("MATERIALIZED ")


async def test_a_reshard_keeps_progress_and_dead_letters(web: Web) -> None:
    await create(web)
    await produce(web, *[(str(number), str(number)) for number in range(10)], (None, "lost"))
    before = await caught_up(web)
    await web.ask("POST", "/v1/tables/latest/unmount", {})
    status, answer = await web.ask("POST", "/v1/tables/latest/reshard", {"pivot_keys": [[], ["3"], ["6"]]})
    assert status == 200, answer
    await web.ask("POST", "/v1/tables/latest/mount", {})
    read = web.node.server.node.feeding.counters.records
    await produce(web, ("5", "later"), ("8", None))
    after = await shown(web, is_running)
    assert (before["partitions"][0]["offset"], after["partitions"][0]["offset"]) == (11, 13)
    assert after["dead_letters"] == before["dead_letters"]
    assert web.node.server.node.feeding.counters.records == read + 2, "nothing is read again"
    rows = await rows_of(web, *({"key": str(number)} for number in range(10)))
    assert [row and row["value"] for row in rows] == [*map(str, range(5)), "later", "6", "7", None, "9"]


async def test_a_node_feeds_so_many_tables(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(making, "MATERIALIZATIONS_MAX", 1)
    await create(web)
    await web.ask("POST", "/v1/tables", {"path": "//other", "schema": COLUMNS})
    refused = await web.refusal("POST", "/v1/materializations", {"topic": "orders", "table": "other"})
    assert refused == (409, "TOO_MANY_MATERIALIZATIONS", "1 tables are fed from topics already")


async def test_feeds_wait_for_their_turn(serve: Callable[..., Awaitable[Web]]) -> None:
    web = await serve(table_feeds_max=1)
    await create(web)
    await web.ask("POST", "/v1/tables", {"path": "//other", "schema": COLUMNS})
    await web.ask("POST", "/v1/materializations", {"topic": "orders", "table": "other"})
    workers, most = web.node.server.node.workers, 0
    for number in range(20):
        await produce(web, *[(str(key), str(number)) for key in range(50)])
        most = max(most, workers.running)
    await caught_up(web)
    assert most <= 1
    assert workers.counters.workers_started == 1


async def test_records_become_rows_no_faster_than_the_rate(serve: Callable[..., Awaitable[Web]]) -> None:
    web = await serve(table_feed_rate=1_000)
    await create(web)
    begin_s = asyncio.get_running_loop().time()
    for _ in range(4):  # an answer each; the next one pays for it
        await produce(web, *[(str(key), "v") for key in range(100)])
        await caught_up(web)
    assert asyncio.get_running_loop().time() - begin_s >= 0.3


async def test_an_unreadable_row_of_the_scheme_costs_that_table_its_feed_alone(web: Web) -> None:
    await create(web)
    opened = web.node.server.node.cell.current
    table_id = opened.sorted_tables.tables["latest"].record.table_id
    await opened.scheme.change(lambda rows: rows.put(MATERIALIZATIONS, (table_id,), {"topic": "x", "is_paused": False}))
    await until(lambda: not web.node.server.node.feeding.feeds)
    assert (await web.ask("GET", "/v1/materializations"))[1]["materializations"] == []
    assert await web.ask("DELETE", ONE) == (204, None)
    await feed(web)
    await produce(web, ("a", "1"))
    await caught_up(web)


async def test_a_worker_that_is_killed_is_followed_by_another(web: Web) -> None:
    await create(web)
    await produce(web, ("a", "1"))
    await caught_up(web)
    for pid in web.node.server.node.workers.pids:
        os.kill(pid, signal.SIGKILL)
    await produce(web, ("a", "2"))
    await shown(web, is_running)
    assert [row["value"] for row in await rows_of(web, {"key": "a"})] == ["2"]


async def test_a_topic_that_ends_before_what_was_read_of_it_stops_it(web: Web) -> None:
    """A topic is like this when it was restored from an older backup than the table."""
    await create(web)
    await produce(web, ("a", "1"), ("b", "1"))
    await caught_up(web)
    await web.ask("POST", f"{ONE}/pause", {})
    opened = web.node.server.node.cell.current
    tablet = opened.sorted_tables.tables["latest"].tablets[0]
    ((run, _),) = tablet.progress._offsets.values()
    await write([(tablet.writes, ())], FeedMove(run, 0, 2, 50))
    await web.ask("POST", f"{ONE}/resume", {})
    found = await shown(web, is_stopped)
    assert found["reason"]["code"] == "TOPIC_SHORTER"
    assert "was read up to 50, and ends with 2 now" in found["reason"]["message"]
    assert "--from-start" in found["reason"]["cure"]
    await web.ask("POST", f"{ONE}/resume", {"from_start": True})
    await caught_up(web)
    assert [row["value"] for row in await rows_of(web, {"key": "a"}, {"key": "b"})] == ["1", "1"]


async def test_a_damaged_partition_is_named_and_fed_on_when_it_can_be_read(
    web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    await create(web)
    await produce(web, ("a", "1"))
    await caught_up(web)

    def damaged(server: PartitionServer, query: ReadQuery) -> Batches:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, "the partition is refused, what is stored of it is damaged: a test")

    with monkeypatch.context() as patch:
        patch.setattr(PartitionServer, "read", damaged)
        await produce(web, ("a", "2"))
        found = await shown(web, lambda found: found["reason"] is not None)
        assert found["reason"]["code"] == "CORRUPT_MESSAGE"
        assert "damaged: a test" in found["reason"]["message"]
    await web.ask("POST", f"{ONE}/resume", {})
    await caught_up(web)
    assert (await rows_of(web, {"key": "a"}))[0]["value"] == "2"


async def test_records_of_a_transaction_come_with_its_commit_and_aborted_ones_never(web: Web) -> None:
    await create(web)
    topic = web.node.server.node.cell.current.topics.get("orders")
    assert topic is not None
    server = topic.partitions[0]
    for number, value in enumerate((b"1", b"2")):
        record = Record(0, 5, b"a", value)
        encoded = memoryview(
            encode_batch([record], attributes=TRANSACTIONAL, producer_id=7, producer_epoch=0, base_sequence=number)
        )
        await server.write(encoded, read_header(encoded))
        if number == 0:
            await produce(web, ("b", "1"))
            found = await shown(web, lambda found: found["state"] == "running")
            assert found["lag"] == 0
            await server.end_transaction(7, 0, 0, is_commit=True)
    await server.end_transaction(7, 0, 0, is_commit=False)
    await caught_up(web)
    assert [row and row["value"] for row in await rows_of(web, {"key": "a"}, {"key": "b"})] == ["1", "1"]


async def test_it_has_the_rights_of_its_creator_and_stops_without_them(
    serve: Callable[..., Awaitable[Web]],
) -> None:
    web = await serve(authorizer_class_name=STANDARD_AUTHORIZER, allow_everyone_if_no_acl_found=True)
    await create(web)
    await produce(web, ("a", "1"))
    await caught_up(web)
    rules, scheme = web.node.server.node.rules, web.node.server.node.cell.current.scheme
    assert rules is not None
    (row,) = scheme.rows(MATERIALIZATIONS).values()
    assert row["creator"] == "User:ANONYMOUS"
    denied = AclRule(
        AclKind.TOPIC, AclPattern.LITERAL, "latest", "User:ANONYMOUS", "*", AclOperation.WRITE, AclPermission.DENY
    )
    rules.follow(denied._replace(operation=AclOperation.ALL, permission=AclPermission.ALLOW), {})
    rules.follow(denied, {})
    await produce(web, ("b", "2"))
    found = await shown(web, is_stopped)
    assert (found["reason"]["code"], found["lag"]) == ("TOPIC_AUTHORIZATION_FAILED", 1)
    rules.follow(denied, None)
    await shown(web, is_running)
    assert [row["value"] for row in await rows_of(web, {"key": "b"})] == ["2"]
