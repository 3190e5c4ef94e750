"""Logins over a connection: mechanisms, refusals, re-authentication, and what passes before a login."""

import asyncio
import struct
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from pqbroker.broker.ground.access import Principal
from pqbroker.broker.ground.listeners import Address, Listener
from pqbroker.broker.ground.metrics import samples
from pqbroker.protocol.errors import ErrorCode
from pqbroker.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from pqbroker.protocol.messages.api_versions import ApiVersionsRequest
from pqbroker.protocol.messages.metadata import MetadataRequest
from pqbroker.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from pqbroker.protocol.messages.sasl_handshake import SaslHandshakeRequest
from pqbroker.security.protocols import SecurityProtocol
from tests.broker.conftest import Node, until
from tests.broker.wire import Client, request_frame
from tests.support.sasl import credential, next_token, plain, proof

Start = Callable[..., Awaitable[Node]]
SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")
MECHANISMS = ("PLAIN", *SCRAM)
LISTENERS = (
    Listener("LOCKED", Address("127.0.0.1", 0), protocol=SecurityProtocol.SASL_PLAINTEXT),
    Listener("OPEN", Address("127.0.0.1", 0)),
)
VERSIONS = ApiVersionsRequest(client_software_name="test", client_software_version="1")


async def start_locked(start: Start, *users: ScramCredentialUpsertion, **settings: Any) -> Node:
    """Start a node whose first listener has a login and whose second one is plain, with these users."""
    settings = {"sasl_mechanisms": MECHANISMS, "failed_login_delay_ms": 1, **settings}
    node = await start(listeners=LISTENERS, **settings)
    if users:
        client = await Client.connect("127.0.0.1", node.server.listeners[1].address.port)
        answer = await client.ask(AlterUserScramCredentialsRequest(upsertions=list(users)))
        assert [result.error_code for result in answer.results] == [ErrorCode.NONE] * len(answer.results)
        await client.close()
    return node


async def log_in(client: Client, mechanism: str, name: str, password: str) -> SaslAuthenticateResponse:
    """Log a client in; return the last answer."""
    shaken = await client.ask(SaslHandshakeRequest(mechanism=mechanism))
    assert shaken.error_code == ErrorCode.NONE, shaken
    return await authenticate(client, mechanism, name, password)


async def authenticate(client: Client, mechanism: str, name: str, password: str) -> SaslAuthenticateResponse:
    messages = proof(mechanism, name, password)
    token: bytes | None = next(messages)
    while token is not None:
        answer: SaslAuthenticateResponse = await client.ask(SaslAuthenticateRequest(auth_bytes=token))
        token = None if answer.error_code else next_token(messages, answer.auth_bytes)
    return answer


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_a_user_logs_in_and_is_served(start: Start, mechanism: str) -> None:
    stored = mechanism if mechanism in SCRAM else "SCRAM-SHA-512"
    node = await start_locked(start, credential("alice", "secret", stored))
    client = await node.connect()
    await client.ask(VERSIONS)
    answer = await log_in(client, mechanism, "alice", "secret")
    assert (answer.error_code, answer.session_lifetime_ms) == (ErrorCode.NONE, 0)
    assert (await client.ask(MetadataRequest())).brokers
    (connection,) = [each for each in node.server.node.connections if each.listener_name == "LOCKED"]
    assert connection.peer.principal == Principal("User", "alice")
    assert node.server.node.metrics.logins == {mechanism: 1}


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("name", ["alice", "bob"])
async def test_a_wrong_password_and_an_unknown_user_are_refused_alike(start: Start, mechanism: str, name: str) -> None:
    node = await start_locked(start, credential("alice", "secret"), credential("alice", "secret", "SCRAM-SHA-512"))
    client = await node.connect()
    answer = await log_in(client, mechanism, name, "wrong")
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert answer.error_message == (
        "Authentication failed: Invalid username or password" if mechanism == "PLAIN" else
        f"Authentication failed during authentication due to invalid credentials with SASL mechanism {mechanism}"
    )
    assert await client.is_closed_by_peer()
    assert node.server.node.metrics.login_refusals == {(mechanism, "credentials"): 1}


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_tokens_come_without_a_header_after_version_0_of_the_handshake(start: Start, mechanism: str) -> None:
    node = await start_locked(start, credential("alice", "secret"), credential("alice", "secret", "SCRAM-SHA-512"))
    client = await node.connect()
    await client.ask(SaslHandshakeRequest(mechanism=mechanism), 0)
    messages = proof(mechanism, "alice", "secret")
    token: bytes | None = next(messages)
    while token is not None:
        client.send_bytes(struct.pack(">i", len(token)) + token)
        token = next_token(messages, await client.receive_bytes())
    assert (await client.ask(MetadataRequest())).brokers


async def test_a_wrong_token_without_a_header_closes_the_connection(start: Start) -> None:
    node = await start_locked(start, credential("alice", "secret"))
    client = await node.connect()
    await client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 0)
    token = plain("alice", "wrong")
    client.send_bytes(struct.pack(">i", len(token)) + token)
    assert await client.is_closed_by_peer()


async def test_a_mechanism_that_is_off_is_refused_with_those_that_are_on(start: Start) -> None:
    node = await start_locked(start, sasl_mechanisms=("SCRAM-SHA-512", "PLAIN"))
    client = await node.connect()
    answer = await client.ask(SaslHandshakeRequest(mechanism="SCRAM-SHA-256"))
    assert answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert answer.mechanisms == ["SCRAM-SHA-512", "PLAIN"]
    assert await client.is_closed_by_peer()
    assert node.server.node.metrics.login_refusals == {("", "mechanism"): 1}


@pytest.mark.parametrize(
    "frames",
    [
        [request_frame(MetadataRequest(), 12)],
        [request_frame(VERSIONS, 3), request_frame(MetadataRequest(), 12)],
        [request_frame(VERSIONS, 3), request_frame(VERSIONS, 3)],
        [request_frame(SaslAuthenticateRequest(auth_bytes=plain("alice", "secret")), 2)],
        [request_frame(SaslHandshakeRequest(mechanism="PLAIN"), 1), request_frame(MetadataRequest(), 12)],
        [request_frame(SaslHandshakeRequest(mechanism="PLAIN"), 1), request_frame(VERSIONS, 3)],
        [b"\0\0\0\0"], [b"\0\0\0\1\0"], [b"\0\0\0\2\0\3"], [b"\x00\x00\x00\x10" + b"\0" * 16],
    ],
)  # fmt: skip
async def test_nothing_else_passes_before_a_login(start: Start, frames: list[bytes]) -> None:
    node = await start_locked(start, credential("alice", "secret"))
    client = await node.connect()
    for each in frames[:-1]:
        client.send_bytes(each)
        await client.receive_bytes()
    client.send_bytes(frames[-1])
    assert await client.is_closed_by_peer()


async def test_requests_sent_with_the_last_token_are_served_behind_it(start: Start) -> None:
    node = await start_locked(start, credential("alice", "secret"))
    client = await node.connect()
    client.send(SaslHandshakeRequest(mechanism="PLAIN"))
    client.send(SaslAuthenticateRequest(auth_bytes=plain("alice", "secret")))
    client.send(MetadataRequest())
    assert (await client.receive()).error_code == ErrorCode.NONE
    assert (await client.receive()).error_code == ErrorCode.NONE
    assert (await client.receive()).brokers


async def test_what_is_served_counts_once_before_a_login_and_behind_it(start: Start) -> None:
    node = await start_locked(start, credential("alice", "secret"))
    client = await node.connect()
    await log_in(client, "PLAIN", "alice", "secret")
    await client.ask(MetadataRequest())
    taken = await node.server.node.turns.finish(samples(node.server.node.metrics))
    assert [sample.value for sample in taken if sample.name == "request_bytes"] == [0]


async def test_requests_sent_with_a_wrong_token_are_not_served(start: Start) -> None:
    node = await start_locked(start, credential("alice", "secret"))
    client = await node.connect()
    client.send(SaslHandshakeRequest(mechanism="PLAIN"))
    client.send(SaslAuthenticateRequest(auth_bytes=plain("alice", "wrong")))
    client.send(MetadataRequest())
    await client.receive()
    assert (await client.receive()).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert await client.is_closed_by_peer()


async def test_a_frame_before_a_login_is_limited(start: Start) -> None:
    node = await start_locked(start, credential("alice", "secret"), sasl_bytes_max=1000)
    client = await node.connect()
    client.send_bytes(struct.pack(">i", 1001))
    assert await client.is_closed_by_peer()
    client = await node.connect()
    await log_in(client, "PLAIN", "alice", "secret")
    assert (await client.ask(MetadataRequest(topics=None))).brokers
    client.send_bytes(request_frame(VERSIONS, 3, client_id=b"x" * 2000))
    await client.receive_bytes()


async def test_requests_before_logins_have_a_budget_of_their_own(start: Start) -> None:
    node = await start_locked(start, credential("alice", "secret"), login_bytes_max=1 << 20)
    logged_in = await node.connect()
    await log_in(logged_in, "PLAIN", "alice", "secret")
    writers = []
    for _ in range(20):  # each brings the half of a large frame, which is all that it will ever bring
        _, writer = await asyncio.open_connection("127.0.0.1", node.server.kafka_address.port)
        writer.write(struct.pack(">i", 500_000) + bytes(250_000))
        writers.append(writer)
    await until(lambda: node.server.node.metrics.unfinished_closed > 10)
    assert (await logged_in.ask(MetadataRequest())).brokers
    for writer in writers:
        writer.transport.abort()


async def test_another_address_logs_in_beside_one_that_fills_the_budget(start: Start) -> None:
    node = await start_locked(start, credential("alice", "secret"), login_bytes_max=1 << 20)
    port = node.server.kafka_address.port
    writers = []
    for _ in range(40):
        _, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=("127.0.0.2", 0))
        writer.write(struct.pack(">i", 60_000) + bytes(50_000))
        writers.append(writer)
    client = Client(*await asyncio.open_connection("127.0.0.1", port, local_addr=("127.0.0.3", 0)))
    assert (await log_in(client, "SCRAM-SHA-256", "alice", "secret")).error_code == ErrorCode.NONE
    for writer in writers:
        writer.transport.abort()
    await client.close()


async def test_a_client_that_does_not_log_in_is_disconnected(start: Start) -> None:
    node = await start_locked(start, credential("alice", "secret"), login_timeout_ms=100)
    idle, logged_in = await node.connect(), await node.connect()
    await log_in(logged_in, "PLAIN", "alice", "secret")
    assert await idle.is_closed_by_peer()
    assert node.server.node.metrics.login_refusals == {("", "time"): 1}
    assert (await logged_in.ask(MetadataRequest())).brokers


async def test_a_session_ends_unless_the_client_logs_in_again(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pqbroker.broker.kafka.apis.login.REAUTH_PERIOD_S", 0.0)
    node = await start_locked(start, credential("alice", "secret"), reauth_ms_max=300)
    renewed, lapsed = await node.connect(), await node.connect()
    for client in (renewed, lapsed):
        assert (await log_in(client, "SCRAM-SHA-256", "alice", "secret")).session_lifetime_ms == 300
    loop = asyncio.get_running_loop()
    ends_s = loop.time() + 0.3
    await until(lambda: loop.time() > ends_s)
    assert (await log_in(renewed, "SCRAM-SHA-256", "alice", "secret")).session_lifetime_ms == 300
    assert (await renewed.ask(MetadataRequest())).brokers
    lapsed.send(MetadataRequest())
    assert await lapsed.is_closed_by_peer()
    assert node.server.node.metrics.sessions_expired == 1


async def test_a_client_logs_in_again_as_the_same_user_and_by_the_same_mechanism(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pqbroker.broker.kafka.apis.login.REAUTH_PERIOD_S", 0.0)
    node = await start_locked(start, credential("alice", "secret"), credential("bob", "secret"))
    client = await node.connect()
    await log_in(client, "PLAIN", "alice", "secret")
    answer = await log_in(client, "PLAIN", "bob", "secret")
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert answer.error_message == "Cannot change principals during re-authentication from User.alice: User.bob"
    assert await client.is_closed_by_peer()
    client = await node.connect()
    await log_in(client, "PLAIN", "alice", "secret")
    shaken = await client.ask(SaslHandshakeRequest(mechanism="SCRAM-SHA-256"))
    assert shaken.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert await client.is_closed_by_peer()


async def test_sasl_is_an_illegal_state_after_a_login_and_on_a_plain_listener(start: Start) -> None:
    node = await start_locked(start, credential("alice", "secret"))
    locked = await node.connect()
    await log_in(locked, "PLAIN", "alice", "secret")
    plain_one = await Client.connect("127.0.0.1", node.server.listeners[1].address.port)
    for client in (locked, plain_one):
        shaken = await client.ask(SaslHandshakeRequest(mechanism="PLAIN"))
        assert shaken.error_code == ErrorCode.ILLEGAL_SASL_STATE
        answer = await client.ask(SaslAuthenticateRequest(auth_bytes=b""))
        assert answer.error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert (await locked.ask(MetadataRequest())).brokers
    await plain_one.close()
