"""What commands print: tables and lines for people, JSON lines for programs; progress on standard error.

What is printed is UTF-8, whatever the locale says, and is written at once: a full disk is found out here.
"""

import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from io import StringIO

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from pqbroker.broker.cli.refusals import CommandError, OutputClosed

PIPED_WIDTH = 4000
"""Columns where there is no terminal: nothing is wrapped or cut then."""


def write(data: bytes) -> None:
    """To standard output. OutputClosed when nobody reads it any more, CommandError when it cannot be written."""
    output = getattr(sys.stdout, "buffer", None)
    if output is None:
        raise CommandError("standard output is closed; give the command one, if only /dev/null")
    try:
        rest = memoryview(data)
        while rest:  # unbuffered, as PYTHONUNBUFFERED wants it, a signal may end a write in the middle
            rest = rest[output.write(rest) or 0 :]
        output.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python's own flush at exit shall not fail too
        if isinstance(error, BrokenPipeError):
            raise OutputClosed from None
        raise CommandError(f"cannot write to standard output: {error.strerror}") from None


def show_json(thing: Mapping[str, object]) -> None:
    """One object on a line of its own."""
    say(json.dumps(thing, ensure_ascii=False))


def show_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """A table; numbers stand right. An empty cell is None."""
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    filled = [list(row) for row in rows]
    for position, column in enumerate(columns):
        is_number = all(isinstance(row[position], int | float | None) for row in filled)
        table.add_column(column, justify="right" if is_number else "left", overflow="fold")
    for row in filled:
        table.add_row(*(Text("-" if cell is None else str(cell)) for cell in row))
    written, is_terminal = StringIO(), sys.stdout is not None and sys.stdout.isatty()
    width = None if is_terminal else PIPED_WIDTH
    Console(file=written, force_terminal=is_terminal, width=width, markup=False, highlight=False).print(table)
    write(written.getvalue().encode(errors="backslashreplace"))


def say(text: str) -> None:
    """A line for people."""
    write(f"{text}\n".encode(errors="backslashreplace"))


def progress() -> Progress:
    """A bar on standard error, gone when it is done; nothing where there is no terminal."""
    return Progress(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
        console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty(),
    )  # fmt: skip
