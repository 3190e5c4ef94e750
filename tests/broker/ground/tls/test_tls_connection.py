"""A connection under TLS as the protocol above it sees it: what comes, what goes, how it ends; over real sockets.

The other end is Python's ssl on a socket, in a thread where it must not run in the loop.
"""

import asyncio
import logging
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import cast

import pytest

from pqbroker.broker.ground.listeners import Listener
from pqbroker.broker.ground.tls import tls_connection
from pqbroker.broker.ground.tls.tls_connection import CIPHERTEXT_BYTES, TlsConnection
from pqbroker.broker.ground.tls.tls_listeners import TlsListeners
from pqbroker.conf.addresses import Address
from pqbroker.conf.broker import BrokerSettings
from pqbroker.conf.declare import parse
from pqbroker.security.protocols import SecurityProtocol
from tests.broker.conftest import until
from tests.support.authority import Certificates, certificates

MIB = 1 << 20
LISTENER = Listener("SSL", Address("127.0.0.1", 0), protocol=SecurityProtocol.SSL)


class Upper(asyncio.BufferedProtocol):
    """Notes what comes."""

    def __init__(self, buffer_bytes: int = 5000) -> None:
        self.buffer = memoryview(bytearray(buffer_bytes))
        self.received = bytearray()
        self.events: list[str] = []
        self.transport: TlsConnection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(TlsConnection, transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self.buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.received += self.buffer[:nbytes]

    def pause_writing(self) -> None:
        self.events.append("pause")

    def resume_writing(self) -> None:
        self.events.append("resume")

    def connection_lost(self, exc: Exception | None) -> None:
        self.events.append("lost")


class Streamed(asyncio.Protocol):
    """The same, for a protocol that gets bytes."""

    def __init__(self) -> None:
        self.received = bytearray()

    def data_received(self, data: bytes) -> None:
        assert isinstance(data, bytes)
        self.received += data


class Ends:
    """The broker's end, and the client's socket."""

    def __init__(self, upper: Upper, client: ssl.SSLSocket) -> None:
        self.upper = upper
        self.client = client

    async def send(self, data: bytes) -> None:
        await asyncio.to_thread(self.client.sendall, data)

    async def receive(self, size: int) -> bytes:
        def read() -> bytes:
            found = bytearray()
            while len(found) < size and (piece := self.client.recv(size - len(found))):
                found += piece
            return bytes(found)

        return await asyncio.to_thread(read)


@asynccontextmanager
async def listening(made: Certificates, connect: Callable[[], asyncio.BaseProtocol]) -> AsyncIterator[int]:
    """A port under TLS."""
    loop = asyncio.get_running_loop()
    settings = parse(BrokerSettings, made.listener())
    tls = TlsListeners([LISTENER])
    tls.load(settings)
    tls.begin(loop, lambda: settings)
    server = await loop.create_server(tls.under(LISTENER, connect), "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        tls.close()


@asynccontextmanager
async def connected(
    made: Certificates, upper: Upper | None = None, version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3
) -> AsyncIterator[Ends]:
    upper = upper or Upper()
    async with listening(made, lambda: upper) as port:
        context = ssl.create_default_context(cafile=str(made.ca))
        context.maximum_version = version

        def connect() -> ssl.SSLSocket:
            plain = socket.create_connection(("127.0.0.1", port), timeout=20)
            return context.wrap_socket(plain, server_hostname="localhost", suppress_ragged_eofs=False)

        client = await asyncio.to_thread(connect)
        await until(lambda: hasattr(upper, "transport"))
        try:
            yield Ends(upper, client)
        finally:
            client.close()
            upper.transport.abort()


@pytest.fixture(scope="module")
def made() -> Certificates:
    return certificates()


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_bytes_come_and_go_whole(made: Certificates, version: ssl.TLSVersion) -> None:
    async with connected(made, version=version) as ends:
        data = bytes(range(256)) * 4 * 1024
        await ends.send(data)
        await until(lambda: len(ends.upper.received) == len(data))
        assert ends.upper.received == data
        ends.upper.transport.writelines([data[:3], b"", memoryview(data)[3:100_000], bytearray(data[100_000:])])
        assert await ends.receive(len(data)) == data


async def test_a_protocol_of_bytes_gets_bytes(made: Certificates) -> None:
    upper = Streamed()
    async with listening(made, lambda: upper) as port:
        context = ssl.create_default_context(cafile=str(made.ca))
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname="localhost")
        writer.write(b"x" * 100_000)
        await until(lambda: len(upper.received) == 100_000)
        writer.transport.abort()


async def test_nothing_comes_while_reading_is_paused_and_all_of_it_behind(made: Certificates) -> None:
    class Pausing(Upper):
        def buffer_updated(self, nbytes: int) -> None:
            super().buffer_updated(nbytes)
            self.transport.pause_reading()

    async with connected(made, Pausing(buffer_bytes=1000)) as ends:
        data = bytes(range(250)) * 800
        sending = asyncio.ensure_future(ends.send(data))
        upper = ends.upper
        await until(lambda: bool(upper.received))
        assert len(upper.received) == 1000
        assert not upper.transport.is_reading()
        while len(upper.received) < len(data):
            before = len(upper.received)
            upper.transport.resume_reading()
            await until(lambda: len(upper.received) > before)  # noqa: B023 (awaited in this turn)
            assert len(upper.received) <= before + 1000
            assert len(upper.transport._held) <= CIPHERTEXT_BYTES
        assert upper.received == data
        await sending


async def test_all_that_waits_to_be_sent_is_counted_and_pauses_the_protocol(made: Certificates) -> None:
    async with connected(made) as ends:
        transport, total = ends.upper.transport, 40 * MIB
        transport.writelines([bytes(MIB)] * 40)
        assert ends.upper.events == ["pause"]
        counted = transport.get_write_buffer_size()
        assert total - 12 * MIB < counted <= total + MIB  # the rest lies in the sockets
        await asyncio.sleep(0)
        assert transport.get_write_buffer_size() <= counted
        assert await ends.receive(total) == bytes(total)
        await until(lambda: ends.upper.events == ["pause", "resume"])
        assert transport.get_write_buffer_size() == 0


async def test_a_protocol_is_resumed_where_all_of_it_waits_in_the_plain_transport(made: Certificates) -> None:
    """So little that the plain transport, left to its own limits, would never have been full."""
    async with connected(made) as ends:
        transport = ends.upper.transport
        transport.set_write_buffer_limits(high=30_000, low=1000)
        total = 0
        while not ends.upper.events:
            transport.write(bytes(5000))
            total += 5000
        assert await ends.receive(total) == bytes(total)
        await until(lambda: ends.upper.events == ["pause", "resume"])


async def test_what_is_encrypted_ahead_of_the_socket_is_little(made: Certificates) -> None:
    async with connected(made) as ends:
        transport = ends.upper.transport
        transport.write(bytes(40 * MIB))
        ahead = transport.get_write_buffer_size() - transport._backlog_bytes
        assert ahead <= MIB


async def test_a_turn_encrypts_a_bounded_part(made: Certificates, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tls_connection, "_PART_BYTES", 100)
    monkeypatch.setattr(tls_connection, "_LUMP_BYTES", 100)
    async with connected(made) as ends:
        ends.upper.transport.write(bytes(1000))
        assert ends.upper.transport.get_write_buffer_size() >= 900
        assert await ends.receive(1000) == bytes(1000)


async def test_what_others_have_encrypted_in_a_turn_is_not_left_to_a_connection(made: Certificates) -> None:
    async with connected(made) as ends:
        turns = ends.upper.transport._turns
        turns.spend(turns.left)
        ends.upper.transport.write(bytes(1000))
        assert ends.upper.transport.get_write_buffer_size() == 1000
        assert await ends.receive(1000) == bytes(1000)


async def test_a_close_sends_what_is_due_and_an_end_that_tls_knows(made: Certificates) -> None:
    async with connected(made) as ends:
        ends.upper.transport.write(b"x" * 3 * MIB)
        ends.upper.transport.close()
        assert ends.upper.transport.is_closing()
        ends.upper.transport.write(b"too late")
        assert await ends.receive(4 * MIB) == b"x" * 3 * MIB  # a cut without close_notify would raise
        await until(lambda: ends.upper.events[-1:] == ["lost"])


async def test_a_client_that_ends_in_order_is_answered_before_the_end(made: Certificates) -> None:
    class Answering(Upper):
        def buffer_updated(self, nbytes: int) -> None:
            super().buffer_updated(nbytes)
            self.transport.write(b"answer" * 100_000)

    async with connected(made, Answering()) as ends:

        def ask() -> bytes:
            ends.client.sendall(b"ask")
            found = bytearray()
            while len(found) < 600_000:
                found += ends.client.recv(1 << 16)
            ends.client.unwrap()
            return bytes(found)

        assert await asyncio.to_thread(ask) == b"answer" * 100_000
        await until(lambda: ends.upper.events[-1:] == ["lost"])


@pytest.mark.parametrize("how", ["cut", "garbage"])
async def test_a_client_that_breaks_off_is_forgotten(
    made: Certificates, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with connected(made) as ends:
        ends.upper.transport.write(bytes(40 * MIB))
        if how == "cut":
            ends.client.close()
        else:
            plain = socket.socket(fileno=ends.client.detach())
            plain.sendall(b"\x17\x03\x03\x00\x20" + b"\xff" * 32)
            await until(lambda: "closed: " in caplog.text)
            plain.close()
        await until(lambda: ends.upper.events[-1:] == ["lost"])
        assert ends.upper.transport._backlog_bytes == 0


async def test_a_connection_that_has_ended_holds_its_protocol_no_longer(made: Certificates) -> None:
    """Each holding the other would be garbage for the collector."""
    async with connected(made) as ends:
        ends.client.close()
        await until(lambda: ends.upper.events == ["lost"])
        with pytest.raises(AssertionError):
            ends.upper.transport.get_protocol()


async def test_there_is_no_socket_to_send_past_tls(made: Certificates) -> None:
    async with connected(made) as ends:
        transport = ends.upper.transport
        assert transport.get_extra_info("socket") is None
        assert transport.get_extra_info("peername")[0] == "127.0.0.1"
        assert transport.get_extra_info("sslcontext") is not None
        assert not transport.can_write_eof()


async def test_a_plain_listener_has_nothing_under_it(made: Certificates) -> None:
    tls = TlsListeners([LISTENER])
    plain = Listener("PLAINTEXT", Address("127.0.0.1", 0))
    connect = Upper
    assert tls.under(plain, connect) is connect
