"""What either client makes of connections that are refused, lost, silent or strange."""

import asyncio
import json
import re
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from pqbroker.client import AsyncClient, Client, ClientError
from pqbroker.http_client.asynchronous import CONNECTIONS_MAX
from pqbroker.testing import Broker
from tests.http_client.conftest import done

EMPTY_LIST: dict[str, Any] = {"tables": [], "next": None}
_HEAD_BYTES = 1 << 16


def answer(document: Any, *, status: str = "200 OK", promised: int = 0) -> bytes:
    """An HTTP answer; `promised`: bytes of its body that never come."""
    body = json.dumps(document).encode()
    head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(body) + promised}\r\n\r\n"
    return head.encode() + body


class Scripted:
    """A server that gives prepared answers, one for each request: bytes, after which the connection stays open or is
    closed, or None: it closes without a word."""

    def __init__(self, answers: Sequence[tuple[bytes | None, bool]]) -> None:
        self.requests: list[bytes] = []
        """First lines."""
        self.connections = 0
        self.closed = threading.Event()
        """Set once a connection was closed."""
        self._answers = list(answers)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()

    def _serve(self) -> None:
        while self._answers:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            with connection:
                self._talk(connection)
            self.closed.set()

    def _talk(self, connection: socket.socket) -> None:
        while self._answers and (request := _whole_request(connection)):
            self.requests.append(request.partition(b" HTTP")[0])
            given, stays = self._answers.pop(0)
            if given is not None:
                connection.sendall(given)
            if not stays:
                return


def _whole_request(connection: socket.socket) -> bytes:
    """Read a request with its body, which may come later than its head: what is not read when a connection is closed
    has its peer lose the answer too. Empty: the peer has closed."""
    request = bytearray()
    while True:
        head, end, body = bytes(request).partition(b"\r\n\r\n")
        length = re.search(rb"(?i)content-length: *([0-9]+)", head)
        if end and len(body) >= (int(length[1]) if length else 0):
            return bytes(request)
        more = connection.recv(_HEAD_BYTES)
        if not more:
            return bytes(request)
        request += more


@contextmanager
def scripted(*answers: tuple[bytes | None, bool]) -> Iterator[Scripted]:
    server = Scripted(answers)
    try:
        yield server
    finally:
        server.close()


@pytest.fixture(params=[Client, AsyncClient])
def kind(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture
def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
    return port


async def refused(kind: Any, address: str, call: str = "tables", **options: Any) -> ClientError:
    client = kind(address, **options)
    calls = {
        "tables": client.tables, "delete": client.table("t").delete, "insert": lambda: client.table("t").insert([{}]),
        "trim": lambda: client.table("t").trim(1), "sql": client.sql("SELECT 1").rows,
    }  # fmt: skip
    try:
        with pytest.raises(ClientError) as refusal:
            await done(calls[call]())
        return refusal.value
    finally:
        await done(client.close())


async def test_no_broker_is_named_with_its_address(kind: Any, free_port: int) -> None:
    refusal = await refused(kind, f"127.0.0.1:{free_port}")
    assert (refusal.code, refusal.status) == ("NO_BROKER", None)
    assert f"127.0.0.1:{free_port}" in refusal.message
    assert "pqbroker serve" in refusal.cure


@pytest.mark.parametrize("call", ["tables", "trim", "sql"])
async def test_what_only_reads_or_may_be_repeated_is_sent_once_more_after_a_lost_connection(
    kind: Any, call: str
) -> None:
    error = answer({"error": {"code": "C", "message": "m", "cure": "c"}}, status="400 No")
    with scripted((None, False), (error, False)) as server:
        assert (await refused(kind, server.address, call)).code == "C"
    assert len(server.requests) == 2
    with scripted((None, False), (None, False)) as server:
        assert (await refused(kind, server.address, call)).code == "CONNECTION_LOST"


@pytest.mark.parametrize("call", ["insert", "delete"])
async def test_what_may_not_be_repeated_is_sent_once(kind: Any, call: str) -> None:
    with scripted((None, False), (answer(EMPTY_LIST), False)) as server:
        refusal = await refused(kind, server.address, call)
        assert (refusal.code, len(server.requests)) == ("CONNECTION_LOST", 1)
        assert "unknown" in refusal.cure


async def test_a_connection_that_the_broker_has_closed_is_not_used_again(kind: Any) -> None:
    inserted = answer({"tablets": [{"tablet_index": 0, "first_row_index": 5, "row_count": 1}], "data_weight": 1})
    with scripted((answer(EMPTY_LIST), False), (inserted, False)) as server:
        client = kind(server.address)
        assert await done(client.tables()) == []
        assert server.closed.wait(10)
        assert (await done(client.table("t").insert([{}]))).row_count == 1
        await done(client.close())
    assert server.connections == 2


def test_the_synchronous_client_sends_a_body_with_its_head(monkeypatch: pytest.MonkeyPatch) -> None:
    pieces: list[bytes] = []
    send_all = socket.socket.sendall

    def sendall(self: socket.socket, data: bytes, flags: int = 0) -> None:
        if threading.current_thread() is threading.main_thread():  # the server's answers go another way
            pieces.append(bytes(data))
        send_all(self, data, flags)

    monkeypatch.setattr(socket.socket, "sendall", sendall)
    inserted = answer({"tablets": [], "data_weight": 1})
    with scripted((inserted, True), (inserted, True)) as server, Client(server.address) as client:
        for text, count in (("x", 1), ("x" * 100_000, 2)):
            client.table("t").insert([{"text": text}])
            body = b"".join(pieces).partition(b"\r\n\r\n")[2]
            assert (json.loads(body), len(pieces)) == ({"rows": [{"text": text}]}, count)
            pieces.clear()


def test_the_synchronous_client_closes_a_connection_that_the_broker_will_close() -> None:
    last = answer(EMPTY_LIST, status="200 OK\r\nConnection: close")
    with scripted((last, True), (last, True)) as server:
        with Client(server.address) as client:
            assert [client.tables(), client.tables()] == [[], []]
        assert server.connections == 2


def test_the_synchronous_client_keeps_its_connection_between_calls() -> None:
    with scripted((answer(EMPTY_LIST), True), (answer(EMPTY_LIST), True)) as server:
        with Client(server.address) as client:
            assert [client.tables(), client.tables()] == [[], []]
        assert server.connections == 1


async def test_an_answer_that_breaks_off_is_no_answer(kind: Any) -> None:
    with scripted((answer(EMPTY_LIST, promised=1), False), (answer(EMPTY_LIST), False)) as server:
        assert (await refused(kind, server.address)).code == "ANSWER_CUT"


async def test_a_silent_broker_is_given_up_after_the_time_that_is_set(kind: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        refusal = await refused(kind, f"127.0.0.1:{silent.getsockname()[1]}", timeout_s=0.05)
    assert refusal.code == "TIMED_OUT"
    assert "timeout_s = 0.05" in refusal.message


@pytest.mark.parametrize(
    "data", [b"+PONG\r\n\r\n", answer([1]), answer("no", status="500 Broken"), b"HTTP/1.1 200 OK\r\n\r\n<p>"]
)
async def test_what_is_no_pqbroker_is_called_so(kind: Any, data: bytes) -> None:
    with scripted((data, False)) as server:
        assert (await refused(kind, server.address)).code == "NO_PQBROKER"


async def test_plain_http_under_an_https_address_is_named(kind: Any, running: Broker) -> None:
    refusal = await refused(kind, f"https://{running.http}")
    assert refusal.code == "NO_BROKER"
    assert "does not speak TLS" in refusal.message


async def test_a_lost_answer_may_be_one_of_kafkas_address(kind: Any) -> None:
    with scripted((None, False), (None, False)) as server:
        refusal = await refused(kind, server.address)
    assert refusal.code == "CONNECTION_LOST"
    assert "an address of Kafka's" in refusal.cure


@pytest.mark.parametrize("address", ["", "a:b", "ftp://host", "http://host/path", "host:99999"])
def test_what_is_no_address_is_refused(kind: Any, address: str) -> None:
    with pytest.raises(ClientError) as refusal:
        kind(address)
    assert refusal.value.code == "INVALID_ADDRESS"


@pytest.mark.parametrize("token", ["token\n", "token\r\nHost: elsewhere"])
async def test_a_token_with_a_line_break_is_sent_to_nobody(kind: Any, token: str) -> None:
    with scripted((answer(EMPTY_LIST), False)) as server:
        client = kind(server.address, login=token)
        with pytest.raises(ClientError) as refusal:
            await done(client.tables())
        await done(client.close())
        assert (refusal.value.code, server.connections) == ("INVALID_HEAD", 0)


@pytest.mark.parametrize("address", ["{0}", "http://{0}", "http://{0}/"])
async def test_an_address_has_several_forms(kind: Any, address: str) -> None:
    with scripted((answer(EMPTY_LIST), False)) as server:
        client = kind(address.format(server.address))
        assert await done(client.tables()) == []
        await done(client.close())


async def test_the_asyncio_client_has_few_connections_at_once() -> None:
    count, most = 0, 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal count, most
        count += 1
        most = max(most, count)
        await reader.readuntil(b"\r\n\r\n")
        await asyncio.sleep(0)
        count -= 1
        writer.write(answer(EMPTY_LIST))
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1") as server:
        port = server.sockets[0].getsockname()[1]
        async with AsyncClient(f"127.0.0.1:{port}") as client:
            asked = (client.tables() for _ in range(3 * CONNECTIONS_MAX))
            assert await asyncio.gather(*asked) == [[]] * 3 * CONNECTIONS_MAX
    assert 1 < most <= CONNECTIONS_MAX
