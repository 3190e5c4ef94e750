"""More HTTP connections than may be: the last one is told so, and the others are served."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress

import pytest

from pqbroker.broker.http import door
from tests.broker.http.conftest import Web

ASKED = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
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


async def ask(streams: Streams) -> tuple[bytes, bytes]:
    """Status line and body of an answer."""
    reader, writer = streams
    writer.write(ASKED)
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
    return head.split(b"\r\n")[0], await reader.readexactly(length)


async def test_one_more_is_told_and_closed(serve: Callable[..., Awaitable[Web]], connect: Connect) -> None:
    web = await serve(http_connections_max=2)
    first, second = await connect(web), await connect(web)
    for streams in (first, second):
        assert (await ask(streams))[0] == b"HTTP/1.1 200 OK"
    third = await connect(web)
    status, body = await ask(third)
    assert status == b"HTTP/1.1 503 Service Unavailable"
    error = json.loads(body)["error"]
    assert (error["code"], error["message"]) == ("TOO_MANY_CONNECTIONS", "2 HTTP connections are open")
    assert "pqbroker.http.connections.max" in error["cure"]
    assert await third[0].read() == b""
    assert (await ask(first))[0] == b"HTTP/1.1 200 OK"
    assert web.node.server.node.metrics.http_requests["", "", "503"] == 1
    second[1].close()
    await second[1].wait_closed()
    async with asyncio.timeout(10):
        while (await ask(await connect(web)))[0] != b"HTTP/1.1 200 OK":
            pass


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (b"GET /v1/topics/" + b"x" * 9000 + b" HTTP/1.1\r\nHost: a\r\n\r\n", "8190 bytes"),
        (b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"x" * 9000 + b"\r\n\r\n", "8190 bytes"),
        (b"GET / HTTP/1.1\r\nno header\r\n\r\n", "nvalid header"),
        (b"\x00\x00\x00\x10\x00\x12\x00\x00", "nvalid"),
    ],
)
async def test_what_cannot_be_read_is_refused_as_the_routes_refuse(
    serve: Callable[..., Awaitable[Web]], connect: Connect, asked: bytes, words: str
) -> None:
    reader, writer = await connect(await serve())
    writer.write(asked)
    status, _, rest = (await reader.read()).partition(b"\r\n")
    head, _, body = rest.partition(b"\r\n\r\n")
    assert status.endswith(b" 400 Bad Request")
    assert b"Content-Type: application/json; charset=utf-8" in head
    error = json.loads(body)["error"]
    assert (error["code"], words in error["message"]) == ("UNREADABLE_REQUEST", True), error
    assert "8190" in error["cure"]


async def test_a_defect_is_told_as_an_error_of_ours(
    serve: Callable[..., Awaitable[Web]], connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    web = await serve()
    monkeypatch.setattr(web.node.server._cell, "current", None)
    status, body = await ask(await connect(web))
    monkeypatch.undo()
    assert status == b"HTTP/1.1 500 Internal Server Error"
    assert json.loads(body)["error"]["code"] == "UNKNOWN_SERVER_ERROR"


async def test_one_that_is_refused_and_asks_nothing_is_cut(
    serve: Callable[..., Awaitable[Web]], connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(door, "_TIMEOUT_S", 0.01)
    web = await serve(http_connections_max=1)
    first = await connect(web)
    assert (await ask(first))[0] == b"HTTP/1.1 200 OK"
    reader, _ = await connect(web)
    assert await reader.read() == b""


async def test_a_stop_ends_what_listens(serve: Callable[..., Awaitable[Web]], connect: Connect) -> None:
    web = await serve()
    first = await connect(web)
    await ask(first)
    await web.node.server.stop()
    assert await first[0].read() == b""
    with pytest.raises(ConnectionRefusedError):
        await connect(web)
