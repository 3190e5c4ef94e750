"""Lines of the SQL shell from a terminal: edited by readline, kept in a file, completed by the broker's names."""

import os
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from pqbroker.cli.refusals import CommandError

HISTORY_LINES_MAX: Final = 1000
HISTORY_BYTES_MAX: Final = 1 << 20
"""Bytes of a history file that is read."""
OFFERS_MAX: Final = 200
"""Names that one completion looks for."""
_DELIMITERS: Final = " \t\n,()=<>;+*'"
_PLAIN = re.compile(r"\$?[A-Za-z_][A-Za-z0-9_.]*")
_SOURCE = re.compile(r'\b(?:FROM|JOIN|DESCRIBE)\s+("(?:[^"]|"")+"|[\w.]+)', re.IGNORECASE)
_WORDS: Final = (
    "SELECT", "FROM", "WHERE", "GROUP BY", "ORDER BY", "HAVING", "LIMIT", "JOIN", "USING", "WITH", "BETWEEN",
    "DISTINCT", "DESCRIBE", "SHOW TABLES",
)  # fmt: skip
FindNames = Callable[[str, str], list[str]]
"""Returns names: given `tables` and the beginning of one, or `columns` and a table."""


def history_path(environment: Mapping[str, str]) -> Path | None:
    """Return the history file in the user's directory for state; None: there is none."""
    configured = environment.get("XDG_STATE_HOME", "")
    if configured.startswith("/"):
        return Path(configured) / "pqbroker" / "sql_history"
    home = environment.get("HOME", "")
    return Path(home) / ".local" / "state" / "pqbroker" / "sql_history" if home.startswith("/") else None


def read_history(path: Path) -> list[str]:
    """Return the last lines; none of a file that is unreadable."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - HISTORY_BYTES_MAX))
            return file.read(HISTORY_BYTES_MAX).decode(errors="replace").splitlines()[-HISTORY_LINES_MAX:]
    except OSError:
        return []


def write_history(path: Path, lines: list[str]) -> None:
    """Keep the last lines, for the user alone. OSError."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(file, "w", encoding="utf-8", errors="replace") as output:
        os.fchmod(file, 0o600)
        output.writelines(f"{line}\n" for line in lines[-HISTORY_LINES_MAX:])


class Completion:
    """Offers names for the word that is typed. `typed` returns the lines before the one that is edited."""

    def __init__(self, find: FindNames, typed: Callable[[], str]) -> None:
        self._find = find
        self._typed = typed
        self._columns: dict[str, list[str]] = {}
        self._offers: list[str] = []

    def offers(self, word: str, line: str) -> list[str]:
        """Return what the word may become."""
        bare = word.lstrip('"')
        names = self._found("tables", bare)
        for source in _SOURCE.findall(f"{self._typed()}{line}"):
            table = source.strip('"').replace('""', '"')
            names += self._columns_of(table)
        known = [name for name in dict.fromkeys(names) if name.lower().startswith(bare.lower())]
        shown = [_spelled(name, is_quoted=word.startswith('"')) for name in sorted(known)]
        words = [each for each in _WORDS if word and each.startswith(word.upper())]
        return [*words, *shown][:OFFERS_MAX]

    def _columns_of(self, table: str) -> list[str]:
        """Return the columns; asked for once, unless there are none."""
        if table not in self._columns and len(self._columns) < OFFERS_MAX and (found := self._found("columns", table)):
            self._columns[table] = found
        return self._columns.get(table, [])

    def complete(self, word: str, state: int) -> str | None:
        """Return an offer by its number, as readline asks for them."""
        if state == 0:
            import readline

            self._offers = self.offers(word, readline.get_line_buffer())
        return self._offers[state] if state < len(self._offers) else None

    def _found(self, kind: str, name: str) -> list[str]:
        """Return names; none where no broker answers."""
        try:
            return self._find(kind, name)
        except CommandError:
            return []


def _spelled(name: str, *, is_quoted: bool) -> str:
    if _PLAIN.fullmatch(name) and not is_quoted:
        return name
    return quoted(name)


def quoted(name: str) -> str:
    """Return a name in quotes, as SQL takes any."""
    return '"' + name.replace('"', '""') + '"'


def with_terminal(run: Callable[[], None], completion: Completion, history: Path | None) -> None:
    """Run the shell with readline, where Python has it."""
    try:
        import readline
    except ImportError:
        run()
        return
    for line in [] if history is None else read_history(history):
        readline.add_history(line)
    readline.set_completer_delims(_DELIMITERS)
    readline.set_completer(completion.complete)
    readline.parse_and_bind("tab: complete")
    try:
        run()
    finally:
        readline.set_completer(None)
        lines = [readline.get_history_item(number) for number in range(1, readline.get_current_history_length() + 1)]
        if history is not None:
            with suppress(OSError):
                write_history(history, lines)
