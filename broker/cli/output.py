"""What commands print: tables and lines for people, JSON lines for programs; progress on standard error."""

import json
import sys
from collections.abc import Iterable, Mapping, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

PIPED_WIDTH = 4000
"""Columns where there is no terminal: nothing is wrapped or cut then."""


def show_json(thing: Mapping[str, object]) -> None:
    """One object on a line of its own."""
    print(json.dumps(thing, ensure_ascii=False))


def show_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """A table; numbers stand right. An empty cell is None."""
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    filled = [list(row) for row in rows]
    for position, column in enumerate(columns):
        is_number = all(isinstance(row[position], int | float | None) for row in filled)
        table.add_column(column, justify="right" if is_number else "left", overflow="fold")
    for row in filled:
        table.add_row(*(Text("-" if cell is None else str(cell)) for cell in row))
    width = None if sys.stdout.isatty() else PIPED_WIDTH
    Console(width=width, markup=False, highlight=False).print(table)


def say(text: str) -> None:
    """A line for people."""
    print(text)


def progress() -> Progress:
    """A bar on standard error, gone when it is done; nothing where there is no terminal."""
    return Progress(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
        console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty(),
    )  # fmt: skip
