"""Every command, beside a tablet that is unmounted, frozen, or in a cell that is not open: it ends soon and without a
traceback, and where it is refused the state or the command that helps is named."""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from itertools import count
from pathlib import Path

import pytest

from pqbroker.testing import MEMORY, Broker, broker
from tests.cli.shell import Said, Shell
from tests.support.cli_page import KEYS

FROZEN, UNMOUNTED, OFFLINE = "frozen", "unmounted", "offline"
SOON_S = 15.0
STALL_S = 1.0
"""What reading and writing wait for a partition without a leader here."""
KAFKA = frozenset(("produce", "consume", "topic", "group", "top", "bench"))
"""First words of commands for a Kafka address; so are `CLUSTER`."""
CLUSTER = ("cluster info", "cluster health", "cluster settings")
CURES = ("table mount", "table unfreeze", "table unmount", "cell list", UNMOUNTED, FROZEN, "not open")
COMMANDS: Mapping[str, str] = {
    "topic list": "", "topic create": "{t}.more --partitions 1", "topic describe": "{t}", "topic grow": "{t} 3",
    "topic analyze": "{t}", "topic export": "{t} {file}.jsonl", "topic configs": "{t}",
    "topic trim": "{t} --before 1 --partition 1 --yes", "topic delete": "{t} --yes",
    "produce": "{t} --file {lines} --partition 1", "consume": "{t}",
    "group list": "", "group describe": "{g}", "group reset": "{g} --topic {t} --to earliest", "group delete": "{g} --yes",
    "cluster info": "", "cluster health": "", "cluster settings": "", "cluster connections": "",
    "top": "--count 1 --interval 0.1", "bench": "--records 100", "sql": "FROM_{t}",
    "tablet list": "", "tablet show": "{i}", "tablet restart": "{i}", "tablet move": "{i} --channel 2 --pool main",
    "tablet keys": "{i}", "tablet kv": '{i} {{"read":{{"key":"i0000000001"}}}}',
    "table create": "//every/{t}.more --column id:int64", "table list": "", "table describe": "{t}",
    "table insert": "{t} --row {{\"id\":1,\"$tablet_index\":1}}", "table alter": "{t} --column id:int64",
    "table select": "{t} --tablet 1", "table trim": "{t} --tablet 1 --to 1 --yes", "table drop": "{t} --yes",
    "table mount": "{t}", "table unmount": "{t}", "table freeze": "{t}", "table unfreeze": "{t}", "table remount": "{t}",
    "table reshard": "{t} --tablets 3", "cell list": "", "cell create": "nowhere", "cell remove": "99 --yes",
    "bundle list": "", "bundle create": "more.{t}", "bundle set": "far --filter elsewhere", "bundle remove": "far --yes",
    "get": "//{t}/@tablet_count", "list": "/", "exists": "//{t}", "set": "//{t}/@max_data_ttl 5", "backup": "copy-{t}",
}  # fmt: skip
"""Options and arguments of each command. The tablet that is closed is number 1."""
ELSEWHERE = frozenset(("restore", "doctor", "crashtest", "completion"))
"""Commands that ask no running broker for data."""
REFUSED_OTHERWISE = frozenset(
    (
        "backup", "cell create", "cell remove", "bundle remove", "tablet kv", "tablet move", "group delete", "table mount",
        "cluster health", "table freeze", "table unfreeze", "table remount", "table alter", "table reshard", "topic grow", "table create",
    )
)  # fmt: skip
"""Commands that this broker, or another rule, may refuse."""


def test_every_command_is_listed() -> None:
    assert COMMANDS.keys() | ELSEWHERE == KEYS.keys()


class Closed:
    """A broker, and tables with a closed tablet."""

    def __init__(self, one: Broker, capsys: pytest.CaptureFixture[str]) -> None:
        self._broker = one
        self._shell = Shell(one.kafka, capsys)

    def run(self, command: str, arguments: str, state: str, tmp_path: Path, number: int) -> Said:
        """Make a table, close a tablet of it, and run the command."""
        table = self._make(state, number)
        lines = tmp_path / "lines"
        lines.write_text('{"id": 7}\n')
        tablets = self._asked("table", "describe", table, "--json").object["tablets"]
        filled = arguments.format(t=table, g=f"g{number}", i=tablets[1]["tablet_id"], file=tmp_path / "out", lines=lines)
        words = [f"SELECT count(*) AS n FROM {table}"] if command == "sql" else filled.split()
        began_s = time.monotonic()
        said = self._asked(*command.split(), *words) if self._is_of_http(command) else self._shell(*command.split(), *words)
        assert time.monotonic() - began_s < SOON_S
        return said

    @staticmethod
    def _is_of_http(command: str) -> bool:
        return command.split()[0] not in KAFKA and command not in CLUSTER

    def _asked(self, *words: str) -> Said:
        return self._shell.raw(*words, "--http", self._broker.http)

    def _make(self, state: str, number: int) -> str:
        table = f"every{number}"
        self._set_filter(state, "")
        bundle = ("--bundle", "far") if state == OFFLINE else ()
        self._done("table", "create", f"//{table}", "--column", "id:int64", "--tablets", "2", *bundle)
        for tablet in (0, 1):
            row = f"--row={json.dumps({'id': 1, '$tablet_index': tablet})}"
            self._done("table", "insert", table, row, row)
        said = self._shell("consume", table, "--group", f"g{number}")
        assert len(said.output.splitlines()) == 4, said
        if state == OFFLINE:
            self._set_filter(state, "elsewhere")
        else:
            self._done("table", "freeze" if state == FROZEN else "unmount", table, "--first", "1", "--last", "1")
        return table

    def _set_filter(self, state: str, tag: str) -> None:
        if state == OFFLINE:
            self._done("bundle", "set", "far", "--filter", tag)

    def _done(self, *words: str) -> None:
        said = self._asked(*words)
        assert said.status == 0, said.errors


@pytest.fixture(scope="module")
def running() -> Iterator[Broker]:
    with broker(MEMORY) as one:
        yield one


@pytest.fixture(scope="module")
def numbers() -> Callable[[], int]:
    return count().__next__


@pytest.fixture
def closed(running: Broker, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Closed:
    monkeypatch.setattr("pqbroker.cli.records.consuming.STALL_S", STALL_S)
    monkeypatch.setattr("pqbroker.cli.records.producing.UNANSWERED_S", STALL_S)
    shell = Shell(running.kafka, capsys)
    if not any(each["name"] == "far" for each in shell.raw("bundle", "list", "--json", "--http", running.http).objects):
        for words in (("bundle", "create", "far"), ("cell", "create", "far")):
            assert shell.raw(*words, "--http", running.http).status == 0
    return Closed(running, capsys)


@pytest.mark.parametrize("state", [UNMOUNTED, FROZEN, OFFLINE])
@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_beside_a_closed_tablet_ends_soon_and_names_what_helps(
    closed: Closed, tmp_path: Path, numbers: Callable[[], int], command: str, state: str
) -> None:
    said = closed.run(command, COMMANDS[command], state, tmp_path, numbers())
    print(state, command, said)
    if said.status == 0:
        return
    assert said.status == 1, said.errors
    assert any(cure in said.errors for cure in CURES) or command in REFUSED_OTHERWISE, said.errors
