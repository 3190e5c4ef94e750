"""Many clients that log in at once: one is served in a turn of the loop, and others wait for none of them."""

import asyncio
import time
from dataclasses import replace
from functools import partial

import pytest

from pqbroker.broker.ground.listeners import Address, Listener
from pqbroker.broker.ground.turns import Turns
from pqbroker.broker.kafka.net.connection import Connection
from pqbroker.broker.kafka.net.dispatch import Dispatcher
from pqbroker.broker.kafka.net.login_gate import LoginEntrance, receiving_before_login
from pqbroker.broker.kafka.net.receiving import Receiving
from pqbroker.broker.kafka.served import APIS
from pqbroker.broker.node.first_user import FirstUser
from pqbroker.broker.node.server import Server
from pqbroker.conf.broker import BrokerSettings
from pqbroker.protocol.messages.api_versions import ApiVersionsRequest
from pqbroker.protocol.messages.metadata import MetadataRequest
from pqbroker.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from pqbroker.protocol.messages.sasl_handshake import SaslHandshakeRequest
from pqbroker.security.protocols import SecurityProtocol
from pqbroker.storage.memory import MemoryEngine
from tests.broker.conftest import until
from tests.broker.kafka.net.test_connection import Wire
from tests.broker.wire import request_frame
from tests.support.sasl import plain

MANY = 50
DELAY_MS = 200
LISTENER = Listener("LOCKED", Address("127.0.0.1", 0), protocol=SecurityProtocol.SASL_PLAINTEXT)
SETTINGS = BrokerSettings(sasl_mechanisms=("PLAIN", "SCRAM-SHA-256"), failed_login_delay_ms=0)
WRONG = (b"n,,n=root,r=x", b"c=biws,r=x,p=AAAA")


class Caller:
    """One client without a socket."""

    def __init__(self, connection: Connection) -> None:
        self.wire = Wire()
        self._connection = connection
        connection.connection_made(self.wire)

    def send(self, *frames: bytes) -> None:
        for data in frames:
            self._connection.get_buffer(len(data))[: len(data)] = data
            self._connection.buffer_updated(len(data))

    def answers(self) -> int:
        """Return how many answers came."""
        data, count = bytes(self.wire.written), 0
        while data:
            data, count = data[4 + int.from_bytes(data[:4]) :], count + 1
        return count


class Crowd:
    """Clients of a listener with a login."""

    def __init__(self, server: Server) -> None:
        node = server.node
        before = receiving_before_login(SETTINGS, node.loop)
        entrance = LoginEntrance(Dispatcher(node, APIS), Receiving(SETTINGS, node.loop), Turns(node.loop))
        self._connect = partial(Connection, node, entrance, before, node.connections, LISTENER)
        self.callers = [Caller(self._connect()) for _ in range(MANY)]

    def answers(self) -> int:
        """Return how many answers came to the many."""
        return sum(caller.answers() for caller in self.callers)

    async def settled(self) -> Caller:
        """Return a client that has logged in."""
        caller = Caller(self._connect())
        caller.send(shake("PLAIN"), token(plain("root", "secret")))
        await until(lambda: caller.answers() == 2)
        return caller

    async def most_in_a_turn(self, answers: int) -> int:
        """Wait until each client has this many answers; return the most answers that left in one turn."""
        most, before = 0, self.answers()
        async with asyncio.timeout(60):
            while before < answers * MANY:
                await asyncio.sleep(0)
                most, before = max(most, self.answers() - before), self.answers()
        return most


def shake(mechanism: str) -> bytes:
    return request_frame(SaslHandshakeRequest(mechanism=mechanism), 1)


def token(data: bytes) -> bytes:
    return request_frame(SaslAuthenticateRequest(auth_bytes=data), 2)


@pytest.fixture
async def server() -> Server:
    return await started(SETTINGS)


async def test_one_client_that_logs_in_is_served_in_a_turn(server: Server) -> None:
    crowd = Crowd(server)
    for caller in crowd.callers:
        caller.send(shake("SCRAM-SHA-256"))
    assert crowd.answers() == 1
    assert await crowd.most_in_a_turn(1) == 1
    await server.stop()


async def test_who_has_logged_in_waits_for_none_of_them(server: Server) -> None:
    crowd = Crowd(server)
    settled = await crowd.settled()
    for caller in crowd.callers:
        caller.send(shake("SCRAM-SHA-256"))
    settled.send(request_frame(MetadataRequest(topics=[]), 12))
    assert settled.answers() == 3
    assert crowd.answers() == 1
    await server.stop()


async def test_late_answers_to_wrong_logins_leave_in_turns_of_their_own() -> None:
    server = await started(replace(SETTINGS, failed_login_delay_ms=DELAY_MS))
    crowd = Crowd(server)
    for caller in crowd.callers:
        caller.send(shake("SCRAM-SHA-256"), *map(token, WRONG))
    await crowd.most_in_a_turn(2)
    time.sleep(2 * DELAY_MS / 1000)  # noqa: ASYNC251 (a loop that is late: all answers are due in one turn)
    assert await crowd.most_in_a_turn(3) == 1
    assert all(caller.wire.is_closed for caller in crowd.callers)
    await server.stop()


async def test_a_client_whose_frames_waited_for_their_turn_is_read_again() -> None:
    server = await started(replace(SETTINGS, connection_requests_max=2))
    crowd = Crowd(server)
    for caller in crowd.callers[:2]:
        caller.send(request_frame(ApiVersionsRequest(client_software_name="a", client_software_version="1"), 3))
        caller.send(shake("SCRAM-SHA-256"))
    late = crowd.callers[1]
    assert late.wire.is_paused
    await until(lambda: late.answers() == 2)
    assert not late.wire.is_paused
    await server.stop()


async def started(settings: BrokerSettings) -> Server:
    server = Server(settings, MemoryEngine(64 << 20), [LISTENER])
    await server.start(FirstUser("root", "secret"))
    return server
