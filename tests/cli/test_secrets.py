"""Secrets planted in a broker show nowhere: logs, configs, HTTP, metrics, errors, commands, files on disk."""

import json
import logging
import urllib.error
import urllib.request
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path

import pytest

from pqbroker.broker.web.served import ROUTES
from pqbroker.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from pqbroker.protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from pqbroker.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from pqbroker.protocol.messages.sasl_handshake import SaslHandshakeRequest
from pqbroker.testing import Broker, broker
from tests.cli.shell import Shell
from tests.support.attacked import Caller
from tests.support.sasl import plain

ROOT, ALICE, LISTED, WRONG = "Planted-root", "Planted-alice", "Planted-listed", "Planted-wrong"
SETTINGS = {
    "listener.name.sasl_plaintext.plain.sasl.jaas.config":
        f'org.apache.kafka.common.security.plain.PlainLoginModule required user_carol="{LISTED}";',
    "ssl.keystore.password": "Planted-store", "ssl.key.password": "Planted-key",
    "ssl.truststore.password": "Planted-trust",
}  # fmt: skip
BROKER = 4


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Broker, Path]]:
    directory = tmp_path_factory.mktemp("planted") / "data"
    users = {"root": ROOT, "alice": ALICE}
    with broker(directory, users=users, settings=SETTINGS, log_level="debug") as running:
        yield running, directory


def check(text: str, place: str, *further: str) -> None:
    for secret in ("Planted", b64encode(f"root:{ROOT}".encode()).decode(), *further):
        assert secret not in text, place


def ask(address: str, method: str, path: str, user: str = "", password: str = "", body: object = None) -> str:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"http://{address}{path}", data, method=method)
    request.add_header("Content-Type", "application/json")
    if user:
        request.add_header("Authorization", "Basic " + b64encode(f"{user}:{password}".encode()).decode())
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return f"{answer.headers}{answer.read().decode(errors='replace')}"
    except urllib.error.HTTPError as error:
        return str(error.headers) + error.read().decode(errors="replace")


def test_no_answer_over_http_shows_a_secret(planted: tuple[Broker, Path]) -> None:
    running, _ = planted
    token = json.loads(ask(running.http, "POST", "/v1/tokens", "root", ROOT, {}).partition("\n\n")[2])["token"]
    paths = [route.path for route in ROUTES if route.method == "GET" and "{" not in route.path]
    for path in (*paths, "/metrics", "/", "/v1/tree///sys", "/v1/users/root", "/v1/tablets/1", "/v1/tablets/1/keys"):
        if path not in ("/v1/events", "/v1/blobs", "/v1/keys"):
            check(ask(running.http, "GET", path, "root", ROOT), path, token.rpartition("_")[2])
    check(ask(running.http, "GET", "/v1/blobs?tablet=1", "root", ROOT), "blobs", token.rpartition("_")[2])
    check(ask(running.http, "GET", "/v1/node", "root", WRONG), "a wrong login")
    check(ask(running.http, "POST", "/v1/login", body={"user": "root", "password": WRONG}), "a wrong login")
    check(ask(running.http, "PUT", "/v1/users/x", "root", ROOT, {"password": "Planted-" * 300}), "a long password")
    check(ask(running.http, "PUT", "/v1/users/x", "root", ROOT, {"password": ["Planted-list"]}), "no password")


def test_no_answer_over_kafka_shows_a_secret(planted: tuple[Broker, Path]) -> None:
    running, _ = planted
    with Caller(running.kafka) as caller:
        caller.ask(SaslHandshakeRequest(mechanism="PLAIN"))
        assert not caller.ask(SaslAuthenticateRequest(auth_bytes=plain("carol", LISTED))).error_code
        resource = DescribeConfigsResource(resource_type=BROKER, resource_name="1", configuration_keys=None)
        request = DescribeConfigsRequest(resources=[resource], include_synonyms=True, include_documentation=True)
        answer = caller.ask(request)
        check(repr(answer), "DescribeConfigs")
        (result,) = answer.results
        shown = {config.name: config for config in result.configs}
        names = [name for name in SETTINGS if name in shown]
        assert "ssl.key.password" in names
        assert all(shown[name].is_sensitive and shown[name].value is None for name in names)
        check(repr(caller.ask(DescribeUserScramCredentialsRequest(users=None))), "DescribeUserScramCredentials")
    with Caller(running.kafka) as caller:
        caller.ask(SaslHandshakeRequest(mechanism="PLAIN"))
        check(repr(caller.ask(SaslAuthenticateRequest(auth_bytes=plain("root", WRONG)))), "a wrong login")


def test_no_command_shows_a_secret(
    planted: tuple[Broker, Path], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    running, _ = planted
    shell = Shell(running.kafka, capsys)
    config = tmp_path / "client.properties"
    config.write_text("".join(f"{name}={text}\n" for name, text in running.login("alice").items()))
    for words in (("topic", "list"), ("user", "list"), ("cluster", "describe"), ("topic", "describe", "nowhere")):
        said = shell(*words, "--command-config", str(config))
        check(said.output + said.errors, " ".join(words))
    config.write_text(config.read_text().replace(ALICE, "Planted-wrong").replace("required", 'required x="Planted-x"'))
    said = shell("topic", "list", "--command-config", str(config))
    check(said.output + said.errors, "a wrong login")
    config.write_text(config.read_text().replace(";", ""))
    said = shell("topic", "list", "--command-config", str(config))
    check(said.output + said.errors, "a wrong file")
    monkeypatch.setenv("PQBROKER_PASSWORD", "Planted-" * 200)
    said = shell("topic", "list", "--user", "root")
    check(said.output + said.errors, "a long password")


def test_no_log_line_and_no_file_has_a_secret(
    planted: tuple[Broker, Path], capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    running, directory = planted
    check(running.log, "the log")
    with caplog.at_level(logging.DEBUG):
        running.restart()
    running.stop()
    check(running.log, "the log")
    for path in directory.rglob("*"):
        if path.is_file():
            check(path.read_bytes().decode("latin-1"), str(path))
    said = Shell("", capsys).raw("doctor", str(directory), "--json")
    check(said.output + said.errors, "the doctor")
    assert directory.stat().st_mode & 0o077 == 0
    running.start()
