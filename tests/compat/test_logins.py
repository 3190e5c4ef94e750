"""Every client of the matrix logs in by every mechanism, again and again on its connections, and over a restart."""

import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from pqbroker.testing import Broker, broker
from tests.compat.clients import CLIENTS, Clients
from tests.support.drivers.driver import Message
from tests.support.drivers.librdkafka_driver import LibrdkafkaDriver
from tests.support.drivers.security import Security
from tests.support.java.tools import Tools

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
USER, PASSWORD = "alice", "Secret-1"
SESSIONS_S, KILLED_AT = 6.0, 50
REAUTH_MS = "2000"
"""Sessions so short that a client must log in again while it works."""


@pytest.fixture(scope="module")
def locked() -> Iterator[Broker]:
    with broker(users={USER: PASSWORD}, settings={"connections.max.reauth.ms": REAUTH_MS}) as running:
        yield running


@pytest.fixture(scope="module", params=MECHANISMS)
def clients(request: pytest.FixtureRequest, locked: Broker) -> Iterator[Clients]:
    security = Security("SASL_PLAINTEXT", request.param, USER, PASSWORD)
    with ExitStack() as stack:
        yield stack.enter_context(Clients(locked.kafka, security))


@pytest.fixture(scope="module")
def topic(locked: Broker) -> str:
    return locked.create_topic("locked")


@pytest.mark.parametrize("name", CLIENTS)
def test_a_client_writes_and_reads_over_several_sessions(
    name: str, clients: Clients, locked: Broker, topic: str
) -> None:
    messages = [Message(b"value %d" % number, key=b"key") for number in range(6)]
    begin = len(locked.read(topic))
    for _ in range(2):
        clients.produce(name, topic, messages)
    read = clients.read(name, topic, 12, offset=begin)
    assert [message.value for _, message in read] == [message.value for message in messages] * 2


@pytest.mark.parametrize("name", CLIENTS)
def test_a_client_logs_in_under_tls(name: str) -> None:
    with broker(users={USER: PASSWORD}, tls=True) as running:
        topic = running.create_topic("locked")
        security = Security("SASL_SSL", "SCRAM-SHA-512", USER, PASSWORD, ca=str(running.tls.ca))
        with Clients(running.kafka, security) as clients:
            clients.produce(name, topic, [Message(b"value", key=b"key")])
            assert [message.value for _, message in clients.read(name, topic, 1)] == [b"value"]


def test_kafka_configs_gives_users_passwords_and_takes_them(locked: Broker, tmp_path: Path) -> None:
    config = tmp_path / "client.properties"
    config.write_text("".join(f"{name}={text}\n" for name, text in locked.login().items()))
    of_bob = ["--entity-type", "users", "--entity-name", "bob", "--command-config", str(config)]
    both = "SCRAM-SHA-256=[iterations=8192,password=Secret-2],SCRAM-SHA-512=[password=Secret-2]"
    with Tools(locked.kafka) as tools:
        said = tools.run("kafka-configs", ["--alter", "--add-config", both, *of_bob])
        assert said.status == 0, said.err
        said = tools.run("kafka-configs", ["--describe", *of_bob])
        assert "SCRAM-SHA-256=iterations=8192" in said.out
        assert "SCRAM-SHA-512=iterations=4096" in said.out
        security = Security("SASL_PLAINTEXT", "SCRAM-SHA-512", "bob", "Secret-2")
        assert LibrdkafkaDriver(locked.kafka, security).cluster().brokers
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
            said = tools.run("kafka-configs", ["--alter", "--delete-config", mechanism, *of_bob])
            assert said.status == 0, said.err
        assert "SCRAM" not in tools.run("kafka-configs", ["--describe", *of_bob]).out


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_clients_work_through_ends_of_sessions_and_restarts(locked: Broker, mechanism: str) -> None:
    """A producer and a consumer live for several sessions; the broker is killed once while they do."""
    topic = locked.create_topic(f"long-{mechanism.lower()}")
    security = Security("SASL_PLAINTEXT", mechanism, USER, PASSWORD).librdkafka
    delivered: list[object] = []
    producer = Producer({**security, "bootstrap.servers": locked.kafka, "linger.ms": 5, "enable.idempotence": True})
    consumer = Consumer(
        {**security, "bootstrap.servers": locked.kafka, "group.id": topic, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    read: list[bytes] = []
    end = time.monotonic() + SESSIONS_S
    number = 0
    while time.monotonic() < end:
        producer.produce(topic, b"%d" % number, on_delivery=lambda error, _: delivered.append(error))
        number += 1
        producer.poll(0.005)
        read += values(consumer, 0.005)
        if number == KILLED_AT:
            locked.kill()
            locked.start()
    assert producer.flush(60) == 0
    assert delivered == [None] * number
    deadline = time.monotonic() + 60
    while len(read) < number and time.monotonic() < deadline:
        read += values(consumer, 0.5)
    consumer.close()
    assert read == [b"%d" % each for each in range(number)]
    assert locked.log.count("Traceback") == 0


def values(consumer: Consumer, timeout_s: float) -> list[bytes]:
    found = consumer.poll(timeout_s)
    return [] if found is None or found.error() else [found.value() or b""]
