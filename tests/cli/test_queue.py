"""`pqbroker queue`, at a broker of ours."""

from collections.abc import Callable, Iterator

import pytest

from pqbroker.testing import Broker, memory_broker
from tests.cli.shell import Said, Shell, run

pytestmark = pytest.mark.spec("E.13")


class QueueShell(Shell):
    """Commands at a broker's HTTP address."""

    def __init__(self, running: Broker, capsys: pytest.CaptureFixture[str]) -> None:
        super().__init__(running.kafka, capsys)
        self.http = running.http

    def __call__(self, *arguments: str, given: str = "") -> Said:
        said = ("queue", *arguments, "--http", self.http)
        return run(*said, given=given) if given else self.raw(*said)


@pytest.fixture(scope="module")
def running() -> Iterator[Broker]:
    with memory_broker() as one:
        yield one


@pytest.fixture
def shell(running: Broker, capsys: pytest.CaptureFixture[str]) -> QueueShell:
    return QueueShell(running, capsys)


@pytest.fixture
def queue(shell: QueueShell, fresh_name: Callable[[], str]) -> str:
    name = fresh_name()
    said = shell.raw("table", "create", f"//{name}", "--column", "id:int64", "--http", shell.http)
    assert said.status == 0, said.errors
    return name


def test_a_consumer_is_registered_pulls_advances_and_leaves(shell: QueueShell, queue: str) -> None:
    assert shell("register", queue, "billing", "--vital").output == f"billing is a vital consumer of {queue}\n"
    shell("take-session", queue, "s", "--producer", "p")
    pushed = shell("push", queue, "s", "--producer", "p", "--epoch", "0", "--from", "0", given='{"id": 1}\n{"id": 2}\n')
    assert pushed.output == "pushed 2 rows; the last one is 1\n"
    (row,) = shell("pull", queue, "--consumer", "billing", "--limit", "1", "--advance", "--json").objects
    assert row["id"] == 1
    line = shell("describe", queue).output.splitlines()[2].split()
    assert line == ["billing", "vital", "0", "1", "0", "2", "1", "pending_consumption"]
    refused = shell("advance", queue, "billing", "--to", "2", "--if-at", "0")
    assert refused.status == 1
    assert "stands at row 1" in refused.errors
    assert "leave --if-at out" in refused.errors
    assert shell("advance", f"//{queue}", "billing", "--to", "2", "--if-at", "1").status == 0
    assert "billing (vital)" in shell("list", "--consumer", "billing").output
    assert shell("unregister", queue, "billing").status == 2
    assert shell("unregister", queue, "billing", "--yes").status == 0
    assert shell("list", "--consumer", "billing").output == "billing is registered with no queue\n"


def test_a_session_is_taken_shown_fenced_and_ended(shell: QueueShell, queue: str) -> None:
    taken = shell("take-session", queue, "s", "--producer", "p", "--user-meta", '{"file": "a"}')
    assert taken.output == "session s of p is in epoch 0; its last row is -1\n"
    assert shell("take-session", queue, "s", "--producer", "p", "--json").object["epoch"] == 1
    refused = shell("push", queue, "s", "--producer", "p", "--epoch", "0", "--from", "0", "--row", '{"id": 1}')
    assert refused.status == 1
    assert "epoch 0 of the session is over" in refused.errors
    shown = shell("sessions", queue).output.splitlines()[2]
    assert shown.split(maxsplit=4) == ["p", "s", "1", "-1", '{"file": "a"}']
    assert shell("end-session", queue, "s", "--producer", "p", "--yes").status == 0
    assert shell("sessions", queue).output == f"{queue} has no sessions of producers\n"
    unknown = shell("push", queue, "s", "--producer", "p", "--epoch", "0", "--from", "0", "--row", '{"id": 1}')
    assert "Take the session first: `pqbroker queue take-session`" in unknown.errors


def test_auto_trim_is_set_shown_and_switched_off(shell: QueueShell, queue: str) -> None:
    assert shell("auto-trim", queue).output == f"auto trim of {queue}: off\n"
    said = shell("auto-trim", queue, "--enable", "--retained-rows", "10", "--retained-lifetime", "2000")
    assert said.output == f"auto trim of {queue}: on, keeps 10 rows, keeps 2000 ms\n"
    assert shell("auto-trim", queue, "--enable", "--disable").status == 2
    assert shell("auto-trim", queue, "--retained-rows", "1").status == 2
    assert shell("auto-trim", queue, "--disable", "--json").object["auto_trim_config"]["enable"] is False
