"""Commands over TLS, by a client.properties; certificates that `pqbroker certificate` makes."""

import ssl
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pqbroker.cli.connection_security import security
from pqbroker.conf.load import read_texts
from pqbroker.security.client_properties import PLAIN, load_client_security
from pqbroker.security.contexts import ClientAuth, server_context
from pqbroker.security.tls_options import tls_options
from pqbroker.testing import Broker, broker, memory_broker
from tests.cli.shell import Shell


@pytest.fixture(scope="module")
def encrypted() -> Iterator[Broker]:
    with memory_broker(tls=True) as running:
        yield running


@pytest.fixture
def typed(encrypted: Broker, capsys: pytest.CaptureFixture[str]) -> Shell:
    return Shell(encrypted.kafka, capsys)


def test_records_are_written_and_read_under_tls(
    encrypted: Broker, typed: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = ("--command-config", str(encrypted.tls.properties))
    lines = tmp_path / "lines"
    lines.write_text("one\ntwo\n")
    assert typed("topic", "create", "t", *config).status == 0
    assert security() == PLAIN, "security is that of one command, not of the process"
    assert typed("produce", "t", "--file", str(lines), *config).status == 0
    monkeypatch.setenv("PQBROKER_COMMAND_CONFIG", str(encrypted.tls.properties))
    assert typed("consume", "t").output.splitlines() == ["one", "two"]
    assert "t" in typed("topic", "list").output
    found = typed.raw("cluster", "connections", "--http", encrypted.http, "--json").objects
    assert {"User:CN=client"} >= {each["principal"] for each in found}


def test_a_command_without_trust_says_what_is_missing(encrypted: Broker, typed: Shell, tmp_path: Path) -> None:
    bare = tmp_path / "client.properties"
    bare.write_text("security.protocol=SSL\n")
    said = typed("topic", "list", "--command-config", str(bare))
    assert said.status == 1
    assert "its certificate is refused: " in said.errors
    assert "see ssl.truststore.location" in said.errors
    assert "it closed the connection" in typed("topic", "list").errors


def test_a_wrong_file_is_refused_before_anything_is_done(typed: Shell, tmp_path: Path) -> None:
    wrong = tmp_path / "client.properties"
    wrong.write_text("security.protocol=SSL\nssl.truststore.password=hidden-1\n")
    said = typed("topic", "list", "--command-config", str(wrong))
    assert said.status == 2
    assert "--command-config: " in said.errors
    assert "ssl.truststore.password is set, but ssl.truststore.location is not" in said.errors
    assert "hidden" not in said.errors
    assert "cannot read" in typed("topic", "list", "--command-config", str(tmp_path / "no")).errors


def test_certificates_serve_a_broker_and_its_clients(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    shell = Shell("", capsys)
    place = tmp_path / "made"
    made = shell.raw("certificate", "--for", "broker.example", "--client", "alice", "-d", str(place))
    assert made.status == 0
    assert str(place / "broker.pem") in made.output
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in place.iterdir()}
    assert {name for name, mode in modes.items() if mode == 0o600} == {"ca.key", "broker.pem", "alice.pem"}
    authority = (place / "ca.pem").read_bytes()
    again = shell.raw("certificate", "--client", "bob", "-d", str(place))
    assert again.status == 0
    assert (place / "ca.pem").read_bytes() == authority
    texts = read_texts(place / "broker.properties", {})
    assert server_context(tls_options(texts), ClientAuth.REQUIRED).cert_store_stats()["x509_ca"] == 1
    assert b"broker.example" in ssl.PEM_cert_to_DER_cert((place / "broker.pem").read_text().split("-----BEGIN PRIV")[0])
    for name in ("alice", "bob", "client"):
        assert load_client_security(place / f"{name}.properties").tls is not None


@pytest.mark.parametrize(
    ("words", "cause"),
    [
        ((), "nothing to make"),
        (("--client", "../x"), "cannot be a file's name"),
        (("--client", "ca"), "names of other files"),
        (("--for", "ü.example"), "is no host name"),
        (("--for", "x", "--days", "0"), "greater than or equal to 1"),
    ],
)
def test_what_no_certificate_can_be_made_for_is_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, words: tuple[str, ...], cause: str
) -> None:
    said = Shell("", capsys).raw("certificate", *words, "-d", str(tmp_path / "made"))
    assert said.status in (1, 2)
    assert cause in said.errors


def test_an_authority_without_its_key_is_not_replaced(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    shell = Shell("", capsys)
    shell.raw("certificate", "--client", "a", "-d", str(tmp_path))
    (tmp_path / "ca.key").unlink()
    said = shell.raw("certificate", "--client", "a", "-d", str(tmp_path))
    assert said.status == 1
    assert "has no ca.key beside it" in said.errors


def test_a_process_serves_tls_and_https_by_the_files_of_certificate(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with broker(tls=True) as running:
        shell = Shell(running.kafka, capsys)
        assert shell("topic", "list", "--command-config", str(running.tls.properties)).status == 0
        running.restart()
        assert shell("topic", "list", "--command-config", str(running.tls.properties)).status == 0


def test_without_the_extra_for_certificates_it_is_named(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "cryptography", None)
    monkeypatch.delitem(sys.modules, "pqbroker.security.issuing", raising=False)
    said = Shell("", capsys).raw("certificate", "--for", "x", "-d", str(tmp_path / "made"))
    assert said.status == 1
    assert "install pqbroker with its extra `certificates`" in said.errors
    assert not (tmp_path / "made").exists()
