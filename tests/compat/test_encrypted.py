"""Every client of the matrix under TLS: alone, with certificates of its own, in a group, over a kill of the broker."""

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from pqbroker.testing import Broker, broker
from tests.compat.clients import CLIENTS, KCAT, Clients
from tests.support.authority import PASSWORD
from tests.support.drivers.driver import Message
from tests.support.drivers.franz_go_driver import BUILD_TIMEOUT_S, FranzGoDriver
from tests.support.drivers.security import Security
from tests.support.java.tools import Tools
from tests.support.waiting import wait_until

WAYS = ("SSL", "mutual")


@pytest.fixture(scope="module", params=WAYS)
def way(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def encrypted(way: str) -> Iterator[Broker]:
    settings = {"ssl.client.auth": "required" if way == "mutual" else "none"}
    with broker(tls=True, settings={**settings, "group.initial.rebalance.delay.ms": "0"}) as running:
        yield running


@pytest.fixture(scope="module")
def clients(encrypted: Broker, way: str) -> Iterator[Clients]:
    certificate = str(encrypted.tls.client) if way == "mutual" else ""
    security = Security("SSL", ca=str(encrypted.tls.ca), certificate=certificate)
    with ExitStack() as stack:
        yield stack.enter_context(Clients(encrypted.kafka, security))


@pytest.fixture(scope="module")
def tools(encrypted: Broker) -> Iterator[Tools]:
    """Kafka's tools, in one Java process."""
    with Tools(encrypted.kafka) as one:
        yield one


@pytest.mark.parametrize("name", CLIENTS)
def test_a_client_writes_and_reads(name: str, clients: Clients, encrypted: Broker) -> None:
    topic = encrypted.create_topic(f"encrypted-{name.replace(' ', '-')}")
    small = [Message(b"value %d" % number, key=b"key") for number in range(20)]
    large = [Message(b"%d" % number * 200_000, key=b"key") for number in range(3)]
    for messages in (small, large):
        clients.produce(name, topic, messages)
    read = clients.read(name, topic, 23)
    assert [message.value for _, message in read] == [message.value for message in small + large]
    assert clients.read(name, topic, 3, offset=20)[0][1].value == large[0].value


@pytest.mark.parametrize("name", CLIENTS)
def test_a_client_is_a_member_of_a_group(name: str, clients: Clients, encrypted: Broker) -> None:
    topic = encrypted.create_topic(f"grouped-{name.replace(' ', '-')}")
    encrypted.produce(topic, b"one")
    with clients.member(name, topic, f"group-{topic}") as member:
        wait_until(lambda: member.received == [(0, 0)], "the record")
        member.commit()


@pytest.mark.parametrize("name", [name for name in CLIENTS if name != KCAT])
def test_a_client_returns_after_a_kill(name: str, clients: Clients, encrypted: Broker) -> None:
    topic = encrypted.create_topic(f"killed-{name.replace(' ', '-')}")
    with clients.driver(name) as driver:
        driver.produce(topic, [Message(b"before")])
        encrypted.kill()
        encrypted.start()
        driver.produce(topic, [Message(b"behind")])
        read = driver.read(topic, count=2)
        assert [message.value for _, message in read] == [b"before", b"behind"]


@pytest.mark.timeout(BUILD_TIMEOUT_S + 120)
def test_franz_go_reads(encrypted: Broker, way: str) -> None:
    topic = encrypted.create_topic("encrypted-franz-go")
    encrypted.produce(topic, b"one")
    encrypted.produce(topic, b"", key=b"the end")
    certificate = str(encrypted.tls.client) if way == "mutual" else ""
    driver = FranzGoDriver(encrypted.kafka, Security("SSL", ca=str(encrypted.tls.ca), certificate=certificate))
    assert [message.value for _, message in driver.read_to_end(topic, offset=0)] == [b"one", b""]


@pytest.mark.parametrize(
    "tool",
    [
        ("kafka-configs", "--describe", "--entity-type", "brokers", "--entity-name", "1"),
        ("kafka-topics", "--list"), ("kafka-consumer-groups", "--list"), ("kafka-broker-api-versions",),
    ],
    ids=lambda tool: tool[0],
)  # fmt: skip
def test_javas_tools_take_the_client_properties(tool: tuple[str, ...], encrypted: Broker, tools: Tools) -> None:
    program, *words = tool
    said = tools.run(program, ["--command-config", str(encrypted.tls.properties), *words])
    assert said.status == 0, said.out + said.err
    assert "ERROR" not in said.out


def test_javas_tools_take_key_stores_in_pkcs12(encrypted: Broker, tools: Tools, tmp_path: Path) -> None:
    stores = tmp_path / "client.properties"
    own, trusted = tmp_path / "client.p12", tmp_path / "trust.p12"
    _convert(encrypted, own, trusted)
    stores.write_text(
        f"security.protocol=SSL\nssl.keystore.type=PKCS12\nssl.keystore.location={own}\n"
        f"ssl.keystore.password={PASSWORD}\nssl.truststore.type=PKCS12\nssl.truststore.location={trusted}\n"
        f"ssl.truststore.password={PASSWORD}\n"
    )
    said = tools.run("kafka-topics", ["--command-config", str(stores), "--list"])
    assert said.status == 0, said.out + said.err


def _convert(encrypted: Broker, own: Path, trusted: Path) -> None:
    """Make key stores of Java's by its own keytool and openssl, not by ours."""
    openssl = ["openssl", "pkcs12", "-export", "-in", str(encrypted.tls.client), "-out", str(own), "-passout"]
    subprocess.run([*openssl, f"pass:{PASSWORD}"], check=True, capture_output=True, timeout=60)
    keytool = ["keytool", "-importcert", "-noprompt", "-alias", "ca", "-file", str(encrypted.tls.ca), "-keystore"]
    subprocess.run(
        [*keytool, str(trusted), "-storetype", "PKCS12", "-storepass", PASSWORD],
        check=True, capture_output=True, timeout=60,
    )  # fmt: skip
