"""Every command that touches a topic, beside a tablet that is unmounted, frozen, or in a cell that is not open: none
waits, none fails with a traceback, and what is refused names the state and the command that ends it."""

import contextlib
import re
import signal
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from pqbroker.cli.records.paced_consumer import UNSERVED_PAUSE_S
from pqbroker.testing import Broker, memory_broker
from tests.cli.shell import TIMEOUT_S, Said, Shell, run, run_here, start

ROWS = [f'--row={{"id": {number}, "$tablet_index": {number % 2}}}' for number in range(6)]
QUICK_S = 15.0
"""Less than the time for which commands wait for an election."""
REQUESTS_MORE_MAX = 60
COLUMNS = ("--column", "id:int64")
FROZEN, UNMOUNTED, OFFLINE = "frozen", "unmounted", "offline"


@pytest.fixture(scope="module")
def running() -> Iterator[Broker]:
    with memory_broker() as one:
        yield one


class Commands(Shell):
    """At a broker's two addresses."""

    def __init__(self, running: Broker, capsys: pytest.CaptureFixture[str]) -> None:
        super().__init__(running.kafka, capsys)
        self._http = running.http

    def web(self, *arguments: str) -> Said:
        return self.raw(*arguments, "--http", self._http)


@pytest.fixture
def shell(running: Broker, capsys: pytest.CaptureFixture[str]) -> Commands:
    return Commands(running, capsys)


@pytest.fixture(scope="module")
def tables(running: Broker) -> dict[str, str]:
    """By state of its tablet 1 the name of a table of two; rows are in both, and the group `g` has read all."""
    made: dict[str, str] = {}

    def web(*arguments: str) -> None:
        said = run_here(*arguments, "--http", running.http)
        assert said.status == 0, said.errors

    for state in (FROZEN, UNMOUNTED):
        name = made[state] = f"closed.{state}"
        web("table", "create", f"//closed/{state}", *COLUMNS, "--tablets", "2")
        web("table", "insert", name, *ROWS)
        said = run_here("consume", name, "--group", "g", "--broker", running.kafka)
        assert len(said.output.splitlines()) == 6, said
    web("table", "freeze", made[FROZEN], "--first", "1", "--last", "1")
    web("table", "unmount", made[UNMOUNTED], "--first", "1", "--last", "1")
    return made


READING = {
    "consume": ("consume", "{}"),
    "consume a group": ("consume", "{}", "--group", "other"),
    "consume partition 1": ("consume", "{}", "--partition", "1"),
    "consume the last": ("consume", "{}", "--last", "2"),
    "export": ("topic", "export", "{}", "{file}"),
    "group reset": ("group", "reset", "g", "--topic", "{}", "--to", "earliest", "--dry-run"),
    "group shift": ("group", "reset", "g", "--topic", "{}", "--shift=-1", "--dry-run"),
}
SHOWING = {
    "consume all": ("consume", "closed.{state}*"),
    "consume partition 0": ("consume", "{}", "--partition", "0"),
    "describe": ("topic", "describe", "{}"), "list": ("topic", "list"), "configs": ("topic", "configs", "{}"),
    "analyze": ("topic", "analyze", "{}"), "group describe": ("group", "describe", "g"),
    "group list": ("group", "list"),
}


def typed(command: tuple[str, ...], name: str, state: str, tmp_path: Path) -> list[str]:
    return [each.format(name, state=state, file=tmp_path / "out.jsonl") for each in command]


@contextlib.contextmanager
def soon() -> Iterator[None]:
    began_s = time.monotonic()
    yield
    assert time.monotonic() - began_s < QUICK_S


@pytest.mark.parametrize("command", READING)
def test_reading_beside_an_unmounted_tablet_names_the_state_and_the_verb(
    shell: Commands, tables: dict[str, str], tmp_path: Path, command: str
) -> None:
    name = tables[UNMOUNTED]
    with soon():
        said = shell(*typed(READING[command], name, UNMOUNTED, tmp_path))
    assert said.status == 1
    assert "unmounted: 1; `pqbroker table mount closed.unmounted` mounts them" in said.errors
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("command", [*READING, *SHOWING])
def test_reading_beside_a_frozen_tablet_is_as_ever(
    shell: Commands, tables: dict[str, str], tmp_path: Path, command: str
) -> None:
    with soon():
        said = shell(*typed((READING | SHOWING)[command], tables[FROZEN], FROZEN, tmp_path))
    assert said.status == 0, said.errors


@pytest.mark.parametrize("command", SHOWING)
def test_what_does_not_need_the_unmounted_tablet_does_without_it(
    shell: Commands, tables: dict[str, str], tmp_path: Path, command: str
) -> None:
    with soon():
        said = shell(*typed(SHOWING[command], tables[UNMOUNTED], UNMOUNTED, tmp_path))
    assert said.status == 0, said.errors
    if command.startswith("consume"):
        assert len(said.output.splitlines()) == 3


def test_a_description_shows_the_tablet_and_its_cure(shell: Commands, tables: dict[str, str]) -> None:
    said = shell("topic", "describe", tables[UNMOUNTED])
    assert said.output.splitlines()[-1] == (
        "tablets of closed.unmounted are unmounted: 1; `pqbroker table mount closed.unmounted` mounts them"
    )
    parts = shell("topic", "describe", tables[UNMOUNTED], "--json").object["partitions"]
    assert [(one["start"], one["end"]) for one in parts] == [(0, 3), (None, None)]
    offsets = shell("group", "describe", "g", "--json").object["offsets"]
    assert [(one["end"], one["lag"]) for one in offsets if one["topic"] == tables[UNMOUNTED]] == [(3, 0), (None, None)]


@pytest.mark.parametrize("state", [UNMOUNTED, FROZEN])
def test_writing_and_trimming_name_the_verb(shell: Commands, tables: dict[str, str], state: str) -> None:
    name, verb = tables[state], {UNMOUNTED: "mount", FROZEN: "unfreeze"}[state]
    row = ("table", "insert", name, '--row={"id": 1, "$tablet_index": 1}')
    trim = ("table", "trim", name, "--tablet", "1", "--to", "1", "--yes")
    for command in (row, trim):
        with soon():
            said = shell.web(*command)
        assert said.status == 1
        assert state in said.errors
        assert f"table {verb}" in said.errors, said.errors
        assert "limit" not in said.errors
    with soon():
        said = shell("topic", "trim", name, "--before", "1", "--partition", "1", "--yes")
    assert said.status == 1
    assert f"table {verb}" in said.errors, said.errors


def test_sql_over_an_unmounted_tablet_names_it_and_reads_the_others(shell: Commands, tables: dict[str, str]) -> None:
    name = tables[UNMOUNTED]
    said = shell.web("sql", f"SELECT count(*) AS n FROM {name}")
    assert said.status == 1
    assert "of closed.unmounted tablets are unmounted: 1" in said.errors
    assert "`pqbroker table mount closed.unmounted` mounts them" in said.errors
    assert shell.web("sql", f"SELECT count(*) AS n FROM {name} WHERE $tablet_index = 0", "--json").object == {"n": 3}
    assert shell.web("sql", f"SELECT count(*) AS n FROM {tables[FROZEN]}", "--json").object == {"n": 6}


def test_rows_of_an_unmounted_tablet_name_it(shell: Commands, tables: dict[str, str]) -> None:
    said = shell.web("table", "select", tables[UNMOUNTED], "--tablet", "1")
    assert said.status == 1
    assert "unmounted" in said.errors
    assert "table mount" in said.errors


def write(name: str, kafka: str, *options: str, lines: str = '{"id": 7}\n') -> Said:
    return run("produce", name, *options, "--broker", kafka, given=lines)


@pytest.fixture
def table(running: Broker, request: pytest.FixtureRequest) -> Iterator[str]:
    """A table of two tablets for one test, the second in the state that the test asks for."""
    name = f"one.{request.param}"
    for command in (
        ("create", f"//one/{request.param}", *COLUMNS, "--tablets", "2"), ("insert", name, *ROWS),
        ("unmount" if request.param == UNMOUNTED else "freeze", name, "--first", "1", "--last", "1"),
    ):  # fmt: skip
        said = run_here("table", *command, "--http", running.http)
        assert said.status == 0, said.errors
    yield name
    run_here("topic", "delete", name, "--yes", "--broker", running.kafka)


@pytest.mark.parametrize("state", [UNMOUNTED, FROZEN])
def test_producing_to_a_closed_tablet_names_the_verb(
    running: Broker, tables: dict[str, str], state: str
) -> None:
    with soon():
        said = write(tables[state], running.kafka, "--partition", "1")
    assert said.status == 1
    assert f"table {'mount' if state == UNMOUNTED else 'unfreeze'}" in said.errors


@pytest.mark.parametrize("table", [UNMOUNTED, FROZEN], indirect=True)
def test_producing_to_the_other_tablet_works_until_all_are_unmounted(running: Broker, table: str) -> None:
    said = write(table, running.kafka, "--partition", "0")
    assert said.status == 0, said.errors
    run_here("table", "unmount", table, "--http", running.http)
    with soon():
        said = write(table, running.kafka)
    assert said.status == 1
    assert f"`pqbroker table mount {table}`" in said.errors


CHANGING = {
    "configs": ("topic", "configs", "{}", "--set", "max.message.bytes=100000"), "grow": ("topic", "grow", "{}", "3"),
    "top": ("top", "--count", "1", "--interval", "0.1"), "bench": ("bench", "--records", "100"),
    "delete": ("topic", "delete", "{}", "--yes"),
}


@pytest.mark.parametrize("command", CHANGING)
@pytest.mark.parametrize("table", [UNMOUNTED, FROZEN], indirect=True)
def test_changing_a_topic_beside_a_closed_tablet_works(
    shell: Commands, table: str, tmp_path: Path, command: str
) -> None:
    with soon():
        said = shell(*typed(CHANGING[command], table, "", tmp_path))
    assert said.status == 0, said.errors


def test_following_an_unmounted_tablet_is_refused_and_a_frozen_one_is_read(
    running: Broker, tables: dict[str, str]
) -> None:
    for more in ((), ("--group", "follower")):
        with soon():
            said = run_here("consume", tables[UNMOUNTED], "--follow", *more, "--broker", running.kafka)
        assert said.status == 1
        assert "`pqbroker table mount closed.unmounted` mounts them" in said.errors
    with soon():
        said = run_here("consume", tables[FROZEN], "--follow", "--limit", "6", "--broker", running.kafka)
    assert (said.status, len(said.output.splitlines())) == (0, 6), said.errors


@pytest.fixture(scope="module")
def offline() -> Iterator[Broker]:
    """A broker with a table `closed.offline`, all read by group `g`, in a cell that no longer runs there."""
    with memory_broker() as one:
        for command in (
            ("bundle", "create", "far"), ("cell", "create", "far"),
            ("table", "create", "//closed/offline", *COLUMNS, "--tablets", "2", "--bundle", "far"),
            ("table", "insert", "closed.offline", *ROWS),
        ):  # fmt: skip
            said = run_here(*command, "--http", one.http)
            assert said.status == 0, said.errors
        said = run_here("consume", "closed.offline", "--group", "g", "--broker", one.kafka)
        assert len(said.output.splitlines()) == 6, said
        assert run_here("bundle", "set", "far", "--filter", "elsewhere", "--http", one.http).status == 0
        yield one


@contextlib.contextmanager
def asked_in_time(running: Broker) -> Iterator[None]:
    """AssertionError if a reader asks again as soon as it has an answer."""
    before, began_s = requests(running), time.monotonic()
    yield
    asked, waited_s = requests(running) - before, time.monotonic() - began_s
    assert 0 < asked < REQUESTS_MORE_MAX + 2 * waited_s / UNSERVED_PAUSE_S


def requests(running: Broker) -> int:
    """Return how many requests for metadata and for records a broker has answered."""
    with urllib.request.urlopen(f"http://{running.http}/metrics", timeout=TIMEOUT_S) as answer:
        text = answer.read().decode()
    counts = re.findall(r'^pqbroker_request_seconds_count{api="(?:Metadata|Fetch)",.*} (\S+)$', text, re.MULTILINE)
    return int(sum(map(float, counts)))


@pytest.mark.parametrize("more", [(), ("--group", "follower")])
def test_following_beside_a_cell_that_is_not_open_says_so_once_and_continues_when_it_is(
    offline: Broker, more: tuple[str, ...]
) -> None:
    reader = start("consume", "closed.offline", "--follow", *more, "--broker", offline.kafka)
    assert reader.stdout is not None
    assert reader.stderr is not None
    told = "closed.offline-0, closed.offline-1"
    with asked_in_time(offline):
        line = reader.stderr.readline()
    assert line.startswith(f"pqbroker: waiting for {told}: the broker does not serve it now; `pqbroker cell list`")
    try:
        assert run_here("bundle", "set", "far", "--filter", "", "--http", offline.http).status == 0
        assert sorted(reader.stdout.readline() for _ in ROWS) == [f'{{"id":{number}}}\n' for number in range(6)]
    finally:
        run_here("bundle", "set", "far", "--filter", "elsewhere", "--http", offline.http)
    assert reader.stderr.readline() == f"pqbroker: served again: {told}\n"
    assert reader.stderr.readline() == line
    reader.send_signal(signal.SIGINT)
    assert reader.communicate(timeout=TIMEOUT_S) == ("", "")
    assert reader.returncode == 0


def test_following_tablets_that_are_unmounted_meanwhile_names_the_verb(running: Broker) -> None:
    for command in (("create", "//closed/later", *COLUMNS, "--tablets", "2"), ("insert", "closed.later", *ROWS)):
        assert run_here("table", *command, "--http", running.http).status == 0
    reader = start("consume", "closed.later", "--follow", "--broker", running.kafka)
    assert reader.stdout is not None
    assert reader.stderr is not None
    for _ in ROWS:
        reader.stdout.readline()
    unmount = ("unmount", "closed.later", "--first", "1", "--last", "1")
    assert run_here("table", *unmount, "--http", running.http).status == 0
    with asked_in_time(running):
        line = reader.stderr.readline()
    assert line.startswith("pqbroker: waiting for closed.later-1: "), line
    assert "`pqbroker table mount`" in line
    assert run_here("table", "mount", "closed.later", "--http", running.http).status == 0
    assert reader.stderr.readline() == "pqbroker: served again: closed.later-1\n"
    reader.send_signal(signal.SIGINT)
    assert reader.communicate(timeout=TIMEOUT_S) == ("", "")


OFFLINE_READING = ("consume", "consume partition 1", "export")


@pytest.mark.parametrize("command", OFFLINE_READING)
def test_reading_beside_a_cell_that_is_not_open_names_the_cells(
    offline: Broker, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setattr("pqbroker.cli.records.consuming.STALL_S", 2.0)
    said = Commands(offline, capsys)(*typed(READING[command], "closed.offline", OFFLINE, tmp_path))
    assert said.status == 1
    assert "pqbroker cell list" in said.errors


@pytest.mark.parametrize("command", ["group describe", "group reset", "group shift"])
def test_the_offsets_of_a_group_beside_a_cell_that_is_not_open_are_not_known(
    offline: Broker, capsys: pytest.CaptureFixture[str], tmp_path: Path, command: str
) -> None:
    with soon():
        said = Commands(offline, capsys)(*typed((READING | SHOWING)[command], "closed.offline", OFFLINE, tmp_path))
    assert said.status == 1
    assert "pqbroker cell list" in said.errors


def test_top_beside_a_cell_that_is_not_open_shows_its_groups_without_figures(
    offline: Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    said = Commands(offline, capsys)("top", "--count", "1", "--interval", "0.1", "--json")
    figures = {group["group"]: (group["lag"], group["read_per_s"]) for group in said.object["groups"]}
    assert figures["g"] == (None, None)


@pytest.mark.parametrize("command", ["describe", "list", "configs", "group list"])
def test_showing_beside_a_cell_that_is_not_open_is_no_defect(
    offline: Broker, capsys: pytest.CaptureFixture[str], tmp_path: Path, command: str
) -> None:
    said = Commands(offline, capsys)(*typed(SHOWING[command], "closed.offline", OFFLINE, tmp_path))
    assert said.status == 0, said.errors


@pytest.mark.parametrize(
    "command",
    [("sql", "SELECT count(*) FROM closed.offline"), ("table", "select", "closed.offline"),
     ("table", "insert", "closed.offline", ROWS[0])],
)  # fmt: skip
def test_rows_beside_a_cell_that_is_not_open_are_refused(
    offline: Broker, capsys: pytest.CaptureFixture[str], command: tuple[str, ...]
) -> None:
    with soon():
        said = Commands(offline, capsys).web(*command)
    assert said.status == 1
    assert "pqbroker cell list" in said.errors, said.errors


@pytest.mark.parametrize("options", [(), ("--partition", "1")])
def test_producing_to_a_cell_that_is_not_open_names_the_cells(
    offline: Broker, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    options: tuple[str, ...],
) -> None:  # fmt: skip
    monkeypatch.setattr("pqbroker.cli.records.producing.UNANSWERED_S", 2.0)
    lines = tmp_path / "lines"
    lines.write_text('{"id": 7}\n')
    with soon():
        said = Commands(offline, capsys)("produce", "closed.offline", *options, "--file", str(lines))
    assert said.status == 1
    assert "records written: 0; none of the 1 behind them was acknowledged within 2 s" in said.errors
    assert "pqbroker cell list" in said.errors


@pytest.mark.parametrize("command", ["configs", "top", "bench"])
def test_changing_beside_a_cell_that_is_not_open_works(
    offline: Broker, capsys: pytest.CaptureFixture[str], tmp_path: Path, command: str
) -> None:
    with soon():
        said = Commands(offline, capsys)(*typed(CHANGING[command], "closed.offline", OFFLINE, tmp_path))
    assert said.status == 0, said.errors


def test_growing_into_a_bundle_without_an_open_cell_is_refused(
    offline: Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    with soon():
        said = Commands(offline, capsys)("topic", "grow", "closed.offline", "3")
    assert said.status == 1
    assert "No healthy tablet cells in bundle 'far'" in said.errors


def test_a_topic_in_a_cell_that_is_not_open_is_deleted(offline: Broker, capsys: pytest.CaptureFixture[str]) -> None:
    with soon():
        said = Commands(offline, capsys)("topic", "delete", "closed.offline", "--yes")
    assert said.status == 0, said.errors
