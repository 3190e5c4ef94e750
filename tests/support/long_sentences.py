"""Lists the longest sentences that a user reads: `python -m tests.support.long_sentences [COUNT]`.

Of README and docs, help texts, metric HELP, settings, and what the code logs and raises. For rewriting; no test has a
limit for them, since a list or a path makes a sentence long and leaves it plain.
"""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from pqbroker.broker.ground.metrics import FAMILIES
from pqbroker.cli.help_text import shown
from pqbroker.conf.broker import BrokerSettings
from pqbroker.conf.declare import declarations
from pqbroker.conf.topic import TopicConfig
from tests.support.cli_page import commands

ROOT = Path(__file__).resolve().parents[2]
WRITTEN = {"settings.md", "metrics.md", "cli.md"}
"""Pages that are made of the other texts."""
CODE = (
    "broker", "cli", "conf", "doctor", "http_client", "pipeline", "pq", "protocol", "registry", "security", "storage",
    "tables",
)  # fmt: skip
LOGGED = {"debug", "info", "warning", "error", "exception"}
_BLOCK = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z`*\[])|\n\s*\n|\n(?=\s*[-*|#] )|\s\|\s|\n\|")


class Sentence(NamedTuple):
    """A sentence and where it stands."""

    words: int
    place: str
    text: str


def sentences() -> Iterator[Sentence]:
    """All that there are, in no order."""
    for place, text in (*_documents(), *_declared(), *_messages()):
        for part in _END.split(text):
            plain = " ".join(part.split())
            yield Sentence(len(plain.split()), place, plain)


def _documents() -> Iterator[tuple[str, str]]:
    for path in (ROOT / "README.md", ROOT / "ARCHITECTURE.md", *(ROOT / "docs").rglob("*.md")):
        if path.name not in WRITTEN:
            yield str(path.relative_to(ROOT)), _BLOCK.sub("\n\n", path.read_text(encoding="utf-8"))


def _declared() -> Iterator[tuple[str, str]]:
    for family in FAMILIES:
        yield f"metric {family.name}", family.help
    for settings in (BrokerSettings, TopicConfig):
        for name, declaration in declarations(settings).items():
            yield f"setting {name}", declaration.doc
    for name, command in commands().items():
        yield f"pqbroker {name}", command.help
        for parameter in shown(command):
            yield f"pqbroker {name} {parameter.name}", parameter.spec.help


def _messages() -> Iterator[tuple[str, str]]:
    """Texts of log lines and errors, `…` for what is put into them."""
    for folder in CODE:
        for path in sorted((ROOT / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Call) and node.args and _is_told(node):
                    yield f"{path.relative_to(ROOT)}:{node.lineno}", _text(node.args[0])


def _is_told(call: ast.Call) -> bool:
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    return name in LOGGED or (name[:1].isupper() and name.endswith(("Error", "Refused", "Lost", "Input", "Damaged")))


def _text(node: ast.expr) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(part) if isinstance(part, ast.Constant) else "…" for part in node.values)
    return ""


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    for words, place, text in sorted(sentences(), reverse=True)[:count]:
        print(f"{words:3} {place}: {text}")


if __name__ == "__main__":
    main()
