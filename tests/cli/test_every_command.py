"""Every command, beside a tablet that is unmounted, frozen, or in a cell that is not open: it ends soon and without a
traceback, and where it is refused the state or the command that helps is named."""

import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from pqbroker.testing import Broker, memory_broker
from tests.cli.shell import Said, Shell, run_here
from tests.support.cli_page import KEYS

FROZEN, UNMOUNTED, OFFLINE = "frozen", "unmounted", "offline"
SOON_S = 15.0
STALL_S = 1.0
"""Commands that read and write wait this long for a partition without a leader."""
KAFKA = frozenset(("produce", "consume", "topic", "group", "top", "bench", "quota"))
"""First words of commands for a Kafka address; so are `CLUSTER`."""
CLUSTER = (
    "cluster info", "cluster health", "cluster settings", "acl add", "acl list", "acl remove", "user list", "user add",
    "user password", "user remove", "quota list", "quota set", "quota remove",
)
CURES = ("table mount", "table unfreeze", "table unmount", "cell list", UNMOUNTED, FROZEN, "not open")
COMMANDS: Mapping[str, str] = {
    "topic list": "", "topic create": "{t}.more --partitions 1", "topic describe": "{t}", "topic grow": "{t} 3",
    "topic analyze": "{t}", "topic export": "{t} {file}.jsonl", "topic configs": "{t}",
    "topic clean": "{t}", "topic trim": "{t} --before 1 --partition 1 --yes", "topic delete": "{t} --yes",
    "produce": "{t} --file {lines} --partition 1", "consume": "{t}",
    "group list": "", "group describe": "{g}", "group reset": "{g} --topic {t} --to earliest",
    "group delete": "{g} --yes",
    "cluster info": "", "cluster health": "", "cluster settings": "", "cluster connections": "",
    "cluster restart": "",
    "acl add": "--allow User:ann --operation read --topic {t}", "acl list": "", "acl remove": "--topic {t} --yes",
    "acl needs": "", "quota list": "", "quota set": "--for-user ann --produce 1000000",
    "quota remove": "--for-user ann",
    "top": "--count 1 --interval 0.1", "bench": "--records 100", "sql": "FROM_{t}",
    "tablet list": "", "tablet show": "{i}", "tablet restart": "{i}",
    "tablet move": "{i} --channel 2 --pool main",
    "tablet keys": "{i}", "tablet kv": '{i} {{"read":{{"key":"i0000000001"}}}}',
    "table create": "//more/{t} --column id:int64", "table list": "", "table describe": "{t}",
    "table insert": "{t} --row {{\"id\":1,\"$tablet_index\":1}}", "table alter": "{t} --column id:int64",
    "table select": "{t} --tablet 1", "table trim": "{t} --tablet 1 --to 1 --yes", "table drop": "{t} --yes",
    "table lookup": "{t} id=1", "table delete-rows": "{t} id=1", "table inside": "{t} --tablet 1",
    "table explain-compaction": "{t}", "table compact": "{t}", "table materialize": "{t} into {t}",
    "table materializations": "", "table pause-materialization": "{t}", "table resume-materialization": "{t}",
    "table drop-materialization": "{t} --yes",
    "table mount": "{t}", "table unmount": "{t}", "table freeze": "{t}", "table unfreeze": "{t}",
    "table remount": "{t}", "table reshard": "{t} --tablets 3",
    "queue list": "", "queue describe": "{t}", "queue register": "{t} {g}", "queue unregister": "{t} {g} --yes",
    "queue pull": "{t} --tablet 1", "queue advance": "{t} {g} --tablet 1 --to 1", "queue auto-trim": "{t} --enable",
    "queue sessions": "{t}", "queue take-session": "{t} s --producer p",
    "queue end-session": "{t} s --producer p --yes",
    "queue push": "{t} s --producer p --epoch 0 --from 0 --row {{\"id\":1}}",
    "transaction list": "", "transaction describe": "0", "transaction abort": "0 --yes",
    "transaction resolve": "0 --abort --yes",
    "user list": "", "user add": "{t}", "user password": "{t}", "user remove": "{t} --yes", "token list": "",
    "token create": "", "token revoke": "{t}",
    "features list": "", "features upgrade": "transaction.version=2", "features downgrade": "transaction.version=2",
    "cell list": "", "cell create": "nowhere",
    "cell remove": "99 --yes", "cell move": "1 --node 1",
    "bundle list": "", "bundle create": "more.{t}", "bundle set": "far --filter elsewhere",
    "bundle remove": "far --yes", "get": "//{t}/@tablet_count", "list": "/", "exists": "//{t}",
    "set": "//{t}/@max_data_ttl 5", "backup": "copy-{t}",
}  # fmt: skip
"""Options and arguments of each command. The tablet that is closed is number 1."""
ELSEWHERE = frozenset(
    (
        "restore", "doctor", "crashtest", "certificate", "completion", "profile add", "profile use", "profile list",
        "profile show", "profile remove",
    )
)  # fmt: skip
"""Commands that ask no running broker for data."""
OF_SORTED_TABLES = frozenset(
    (
        "table compact", "table delete-rows", "table drop-materialization", "table explain-compaction", "table inside",
        "table lookup", "table materialize", "table pause-materialization", "table resume-materialization",
    )
)  # fmt: skip
"""Commands that no ordered table has."""
OF_OTHER_RULES = OF_SORTED_TABLES | frozenset(
    (
        "acl add", "acl list", "acl remove", "token create", "token revoke", "user add", "user password", "user remove",
        "backup", "bundle remove", "cell create", "cell move", "cell remove", "cluster health",
        "cluster restart", "group delete", "table alter", "table freeze", "table mount", "table remount",
        "table reshard", "table unfreeze", "tablet kv",
        "tablet move",
        "queue end-session", "queue push", "queue unregister",
        "topic clean", "topic grow", "transaction abort", "transaction describe", "transaction resolve",
    )
)  # fmt: skip
"""Commands that may be refused for what has nothing to do with the tablet."""
CHANGING = frozenset(
    (
        "group delete", "group reset", "produce", "set", "tablet move", "tablet restart", "topic delete", "topic grow",
        "topic trim", *(command for command in COMMANDS if command.startswith("table ")),
    )
)  # fmt: skip
"""Commands that have a table of their own."""


def test_every_command_is_listed() -> None:
    assert COMMANDS.keys() | ELSEWHERE == KEYS.keys()


class Closed:
    """A broker, and tables with a closed tablet, each read by a group of its name."""

    def __init__(self, one: Broker, capsys: pytest.CaptureFixture[str], shared: dict[str, str]) -> None:
        """`shared`: the table that commands share which change nothing, by state."""
        self._broker = one
        self._shell = Shell(one.kafka, capsys)
        self._shared = shared

    def run(self, command: str, arguments: str, state: str, tmp_path: Path) -> Said:
        """Run a command beside a closed tablet."""
        if command in CHANGING:
            table = self._make(f"{state}-{command.replace(' ', '-')}", state)
        else:
            table = self._shared.get(state) or self._shared.setdefault(state, self._make(state, state))
        lines = tmp_path / "lines"
        lines.write_text('{"id": 7}\n')
        tablets = self._asked("table", "describe", table, "--json").object["tablets"]
        filled = arguments.format(t=table, g=table, i=tablets[1]["tablet_id"], file=tmp_path / "out", lines=lines)
        words = [f"SELECT count(*) AS n FROM {table}"] if command == "sql" else filled.split()
        began_s = time.monotonic()
        said = (self._asked if self._is_of_http(command) else self._shell)(*command.split(), *words)
        assert time.monotonic() - began_s < SOON_S
        return said

    @staticmethod
    def _is_of_http(command: str) -> bool:
        return command == "topic clean" or (command.split()[0] not in KAFKA and command not in CLUSTER)

    def _asked(self, *words: str) -> Said:
        return self._shell.raw(*words, "--http", self._broker.http)

    def _make(self, table: str, state: str) -> str:
        self._set_filter(state, "")
        bundle = ("--bundle", "far") if state == OFFLINE else ()
        self._done("table", "create", f"//{table}", "--column", "id:int64", "--tablets", "2", *bundle)
        for tablet in (0, 1):
            row = f"--row={json.dumps({'id': 1, '$tablet_index': tablet})}"
            self._done("table", "insert", table, row, row)
        if "group" in table or table == state:  # a group takes seconds
            said = self._shell("consume", table, "--group", table)
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
    with memory_broker() as one:
        yield one


@pytest.fixture(scope="module")
def shared(running: Broker) -> dict[str, str]:
    for words in (("bundle", "create", "far"), ("cell", "create", "far")):
        said = run_here(*words, "--http", running.http)
        assert said.status == 0, said.errors
    return {}


@pytest.fixture
def closed(
    running: Broker, shared: dict[str, str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Closed:
    monkeypatch.setenv("PQBROKER_NEW_PASSWORD", "a new secret")
    monkeypatch.setattr("pqbroker.cli.records.consuming.STALL_S", STALL_S)
    monkeypatch.setattr("pqbroker.cli.records.producing.UNANSWERED_S", STALL_S)
    return Closed(running, capsys, shared)


@pytest.mark.parametrize("state", [UNMOUNTED, FROZEN, OFFLINE])
@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_beside_a_closed_tablet_ends_soon_and_names_what_helps(
    closed: Closed, tmp_path: Path, command: str, state: str
) -> None:
    said = closed.run(command, COMMANDS[command], state, tmp_path)
    if said.status:
        assert said.status == 1, said.errors
        assert any(cure in said.errors for cure in CURES) or command in OF_OTHER_RULES, said.errors
