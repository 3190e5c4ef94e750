"""Connections of HTTP: more than may be, slow ones, silent ones, lost ones, and requests that are unreadable."""

import asyncio
import json
import logging
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress

import pytest

from pqbroker.broker.web import endpoints
from tests.broker.conftest import until
from tests.broker.web.conftest import Web

HEALTH = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
METRICS = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"
TOPICS = b"GET /v1/topics HTTP/1.1\r\nHost: localhost\r\n\r\n"
RECORD = b'{"records":[{"value":"a"}]}'
PRODUCE = (
    b"POST /v1/topics/t/records HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b"Content-Length: %d\r\n\r\n" % len(RECORD)
)
LINGER_RST = struct.pack("ii", 1, 0)
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Connect = Callable[[Web], Awaitable[Streams]]


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    """Connects to a node; all connections end with the test."""
    opened: list[Streams] = []

    async def connect_one(web: Web) -> Streams:
        address = web.node.server.http_address
        assert address is not None
        opened.append(await asyncio.open_connection("127.0.0.1", address.port))
        return opened[-1]

    yield connect_one
    for _, writer in opened:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


async def ask(streams: Streams, asked: bytes = TOPICS) -> tuple[int, bytes]:
    """Status and body of an answer."""
    streams[1].write(asked)
    return await answer(streams[0])


async def answer(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
    return int(head.split(b" ")[1]), await reader.readexactly(length)


async def is_closed(streams: Streams) -> bool:
    async with asyncio.timeout(10):
        try:
            return await streams[0].read() == b""
        except ConnectionResetError:
            return True


async def test_an_idle_connection_makes_way_for_one_more(
    serve: Callable[..., Awaitable[Web]], connect: Connect
) -> None:
    web = await serve(http_connections_max=2)
    first, second = await connect(web), await connect(web)
    assert (await ask(first))[0] == (await ask(second))[0] == (await ask(first))[0] == 200
    third = await connect(web)
    assert (await ask(third))[0] == 200
    assert await is_closed(second)
    assert (await ask(first))[0] == 200


async def test_while_all_are_in_work_one_more_is_refused_and_health_and_metrics_answer(
    serve: Callable[..., Awaitable[Web]], connect: Connect
) -> None:
    web = await serve(http_connections_max=2)
    await web.node.create_topic("t")
    web.node.engine.faults.hold()
    writers = [await connect(web) for _ in range(2)]
    for _, writer in writers:
        writer.write(PRODUCE + RECORD)
    topic = web.node.server.node.cell.current.topics.get("t")
    assert topic is not None
    await until(lambda: topic.partitions[0].writer.queue.__len__() == 1)
    status, body = await ask(await connect(web))
    error = json.loads(body)["error"]
    assert (status, error["code"]) == (503, "TOO_MANY_CONNECTIONS")
    assert "2 HTTP connections" in error["message"]
    assert "pqbroker.http.connections.max" in error["cure"]
    for _ in range(40):  # more than there are reserved places
        assert (await ask(await connect(web), HEALTH))[0] == 200
    assert (await ask(await connect(web), METRICS))[0] == 200
    web.node.engine.faults.release()
    assert [(await answer(reader))[0] for reader, _ in writers] == [201, 201]
    assert web.node.server.node.metrics.http_requests["", "", "503"] == 1


async def test_of_connections_without_a_request_the_oldest_goes_first(
    serve: Callable[..., Awaitable[Web]], connect: Connect
) -> None:
    web = await serve(http_arrivals_max=3)
    silent = [await connect(web) for _ in range(3)]
    for _, writer in silent:
        writer.write(HEALTH[:5])  # half a request is none
    assert (await ask(await connect(web), HEALTH))[0] == 200
    assert await is_closed(silent[0])
    silent[1][1].write(HEALTH[5:])
    assert (await answer(silent[1][0]))[0] == 200


async def test_a_client_that_takes_too_long_is_closed(
    serve: Callable[..., Awaitable[Web]], connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endpoints, "OVERDUE_LOOK_S", 0.01)
    web = await serve(http_request_timeout_ms=50)
    await web.node.create_topic("t")
    head, body, idle = [await connect(web) for _ in range(3)]
    head[1].write(TOPICS[:-2])
    body[1].write(PRODUCE + RECORD[:-1])
    assert (await ask(idle))[0] == 200
    assert [await is_closed(head), await is_closed(body)] == [True, True]
    assert (await ask(idle))[0] == 200


async def test_a_connection_between_two_requests_is_kept_for_its_time(
    serve: Callable[..., Awaitable[Web]], connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endpoints, "OVERDUE_LOOK_S", 0.01)
    web = await serve(http_idle_timeout_ms=1)
    streams = await connect(web)
    assert (await ask(streams))[0] == 200
    assert await is_closed(streams)


async def test_answers_that_nobody_takes_are_bounded(serve: Callable[..., Awaitable[Web]], connect: Connect) -> None:
    size = 8_000_000  # more than the system takes into its buffers
    web = await serve(http_bytes_max=2 * size, http_answer_bytes_max=2 * size)
    await web.node.create_topic("t", max_message_bytes=str(2 * size))
    assert (await web.node.produce("t", b"v" * size)).error_code == 0
    asked = TOPICS.replace(b"/topics", b"/topics/t/records")
    lazy = [await connect(web) for _ in range(3)]
    for reader, writer in lazy:
        writer.write(asked)
        await reader.readuntil(b"\r\n\r\n")
    assert (await ask(await connect(web), asked))[0] == 200
    for reader, _ in lazy:
        with pytest.raises((asyncio.IncompleteReadError, ConnectionResetError)):
            await reader.readexactly(size)


async def test_an_answer_above_all_that_may_be_held_is_refused(serve: Callable[..., Awaitable[Web]]) -> None:
    web = await serve(http_bytes_max=2000)
    await web.node.create_topic("t")
    assert (await web.node.produce("t", b"v" * 3000)).error_code == 0
    status, code, message = await web.refusal("GET", "/v1/topics/t/records")
    assert (status, code) == (503, "TOO_MUCH_AT_ONCE")
    assert "pqbroker.http.inflight.bytes.max" in message
    asked = {"records": [{"value": "v" * 3000}]}
    assert (await web.refusal("POST", "/v1/topics/t/records", asked))[:2] == (503, "TOO_MUCH_AT_ONCE")


async def test_what_a_lost_connection_held_is_free_again(
    serve: Callable[..., Awaitable[Web]], connect: Connect
) -> None:
    web = await serve(http_bytes_max=5000)
    await web.node.create_topic("t")
    for _ in range(5):
        _, writer = await connect(web)
        writer.write(PRODUCE.replace(b"27", b"9000") + b" " * 3000)
        await writer.drain()
        writer.close()
        assert (await ask(await connect(web), PRODUCE + RECORD))[0] == 201


@pytest.mark.parametrize("asked", [TOPICS[:20], PRODUCE + RECORD[:-1], TOPICS, PRODUCE + RECORD])
async def test_a_client_that_resets_its_connection_leaves_no_line_in_the_log(
    serve: Callable[..., Awaitable[Web]], caplog: pytest.LogCaptureFixture, asked: bytes
) -> None:
    web = await serve()
    await web.node.create_topic("t")
    address = web.node.server.http_address
    assert address is not None
    caplog.clear()
    caplog.set_level(logging.INFO)
    for _ in range(20):
        with socket.create_connection((address.host, address.port)) as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_RST)
            client.sendall(asked)
            await asyncio.sleep(0.001)  # so that some are read before the reset and some are not
    assert (await web.ask("GET", "/health"))[0] == 200
    assert caplog.text == ""


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (b"GET /v1/topics/" + b"x" * 9000 + b" HTTP/1.1\r\nHost: a\r\n\r\n", "8190 bytes"),
        (b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"x" * 9000 + b"\r\n\r\n", "8190 bytes"),
        (b"GET / HTTP/1.1\r\nno header\r\n\r\n", "nvalid header"),
        (b"\x00\x00\x00\x10\x00\x12\x00\x00", "nvalid"),
        (b"G" * 20_000, "8190 bytes"),
    ],
)
async def test_what_cannot_be_read_is_refused_as_the_routes_refuse(
    serve: Callable[..., Awaitable[Web]],
    connect: Connect,
    caplog: pytest.LogCaptureFixture,
    asked: bytes,
    words: str,
) -> None:
    reader, writer = await connect(await serve())
    writer.write(asked)
    status, _, rest = (await reader.read()).partition(b"\r\n")
    head, _, body = rest.partition(b"\r\n\r\n")
    assert status.endswith(b" 400 Bad Request")
    assert b"Content-Type: application/json; charset=utf-8" in head
    error = json.loads(body)["error"]
    assert (error["code"], words in error["message"] + error["cure"]) == ("UNREADABLE_REQUEST", True), error
    assert "8190" in error["cure"]
    assert "Traceback" not in caplog.text


async def test_a_defect_is_told_as_an_error_of_ours(
    serve: Callable[..., Awaitable[Web]], connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    web = await serve()
    monkeypatch.setattr(web.node.server.node.cell.current.topics, "names", None)
    status, body = await ask(await connect(web), TOPICS)
    monkeypatch.undo()
    assert status == 500
    assert json.loads(body)["error"]["code"] == "UNKNOWN_SERVER_ERROR"


async def test_a_stop_ends_what_listens(serve: Callable[..., Awaitable[Web]], connect: Connect) -> None:
    web = await serve()
    first, silent = await connect(web), await connect(web)
    assert (await ask(first))[0] == 200
    await web.node.server.stop()
    assert await is_closed(first)
    assert await is_closed(silent)
    with pytest.raises(ConnectionRefusedError):
        await connect(web)
