"""Every command against Apache Kafka, against addresses of two clusters that are mixed up, and against a broker that is
stopped: right or refused, soon, and never done to another cluster."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pqbroker.testing import MEMORY, Broker, broker, memory_broker
from tests.cli.shell import Said, Shell
from tests.cli.test_every_command import COMMANDS
from tests.support.cli_page import FAMILIES_OVER_HTTP, OVER_BOTH, OVER_HTTP

OF_HTTP = [name for name in COMMANDS if name in OVER_HTTP or name.startswith(FAMILIES_OVER_HTTP)]
OF_KAFKA = [name for name in COMMANDS if name not in OF_HTTP]
TOPIC, GROUP = "mixed-up", "mixed-up-readers"
SOON_S = 30.0
REFUSED_BY_APACHE = dict.fromkeys(("acl add", "acl list", "acl remove"), "No Authorizer is configured")
"""Commands that Apache Kafka refuses as it runs here, and the reason."""


class Typed:
    """Commands typed with all that they need, in an environment that names addresses."""

    def __init__(self, capsys: pytest.CaptureFixture[str], place: Path) -> None:
        self._shell = Shell("", capsys)
        self._place = place

    def prepare(self, command: str) -> None:
        """Make what a command works on, where an earlier one has removed it."""
        if command.startswith(("user p", "user r")):
            self._shell.raw("user", "add", TOPIC)
        elif "list" not in command:
            self._shell.raw("topic", "create", TOPIC, "--partitions", "2")
            self._shell.raw("topic", "grow", TOPIC, "2")
        if command == "topic trim":
            self("produce")
        if command.startswith("group"):
            self("group reset")

    def __call__(self, command: str, *more: str) -> Said:
        lines = self._place / "lines"
        lines.write_text("a\nb\n")
        filled = COMMANDS[command].format(t=TOPIC, g=GROUP, i="1", file=self._place / "out", lines=lines)
        words = [f'SELECT count(*) AS n FROM "{TOPIC}"'] if command == "sql" else filled.split()
        begin_s = time.monotonic()
        said = self._shell.raw(*command.split(), *words, *more)
        assert time.monotonic() - begin_s < SOON_S
        assert said.status in (0, 1), said.errors
        return said


@pytest.fixture
def typed(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Typed:
    monkeypatch.setenv("PQBROKER_NEW_PASSWORD", "a new secret")
    return Typed(capsys, tmp_path)


@pytest.mark.parametrize("command", OF_KAFKA)
def test_a_command_is_right_against_apache_kafka(
    typed: Typed, apache: str, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setenv("PQBROKER_BROKER", apache)
    typed.prepare(command)
    said = typed(command)
    if command in REFUSED_BY_APACHE:
        assert (said.status, said.output) == (1, "")
        assert REFUSED_BY_APACHE[command] in said.errors
    else:
        assert said.status == 0, said.errors


@pytest.mark.parametrize("command", OF_HTTP)
def test_what_only_a_pqbroker_has_is_refused_at_apache_kafka(
    typed: Typed, apache: str, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setenv("PQBROKER_BROKER", apache)
    said = typed(command)
    assert (said.status, said.output) == (1, "")
    assert f"the broker at {apache} names no HTTP address" in said.errors


@pytest.fixture(scope="module")
def untouched() -> Iterator[Broker]:
    """A broker of ours whose topics stay as they are, whatever is typed for another cluster."""
    with memory_broker() as running:
        running.produce(running.create_topic(TOPIC, 2), "kept")
        yield running
        assert [one.value for one in running.read(TOPIC)] == [b"kept"]


@pytest.mark.parametrize("command", [*OF_HTTP, *sorted(OVER_BOTH)])
def test_addresses_of_two_clusters_are_refused(
    typed: Typed, apache: str, untouched: Broker, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setenv("PQBROKER_BROKER", apache)
    said = typed(command, "--http", untouched.http)
    assert (said.status, said.output) == (1, "")
    assert f"{untouched.http} over HTTP is of cluster" in said.errors or command in REFUSED_BY_APACHE


@pytest.fixture(scope="module")
def stopped() -> Iterator[Broker]:
    """A broker whose process takes connections and answers none: it is stopped."""
    with broker(MEMORY) as running:
        assert running.pid is not None
        os.kill(running.pid, signal.SIGSTOP)
        try:
            yield running
        finally:
            os.kill(running.pid, signal.SIGCONT)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_broker_that_does_not_answer_is_named(
    typed: Typed, stopped: Broker, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setattr("pqbroker.cli.kafka.link.FIRST_ANSWER_TIMEOUT_S", 0.05)
    monkeypatch.setattr("pqbroker.cli.web.TIMEOUT_S", 0.05)
    for patient in ("sql", "backup"):
        monkeypatch.setattr(f"pqbroker.cli.commands.{patient}._TIMEOUT_S", 0.05)
    address = stopped.http if command in OF_HTTP else stopped.kafka
    said = typed(command, "--http" if command in OF_HTTP else "--broker", address)
    assert (said.status, said.output) == (1, "")
    assert f"no broker answers at {address} " in said.errors
