"""Commits of transactions over HTTP: tables of both kinds at one timestamp, in one cell or several; their refusals."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.broker.conftest import until
from tests.broker.web.conftest import Web
from tests.broker.web.test_sorted_tables import PATH, SCHEMA, create, insert, look_up, reopen, row
from tests.broker.web.test_transactions import (
    ALL,
    EVENTS,
    TABLE,
    begin,
    commit,
    create_events,
    refused,
    rows,
    state_of,
)

pytestmark = pytest.mark.spec("E.12")
FILL = "shop.events"


async def events(web: Web, tablet: int = 0) -> list[int]:
    """Ids of the rows of the ordered table."""
    _, found = await web.ask("GET", f"{EVENTS}/rows?tablet_index={tablet}")
    return [one["id"] for one in found["rows"]]


async def create_far(web: Web) -> str:
    """A sorted table in another cell."""
    await web.ask("POST", "/v1/bundles", {"name": "far"})
    status, cell = await web.ask("POST", "/v1/cells", {"bundle": "far"})
    assert status == 201, cell
    status, made = await web.ask("POST", "/v1/tables", {"path": "//shop/far", "schema": SCHEMA, "bundle": "far"})
    assert status == 201, made
    return "shop.far"


async def test_all_writes_appear_at_one_timestamp_and_none_before(web: Web) -> None:
    await create(web, pivot_keys=[[], ["m"]])
    await create_events(web)
    await insert(web, row("a", 1, note="old", count=1), row("z", 1, note="gone"))
    started = await begin(web)
    done = await commit(
        web, started,
        rows(row("a", 1, count=2), table="//shop/stock", update=True), rows(row("z", 2, note="new")),
        {"table": TABLE, "delete": [row("z", 1)]}, rows({"id": 7}, {"id": 8}, table=FILL),
    )  # fmt: skip
    assert (done["row_count"], done["duplicate"]) == (5, False)
    keys = (row("a", 1), row("z", 1), row("z", 2))
    before = [row("a", 1, note="old", count=1), row("z", 1, note="gone", count=None), None]
    after = [row("a", 1, note="old", count=2), None, row("z", 2, note="new", count=None)]
    assert await look_up(web, *keys, timestamp=done["timestamp"] - 1) == before
    assert await look_up(web, *keys, timestamp=done["timestamp"]) == after
    assert await look_up(web, *keys) == after
    assert await events(web) == [7, 8]
    _, found = await web.ask("GET", f"{EVENTS}/rows")
    assert {one["$timestamp"] for one in found["rows"]} == {done["timestamp"]}
    _, found = await web.ask("GET", f"{ALL}/{started['transaction']}")
    assert (found["state"], found["commit_timestamp"]) == ("committed", done["timestamp"])


async def test_rows_of_several_cells_appear_together(web: Web) -> None:
    far = await create_far(web)
    await create(web)
    await create_events(web)
    done = await commit(
        web, await begin(web),
        rows(row("a", 1, count=1)), rows(row("a", 1, count=2), table=far), rows({"id": 1}, table=FILL),
    )  # fmt: skip
    assert done["row_count"] == 3
    for table, count in ((TABLE, 1), (far, 2)):
        path = f"/v1/tables/{table}/lookup"
        for timestamp, expected in ((done["timestamp"], [{"count": count}]), (done["timestamp"] - 1, [None])):
            body = {"keys": [row("a", 1)], "columns": ["count"], "timestamp": timestamp}
            assert await web.ask("POST", path, body) == (200, {"rows": expected})
    assert await events(web) == [1]
    commits = web.node.server.node.cell.current.commits
    assert commits.counters.over_cells == 1
    await until(lambda: commits.unfinished_count == 0)


async def test_the_same_commit_gets_the_same_answer_and_is_written_once(web: Web) -> None:
    await create(web)
    await create_events(web)
    started = await begin(web)
    writes = (rows(row("a", 1, count=1)), rows({"id": 1}, table=FILL))
    done = await commit(web, started, *writes)
    repeated = {**done, "duplicate": True}
    assert await commit(web, started, *writes) == repeated
    assert (await refused(web, started, writes[0]))[:2] == (409, "TRANSACTION_CHANGED")
    await reopen(web)
    assert await commit(web, started, *writes) == repeated
    assert (await refused(web, started, rows(row("a", 1, count=2)), writes[1]))[:2] == (409, "TRANSACTION_CHANGED")
    assert await events(web) == [1]
    assert await look_up(web, row("a", 1), columns=["count"]) == [{"count": 1}]


async def test_commits_that_are_sent_at_once_are_one(web: Web) -> None:
    await create(web)
    await create_events(web)
    started = await begin(web)
    write = rows({"id": 1}, table=FILL)
    done = await asyncio.gather(*(commit(web, started, write) for _ in range(4)))
    assert sorted(one["duplicate"] for one in done) == [False, True, True, True]
    assert len({one["timestamp"] for one in done}) == 1
    assert await events(web) == [1]


async def test_a_transaction_of_before_a_restart_is_aborted(web: Web) -> None:
    await create(web)
    started = await begin(web)
    await reopen(web)
    assert (await refused(web, started, rows(row("a", 1))))[:2] == (404, "NO_TRANSACTION")
    assert await look_up(web, row("a", 1)) == [None]


@pytest.mark.parametrize("by", ["insert", "delete", "transaction"])
async def test_a_row_that_another_has_written_since_the_start_is_a_conflict(web: Web, by: str) -> None:
    await create(web)
    await create_events(web)
    await insert(web, row("a", 1, count=1))
    started = await begin(web)
    if by == "insert":
        await insert(web, row("a", 1, count=2))
    elif by == "delete":
        await web.ask("DELETE", f"{PATH}/rows", {"keys": [row("a", 1)]})
    else:
        await commit(web, await begin(web), rows(row("a", 1, count=2)))
    seen = await look_up(web, row("a", 1))
    body = {"writes": [rows(row("a", 1, count=9), row("b", 1)), rows({"id": 1}, table=FILL)]}
    status, answer = await web.ask("POST", f"{ALL}/{started['transaction']}/commit", body)
    assert (status, answer["error"]["code"], answer["error"]["number"]) == (409, "ROW_LOCK_CONFLICT", 1700)
    state, cause = await state_of(web, started)
    assert (state, bool(cause)) == ("aborted", True)
    assert await look_up(web, row("a", 1), row("b", 1)) == [*seen, None]
    assert await events(web) == []
    path = f"{ALL}/{started['transaction']}/commit"
    assert (await web.refusal("POST", path, body))[:2] == (409, "ROW_LOCK_CONFLICT")
    status, code, message = await web.refusal("POST", path, {"writes": []})
    assert (status, code) == (409, "TRANSACTION_ENDED"), "it was not committed with other writes"
    assert "is aborted" in message


async def test_rows_that_nobody_else_wrote_are_no_conflict(web: Web) -> None:
    await create(web)
    started = await begin(web)
    await insert(web, row("a", 2))
    await commit(web, started, rows(row("a", 1, count=1)))
    assert await look_up(web, row("a", 1), columns=["count"]) == [{"count": 1}]


TWICE = 'two writes to shop.stock have the key ["a", 1]'
BAD_WRITES: list[tuple[list[dict[str, Any]], int, str, str]] = [
    ([rows(row("a", 1), table="shop.none")], 404, "UNKNOWN_TOPIC_OR_PARTITION", ""),
    ([rows(row("a", 1), table="shop.topic")], 404, "NO_TABLE", "shop.topic"),
    ([rows({"id": 1}, table="shop.static")], 409, "STATIC_TABLE", "//shop/static"),
    ([rows({"id": 1}, table="shop.unmounted")], 409, "NO_MOUNTED_TABLETS", "//shop/unmounted"),
    ([rows(row("a", 1)), rows(row("b", 1, count="x"))], 400, "INVALID_ROW", "body.writes[1].rows[0]"),
    ([rows(), {"table": TABLE, "delete": [{"shop": "a"}]}], 400, "INVALID_ROW", "body.writes[1].delete[0]"),
    ([rows({"id": 1}, table=FILL), rows({"id": "x"}, table=FILL)], 400, "INVALID_ROW", "body.writes[1].rows[0]"),
    ([rows(row("a", 1), row("a", 1))], 400, "INVALID_ROW", "body.writes[0].rows[1]"),
    ([rows(row("a", 1)), {"table": TABLE, "delete": [row("a", 1)]}], 400, "INVALID_ROW", TWICE),
    ([rows({"id": 1}, table=FILL, update=True)], 409, "NOT_SORTED", "body.writes[0].rows has update"),
    ([{"table": FILL, "delete": [{"id": 1}]}], 409, "NOT_SORTED", "body.writes[0].delete has delete"),
]


@pytest.mark.parametrize(("writes", "status", "code", "words"), BAD_WRITES)
async def test_rows_that_are_not_written_are_refused_by_their_place_and_abort(
    web: Web, writes: list[dict[str, Any]], status: int, code: str, words: str
) -> None:
    await create(web)
    await create_events(web)
    await web.node.create_topic("shop.topic")
    schema = [{"name": "id", "type": "int64"}]
    for name, more in (("static", {"dynamic": False}), ("unmounted", {"mount": False})):
        made = await web.ask("POST", "/v1/tables", {"path": f"//shop/{name}", "schema": schema, **more})
        assert made[0] == 201, made
    started = await begin(web)
    refusal = await refused(web, started, *writes)
    assert refusal[:2] == (status, code)
    assert words in refusal[2]
    assert (await state_of(web, started))[0] == "aborted"
    assert await events(web) == []
    assert await look_up(web, row("a", 1), row("b", 1)) == [None, None]


@pytest.mark.parametrize("verb", ["freeze", "unmount"])
async def test_a_sorted_table_that_is_not_mounted_takes_no_writes(web: Web, verb: str) -> None:
    await create(web)
    await create_events(web)
    started = await begin(web)
    await web.ask("POST", f"{PATH}/{verb}", {})
    assert (await refused(web, started, rows({"id": 1}, table=FILL), rows(row("a", 1))))[:2] == (409, "WRONG_STATE")
    assert await events(web) == []


async def test_a_transaction_writes_so_many_rows(serve: Callable[..., Awaitable[Web]]) -> None:
    web = await serve(transaction_rows_max=3)
    await create(web)
    await create_events(web)
    of_two = (rows(row("a", 1), row("a", 2)), rows({"id": 1}, table=FILL))
    status, code, message = await refused(web, await begin(web), *of_two, {"table": TABLE, "delete": [row("a", 3)]})
    assert (status, code) == (413, "TOO_MANY_ROWS_IN_TRANSACTION")
    assert "4 rows" in message
    assert await look_up(web, row("a", 1)) == [None]
    assert (await commit(web, await begin(web), *of_two))["row_count"] == 3


async def test_a_transaction_writes_to_so_many_tablets(serve: Callable[..., Awaitable[Web]]) -> None:
    web = await serve(transaction_participants_max=2)
    await create(web, pivot_keys=[[], ["m"]])
    await create_events(web)
    of_two = rows(row("a", 1), row("z", 1))
    status, code, message = await refused(web, await begin(web), of_two, rows({"id": 1}, table=FILL))
    assert (status, code) == (413, "TOO_MANY_PARTICIPANTS")
    assert "3 tablets" in message
    assert await events(web) == []
    assert (await commit(web, await begin(web), of_two))["row_count"] == 2


async def test_a_commit_that_is_too_slow_before_its_decision_is_aborted(serve: Callable[..., Awaitable[Web]]) -> None:
    web = await serve(transaction_prepare_ms_max=100)
    far = await create_far(web)
    await create(web)
    await insert(web, row("a", 1, count=1))
    started = await begin(web)
    writes = (rows(row("a", 1, count=2)), rows(row("a", 1), table=far))
    web.node.engine.faults.hold()
    status, code, message = await refused(web, started, *writes)
    web.node.engine.faults.release()
    assert (status, code) == (503, "COMMIT_TOO_SLOW")
    assert "more than 0.1 s" in message
    assert (await state_of(web, started))[0] == "aborted"
    commits = web.node.server.node.cell.current.commits
    await until(lambda: commits.unfinished_count == 0)
    assert await look_up(web, row("a", 1), columns=["count"]) == [{"count": 1}]
    assert (await commit(web, await begin(web), *writes))["row_count"] == 2
