"""Sorted tables over HTTP: made, written, looked up at a timestamp, mounted, moved, read again after a restart."""

import asyncio
import threading
from typing import Any

import pytest

from pqbroker.broker.ground.turns import Turns
from pqbroker.broker.web import replies
from pqbroker.broker.web.tables.routes import SORTED
from pqbroker.conf.sorted_attributes import sorted_in_force
from pqbroker.protocol.errors import ErrorCode
from pqbroker.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from pqbroker.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from pqbroker.tables.serving import table
from pqbroker.tables.work import libraries
from tests.broker.conftest import until
from tests.broker.web.conftest import Web

SCHEMA: list[dict[str, Any]] = [
    {"name": "shop", "type": "utf8", "sort_order": "ascending"},
    {"name": "id", "type": "int64", "sort_order": "ascending", "required": True},
    {"name": "note", "type": "utf8"},
    {"name": "count", "type": "int64"},
]
PATH = "/v1/tables/shop.stock"


async def create(web: Web, **more: Any) -> Any:
    status, table = await web.ask("POST", "/v1/tables", {"path": "//shop/stock", "schema": SCHEMA, **more})
    assert status == 201, table
    return table


def row(shop: str, number: int, **values: Any) -> dict[str, Any]:
    return {"shop": shop, "id": number, **values}


async def insert(web: Web, *rows: dict[str, Any], update: bool = False) -> int:
    """The timestamp of the commit."""
    query = "?update=true" if update else ""
    status, answer = await web.ask("POST", f"{PATH}/rows{query}", {"rows": list(rows)})
    assert status == 200, answer
    assert answer["row_count"] == len(rows)
    timestamp: int = answer["timestamp"]
    return timestamp


async def look_up(web: Web, *keys: dict[str, Any], **more: Any) -> Any:
    status, answer = await web.ask("POST", f"{PATH}/lookup", {"keys": list(keys), **more})
    assert status == 200, answer
    return answer["rows"]


async def test_what_serves_sorted_tables_is_loaded_beside_the_loop(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    load, threads = SORTED._load, list[threading.Thread]()

    def loading() -> Any:
        threads.append(threading.current_thread())
        return load()

    monkeypatch.setattr(SORTED, "_loaded", None)
    monkeypatch.setattr(SORTED, "_load", loading)
    await create(web)
    assert [thread is threading.current_thread() for thread in threads] == [False]


async def test_attributes_of_many_tablets_are_read_once(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    await create(web, pivot_keys=[[], *([f"p{number}"] for number in range(7))])
    read, sets = sorted_in_force, list[Any]()

    def reading(each: Any) -> Any:
        sets.append(each)
        return read(each)

    monkeypatch.setattr(table, "sorted_in_force", reading)
    assert (await web.ask("POST", f"{PATH}/unmount", {}))[0] == 200
    assert 1 <= len(sets) < 8


async def test_a_long_list_is_written_beside_the_loop(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    await create(web, pivot_keys=[[], *([f"p{number:03}"] for number in range(replies.SLICE))])
    write, threads = replies.write_json, list[threading.Thread]()

    def writing(document: Any) -> bytes:
        threads.append(threading.current_thread())
        return write(document)

    monkeypatch.setattr(replies, "write_json", writing)
    for limit, is_long in ((replies.SLICE, False), (replies.SLICE + 1, True)):
        _, tablets = await web.ask("GET", f"{PATH}/tablets?limit={limit}")
        assert len(tablets["tablets"]) == limit
        assert (threads.pop() is not threading.current_thread()) is is_long


async def test_each_of_many_tablets_that_are_listed_may_end_a_slice(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    await create(web, pivot_keys=[[], ["m"], ["p"], ["q"]])
    breathe, breaths = Turns.breathe, 0

    async def counted(turns: Turns) -> None:
        nonlocal breaths
        breaths += 1
        await breathe(turns)

    monkeypatch.setattr(Turns, "breathe", counted)
    _, tablets = await web.ask("GET", f"{PATH}/tablets")
    assert len(tablets["tablets"]) == 4
    assert breaths >= 4


async def test_a_sorted_table_is_created_described_listed_and_deleted(web: Web) -> None:
    created = await create(web, pivot_keys=[[], ["m"], ["m", 5]])
    assert {key: created[key] for key in ("name", "sorted", "tablet_count", "state", "bundle")} == {
        "name": "shop.stock", "sorted": True, "tablet_count": 3, "state": "mounted", "bundle": "default",
    }  # fmt: skip
    assert created["pivot_keys"] == [[], ["m"], ["m", 5]]
    assert [column.get("sort_order") for column in created["schema"]] == ["ascending", "ascending", None, None]
    assert await web.ask("GET", PATH) == (200, created)
    _, listed = await web.ask("GET", "/v1/tables")
    assert [table["name"] for table in listed["tables"]] == ["shop.stock"]
    _, tablets = await web.ask("GET", f"{PATH}/tablets")
    assert [tablet["pivot_key"] for tablet in tablets["tablets"]] == [[], ["m"], ["m", 5]]
    assert await web.ask("DELETE", PATH) == (204, None)
    assert (await web.refusal("GET", PATH))[0] == 404
    await create(web)


@pytest.mark.spec("C.1")
async def test_rows_are_looked_up_by_key_with_the_columns_asked_for(web: Web) -> None:
    await create(web, pivot_keys=[[], ["m"]])
    await insert(web, row("a", 1, note="one", count=5), row("z", 2, note="two"))
    assert await look_up(web, row("z", 2), row("a", 9), row("a", 1)) == [
        row("z", 2, note="two", count=None), None, row("a", 1, note="one", count=5),
    ]  # fmt: skip
    assert await look_up(web, row("a", 1), columns=["count", "shop"]) == [{"count": 5, "shop": "a"}]


@pytest.mark.spec("C.1")
async def test_a_write_replaces_the_row_and_an_update_keeps_the_other_columns(web: Web) -> None:
    await create(web)
    first = await insert(web, row("a", 1, note="one", count=5))
    second = await insert(web, row("a", 1, count=6), update=True)
    third = await insert(web, row("a", 1, note="three"))
    assert first < second < third
    assert await look_up(web, row("a", 1)) == [row("a", 1, note="three", count=None)]
    assert await look_up(web, row("a", 1), timestamp=second) == [row("a", 1, note="one", count=6)]
    assert await look_up(web, row("a", 1), timestamp=second - 1) == [row("a", 1, note="one", count=5)]
    assert await look_up(web, row("a", 1), timestamp=first - 1) == [None]


@pytest.mark.spec("C.1")
async def test_deleted_rows_are_gone_and_may_come_again(web: Web) -> None:
    await create(web)
    written = await insert(web, row("a", 1, note="one", count=1))
    status, deleted = await web.ask("DELETE", f"{PATH}/rows", {"keys": [row("a", 1), row("b", 1)]})
    assert (status, deleted["row_count"]) == (200, 2)
    assert await look_up(web, row("a", 1)) == [None]
    assert await look_up(web, row("a", 1), timestamp=written) == [row("a", 1, note="one", count=1)]
    await insert(web, row("a", 1, note="again"), update=True)
    assert await look_up(web, row("a", 1)) == [row("a", 1, note="again", count=None)]


async def test_rows_survive_a_restart_of_the_cell_of_the_tablet_and_a_remount(web: Web) -> None:
    await create(web, pivot_keys=[[], ["m"]])
    rows = [row(shop, number, note=f"{shop}{number}", count=number) for shop in "az" for number in range(100)]
    stamps = [await insert(web, one) for one in rows]
    assert stamps == sorted(set(stamps))
    keys = [row(one["shop"], one["id"]) for one in rows]
    await reopen(web)
    assert await look_up(web, *keys) == rows
    _, tablets = await web.ask("GET", f"{PATH}/tablets")
    await web.ask("POST", f"/v1/tablets/{tablets['tablets'][0]['tablet_id']}/restart", {})
    assert await look_up(web, *keys) == rows
    assert await web.ask("POST", f"{PATH}/unmount", {}) == (200, await facts(web))
    assert (await web.refusal("POST", f"{PATH}/lookup", {"keys": keys[:1]}))[:2] == (409, "WRONG_STATE")
    await web.ask("POST", f"{PATH}/mount", {})
    assert await look_up(web, *keys) == rows
    assert await look_up(web, *keys, timestamp=stamps[150]) == [*rows[:151], *[None] * 49]
    assert await insert(web, row("a", 1, note="later")) > stamps[-1]


async def facts(web: Web) -> Any:
    _, listed = await web.ask("GET", "/v1/tables")
    return listed["tables"][0]


async def reopen(web: Web) -> None:
    """The store fails; the node opens its cells again, and the tablets read their logs in slices."""
    owner = web.node.server.node.cell
    before = owner.current
    web.node.engine.faults.lose_next()
    await web.ask("POST", "/v1/topics", {"name": "lost"})
    await until(lambda: owner.current is not before)
    for tablet in owner.current.sorted_tables.tables["shop.stock"].tablets:
        await tablet.mounted()


@pytest.mark.spec("C.1")
async def test_writes_of_many_at_once_are_all_there_in_the_order_of_their_timestamps(web: Web) -> None:
    await create(web, pivot_keys=[[], ["m"]])

    async def count(number: int) -> int:
        return await insert(web, row("a", 0, count=number), row("z", 0, count=number))

    stamps = await asyncio.gather(*map(count, range(50)))
    assert len({*stamps}) == 50
    for number, stamp in enumerate(stamps):
        found = await look_up(web, row("a", 0), row("z", 0), timestamp=stamp)
        assert [one["count"] for one in found] == [number, number], "rows of one write appear together"


async def test_a_frozen_table_is_read_and_takes_no_rows(web: Web) -> None:
    await create(web)
    await insert(web, row("a", 1, note="one"))
    await web.ask("POST", f"{PATH}/freeze", {})
    assert (await web.refusal("POST", f"{PATH}/rows", {"rows": [row("a", 2)]}))[:2] == (409, "WRONG_STATE")
    assert (await look_up(web, row("a", 1)))[0]["note"] == "one"
    await web.ask("POST", f"{PATH}/unfreeze", {})
    await insert(web, row("a", 2))


async def test_a_tablet_moves_to_another_cell_with_its_rows(web: Web) -> None:
    await create(web, pivot_keys=[[], ["m"]])
    await insert(web, row("a", 1, note="one"), row("z", 1, note="z"))
    await web.ask("POST", f"{PATH}/unmount", {"first_tablet_index": 0, "last_tablet_index": 0})
    _, cell = await web.ask("POST", "/v1/cells", {"bundle": "default"})
    body = {"first_tablet_index": 0, "last_tablet_index": 0, "cell_id": str(cell["id"])}
    status, answer = await web.ask("POST", f"{PATH}/mount", body)
    assert status == 200, answer
    assert await look_up(web, row("a", 1), row("z", 1)) == [
        row("a", 1, note="one", count=None), row("z", 1, note="z", count=None),
    ]  # fmt: skip
    await insert(web, row("a", 2), row("z", 2))
    assert all(await look_up(web, row("a", 2), row("z", 2))), "rows of several cells appear together"
    await reopen(web)
    assert all(await look_up(web, row("a", 1), row("a", 2), row("z", 1), row("z", 2)))


@pytest.mark.parametrize(
    ("verb", "body", "code", "part"),
    [
        ("rows", {"rows": [{"shop": "a"}]}, "INVALID_ROW", "body.rows[0].id is missing"),
        ("rows", {"rows": [row("a", 1), row("b", 1), row("a", 1)]}, "INVALID_ROW", "rows[2] has the key of body"),
        ("rows", {"rows": [row("a", 1, notes=1)]}, "INVALID_ROW", "'notes', which is no column"),
        ("rows", {"rows": [row("a", 1, count="x")]}, "INVALID_ROW", "count is no int64"),
        ("rows", {"rows": [row("a" * 5000, 1)]}, "INVALID_ROW", "too long"),
        ("rows", {"rows": [row("a", 1)], "session": "s", "sequence": 1}, "SORTED_TABLE", "session is given"),
        ("lookup", {"keys": [{"id": 1, "note": "x"}]}, "INVALID_ROW", "'note', which is no part of the key"),
        ("lookup", {"keys": [{"shop": "a"}]}, "INVALID_ROW", "keys[0].id is missing"),
        ("lookup", {"keys": [row("a", 1)], "columns": ["nota"]}, "NO_COLUMN", "'nota'"),
        ("trim", {"tablet_index": 0, "trimmed_row_count": 1}, "SORTED_TABLE", "has no trim"),
    ],
)  # fmt: skip
async def test_what_cannot_be_is_refused_by_field(web: Web, verb: str, body: Any, code: str, part: str) -> None:
    await create(web)
    status, found, message = await web.refusal("POST", f"{PATH}/{verb}", body)
    assert status in (400, 409)
    assert found == code
    assert part in message
    assert await look_up(web, row("a", 1)) == [None], "nothing is half done"


@pytest.mark.parametrize(
    ("more", "code", "part"),
    [
        ({"schema": [SCHEMA[2], SCHEMA[0]]}, "INVALID_SCHEMA", "follows a column without one"),
        ({"schema": SCHEMA[:2]}, "INVALID_SCHEMA", "key columns alone"),
        ({"schema": [{**SCHEMA[0], "sort_order": "descending"}, SCHEMA[2]]}, "INVALID_SCHEMA", "'descending'"),
        ({"schema": [{**SCHEMA[0], "type": "any"}, SCHEMA[2]]}, "INVALID_SCHEMA", "'any'"),
        ({"schema": [*SCHEMA, {"name": "NOTE", "type": "utf8"}]}, "INVALID_SCHEMA", "upper and lower case"),
        ({"pivot_keys": [["a"]]}, "INVALID_PIVOTS", "does not begin with []"),
        ({"pivot_keys": [[], ["b"], ["a"]]}, "INVALID_PIVOTS", "pivot_keys[2] is not above"),
        ({"pivot_keys": [[], ["a", "b", "c"]]}, "INVALID_PIVOTS", "at most 2 values"),
        ({"tablet_count": 2}, "INVALID_TABLE", "tablet_count is given"),
    ],
)  # fmt: skip
async def test_a_table_that_cannot_be_is_refused(web: Web, more: Any, code: str, part: str) -> None:
    body = {"path": "//shop/stock", "schema": SCHEMA, **more}
    status, found, message = await web.refusal("POST", "/v1/tables", body)
    assert (status, found) == (400, code)
    assert part in message


async def test_names_are_those_of_topics_too(web: Web) -> None:
    await create(web)
    assert (await web.refusal("POST", "/v1/topics", {"name": "shop.stock"}))[:2] == (409, "TOPIC_ALREADY_EXISTS")
    status, code, _ = await web.refusal("POST", "/v1/tables", {"path": "//shop/stock", "schema": SCHEMA})
    assert (status, code) == (409, "TOPIC_ALREADY_EXISTS")
    await web.node.create_topic("other.topic")
    status, code, _ = await web.refusal("POST", "/v1/tables", {"path": "//other/topic", "schema": SCHEMA})
    assert (status, code) == (409, "TOPIC_ALREADY_EXISTS")
    _, topics = await web.ask("GET", "/v1/topics")
    assert [topic["name"] for topic in topics["topics"]] == ["other.topic"], "a sorted table is no topic"


async def test_columns_are_added_behind_the_others_and_rows_read_as_before(web: Web) -> None:
    await create(web)
    await insert(web, row("a", 1, note="one"))
    wider = [*SCHEMA, {"name": "more", "type": "utf8"}]
    assert (await web.refusal("POST", f"{PATH}/alter", {"schema": wider}))[:2] == (409, "WRONG_STATE")
    await web.ask("POST", f"{PATH}/unmount", {})
    refused = await web.refusal("POST", f"{PATH}/alter", {"schema": [*SCHEMA[:2], wider[-1], *SCHEMA[2:]]})
    assert refused[:2] == (409, "INCOMPATIBLE_SCHEMA")
    assert (await web.ask("POST", f"{PATH}/alter", {"schema": wider}))[0] == 200
    await web.ask("POST", f"{PATH}/mount", {})
    assert await look_up(web, row("a", 1)) == [row("a", 1, note="one", count=None, more=None)]
    await insert(web, row("a", 1, more="x"), update=True)
    assert await look_up(web, row("a", 1)) == [row("a", 1, note="one", count=None, more="x")]


async def test_without_the_libraries_rows_are_read_and_none_is_taken(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    await create(web)
    await insert(web, row("a", 1, note="one"))
    monkeypatch.setattr(libraries, "missing_libraries", lambda: ("pyarrow",))
    assert (await look_up(web, row("a", 1)))[0]["note"] == "one"
    for method, path, body in (
        ("POST", f"{PATH}/rows", {"rows": [row("a", 2)]}),
        ("POST", "/v1/tables", {"path": "//shop/other", "schema": SCHEMA}),
    ):
        status, code, message = await web.refusal(method, path, body)
        assert (status, code) == (501, "TABLES_NOT_INSTALLED")
        assert "need pyarrow" in message


async def test_to_kafka_a_sorted_table_is_a_name_that_is_taken(web: Web) -> None:
    await create(web)
    client = await web.node.connect()
    made = await client.ask(
        CreateTopicsRequest(topics=[CreatableTopic(name="shop.stock", num_partitions=1, replication_factor=1)]), 7
    )
    assert made.topics[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS
    for auto in (False, True):
        asked = MetadataRequest(topics=[MetadataRequestTopic(name="shop.stock")], allow_auto_topic_creation=auto)
        found = await client.ask(asked, 9)
        assert found.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    listed = await client.ask(MetadataRequest(topics=None, allow_auto_topic_creation=False), 9)
    assert listed.topics == []
    refused = await web.node.produce("shop.stock", b"v")
    assert refused.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
