"""`pqbroker sql`, at a broker whose workers do what a query names; what SQL answers is tested over HTTP."""

import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pqbroker.tables.work import process
from pqbroker.testing import Broker, memory_broker
from tests.cli.shell import Said, Shell


class SqlShell(Shell):
    """Commands at a broker's HTTP address."""

    def __init__(self, running: Broker, capsys: pytest.CaptureFixture[str]) -> None:
        super().__init__(running.kafka, capsys)
        self.http = running.http

    def __call__(self, *arguments: str) -> Said:
        return self.raw("sql", *arguments, "--http", self.http)


@pytest.fixture(scope="module")
def running() -> Iterator[Broker]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(process, "COMMAND", (sys.executable, "-m", "tests.support.scripted_worker"))
        with memory_broker() as one:
            yield one


@pytest.fixture
def shell(running: Broker, capsys: pytest.CaptureFixture[str]) -> SqlShell:
    return SqlShell(running, capsys)


def test_rows_are_a_table(shell: SqlShell) -> None:
    said = shell("say hello")
    assert said.status == 0
    head, rule, row = said.output.splitlines()
    assert head.split() == ["said", "pid"]
    assert set(rule) == {"─"}
    assert row.split()[0] == "hello"


def test_a_query_comes_from_a_file_or_from_standard_input(
    shell: SqlShell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "query.sql"
    file.write_text("say filed")
    assert [row["said"] for row in shell("-f", str(file), "--json").objects] == ["filed"]
    monkeypatch.setattr(sys, "stdin", io.StringIO("say piped"))
    assert [row["said"] for row in shell("--json").objects] == ["piped"]


def test_a_query_that_is_missing_unreadable_or_given_twice_is_refused(
    shell: SqlShell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    assert "standard input" in shell("--json").errors
    assert shell("say x", "-f", str(tmp_path)).status == 2
    assert "unreadable" in shell("-f", str(tmp_path / "none.sql")).errors
    (tmp_path / "latin.sql").write_bytes(b"\xff")
    assert "UTF-8" in shell("-f", str(tmp_path / "latin.sql")).errors


def test_no_rows_are_said(shell: SqlShell) -> None:
    assert shell("nothing").output == "no rows\n"


def test_json_is_a_row_a_line(shell: SqlShell) -> None:
    assert [row["said"] for row in shell("say hello", "--json").objects] == ["hello"]
    assert shell("nothing", "--json").output == ""


def test_csv_is_what_the_broker_writes(shell: SqlShell) -> None:
    assert shell("say hello", "--csv").output.startswith('{"said": "hello"')


def test_a_file_holds_the_stream_and_is_not_overwritten(shell: SqlShell, tmp_path: Path) -> None:
    file = tmp_path / "rows.arrow"
    assert shell("say hello", "--arrow", str(file)).status == 0
    assert file.read_bytes().startswith(b'{"said": "hello"')
    again = shell("say hello", "--arrow", str(file))
    assert again.status == 1
    assert "exists" in again.errors
    broken = shell("begin-refuse X", "--arrow", str(tmp_path / "other.arrow"))
    assert broken.status == 1
    assert "broke off" in broken.errors
    assert [path.name for path in tmp_path.iterdir()] == ["rows.arrow"]


def test_an_explanation_is_printed(shell: SqlShell) -> None:
    said = shell("explain the plan", "--explain")
    assert said.output == "the plan\n2 rows and 3 B read from 1 blobs\n"


def test_refusals_end_the_command(shell: SqlShell) -> None:
    for query in ("refuse INVALID_QUERY", "begin-refuse QUERY_FAILED"):
        for form in ((), ("--json",)):
            said = shell(query, *form)
            assert said.status == 1
            assert said.errors == "pqbroker: no. none\n"
    said = shell("wait", "--timeout", "1")
    assert said.status == 1
    assert "1000 ms" in said.errors


def test_parameters_are_json_or_texts(shell: SqlShell) -> None:
    def given(*texts: str) -> object:
        options = [word for text in texts for word in ("--param", text)]
        return json.loads(shell("params", *options, "--json").object["said"])

    assert given() is None
    assert given("42", "null", '"7"', "[1, 2]", "it's", "", "007", "NaN", "-1") == [
        42, None, "7", [1, 2], "it's", "", "007", "NaN", -1,
    ]  # fmt: skip
    assert given("n=42", "$text=a=b", "none=") == {"n": 42, "text": "a=b", "none": ""}
    assert given('"a=b"', '{"a": 1}') == ["a=b", '{"a": 1}']


def test_parameters_with_and_without_names_do_not_mix(shell: SqlShell) -> None:
    assert "with names and without" in shell("say x", "--param", "1", "--param", "a=1").errors
    assert "two values" in shell("say x", "--param", "a=1", "--param", "a=2").errors


def test_files_go_with_the_query(shell: SqlShell, tmp_path: Path) -> None:
    for name, text in (("a.csv", "x\n1\n"), ("b.csv", "y\n")):
        (tmp_path / name).write_text(text)
    said = shell("files", "--json", "--upload", str(tmp_path / "a.csv"), "--upload", str(tmp_path / "b.csv"))
    assert json.loads(said.objects[0]["said"]) == [[["a.csv", 4], ["b.csv", 2]], "x\n1\ny\n"]
    assert "no.csv is unreadable" in shell("files", "--upload", str(tmp_path / "no.csv")).errors


def test_two_forms_at_once_are_wrong(shell: SqlShell) -> None:
    assert shell("say x", "--json", "--csv").status == 2


def test_no_full_stop_follows_a_question(running: Broker, shell: SqlShell) -> None:
    assert shell.raw("topic", "create", "people", "--broker", running.kafka).status == 0
    assert "did you mean 'people'? `pqbroker topic list`" in shell("read peple").errors


def test_the_address_of_kafkas_protocol_is_said_to_be_the_wrong_one(running: Broker, shell: SqlShell) -> None:
    said = shell.raw("sql", "SELECT 1", "--http", running.kafka)
    assert said.status == 1
    assert f"{running.kafka} closed the connection without an answer: " in said.errors
    assert "the address is not the one that `pqbroker serve` prints behind http=" in said.errors
