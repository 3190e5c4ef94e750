"""The shell of `pqbroker sql`: statements of several lines up to a semicolon, and commands with a backslash."""

import re
import sys
import time
from collections.abc import Callable, Mapping
from typing import Final

from pqbroker.cli.notices import tell
from pqbroker.cli.output import say
from pqbroker.cli.refusals import CommandError, near

FORMS: Final = ("table", "json", "csv")
STATEMENT_CHARACTERS_MAX: Final = 1 << 20
_PROMPT: Final = "sql> "
_MORE: Final = "...> "
_HELP: Final = """\
SQL ends with a semicolon and may take several lines; SHOW TABLES; and DESCRIBE NAME; show names.
\\format table|json|csv  Print answers so.
\\timing [on|off]        Print the time that each query takes.
\\q                      Leave; so does Ctrl-D. Ctrl-C ends a query, or drops the lines typed so far."""
_PIECE = re.compile(
    r"""
    (?P<whole> '(?:[^']|'')*' | "(?:[^"]|"")*" | --[^\n]*(?:\n|$) | /\*.*?\*/ | \$(?P<tag>\w*)\$.*?\$(?P=tag)\$ )
    | (?P<open> ['"] | /\* | \$\w*\$ ) | (?P<end> ; ) | .
    """,
    re.VERBOSE | re.DOTALL,
)


class QueryShell:
    """Reads lines by `read`, given a prompt, and has each statement answered by `answer`, given a form."""

    def __init__(self, read: Callable[[str], str], answer: Callable[[str, str], None], form: str) -> None:
        self._read = read
        self._answer = answer
        self._form = form
        self._is_timed = False
        self.typed = ""
        """Lines of a statement that has not ended."""

    def run(self) -> None:
        """Serve until \\q, or the end of the input."""
        say("Type \\? for help, \\q to leave.")
        while True:
            try:
                line = self._read(_MORE if self.typed else _PROMPT)
            except KeyboardInterrupt:
                self.typed = ""
                say("")
                continue
            except EOFError:
                say("")
                return
            if not self.typed and line.lstrip().startswith("\\"):
                if line.strip() in ("\\q", "\\quit"):
                    return
                self._obey(line.split())
            else:
                self._take(line)

    def _take(self, line: str) -> None:
        """Answer the statements that the line ends."""
        statements, rest = split_statements(f"{self.typed}{line}\n")
        self.typed = rest if rest.strip() else ""
        if len(self.typed) > STATEMENT_CHARACTERS_MAX:
            tell(f"the statement has more than {STATEMENT_CHARACTERS_MAX} characters and was dropped")
            self.typed = ""
        for statement in statements:
            if not self._has_answered(statement):
                return

    def _has_answered(self, statement: str) -> bool:
        """Return False after an error, or Ctrl-C: statements behind it are not run."""
        began_s = time.monotonic()
        try:
            self._answer(statement, self._form)
        except KeyboardInterrupt:
            tell("the query was ended")
            return False
        except CommandError as error:
            tell(str(error))
            return False
        finally:
            if self._is_timed:
                sys.stdout.flush()
                print(f"{1000 * (time.monotonic() - began_s):.1f} ms", file=sys.stderr)
        return True

    def _obey(self, words: list[str]) -> None:
        name, given = words[0], words[1:]
        if name in ("\\?", "\\h", "\\help"):
            say(_HELP)
        elif name == "\\timing" and given in ([], ["on"], ["off"]):
            self._is_timed = given == ["on"] if given else not self._is_timed
            say(f"timing is {'on' if self._is_timed else 'off'}")
        elif name == "\\format" and len(given) == 1 and given[0] in FORMS:
            self._form = given[0]
        elif name == "\\format":
            tell(f"the format is {self._form}; give one of {', '.join(FORMS)}")
        else:
            hint = near(name, _COMMANDS) or "\\? lists them"
            tell(f"{' '.join(words)[:100]} is no command; {hint}")


_COMMANDS: Final[Mapping[str, None]] = dict.fromkeys(("\\format", "\\timing", "\\q", "\\?"))


def split_statements(text: str) -> tuple[list[str], str]:
    """Return the statements that end with a semicolon outside of strings, names and comments, and the rest."""
    statements: list[str] = []
    begin = 0
    for piece in _PIECE.finditer(text):
        if piece["open"]:
            break
        if piece["end"]:
            statements.append(text[begin : piece.start()].strip())
            begin = piece.end()
    return [each for each in statements if each], text[begin:]
