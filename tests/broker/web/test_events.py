"""Following the node: figures at once and every second, and what changed since."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import aiohttp
import pytest
from jsonschema import Draft202012Validator

from pqbroker.broker.ground.series import COUNTERS, GAUGES
from pqbroker.broker.web.resources import events
from pqbroker.broker.web.served import ROUTES
from tests.broker.web.conftest import Web
from tests.broker.web.test_sorted_background import flush, holds, set_attributes
from tests.broker.web.test_sorted_tables import create, insert, row

Serve = Callable[..., Awaitable[Web]]


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "EVENT_PERIOD_S", 0.01)


@pytest.fixture
async def answer(web: Web) -> AsyncIterator[aiohttp.ClientResponse]:
    timeout = aiohttp.ClientTimeout(total=20)
    async with aiohttp.ClientSession(timeout=timeout) as session, session.get(web.url("/v1/events")) as answer:
        yield answer


async def event(answer: aiohttp.ClientResponse, kind: str) -> Any:
    """The next event of a kind."""
    while line := await answer.content.readline():
        found = json.loads(line)
        if found["event"] == kind:
            return found
    raise AssertionError("the stream ended")


async def test_figures_come_again_and_again(web: Web, answer: aiohttp.ClientResponse) -> None:
    first = await event(answer, "figures")
    assert (first["cell"], first["node"], first["status"]) == (web.node.server.node.cell.current.cell.name, 1, "ok")
    assert set(first["figures"]) == {*COUNTERS, *GAUGES}
    await web.node.create_topic("t", 1)
    await web.node.produce("t", b"value")
    for _ in range(500):
        if (await event(answer, "figures"))["figures"]["bytes_in"] > first["figures"]["bytes_in"]:
            return
    raise AssertionError("bytes_in does not rise")


async def test_a_topic_is_seen_to_come_to_change_and_to_go(web: Web, answer: aiohttp.ClientResponse) -> None:
    await event(answer, "figures")
    await web.ask("POST", "/v1/topics", {"name": "t", "partitions": 1})
    assert (await event(answer, "topics"))["created"] == ["t"]
    await web.ask("POST", "/v1/topics/t/partitions", {"count": 2})
    grown = await event(answer, "topics")
    assert (grown["count"], grown["created"], grown["changed"]) == (1, [], ["t"])
    await web.ask("DELETE", "/v1/topics/t")
    assert (await event(answer, "topics"))["deleted"] == ["t"]


async def test_a_group_and_a_tablet_are_seen_to_change(web: Web, answer: aiohttp.ClientResponse) -> None:
    await event(answer, "figures")
    _, topic = await web.ask("POST", "/v1/topics", {"name": "t", "partitions": 1})
    tablet = topic["partitions"][0]["tablet"]
    assert str(tablet) in (await event(answer, "tablets"))["created"]
    place = {"topic": "t", "partition": 0, "offset": 0}
    await web.ask("POST", "/v1/groups/g/offsets", {"offsets": [place]})
    assert (await event(answer, "groups"))["created"] == ["g"]
    await web.ask("POST", f"/v1/tablets/{tablet}/restart", {})
    assert (await event(answer, "tablets"))["changed"] == [str(tablet)]


async def test_tasks_and_blocked_writes_of_a_sorted_table_are_seen(web: Web, answer: aiohttp.ClientResponse) -> None:
    await event(answer, "figures")
    await create(web, attributes={"max_overlapping_store_count": 2, "enable_compaction_and_partitioning": False})
    await event(answer, "figures")
    await insert(web, row("a", 1))
    await flush(web)
    seen = [await event(answer, "table_tasks")]
    while all(task["ended_ms"] is None for one in seen for task in one["tasks"]):
        seen.append(await event(answer, "table_tasks"))
    task = seen[-1]["tasks"][0]
    assert (task["kind"], task["table"], task["reason"]) == ("flush", "shop.stock", "asked for")
    assert len(task["outputs"]) == 1
    (streams,) = [route.streams for route in ROUTES if route.path == "/v1/events"]
    assert streams is not None
    Draft202012Validator(dict(streams[0])).validate(seen[-1])
    await insert(web, row("a", 1))
    await flush(web)
    background = web.node.server.node.cell.current.sorted_tables.background
    await holds(web, lambda: bool(background.blocks.tablets))
    blocked = await event(answer, "blocked_tables")
    assert (blocked["count"], blocked["created"]) == (1, ["shop.stock"])
    await set_attributes(web, max_overlapping_store_count=30)
    await holds(web, lambda: not background.blocks.tablets)
    assert (await event(answer, "blocked_tables"))["deleted"] == ["shop.stock"]


async def test_a_topic_that_feeds_a_sorted_table_is_seen_to_stop(web: Web, answer: aiohttp.ClientResponse) -> None:
    await web.ask("POST", "/v1/topics", {"name": "t"})
    await create(web)
    await event(answer, "figures")
    columns = {"shop": "key", "id": "$row_index"}
    await web.ask("POST", "/v1/materializations", {"topic": "t", "table": "shop.stock", "columns": columns})
    assert (await event(answer, "materializations"))["created"] == ["shop.stock"]
    await web.ask("DELETE", "/v1/topics/t")
    assert (await event(answer, "materializations"))["changed"] == ["shop.stock"]
    await web.ask("DELETE", "/v1/materializations/shop.stock")
    assert (await event(answer, "materializations"))["deleted"] == ["shop.stock"]


async def test_browsers_get_server_sent_events(web: Web) -> None:
    headers = {"Accept": "text/event-stream"}
    async with aiohttp.ClientSession() as session, session.get(web.url("/v1/events"), headers=headers) as answer:
        assert answer.content_type == "text/event-stream"
        assert await answer.content.readline() == b"event: figures\n"


async def test_streams_of_events_are_limited_with_those_of_records(serve: Serve) -> None:
    web = await serve(http_followers_max=0)
    status, code, message = await web.refusal("GET", "/v1/events")
    assert (status, code) == (503, "TOO_MANY_FOLLOWERS")
    assert "0" in message
    assert any(route.path == "/v1/events" and route.streams for route in ROUTES)
