"""The shell of `pqbroker sql`: typed lines, without a terminal but in the last test."""

import os
import pty
import select
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pqbroker.cli.query_shell import STATEMENT_CHARACTERS_MAX, QueryShell, split_statements
from pqbroker.cli.query_terminal import (
    HISTORY_LINES_MAX,
    Completion,
    history_path,
    read_history,
    write_history,
)
from pqbroker.cli.refusals import CommandError
from pqbroker.tables.work import process
from pqbroker.testing import memory_broker


def served(*lines: str | BaseException) -> list[tuple[str, str]]:
    """Return the statements that were answered, and their forms."""
    answered: list[tuple[str, str]] = []
    waiting = iter(lines)

    def read(prompt: str) -> str:
        line = next(waiting, None)
        if line is None:
            raise EOFError
        if isinstance(line, BaseException):
            raise line
        return line

    def answer(statement: str, form: str) -> None:
        answered.append((statement, form))
        if statement == "bad":
            raise CommandError("no such thing")
        if statement == "long":
            raise KeyboardInterrupt

    QueryShell(read, answer, "table").run()
    return answered


@pytest.mark.parametrize(
    ("text", "statements", "rest"),
    [
        ("a; b ;", ["a", "b"], ""),
        ("a", [], "a"),
        ("SELECT ';', \"a;b\";", ["SELECT ';', \"a;b\""], ""),
        ("SELECT 'it''s;';", ["SELECT 'it''s;'"], ""),
        ("SELECT 1 -- no; not here\n;", ["SELECT 1 -- no; not here"], ""),
        ("/* ; */ x;", ["/* ; */ x"], ""),
        ("$$;$$;", ["$$;$$"], ""),
        ("SELECT $1, $2;", ["SELECT $1, $2"], ""),
        ("a; 'open;", ["a"], " 'open;"),
        ("/* open;", [], "/* open;"),
        (";;", [], ""),
    ],
)
def test_a_semicolon_ends_a_statement_unless_it_is_quoted(text: str, statements: list[str], rest: str) -> None:
    assert split_statements(text) == (statements, rest)


def test_a_statement_may_take_several_lines() -> None:
    assert served("SELECT", "  1;", "x; y;") == [("SELECT\n  1", "table"), ("x", "table"), ("y", "table")]


def test_ctrl_c_drops_lines_and_ends_queries_but_not_the_shell(capsys: pytest.CaptureFixture[str]) -> None:
    assert served("dropped", KeyboardInterrupt(), "long; skipped;", "x;") == [("long", "table"), ("x", "table")]
    assert "the query was ended" in capsys.readouterr().err


def test_an_error_is_printed_and_the_shell_continues(capsys: pytest.CaptureFixture[str]) -> None:
    assert served("bad; skipped;", "x;") == [("bad", "table"), ("x", "table")]
    assert "no such thing" in capsys.readouterr().err


def test_commands_change_form_and_timing(capsys: pytest.CaptureFixture[str]) -> None:
    lines = ("x;", "\\timing", "y;", "\\timing off", "\\format xml", "\\formt", "\\zzz", "\\?", "\\q", "z;")
    said = served("\\format json", *lines)
    assert said == [("x", "json"), ("y", "json")]
    captured = capsys.readouterr()
    assert captured.err.count(" ms\n") == 1
    assert "give one of table, json, csv" in captured.err
    assert "\\formt is no command; did you mean \\format?" in captured.err
    assert "\\zzz is no command; \\? lists them" in captured.err
    assert "Ctrl-C ends a query" in captured.out


def test_a_statement_without_an_end_is_dropped_at_its_limit(capsys: pytest.CaptureFixture[str]) -> None:
    assert served("x" * (STATEMENT_CHARACTERS_MAX + 1), "y;") == [("y", "table")]
    assert "was dropped" in capsys.readouterr().err


def test_names_of_topics_and_of_their_columns_are_offered() -> None:
    def find(kind: str, name: str) -> list[str]:
        if kind == "columns":
            return {"a.b": ["price", "$row_index", "odd name"]}.get(name, [])
        return [each for each in ("a.b", "a-c", "Prices") if each.lower().startswith(name.lower())]

    typed = ""
    completion = Completion(find, lambda: typed)
    assert completion.offers("a", "SELECT * FROM a") == ['"a-c"', "a.b"]
    assert completion.offers('"a.', 'FROM "a.') == ['"a.b"']
    typed = 'FROM "a.b"\n'
    assert completion.offers("pri", "WHERE pri") == ["Prices", "price"]
    assert completion.offers("$", "WHERE $") == ["$row_index"]
    assert completion.offers("odd", "") == ['"odd name"']
    assert completion.offers("sel", "") == ["SELECT"]


def test_no_names_are_offered_without_a_broker() -> None:
    def find(kind: str, name: str) -> list[str]:
        raise CommandError("nobody answers")

    assert Completion(find, str).offers("zz", "SELECT x FROM t WHERE zz") == []


def test_the_history_is_the_users_alone_and_bounded(tmp_path: Path) -> None:
    path = history_path({"XDG_STATE_HOME": str(tmp_path), "HOME": "/nowhere"})
    assert path == tmp_path / "pqbroker" / "sql_history"
    assert path is not None
    assert read_history(path) == []
    lines = [str(number) for number in range(HISTORY_LINES_MAX + 5)]
    write_history(path, lines)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert read_history(path) == lines[5:]
    path.chmod(0o644)
    write_history(path, ["x"])
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert history_path({"HOME": "relative"}) is None


def test_a_history_that_is_a_link_is_not_written(tmp_path: Path) -> None:
    (tmp_path / "pqbroker").mkdir()
    (tmp_path / "pqbroker" / "sql_history").symlink_to(tmp_path / "other")
    with pytest.raises(OSError, match="symbolic"):
        write_history(tmp_path / "pqbroker" / "sql_history", ["x"])
    assert not (tmp_path / "other").exists()


@pytest.fixture
def http(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr(process, "COMMAND", (sys.executable, "-m", "tests.support.scripted_worker"))
    with memory_broker() as running:
        yield running.http


def test_on_a_terminal_a_query_is_typed_answered_ended_and_remembered(http: str, tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path), "TERM": "dumb"}
    shell = subprocess.Popen(
        [sys.executable, "-P", "-m", "pqbroker", "sql", "--json", "--http", http],
        stdin=theirs, stdout=theirs, stderr=theirs, env=environment, start_new_session=True,
    )  # fmt: skip
    os.close(theirs)
    try:
        _until(ours, b"sql> ")
        os.write(ours, b"say hello\n;\n")
        _until(ours, b'"said": "hello"')
        _until(ours, b"sql> ")
        os.write(ours, b"begin-wait;\n")
        _until(ours, b'"n":1')
        shell.send_signal(signal.SIGINT)
        _until(ours, b"the query was ended")
        _until(ours, b"sql> ")
        os.write(ours, b"\\q\n")
        assert shell.wait(60) == 0
    finally:
        shell.kill()
        shell.wait()
        os.close(ours)
    history = tmp_path / "pqbroker" / "sql_history"
    assert history.read_text().splitlines() == ["say hello", ";", "begin-wait;", "\\q"]
    assert stat.S_IMODE(history.stat().st_mode) == 0o600


def _until(terminal: int, wanted: bytes) -> None:
    """Read up to these bytes."""
    data = b""
    while wanted not in data:
        assert select.select([terminal], [], [], 40)[0], data
        data += os.read(terminal, 1)
