"""Logins at the start of a node: what it refuses to listen with, the first user, users in the settings."""

from collections.abc import Mapping

import pytest

from pqbroker.broker.ground.listeners import Address, Listener
from pqbroker.broker.node.first_user import FirstUser
from pqbroker.broker.node.server import Server
from pqbroker.conf.broker import BrokerSettings
from pqbroker.conf.declare import ConfigError, parse
from pqbroker.protocol.errors import ErrorCode
from pqbroker.security.protocols import SecurityProtocol
from pqbroker.storage.memory import MemoryEngine
from tests.broker.conftest import ENGINE_BYTES
from tests.broker.kafka.net.test_logins import log_in
from tests.broker.wire import Client

LOOPBACK = Address("127.0.0.1", 0)
ANYWHERE = Address("0.0.0.0", 0)
LOCKED = Listener("INSIDE", LOOPBACK, protocol=SecurityProtocol.SASL_PLAINTEXT)
ROOT = FirstUser("root", "secret")
JAAS = "listener.name.inside.plain.sasl.jaas.config"
LISTED = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="a\\"b" user_bob=b;'


def server_of(
    engine: MemoryEngine, *listeners: Listener, texts: Mapping[str, str] | None = None, http: Address | None = None
) -> Server:
    settings = parse(BrokerSettings, {"sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256", **(texts or {})})
    return Server(settings, engine, listeners, http)


async def test_a_listener_with_a_login_needs_a_mechanism_that_is_served() -> None:
    own = "listener.name.inside.sasl.enabled.mechanisms"
    for texts in ({"sasl.enabled.mechanisms": "GSSAPI"}, {own: "GSSAPI,SCRAM-SHA-1"}):
        with pytest.raises(ConfigError, match=r"listener INSIDE: .*choose from PLAIN, SCRAM-SHA-256, SCRAM-SHA-512"):
            await server_of(MemoryEngine(ENGINE_BYTES), LOCKED, texts=texts).start()


async def test_a_mechanism_that_is_not_served_is_left_out_beside_one_that_is(caplog: pytest.LogCaptureFixture) -> None:
    texts = {"sasl.enabled.mechanisms": "GSSAPI,PLAIN"}
    server = server_of(MemoryEngine(ENGINE_BYTES), LOCKED, texts=texts)
    await server.start(ROOT)
    client = await Client.connect("127.0.0.1", server.kafka_address.port)
    assert (await log_in(client, "PLAIN", "root", "secret")).error_code == ErrorCode.NONE
    await client.close()
    await server.stop()
    assert "listener INSIDE: the mechanisms GSSAPI of sasl.enabled.mechanisms are not served" in caplog.text


async def test_the_first_user_is_made_once() -> None:
    engine = MemoryEngine(ENGINE_BYTES)
    for first_user in (ROOT, FirstUser("root", "another"), None):
        server = server_of(engine, LOCKED)
        await server.start(first_user)
        for mechanism in ("PLAIN", "SCRAM-SHA-256"):
            client = await Client.connect("127.0.0.1", server.kafka_address.port)
            assert (await log_in(client, mechanism, "root", "secret")).error_code == ErrorCode.NONE
            await client.close()
        await server.stop()


@pytest.mark.parametrize("http", [False, True])
async def test_a_directory_with_users_is_not_served_to_everybody(http: bool) -> None:
    engine = MemoryEngine(ENGINE_BYTES)
    server = server_of(engine, Listener("OPEN", LOOPBACK))
    await server.start(ROOT)
    await server.stop()
    listeners = (LOCKED,) if http else (LOCKED, Listener("OPEN", ANYWHERE))
    address = ANYWHERE if http else None
    texts = {"pqbroker.http.login.required": "false"} if http else {}
    with pytest.raises(ConfigError, match="would serve everybody without a login"):
        await server_of(engine, *listeners, http=address, texts=texts).start()
    if http:
        server = server_of(engine, *listeners, http=address)
        await server.start()
        await server.stop()
    told = {**texts, "pqbroker.listeners.without.login": "true"}
    server = server_of(engine, *listeners, http=address, texts=told)
    await server.start()
    await server.stop()


async def test_users_of_plain_are_listed_in_the_settings_of_a_listener() -> None:
    server = server_of(MemoryEngine(ENGINE_BYTES), LOCKED, texts={JAAS: LISTED})
    await server.start(ROOT)
    for name, password, is_right in (
        ("alice", 'a"b', True), ("bob", "b", True), ("bob", "c", False), ("root", "secret", True), ("eve", "", False),
    ):  # fmt: skip
        client = await Client.connect("127.0.0.1", server.kafka_address.port)
        code = (await log_in(client, "PLAIN", name, password)).error_code
        assert code == (ErrorCode.NONE if is_right else ErrorCode.SASL_AUTHENTICATION_FAILED), name
        await client.close()
    await server.stop()


@pytest.mark.parametrize(
    ("texts", "cause"),
    [
        ({JAAS: "x"}, "must be one login module"),
        ({JAAS: LISTED.replace("plain.Plain", "scram.Scram")}, "has the login module"),
        ({"sasl.jaas.config": LISTED}, "is of no mechanism"),
    ],
)
async def test_a_list_of_users_that_is_unreadable_stops_the_start(texts: Mapping[str, str], cause: str) -> None:
    with pytest.raises(ConfigError, match=cause) as refused:
        await server_of(MemoryEngine(ENGINE_BYTES), LOCKED, texts=texts).start()
    assert 'a"b' not in str(refused.value)
