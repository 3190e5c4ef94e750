"""What a person sees of `produce`, `consume`, `--follow`, `top` and tables, on terminals of 80 and 120 columns."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.shell import Shell
from tests.cli.terminal import Screen, Terminal

pytestmark = pytest.mark.parametrize("columns", [80, 120])


@pytest.fixture
def write(our_shell: Shell, tmp_path: Path) -> Callable[..., None]:
    """Writes lines into a topic."""

    def write_lines(topic: str, lines: str, *options: str) -> None:
        file = tmp_path / "lines"
        file.write_text(lines, encoding="utf-8")
        said = our_shell("produce", topic, *options, "--file", str(file))
        assert said.status == 0, said.errors

    return write_lines


@pytest.fixture
def parcels(our_shell: Shell, write: Callable[..., None], fresh_name: Callable[[], str]) -> str:
    """A topic with three records."""
    name = fresh_name()
    assert our_shell("topic", "create", name).status == 0
    write(name, "a:sent\nb:sent\na:arrived\n", "-k", ":")
    return name


def test_records_are_all_that_consume_shows(our_shell: Shell, parcels: str, columns: int) -> None:
    with Terminal(columns, "consume", parcels, "-b", our_shell.kafka) as terminal:
        assert terminal.finish() == (0, "sent\nsent\narrived")


def test_record_bytes_are_not_coloured(
    our_shell: Shell, write: Callable[..., None], fresh_name: Callable[[], str], columns: int
) -> None:
    topic = fresh_name()
    write(topic, '{"a": 1, "b": "text", "c": null}\n')
    with Terminal(columns, "consume", topic, "--format", "{key}|{value}", "-b", our_shell.kafka) as terminal:
        assert terminal.finish() == (0, '|{"a": 1, "b": "text", "c": null}')


def test_following_shows_records_as_they_come_until_ctrl_c(
    our_shell: Shell, write: Callable[..., None], parcels: str, columns: int
) -> None:
    with Terminal(columns, "consume", parcels, "--follow", "--last", "1", "-b", our_shell.kafka) as terminal:
        assert terminal.wait_for("arrived") == "arrived"
        write(parcels, "lost\n")
        assert terminal.wait_for("lost") == "arrived\nlost"
        terminal.interrupt()
        assert terminal.finish() == (0, "arrived\nlost")


def test_lines_are_typed_without_a_bar_among_them(our_shell: Shell, parcels: str, columns: int) -> None:
    with Terminal(columns, "produce", parcels, "-b", our_shell.kafka) as terminal:
        terminal.type("one\n")
        assert terminal.wait_for("one") == "one"
        terminal.type("two\n\x04")
        status, screen = terminal.finish()
    assert status == 0
    assert screen.splitlines()[:2] == ["one", "two"]
    assert screen.splitlines()[-1].startswith(f"2 records to {parcels} in ")
    assert our_shell("consume", parcels, "--last", "2").output == "one\ntwo\n"


def test_top_shows_topics_and_groups_and_gives_the_screen_back(our_shell: Shell, parcels: str, columns: int) -> None:
    assert our_shell("group", "reset", f"{parcels}-group", "--topic", parcels, "--to", "beginning").status == 0
    with Terminal(columns, "top", "--interval", "0.2", "-b", our_shell.kafka, lines=200) as terminal:
        screen = terminal.wait_for(f"{parcels}-group +Empty +0 +3")
        assert screen.startswith(f"pqbroker top - {our_shell.kafka} - ")
        assert any(line.split()[:3] == [parcels, "1", "3"] for line in screen.splitlines())
        assert max(map(len, screen.splitlines())) <= columns
        terminal.interrupt()
        assert terminal.finish() == (0, "")


def test_a_group_is_described_within_the_terminal(our_shell: Shell, parcels: str, columns: int) -> None:
    group = f"{parcels}-{'long-' * 8}group"
    with Terminal(columns, "consume", parcels, "-g", group, "--follow", "-b", our_shell.kafka) as reader:
        reader.wait_for("arrived")
        with Terminal(columns, "group", "describe", group, "-b", our_shell.kafka) as terminal:
            status, screen = terminal.finish()
        reader.interrupt()
        reader.finish()
    assert status == 0
    header = next(line for line in screen.splitlines() if line.startswith("topic"))
    assert header.split() == ["topic", "partition", "offset", "end", "lag", "member"]
    row = next(line for line in screen.splitlines() if line.startswith(parcels))
    assert row.split()[:4] == [parcels, "0", "3", "3"]


def test_a_table_fits_the_terminal(our_shell: Shell, parcels: str, columns: int) -> None:
    with Terminal(columns, "topic", "configs", parcels, "--all", "-b", our_shell.kafka) as terminal:
        status, screen = terminal.finish()
    assert status == 0
    assert max(map(len, screen.splitlines())) <= columns
    assert "retention.ms" in screen


def test_help_fits_the_terminal(columns: int) -> None:
    with Terminal(columns, "consume", "--help") as terminal:
        status, screen = terminal.finish()
    assert status == 0
    assert max(map(len, screen.splitlines())) <= 80


def test_the_screen_is_read_as_a_terminal_shows_it(columns: int) -> None:
    screen = Screen(columns)
    screen.feed(b"bar: 1 of 9\r\x1b[Kone\r\n" + b"x" * (columns + 1) + b"\r\n\x1b[1mbold\x1b[0m")
    assert screen.text == f"one\n{'x' * columns}\nx\nbold"
    screen.feed(b"\x1b[?1049h\x1b[Hfull\r\nmore\x1b[J\x1b[Hf")
    assert screen.text == "full\nmore"
    screen.feed(b"\x1b[?1049l")
    assert screen.text.startswith("one\n")
