"""Commands at a broker that takes connections and never answers: each ends at its deadline, and says what it waits for.

`serve`, a `consume --follow`, `top` and streams have no end of their own.
"""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from tests.cli.shell import Shell
from tests.cli.test_every_command import CLUSTER, COMMANDS, KAFKA, SOON_S

DEADLINES_S = (0.2, 3.5)
"""On a busy machine a command may not even connect within the first one: then the second is tried."""
DEADLINES = (
    "cli.kafka.link.FIRST_ANSWER_TIMEOUT_S", "cli.web.TIMEOUT_S", "cli.commands.sql._TIMEOUT_S",
    "cli.commands.backup._TIMEOUT_S",
)  # fmt: skip
NOTICE_S = 0.02
BOTH = frozenset(("topic clean",))
"""Commands that have a Kafka address beside their family's, and ask over HTTP alone."""


@pytest.fixture(scope="module")
def mute() -> Iterator[str]:
    """HOST:PORT of a server that reads and says nothing."""
    with ExitStack() as stack, socket.create_server(("127.0.0.1", 0)) as listening:

        def accept() -> None:
            with suppress(OSError):
                while True:
                    stack.enter_context(listening.accept()[0])

        thread = threading.Thread(target=accept)
        thread.start()
        yield f"127.0.0.1:{listening.getsockname()[1]}"
        listening.shutdown(socket.SHUT_RDWR)
        thread.join(SOON_S)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_ends_at_its_deadline_and_says_what_it_waits_for(
    mute: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, command: str
) -> None:
    monkeypatch.setattr("pqbroker.cli.notices.NOTICE_AFTER_S", NOTICE_S)
    monkeypatch.setenv("PQBROKER_NEW_PASSWORD", "a new secret")
    lines = tmp_path / "lines"
    lines.write_text('{"id": 7}\n')
    filled = COMMANDS[command].format(t="t", g="g", i=1, file=tmp_path / "out", lines=lines)
    words = ["SELECT 1"] if command == "sql" else filled.split()
    is_of_kafka = (command.split()[0] in KAFKA or command in CLUSTER) and command not in BOTH
    for deadline_s in DEADLINES_S:
        for name in DEADLINES:
            monkeypatch.setattr(f"pqbroker.{name}", deadline_s)
        began_s = time.monotonic()
        said = Shell(mute, capsys).raw(*command.split(), *words, "--broker" if is_of_kafka else "--http", mute)
        assert said.status == 1, said
        if waits := f"waiting for an answer of {mute}, {deadline_s} s at most; Ctrl-C ends it" in said.errors:
            break
    assert waits, said.errors
    assert time.monotonic() - began_s < SOON_S
    assert mute in said.errors.splitlines()[-1]
