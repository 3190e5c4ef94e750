"""Output of commands: tables and lines for people, JSON lines for programs.

The output is UTF-8, whatever the locale says, and is written at once: a full disk is found out here.
"""

import json
import os
import re
import shutil
import sys
import unicodedata
from collections.abc import Iterable, Mapping, Sequence

from pqbroker.cli.refusals import CommandError, OutputClosed

GAP = "  "
CELL_WIDTH_MIN = 8
"""Columns that a cell of text keeps when a table is made to fit a terminal."""
_ENDS = ",;:/._-"
"""Characters behind which a word may be broken."""
_WORDS, _PARTS = re.compile(r"[^ ]+"), re.compile(r"[^ ,;:/._-]*[ ,;:/._-]|[^ ,;:/._-]+")
_BOLD, _DIM, _PLAIN = "\x1b[1m", "\x1b[2m", "\x1b[0m"


def write(data: bytes) -> None:
    """Write to standard output. Raises OutputClosed when nobody reads it any more, CommandError when writing fails."""
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
    """Write one object on a line of its own."""
    say(json.dumps(thing, ensure_ascii=False))


def show_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Write a table, numbers aligned right; None is an empty cell."""
    width = terminal_width()
    say("\n".join(table_lines(columns, rows, width, coloured=width is not None and has_colour())))


def table_lines(
    columns: Sequence[str], rows: Iterable[Sequence[object]], width: int | None, *, coloured: bool = False
) -> list[str]:
    """The lines of a table, none wider than `width` where its columns allow that: long texts are folded."""
    filled = [list(row) for row in rows]
    is_number = [all(isinstance(row[at], int | float | None) for row in filled) for at in range(len(columns))]
    cells = [[_cell(value) for value in row] for row in filled]
    widths = [max(map(display_width, (name, *(row[at] for row in cells)))) for at, name in enumerate(columns)]
    if width is not None:
        for pieces in (_WORDS, _PARTS, None):  # whole words if the width allows that, else parts of them, else letters
            least = [max(CELL_WIDTH_MIN, *map(display_width, columns[at : at + 1])) for at in range(len(columns))]
            if pieces is not None:
                least = [max(least[at], *(_longest(pieces, row[at]) for row in cells), 0) for at in range(len(columns))]
            widths = _fitted(widths, least, is_number, width)
    header = _line([*columns], widths, is_number)
    rule = "─" * (sum(widths) + len(GAP) * (len(widths) - 1))
    lines = [f"{_BOLD}{header}{_PLAIN}", f"{_DIM}{rule}{_PLAIN}"] if coloured else [header, rule]
    for row in cells:
        folded = [_fold(cell, widths[at]) for at, cell in enumerate(row)]
        for number in range(max(map(len, folded))):
            part = [each[number] if number < len(each) else "" for each in folded]
            lines.append(_line(part, widths, is_number))
    return lines


def terminal_width() -> int | None:
    """Return the columns of the terminal on standard output; None if it is not one, and lines are not folded."""
    return shutil.get_terminal_size().columns if sys.stdout is not None and sys.stdout.isatty() else None


def has_colour() -> bool:
    """Return True if tables may be coloured; records never are."""
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def say(text: str) -> None:
    """A line for people."""
    write(f"{text}\n".encode(errors="backslashreplace"))


def show_bytes(size: float) -> str:
    """A size in the unit that suits it."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" or size >= 100 else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def display_width(text: str) -> int:
    """Columns on a terminal: East Asian wide characters take two, combining ones none."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(each) else 2 if unicodedata.east_asian_width(each) in "WF" else 1 for each in text
    )


def _cell(value: object) -> str:
    """Return the text of a cell. A name's characters that are not printable are escaped: they would move the cursor."""
    text = "-" if value is None else str(value)
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def _longest(pieces: re.Pattern[str], text: str) -> int:
    return max(map(display_width, pieces.findall(text)), default=0)


def _fitted(widths: list[int], least: list[int], is_number: list[bool], width: int) -> list[int]:
    """The widest columns of text give way until all fit, as far as they can."""
    fitted = list(widths)
    texts = [at for at, number in enumerate(is_number) if not number]
    while sum(fitted) + len(GAP) * (len(fitted) - 1) > width:
        shrinkable = [at for at in texts if fitted[at] > least[at]]
        if not shrinkable:
            break
        fitted[max(shrinkable, key=lambda at: fitted[at])] -= 1
    return fitted


def _fold(text: str, width: int) -> list[str]:
    """The text in pieces of a width, broken behind a space where there is one, else behind a part of a word."""
    pieces: list[str] = []
    while display_width(text) > width:
        cut = len(text)
        while display_width(text[:cut]) > width:
            cut -= 1
        space = text.rfind(" ", 1, cut + 1)
        parts = [found.end() for found in _PARTS.finditer(text, 0, cut) if found.end() < cut or text[cut - 1] in _ENDS]
        cut = space if space > 0 else parts[-1] if parts else max(cut, 1)
        pieces.append(text[:cut])
        text = text[cut:].lstrip(" ")
    return [*pieces, text]


def _line(cells: list[str], widths: list[int], is_number: list[bool]) -> str:
    parts = []
    for cell, width, right in zip(cells, widths, is_number, strict=True):
        fill = " " * (width - display_width(cell))
        parts.append(fill + cell if right else cell + fill)
    return GAP.join(parts).rstrip()
