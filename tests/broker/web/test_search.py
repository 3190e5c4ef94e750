"""Search in all partitions of a topic over HTTP, with the worker that does it."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import aiohttp
import pytest

from pqbroker.protocol.records import Record, encode_batch
from pqbroker.tables.work import process
from tests.broker.conftest import produce_request, until
from tests.broker.transacted_log import Q, begun
from tests.broker.web.conftest import Web

Serve = Callable[..., Awaitable[Web]]
PATH = "/v1/topics/t/search"
STAMP = 1_700_000_000_000


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60)) as session:
        yield session


@pytest.fixture
async def web(serve: Serve) -> Web:
    """A node with a topic of three partitions: 40 records each of JSON, under three codecs, half of them in bodies."""
    web = await serve()
    await web.node.create_topic("t", 3)
    for partition, codec in enumerate((0, 2, 4)):
        for first in (0, 20):
            values = [json.dumps({"id": 100 * partition + n}).encode() for n in range(first, first + 20)]
            stamp = STAMP + 1000 * first
            answer = await web.node.produce("t", *values, partition=partition, codec=codec, timestamp_ms=stamp)
            assert answer.error_code == 0
    return web


async def found(web: Web, body: Any, path: str = PATH) -> tuple[list[Any], dict[str, Any]]:
    """The matches of a search, and its last line's content."""
    lines = await web.lines(path, body)
    assert list(lines[0]) == ["progress"]
    assert list(lines[-1]) == ["end"]
    end: dict[str, Any] = lines[-1]["end"]
    matches = [line["match"] for line in lines if "match" in line]
    assert end["matches"] == len(matches)
    return matches, end


def places(matches: list[Any]) -> list[tuple[int, int]]:
    return [(match["partition"], match["offset"]) for match in matches]


async def test_terms_choose_among_the_records_of_all_partitions(web: Web) -> None:
    matches, end = await found(web, {"text": '"id": 107'})
    assert matches == [
        {
            "topic": "t", "partition": 1, "offset": 7, "timestamp": STAMP + 7, "key": None, "value": '{"id": 107}',
            "headers": [],
        }
    ]  # fmt: skip
    assert (end["reason"], end["records"], end["offsets"], end["offsets_total"]) == ("end", 120, 120, 120)
    assert (end["next_offsets"], end["unread"]) == ({}, 0)
    assert 0 < end["bytes"] <= end["decompressed_bytes"]
    for body, expected in (
        ({"where": ["id = 239"]}, [(2, 39)]),
        ({"where": ["id >= 38", "id < 101"]}, [(0, 38), (0, 39), (1, 0)]),
        ({"regex": "[12]05}$"}, [(1, 5), (2, 5)]),
        ({"text": "ID\": 3}", "ignore_case": True}, [(0, 3)]),
        ({"key": "k"}, []),
        ({"text": "5}", "partitions": [2], "from": "18", "until": "36"}, [(2, 25), (2, 35)]),
        ({"text": "5}", "from": "2023-11-14T22:13:40", "partitions": [0]}, [(0, 25), (0, 35)]),
        ({"text": "5}", "until": "2023-11-14T22:13:40", "partitions": [0]}, [(0, 5), (0, 15)]),
    ):
        assert places((await found(web, body))[0]) == expected, body


async def test_a_search_that_ends_at_a_limit_says_where_another_one_continues(web: Web) -> None:
    seen: list[tuple[int, int]] = []
    offsets: dict[str, int] = {}
    for _ in range(3):
        body = {"text": "1}", "limit": 5, **({"offsets": offsets} if offsets else {})}
        matches, end = await found(web, body)
        seen += places(matches)
        offsets = end["next_offsets"]
        if not offsets:
            break
        assert (end["reason"], len(matches)) == ("matches", 5)
    assert seen == [(partition, offset) for partition in range(3) for offset in (1, 11, 21, 31)]


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"search_bytes_max": 1}, "bytes"), ({"search_decompressed_bytes_max": 1}, "decompressed_bytes"),
        ({"search_answer_bytes_max": 200}, "answer_bytes"), ({"search_matches_max": 1}, "matches"),
    ],
)  # fmt: skip
async def test_a_search_ends_at_each_of_its_limits(serve: Serve, settings: dict[str, int], reason: str) -> None:
    web = await serve(**settings)
    await web.node.create_topic("t", 1)
    for _ in range(2):
        await web.node.produce("t", b"match " * 10, b"match " * 10)
    matches, end = await found(web, {"text": "match", "offsets": {"0": 1}})
    assert (end["reason"], len(matches), end["next_offsets"]) == (reason, 1, {"0": 2})
    matches, end = await found(web, {"text": "match", "offsets": {"0": 3}})
    assert (len(matches), end["unread"]) == (1, 0)


async def test_batches_that_hold_no_records_or_too_much_are_named_and_passed_over(serve: Serve) -> None:
    web = await serve(search_batch_bytes_max=1024)
    await web.node.create_topic("t", 1)
    await web.node.produce("t", b"match " * 1000, codec=4)
    await web.node.produce("t", b"match")
    lines = await web.lines(PATH, {"text": "match"})
    (unread,) = [line["unread"] for line in lines if "unread" in line]
    assert (unread["partition"], unread["offset"], unread["end_offset"]) == (0, 0, 1)
    assert "1024" in unread["reason"]
    assert [line["match"]["offset"] for line in lines if "match" in line] == [1]
    assert lines[-1]["end"]["unread"] == 1


async def test_a_search_reads_what_is_committed(serve: Serve) -> None:
    web = await serve()
    server = await begun(web.node)
    assert places((await found(web, {}))[0]) == [(0, 0), (0, 2)]
    all_records = {"isolation": "read_uncommitted"}
    assert places((await found(web, all_records))[0]) == [(0, each) for each in (0, 1, 2, 3, 6, 7)]
    await server.flush()
    await server.end_transaction(Q, 0, 4, is_commit=True)
    assert places((await found(web, {}))[0]) == [(0, 0), (0, 2), (0, 6), (0, 7)]


async def test_searches_that_are_none_are_refused(web: Web) -> None:
    for body, code, words in (
        ({"text": ""}, "INVALID_SEARCH", "text is empty"),
        ({"regex": "("}, "INVALID_SEARCH", "regex"),
        ({"where": ["= 1"]}, "INVALID_SEARCH", "PATH = VALUE"),
        ({"limit": 100_001}, "INVALID_REQUEST", "pqbroker.search.matches.max"),
        ({"from": "soon"}, "INVALID_REQUEST", "body.from"),
        ({"offsets": {"x": 1}}, "INVALID_REQUEST", "body.offsets"),
        ({"offsets": {"0": "x"}}, "INVALID_REQUEST", "body.offsets"),
        ({"isolation": "x"}, "INVALID_REQUEST", "body.isolation"),
        ({"partitions": [3]}, "UNKNOWN_TOPIC_OR_PARTITION", ""),
    ):
        status, found_code, message = await web.refusal("POST", PATH, body)
        assert (status in (400, 404), found_code) == (True, code), (body, message)
        assert words in message
    assert (await web.refusal("POST", "/v1/topics/other/search", {}))[0] == 404


async def test_one_search_too_many_waits_and_is_refused_after_its_time(web: Web) -> None:
    searchers = web.node.server.node.searchers
    await searchers.slots.begin("test", 1)
    await searchers.slots.begin("other", 2)
    status, code, message = await web.refusal("POST", PATH, {"timeout_ms": 1})
    assert (status, code) == (503, "TOO_MANY_SEARCHES")
    assert "pqbroker.search.searches.max = 2" in message
    searchers.slots.end("other")
    searchers.slots.end("test")
    assert (await found(web, {"text": "107"}))[1]["matches"] == 1
    assert not searchers.slots.running


async def test_more_searches_than_may_wait_are_refused_at_once(serve: Serve) -> None:
    web = await serve(search_searches_max=1, search_searches_waiting_max=1)
    await web.node.create_topic("t", 1)
    await web.node.produce("t", b"107")
    slots = web.node.server.node.searchers.slots
    await slots.begin("other", 1)
    waiting = asyncio.create_task(found(web, {"text": "107"}))
    await until(lambda: slots.waiting == 1)
    status, code, message = await web.refusal("POST", PATH, {})
    assert (status, code) == (503, "TOO_MANY_SEARCHES")
    assert "1 searches wait for their turn, of at most pqbroker.search.searches.waiting.max = 1" in message
    slots.end("other")
    assert (await waiting)[1]["matches"] == 1


async def test_a_search_ends_when_its_time_is_over(web: Web) -> None:
    assert (await found(web, {"text": "107", "timeout_ms": 1}))[1]["reason"] in ("time", "end")


async def test_closing_the_connection_frees_the_worker(serve: Serve, session: aiohttp.ClientSession) -> None:
    web = await serve()
    await web.node.create_topic("t", 1)
    client = await web.node.connect()
    batch = encode_batch([Record(value=b"match " * 200)] * 500, codec=4)
    for _ in range(40):
        await client.ask(produce_request("t", bytes(batch)), 9)
    searchers = web.node.server.node.searchers
    async with session.post(web.url(PATH), json={"text": "match", "limit": 100_000}) as answer:
        assert b"progress" in await answer.content.readline()
        (pid,) = searchers.pids
        answer.close()
    await until(lambda: not searchers.slots.running)
    assert searchers.counters.ended == {"left": 1}
    assert (searchers.pids, searchers.running) == ([pid], 0)
    metrics = await web.text("/metrics")
    assert 'pqbroker_searches_total{outcome="left"} 1.0' in metrics


async def test_a_search_over_its_memory_ends_and_a_new_worker_serves(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    web = await serve(search_memory_bytes_max=128 << 20)
    await web.node.create_topic("t", 1)
    await web.node.produce("t", b"107")
    command = (sys.executable, "-m", "tests.support.scripted_worker")
    usual = process.COMMAND
    monkeypatch.setattr(process, "COMMAND", command)
    status, code, message = await web.refusal("POST", PATH, {"text": "grow"})
    assert (status, code) == (413, "SEARCH_TOO_LARGE")
    assert "pqbroker.search.memory.bytes.max" in message
    monkeypatch.setattr(process, "COMMAND", usual)
    assert (await found(web, {"text": "107"}))[1]["matches"] == 1
