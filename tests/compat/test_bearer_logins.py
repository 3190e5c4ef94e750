"""Clients log in by a token of an authorization server (OAUTHBEARER): those of the matrix as their users do, and ours.
kcat alone takes no token of a file."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from pqbroker.client import Client, ClientError
from pqbroker.testing import Broker, broker
from tests.cli.shell import Shell
from tests.compat.clients import CLIENTS, KCAT, Clients
from tests.support.drivers.driver import Message
from tests.support.drivers.security import Security
from tests.support.web_tokens import AUDIENCE, ISSUER, SigningKey, publish

KEY = SigningKey(algorithm="RS256")
BEARERS = tuple(name for name in CLIENTS if name != KCAT)


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    settings = {
        "sasl.enabled.mechanisms": "OAUTHBEARER,SCRAM-SHA-256", "connections.max.reauth.ms": "2000",
        "sasl.oauthbearer.jwks.endpoint.url": publish(tmp_path_factory.mktemp("keys") / "keys.json", KEY),
        "sasl.oauthbearer.expected.issuer": ISSUER, "sasl.oauthbearer.expected.audience": AUDIENCE,
        "listener.name.sasl_plaintext.oauthbearer.sasl.server.callback.handler.class":
            "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler",
    }  # fmt: skip
    with broker(users={"root": "Secret-1"}, settings=settings) as running:
        yield running


@pytest.fixture(scope="module")
def token(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the file of a token of alice's."""
    path = tmp_path_factory.mktemp("token") / "token"
    path.write_text(KEY.token("alice"))
    return path


@pytest.fixture(scope="module")
def clients(locked: Broker, token: Path) -> Iterator[Clients]:
    with Clients(locked.kafka, Security("SASL_PLAINTEXT", "OAUTHBEARER", token=str(token))) as found:
        yield found


@pytest.mark.parametrize("name", BEARERS)
def test_a_client_writes_and_reads_by_a_token(name: str, clients: Clients, locked: Broker) -> None:
    topic = locked.create_topic(f"bearer-{BEARERS.index(name)}")
    messages = [Message(b"value %d" % number, key=b"key") for number in range(6)]
    clients.produce(name, topic, messages)
    read = clients.read(name, topic, 6)
    assert [message.value for _, message in read] == [message.value for message in messages]


def properties(path: Path, token: Path) -> Path:
    """Write a client.properties as Kafka's clients have it."""
    module = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;"
    path.write_text(
        f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=OAUTHBEARER\nsasl.jaas.config={module}\n"
        f"sasl.oauthbearer.token.endpoint.url={token.as_uri()}\n"
    )
    return path


def test_commands_log_in_by_the_token_of_a_file(
    locked: Broker, token: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = ("--command-config", str(properties(tmp_path / "client.properties", token)))
    lines = tmp_path / "lines"
    lines.write_text("one\n")
    typed = Shell(locked.kafka, capsys)
    assert typed("topic", "create", "commands", *config).status == 0
    assert typed("produce", "commands", "--file", str(lines), *config).status == 0
    assert typed("consume", "commands", *config).output.splitlines() == ["one"]
    assert typed.raw("cluster", "connections", "--http", locked.http, *config).status == 0
    expired = tmp_path / "expired"
    expired.write_text(KEY.token("alice", exp=time.time() - 60))
    config = ("--command-config", str(properties(tmp_path / "client.properties", expired)))
    said = typed("topic", "list", *config)
    assert said.status != 0
    assert f'refused the login by the token in {expired}: {{"status":"invalid_token"}}' in said.errors


def test_requests_over_http_log_in_by_a_token_of_the_authorization_server(
    locked: Broker, tmp_path: Path
) -> None:
    with Client(locked.http, login=KEY.token("alice")) as client:
        client.tables()
    renewed = tmp_path / "token"
    renewed.write_text(KEY.token("alice", exp=time.time() - 60))
    with Client(locked.http, login=renewed) as client:
        with pytest.raises(ClientError, match="wrong user, password or token"):
            client.tables()
        renewed.write_text(KEY.token("alice"))
        client.tables()


def test_a_client_works_through_ends_of_its_sessions_and_a_restart(locked: Broker) -> None:
    """Sessions last 2 s, tokens 3 s; the broker is killed once meanwhile."""
    topic = locked.create_topic("sessions")

    def new_token(_: object) -> tuple[str, float]:
        return KEY.token("alice", exp=time.time() + 3), time.time() + 3

    security = {
        "bootstrap.servers": locked.kafka, "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER",
        "oauth_cb": new_token,
    }  # fmt: skip
    delivered: list[object] = []
    producer = Producer({**security, "linger.ms": 5, "enable.idempotence": True})
    consumer = Consumer({**security, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    begin = time.monotonic()
    number = 0
    while time.monotonic() < begin + 6:
        producer.produce(topic, b"%d" % number, on_delivery=lambda error, _: delivered.append(error))
        number += 1
        producer.poll(0.05)
        if number == 20:
            locked.kill()
            locked.start()
    assert producer.flush(60) == 0
    assert delivered == [None] * number
    read: list[bytes | None] = []
    deadline = time.monotonic() + 60
    while len(read) < number and time.monotonic() < deadline:
        found = consumer.poll(0.5)
        read += [] if found is None or found.error() else [found.value()]
    consumer.close()
    assert read == [b"%d" % each for each in range(number)]
    assert "Traceback" not in locked.log
