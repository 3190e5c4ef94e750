"""Following a topic over HTTP: every record as it comes, in both forms, and what a follower may cost."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import aiohttp
import pytest

from pqbroker.broker.web.resources import following
from tests.broker.conftest import until
from tests.broker.web.conftest import Web

Serve = Callable[..., Awaitable[Web]]
PATH = "/v1/topics/t/records?follow=true"
SSE = {"Accept": "text/event-stream"}


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=20)) as session:
        yield session


@pytest.fixture
async def web(serve: Serve) -> Web:
    """A node with a topic of three partitions."""
    web = await serve()
    await web.node.create_topic("t", 3)
    return web


async def lines(answer: aiohttp.ClientResponse, count: int) -> list[Any]:
    """The next records."""
    found: list[Any] = []
    while len(found) < count:
        line = await answer.content.readline()
        assert line, "the stream ended"
        if line != b"\n":
            found.append(json.loads(line))
    return found


async def events(answer: aiohttp.ClientResponse, count: int) -> list[dict[str, str]]:
    """The next server-sent events, by field."""
    found: list[dict[str, str]] = []
    while len(found) < count:
        event: dict[str, str] = {}
        while (line := await answer.content.readline()) not in (b"\n", b""):
            name, _, text = line.decode().rstrip("\n").partition(": ")
            event[name] = text
        assert line, "the stream ended"
        if "data" in event:
            found.append(event)
    return found


def places(records: list[Any]) -> list[tuple[int, int, Any]]:
    return [(record["partition"], record["offset"], record["value"]) for record in records]


async def test_records_of_all_partitions_come_as_they_are_written(web: Web, session: aiohttp.ClientSession) -> None:
    await web.node.produce("t", b"before", partition=1)
    async with session.get(web.url(PATH)) as answer:
        assert (answer.status, answer.content_type) == (200, "application/x-ndjson")
        assert places(await lines(answer, 1)) == [(1, 0, "before")]
        for partition in (2, 0, 1):
            await web.node.produce("t", b"a", b"b", partition=partition)
            first = 1 if partition == 1 else 0
            found = places(await lines(answer, 2))
            assert found == [(partition, first, "a"), (partition, first + 1, "b")]


async def test_a_record_has_the_form_in_which_it_can_be_posted(web: Web, session: aiohttp.ClientSession) -> None:
    record = {"key": {"base64": "/w=="}, "value": "v", "headers": [{"key": "h", "value": None}], "timestamp": 7}
    await web.ask("POST", "/v1/topics/t/records", {"records": [{**record, "partition": 2}]})
    async with session.get(web.url(PATH)) as answer:
        (found,) = await lines(answer, 1)
    assert found == {**record, "topic": "t", "partition": 2, "offset": 0}
    assert (await web.ask("POST", "/v1/topics/t/records", {"records": [found]}))[0] == 201


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("&from=end", [(0, 4, "new"), (1, 1, "new")]),
        ("&from=3", [(0, 3, "3"), (0, 4, "new"), (1, 1, "new")]),
        ("&offset=-1", [(0, 3, "3"), (1, 0, "x"), (0, 4, "new"), (1, 1, "new")]),
        ("&from=2023-11-14T22:13:20.002", [(0, 2, "2"), (0, 3, "3"), (0, 4, "new"), (1, 1, "new")]),
        ("&from=end&offsets=0:2", [(0, 2, "2"), (0, 3, "3"), (0, 4, "new"), (1, 1, "new")]),
        ("&partition=1", [(1, 0, "x"), (1, 1, "new")]),
        ("&limit=2&partition=0", [(0, 0, "0"), (0, 1, "1")]),
        ("&key=none&limit=1", []),
    ],
)
async def test_where_a_follower_begins(
    web: Web, session: aiohttp.ClientSession, query: str, found: list[tuple[int, int, str]]
) -> None:
    await web.node.produce("t", b"0", b"1", b"2", b"3")
    await web.node.produce("t", b"x", partition=1)
    async with session.get(web.url(PATH + query)) as answer:
        for partition in (0, 1):
            await web.node.produce("t", b"new", partition=partition, timestamp_ms=1_700_000_000_100)
        assert sorted(places(await lines(answer, len(found)))) == sorted(found)
        if "limit" in query and found:
            assert await answer.content.read() == b""


async def test_events_say_where_another_request_continues(web: Web, session: aiohttp.ClientSession) -> None:
    await web.node.produce("t", b"a", b"b")
    await web.node.produce("t", b"c", partition=2)
    async with session.get(web.url(PATH), headers=SSE) as answer:
        assert answer.content_type == "text/event-stream"
        found = await events(answer, 3)
    assert [json.loads(event["data"])["value"] for event in found] == ["a", "b", "c"]
    assert [event.get("id") for event in found] == [None, "0:2,1:0,2:0", "0:2,1:0,2:1"]
    await web.node.produce("t", b"d")
    async with session.get(web.url(PATH), headers={**SSE, "Last-Event-ID": found[-1]["id"]}) as answer:
        (event,) = await events(answer, 1)
    assert json.loads(event["data"])["value"] == "d"


async def test_a_topic_that_grows_is_followed_whole(web: Web, session: aiohttp.ClientSession) -> None:
    async with session.get(web.url(PATH + "&from=end")) as answer:
        await web.ask("POST", "/v1/topics/t/partitions", {"count": 4})
        await web.node.produce("t", b"new", partition=3)
        assert places(await lines(answer, 1)) == [(3, 0, "new")]


async def test_a_follower_survives_a_cell_that_is_opened_again(serve: Serve, session: aiohttp.ClientSession) -> None:
    web = await serve(test_door=True)
    await web.node.create_topic("t")
    await web.node.produce("t", b"a")
    async with session.get(web.url(PATH)) as answer:
        assert places(await lines(answer, 1)) == [(0, 0, "a")]
        await web.ask("POST", "/v1/test/store", {"fault": "lose_next"})
        await web.node.produce("t", b"lost")
        await until(lambda: web.node.server.node.metrics.cell_openings == 2)
        await web.node.produce("t", b"b")
        assert places(await lines(answer, 1)) == [(0, 1, "b")]


async def test_the_end_of_a_topic_ends_its_followers_with_the_cause(web: Web, session: aiohttp.ClientSession) -> None:
    async with session.get(web.url(PATH)) as plain, session.get(web.url(PATH), headers=SSE) as sent:
        await web.ask("DELETE", "/v1/topics/t")
        (problem,) = await lines(plain, 1)
        assert problem["error"]["code"] == "UNKNOWN_TOPIC_OR_PARTITION"
        assert await plain.content.read() == b""
        (event,) = await events(sent, 1)
        assert (event["event"], json.loads(event["data"])) == ("problem", problem)


async def test_silence_has_heartbeats(
    web: Web, session: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "HEARTBEAT_S", 0.01)
    monkeypatch.setattr(following, "GROWTH_LOOK_S", 0.01)
    async with session.get(web.url(PATH)) as plain, session.get(web.url(PATH), headers=SSE) as sent:
        assert await plain.content.readline() == b"\n"
        assert await sent.content.readline() == b":\n"


@pytest.mark.parametrize(
    ("query", "accept", "status", "code", "named"),
    [
        ("&from=soon", "*/*", 400, "INVALID_REQUEST", "from"),
        ("&from=1&time=1", "*/*", 400, "INVALID_REQUEST", "from and time"),
        ("&offsets=1", "*/*", 400, "INVALID_REQUEST", "offsets"),
        ("&offsets=0:" + "9" * 30, "*/*", 400, "INVALID_REQUEST", "offsets"),
        ("&partition=3", "*/*", 404, "UNKNOWN_TOPIC_OR_PARTITION", ""),
        ("&limit=0", "*/*", 400, "INVALID_REQUEST", "limit"),
        ("&follow=true", "*/*", 400, "INVALID_REQUEST", "follow"),
        ("", "application/json", 406, "NOT_ACCEPTABLE", "application/json"),
    ],
)
async def test_what_cannot_be_followed_is_refused(
    web: Web, query: str, accept: str, status: int, code: str, named: str
) -> None:
    refused = await web.refusal("GET", PATH + query, Accept=accept)
    assert refused[:2] == (status, code)
    assert named in refused[2]
    assert (await web.refusal("GET", PATH.replace("true", "yes")))[:2] == (400, "INVALID_REQUEST")
    assert (await web.refusal("GET", "/v1/topics/t/records?offsets=0:1"))[:2] == (400, "INVALID_REQUEST")
    assert (await web.refusal("GET", "/v1/topics/none/records?follow=true"))[0] == 404


async def test_one_follower_too_many_is_refused(serve: Serve, session: aiohttp.ClientSession) -> None:
    web = await serve(http_followers_max=1)
    await web.node.create_topic("t")
    async with session.get(web.url(PATH)) as answer:
        assert answer.status == 200
        status, code, message = await web.refusal("GET", PATH)
        assert (status, code) == (503, "TOO_MANY_FOLLOWERS")
        assert "1 streams" in message
    await until_followed(web, session)


async def until_followed(web: Web, session: aiohttp.ClientSession) -> None:
    """Return once the one place of a follower is free."""
    async with asyncio.timeout(10):
        while True:
            async with session.get(web.url(PATH)) as answer:
                if answer.status == 200:
                    return


async def test_a_follower_that_never_reads_is_cut(serve: Serve, session: aiohttp.ClientSession) -> None:
    web = await serve(http_request_timeout_ms=200, http_unsent_bytes_max=64 << 10, http_followers_max=1)
    await web.node.create_topic("t")
    address = web.node.server.http_address
    assert address is not None
    reader, writer = await asyncio.open_connection(address.host, address.port, limit=1024)
    writer.write(f"GET {PATH} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    await reader.readuntil(b"\r\n\r\n")
    for _ in range(150):  # more than both ends' sockets take
        await web.node.produce("t", b"x" * 100_000)
    await until_followed(web, session)
    writer.close()


async def test_a_node_that_stops_ends_its_followers(web: Web, session: aiohttp.ClientSession) -> None:
    async with session.get(web.url(PATH)) as answer:
        await web.node.server.stop()
        assert await answer.content.read() == b""
