"""Commands on a broker with users: who logs in, users added, listed, removed, and what is refused."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from pqbroker.testing import Broker, memory_broker
from tests.cli.shell import Shell

MECHANISMS = {"SCRAM-SHA-256": 4096, "SCRAM-SHA-512": 4096}


@pytest.fixture(scope="module")
def locked() -> Iterator[Broker]:
    with memory_broker(users={"root": "Root-secret"}) as running:
        yield running


@pytest.fixture
def typed(locked: Broker, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Shell:
    """A shell of root's."""
    monkeypatch.setenv("PQBROKER_USER", "root")
    monkeypatch.setenv("PQBROKER_PASSWORD", "Root-secret")
    monkeypatch.setenv("PQBROKER_NEW_PASSWORD", "Alice-secret")
    return Shell(locked.kafka, capsys)


def test_a_user_is_added_logs_in_and_is_removed(typed: Shell, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert typed("user", "add", "alice").output == "added the user alice\n"
    assert typed("user", "list", "--json").objects == [
        {"user": "alice", "mechanisms": MECHANISMS}, {"user": "root", "mechanisms": MECHANISMS}
    ]  # fmt: skip
    assert "exists; `pqbroker user password alice`" in typed("user", "add", "alice").errors
    path = tmp_path / "password"
    path.write_text("Another-secret\n")
    monkeypatch.setenv("PQBROKER_NEW_PASSWORD_FILE", str(path))
    assert typed("user", "password", "alice").output == "changed the password of alice\n"
    monkeypatch.setenv("PQBROKER_PASSWORD", "Another-secret")
    assert typed("topic", "list", "--user", "alice").status == 0
    said = typed("topic", "list", "--user", "root")
    assert said.status == 1
    assert "refused the login as root: Authentication failed" in said.errors
    monkeypatch.setenv("PQBROKER_PASSWORD", "Root-secret")
    assert typed("user", "remove", "alice", "--yes").output == "removed the user alice\n"
    assert typed("user", "remove", "alice", "--yes").status == 1
    said = typed("user", "remove", "root", "--yes")
    assert "root is the last super user" in said.errors
    assert typed("user", "list", "--json").objects == [{"user": "root", "mechanisms": MECHANISMS}]


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_records_are_written_and_read_by_a_user_of_a_file(
    locked: Broker, capsys: pytest.CaptureFixture[str], tmp_path: Path, mechanism: str
) -> None:
    config = tmp_path / "client.properties"
    config.write_text("".join(f"{name}={text}\n" for name, text in locked.login("root", mechanism).items()))
    shell, lines = Shell(locked.kafka, capsys), tmp_path / "lines"
    lines.write_text("one\ntwo\n")
    topic = f"of-{mechanism.lower()}"
    for words in (("topic", "create", topic), ("produce", topic, "--file", str(lines))):
        assert shell(*words, "--command-config", str(config)).status == 0
    assert shell("consume", topic, "--command-config", str(config)).output.splitlines() == ["one", "two"]


def test_who_does_not_log_in_is_not_served(
    locked: Broker, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shell = Shell(locked.kafka, capsys)
    said = shell("topic", "list")
    assert said.status == 1
    assert "it closed the connection; a listener with a login wants --user or --command-config" in said.errors
    assert "no password for eve: set PQBROKER_PASSWORD" in shell("topic", "list", "--user", "eve").errors
    monkeypatch.setenv("PQBROKER_PASSWORD_FILE", "/nowhere")
    assert "PQBROKER_PASSWORD_FILE: cannot read /nowhere" in shell("topic", "list", "--user", "eve").errors


def test_a_plain_listener_has_no_users(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PQBROKER_PASSWORD", "x")
    with memory_broker() as running:
        said = Shell(running.kafka, capsys)("topic", "list", "--user", "eve")
    assert said.status == 1
    assert "has no login; leave --user out" in said.errors


def test_calls_over_http_log_in_too(locked: Broker, typed: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    locked.create_topic("over-http")
    assert locked.produce("over-http", "value").offset == 0
    found = typed.raw("cluster", "connections", "--http", locked.http, "--json")
    assert found.status == 0
    monkeypatch.delenv("PQBROKER_USER")
    said = typed.raw("cluster", "connections", "--http", locked.http)
    assert said.status == 1
    assert "serves nobody without a login" in said.errors


def test_a_token_logs_in_over_http_until_it_is_revoked(
    locked: Broker, typed: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    http = ("--http", locked.http)
    made = typed.raw("token", "create", "--note", "board", "--lifetime", "3600", *http, "--json").object
    monkeypatch.setenv("PQBROKER_TOKEN", made["token"])
    monkeypatch.delenv("PQBROKER_USER")
    listed = typed.raw("token", "list", *http, "--json").objects
    assert [(each["id"], each["user"], each["note"]) for each in listed] == [(made["id"], "root", "board")]
    assert made["token"] not in typed.raw("token", "list", *http).output
    assert typed.raw("token", "revoke", made["id"], *http).output == f"revoked the token {made['id']}\n"
    assert typed.raw("token", "list", *http).status == 1
    monkeypatch.setenv("PQBROKER_USER", "root")
    assert typed.raw("token", "list", *http).output == "no tokens; `pqbroker token create` makes one\n"


def test_a_token_for_no_user_is_refused_with_cause_and_cure(
    locked: Broker, typed: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = typed.raw("token", "create", "--for", "nobody", "--http", locked.http)
    assert said.status == 1
    assert "there is no user nobody; a token is for a user of the broker. `pqbroker user list` lists" in said.errors
    monkeypatch.delenv("PQBROKER_USER")
    with memory_broker() as plain:
        said = typed.raw("token", "create", "--http", plain.http)
    assert "the caller has not logged in; a token is for a user" in said.errors


def test_further_users_of_a_fixture_log_in(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    with memory_broker(users={"root": "r", "bob": "b"}) as running:
        monkeypatch.setenv("PQBROKER_USER", "bob")
        monkeypatch.setenv("PQBROKER_PASSWORD", "b")
        assert Shell(running.kafka, capsys)("topic", "list").status == 0
        running.restart()
        assert Shell(running.kafka, capsys)("topic", "list").status == 0
        assert running.login("bob", "PLAIN")["sasl.mechanism"] == "PLAIN"
