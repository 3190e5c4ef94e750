"""What the broker does around a query: limits, cancelling, worker processes. The workers here do what a query names."""

import asyncio
import hashlib
import json
import os
import random
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from pqbroker.broker.ground.listeners import Address
from pqbroker.broker.node.server import Server
from pqbroker.conf.broker import BrokerSettings
from pqbroker.storage.engine_kinds import kind_of
from pqbroker.tables.work import process
from pqbroker.tables.work.messages import pack
from tests.broker.conftest import make_batch, produce_request, until
from tests.broker.web.conftest import Web
from tests.broker.wire import Client

Serve = Callable[..., Awaitable[Web]]
MIB = 1 << 20


@pytest.fixture(autouse=True)
def scripted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "COMMAND", (sys.executable, "-m", "tests.support.scripted_worker"))


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=30)) as session:
        yield session


def pids(web: Web) -> list[int]:
    return web.node.server.node.workers.pids


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def refusal(web: Web, query: str, **body: Any) -> tuple[int, str, str]:
    return await web.refusal("POST", "/v1/sql", {"query": query, **body})


async def say(web: Web, what: str = "hello") -> int:
    """The pid of the worker that answered."""
    status, answer = await web.ask("POST", "/v1/sql", {"query": f"say {what}"})
    assert (status, answer["said"]) == (200, what)
    pid: int = answer["pid"]
    return pid


async def test_a_worker_is_used_again_for_the_next_query(web: Web) -> None:
    first = await say(web, "a")
    assert await say(web, "b") == first
    assert pids(web) == [first]


async def test_a_node_without_queries_has_no_worker_and_a_stopped_one_none_left(web: Web) -> None:
    assert pids(web) == []
    pid = await say(web)
    await web.node.server.node.workers.close()
    assert not is_running(pid)
    assert pids(web) == []


async def test_a_worker_that_waits_too_long_for_a_query_is_ended(serve: Serve) -> None:
    web = await serve(sql_worker_idle_ms=1)
    pid = await say(web)
    await until(lambda: not is_running(pid))
    assert pids(web) == []


async def test_an_idle_worker_that_was_killed_is_replaced(web: Web) -> None:
    first = await say(web)
    os.kill(first, 9)
    second = await say(web)
    assert second != first
    assert pids(web) == [second]


async def test_an_answer_may_be_empty(web: Web, session: aiohttp.ClientSession) -> None:
    async with session.post(web.url("/v1/sql"), json={"query": "nothing"}) as answer:
        assert (answer.status, answer.content_type, await answer.read()) == (200, "application/x-ndjson", b"")


@pytest.mark.parametrize(
    ("format_", "content_type"), [("csv", "text/csv"), ("arrow", "application/vnd.apache.arrow.stream")]
)
async def test_the_content_type_is_that_of_the_format(
    web: Web, session: aiohttp.ClientSession, format_: str, content_type: str
) -> None:
    async with session.post(web.url("/v1/sql"), json={"query": "nothing", "format": format_}) as answer:
        assert (answer.status, answer.content_type) == (200, content_type)


async def test_an_explanation_is_a_document(web: Web) -> None:
    assert await web.ask("POST", "/v1/sql", {"query": "say it", "explain": True}) == (200, {"plan": "it"})


async def test_what_the_worker_refuses_is_an_error_and_the_worker_continues(web: Web) -> None:
    assert await refusal(web, "refuse INVALID_QUERY") == (400, "INVALID_QUERY", "no")
    assert await refusal(web, "refuse TABLES_NOT_INSTALLED", explain=True) == (501, "TABLES_NOT_INSTALLED", "no")
    assert len(pids(web)) == 1


async def test_an_error_after_the_first_piece_is_the_last_line(web: Web, session: aiohttp.ClientSession) -> None:
    async with session.post(web.url("/v1/sql"), json={"query": "begin-refuse QUERY_FAILED"}) as answer:
        lines = [json.loads(line) for line in (await answer.read()).splitlines()]
    assert lines == [{"n": 1}, {"error": {"code": "QUERY_FAILED", "message": "no", "cure": "none"}}]


@pytest.mark.parametrize("format_", ["csv", "arrow"])
async def test_another_format_breaks_off(web: Web, session: aiohttp.ClientSession, format_: str) -> None:
    async with session.post(web.url("/v1/sql"), json={"query": "begin-refuse X", "format": format_}) as answer:
        assert answer.status == 200
        with pytest.raises(aiohttp.ClientPayloadError):
            await answer.read()


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ({"query": "say x", "format": "xml"}, "format"),
        ({"query": 1}, "query"),
        ({}, "query"),
        ({"query": "say x", "timeout_ms": 0}, "timeout_ms"),
        ({"query": "say x", "limit": 1}, "limit"),
    ],
)
async def test_what_is_no_question_is_refused(web: Web, body: Any, named: str) -> None:
    status, _, message = await web.refusal("POST", "/v1/sql", body)
    assert status == 400
    assert named in message
    assert pids(web) == []


async def test_a_query_over_its_time_is_killed_and_a_new_worker_serves(serve: Serve) -> None:
    web = await serve(sql_time_ms_max=300)
    status, code, message = await refusal(web, "wait")
    assert (status, code) == (504, "QUERY_TOO_LONG")
    assert "pqbroker.sql.time.ms.max" in message
    assert pids(web) == []
    assert (await refusal(web, "wait", timeout_ms=1))[:2] == (504, "QUERY_TOO_LONG")


async def test_a_query_over_its_time_says_so_in_the_last_line(web: Web, session: aiohttp.ClientSession) -> None:
    """Which is the only one where the first row took too long already."""
    await say(web)
    async with session.post(web.url("/v1/sql"), json={"query": "begin-wait", "timeout_ms": 500}) as answer:
        lines = [json.loads(line) for line in (await answer.read()).splitlines()]
    assert lines[-1]["error"]["code"] == "QUERY_TOO_LONG"
    assert lines[:-1] in ([], [{"n": 1}])


async def test_a_query_over_its_memory_ends_and_a_new_worker_serves(serve: Serve) -> None:
    web = await serve(sql_memory_bytes_max=128 * MIB)
    status, code, message = await refusal(web, "grow")
    assert (status, code) == (413, "QUERY_TOO_LARGE")
    assert "pqbroker.sql.memory.bytes.max" in message
    assert pids(web) == []
    await say(web)


async def test_a_worker_that_keeps_much_memory_is_not_used_again(web: Web) -> None:
    await web.ask("POST", "/v1/sql", {"query": "bloat"})
    assert pids(web) == []


async def test_a_worker_that_dies_is_an_error(web: Web) -> None:
    status, code, message = await refusal(web, "exit 3")
    assert (status, code) == (503, "WORKER_LOST")
    assert "status 3" in message
    assert pids(web) == []


async def test_an_answer_over_its_bytes_breaks_off(serve: Serve, session: aiohttp.ClientSession) -> None:
    web = await serve(sql_result_bytes_max=MIB)
    async with session.post(web.url("/v1/sql"), json={"query": "flood"}) as answer:
        data = await answer.read()
    assert data[:MIB] == b"x" * MIB
    assert json.loads(data[MIB:])["error"]["code"] == "RESULT_TOO_LARGE"
    assert pids(web) == []


async def test_one_query_too_many_waits_and_is_refused_after_its_time(
    serve: Serve, session: aiohttp.ClientSession
) -> None:
    web = await serve(sql_queries_max=1)
    async with session.post(web.url("/v1/sql"), json={"query": "begin-wait"}) as answer:
        await answer.content.readline()
        status, code, message = await refusal(web, "say x", timeout_ms=50)
        assert (status, code) == (503, "TOO_MANY_QUERIES")
        assert "1 SQL queries" in message
        assert "waited 50 ms" in message
        waiting = asyncio.create_task(say(web))
        await until(lambda: web.node.server.node.workers.slots.waiting == 1)
    await waiting
    await until(lambda: not web.node.server.node.workers.slots.running)


async def test_more_queries_than_may_wait_are_refused_at_once(serve: Serve, session: aiohttp.ClientSession) -> None:
    web = await serve(sql_queries_max=1, sql_queries_waiting_max=1)
    async with session.post(web.url("/v1/sql"), json={"query": "begin-wait"}) as answer:
        await answer.content.readline()
        waiting = asyncio.create_task(say(web))
        await until(lambda: web.node.server.node.workers.slots.waiting == 1)
        status, code, message = await refusal(web, "say x")
        assert (status, code) == (503, "TOO_MANY_QUERIES")
        assert "1 SQL queries wait for their turn, of at most pqbroker.sql.queries.waiting.max = 1" in message
    await waiting
    assert await say(web)


async def test_a_query_that_waits_is_forgotten_when_its_client_goes(
    serve: Serve, session: aiohttp.ClientSession
) -> None:
    web = await serve(sql_queries_max=1)
    slots = web.node.server.node.workers.slots
    async with session.post(web.url("/v1/sql"), json={"query": "begin-wait"}) as answer:
        await answer.content.readline()
        waiting = asyncio.create_task(say(web))
        await until(lambda: slots.waiting == 1)
        waiting.cancel()
        await until(lambda: not slots.waiting)
    await until(lambda: not slots.running)


async def test_without_places_every_query_is_refused_at_once(serve: Serve) -> None:
    web = await serve(sql_queries_max=0)
    status, code, message = await refusal(web, "say x")
    assert (status, code) == (503, "TOO_MANY_QUERIES")
    assert "pqbroker.sql.queries.max = 0" in message


@pytest.mark.parametrize("query", ["wait", "begin-wait", "flood"])
async def test_the_worker_is_killed_when_the_client_goes(web: Web, query: str) -> None:
    address = web.node.server.http_address
    assert address is not None
    reader, writer = await asyncio.open_connection(address.host, address.port, limit=1024)
    body = json.dumps({"query": query}).encode()
    head = f"POST /v1/sql HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    writer.write(f"{head}\r\n\r\n".encode() + body)
    if query != "wait":
        await reader.readuntil(b"\r\n\r\n")
    await until(lambda: len(pids(web)) == 1)
    (pid,) = pids(web)
    writer.transport.abort()
    await until(lambda: not pids(web))
    await until(lambda: not is_running(pid))


async def test_a_worker_ends_when_its_broker_is_gone() -> None:
    ours, theirs = socket.socketpair()
    worker = process.spawn(theirs)
    theirs.close()
    ours.sendall(pack("query", {"query": "begin-wait", "memory_bytes_max": MIB << 10}))
    assert await asyncio.to_thread(ours.recv, 1)
    ours.close()
    assert await asyncio.to_thread(worker.wait, 10) == 0


async def test_topics_that_do_not_exist_are_refused(web: Web) -> None:
    assert (await refusal(web, "read none"))[:2] == (404, "UNKNOWN_TOPIC_OR_PARTITION")


async def test_rows_come_from_segment_files_and_from_memory(tmp_path: Path, session: aiohttp.ClientSession) -> None:
    settings = BrokerSettings()
    engine = kind_of(str(tmp_path)).engine(str(tmp_path), settings)
    server = Server(settings, engine, Address("127.0.0.1", 0), Address("127.0.0.1", 0))
    await server.start()
    try:
        client = await Client.connect("127.0.0.1", server.kafka_address.port)
        topic = await server.node.cell.current.topics.create("t", 2, {})
        for number in range(20):
            values = [content(number) for _ in range(6)]
            batch = make_batch(*values, codec=number % 5)
            answer = await client.ask(produce_request("t", batch, number % 5 // 4), 9)
            assert answer.responses[0].partition_responses[0].error_code == 0
        await client.close()
        assert [len(partition.state.bodies) for partition in topic.partitions] == [2, 0]
        assert topic.partitions[1].state.head.size
        async with session.post(f"http://{server.http_address}/v1/sql", json={"query": "read t"}) as answer:
            rows = [json.loads(line) for line in (await answer.read()).splitlines()]
    finally:
        await server.stop()
    written = {tablet: [number for number in range(20) if number % 5 // 4 == tablet] for tablet in (0, 1)}
    assert [row[:2] for row in rows] == [[tablet, row] for tablet in (0, 1) for row in range(6 * len(written[tablet]))]
    for tablet, row, value in rows:
        assert value == hashlib.sha256(content(written[tablet][row // 6])).hexdigest()


def content(number: int) -> bytes:
    """Bytes of a value that no codec makes smaller."""
    return random.Random(number).randbytes(140_000)
