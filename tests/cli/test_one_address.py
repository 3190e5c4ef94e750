"""The HTTP address of a command: learnt from the broker that is named, or given, and of the same cluster."""

import json
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pqbroker.testing import Broker, broker, memory_broker
from tests.cli.shell import Shell
from tests.support.waiting import wait_until


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker of another cluster, whose store can be filled."""
    with broker(tmp_path_factory.mktemp("other") / "data", {"pqbroker.test.door": "true"}) as running:
        running.create_topic("here")
        yield running


@pytest.fixture
def away(other: Broker, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Shell:
    """A shell whose environment names the other broker."""
    monkeypatch.setenv("PQBROKER_BROKER", other.kafka)
    return Shell(other.kafka, capsys)


def test_a_command_over_http_asks_the_broker_that_the_environment_names(away: Shell) -> None:
    assert away.raw("sql", "SELECT count(*) AS n FROM here", "--json").object == {"n": 0}
    assert away.raw("table", "list").status == 0


def test_a_broker_without_http_is_named(
    apache: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PQBROKER_BROKER", apache)
    said = Shell(apache, capsys).raw("table", "list")
    assert (said.status, said.output) == (1, "")
    assert f"the broker at {apache} names no HTTP address" in said.errors


def test_addresses_of_two_clusters_are_refused_with_both(away: Shell, other: Broker) -> None:
    with memory_broker() as running:
        said = away.raw("table", "list", "--http", running.http)
        assert said.status == 1
        assert f"{running.http} over HTTP is of cluster" in said.errors
        assert "leave --http and PQBROKER_HTTP out" in said.errors
    assert away.raw("table", "list", "--http", other.http).status == 0


def test_health_shows_what_is_wrong_with_a_node(away: Shell, other: Broker) -> None:
    said = away("cluster", "health", "--json")
    assert (said.object["healthy"], said.object["status"], said.object["conditions"]) == (True, "ok", [])
    ask(other, "/v1/test/store", {"fault": "hold"})
    with ThreadPoolExecutor(1) as another:
        another.submit(ask, other, "/v1/topics/here/records", {"records": [{"value": "v"}]})
        try:
            wait_until(lambda: away("cluster", "health").status == 1, "the held commit is shown")
            said = away("cluster", "health")
            assert "degraded: sync-slow at cell 0 since" in said.output
            assert "to cure it: look at the disk" in said.output
            assert "is not healthy" in said.errors
            (top,) = away("top", "-n", "1", "-i", "0.1", "--json").objects
            assert [one["kind"] for one in top["conditions"]] == ["sync-slow"]
            assert "degraded: sync-slow at cell 0" in away("top", "-n", "1", "-i", "0.1").output
        finally:
            ask(other, "/v1/test/store", {"fault": "clear"})


def test_health_of_a_broker_without_http_is_that_of_its_partitions(
    apache: str, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = Shell(apache, capsys)("cluster", "health", "--json").object
    assert (shown["healthy"], shown["status"], shown["conditions"]) == (True, None, [])


def test_a_password_is_not_sent_to_a_host_that_the_user_has_not_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"pqbroker.advertised.http": "elsewhere.example:8092"}
    config = tmp_path / "client.properties"
    config.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-256\n"
        "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required "
        'username="ann" password="secret";\n'
    )
    with memory_broker(settings, users={"ann": "secret"}) as running:
        monkeypatch.setenv("PQBROKER_BROKER", running.kafka)
        said = Shell(running.kafka, capsys).raw("table", "list", "--command-config", str(config))
    assert said.status == 1
    assert "the password is not sent there; give --http elsewhere.example:8092 to send it" in said.errors


def ask(running: Broker, path: str, body: object) -> None:
    data, kind = json.dumps(body).encode(), {"Content-Type": "application/json"}
    with urllib.request.urlopen(urllib.request.Request(f"http://{running.http}{path}", data, kind)) as answer:
        assert answer.status in (200, 201)
