"""The form of Java's `.properties` files."""

import re
from collections.abc import Iterator

_LINE_END = re.compile(r"\r\n|\n|\r")
_SEPARATOR = re.compile(r"[ \t\f]*[=:][ \t\f]*|[ \t\f]+")
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_ESCAPED = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_KEY = re.compile(r"(?:\\.|[^\\=: \t\f])*", re.DOTALL)


def read_properties(text: str) -> Iterator[tuple[int, str, str]]:
    """Line number, name and value of every entry, in order, by the rules of Java's Properties.load."""
    for line, entry in _logical_lines(text):
        key = _KEY.match(entry)
        assert key is not None
        rest = entry[key.end() :]
        separator = _SEPARATOR.match(rest)
        yield line, _unescape(key[0]), _unescape(rest[separator.end() :] if separator else "")


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield lines without comments and blank ones; a line that ends in an odd number of backslashes continues in the
    next."""
    lines = enumerate(_LINE_END.split(text), start=1)
    for number, line in lines:
        entry = line.lstrip(" \t\f")
        if not entry or entry[0] in "#!":
            continue
        while (len(entry) - len(entry.rstrip("\\"))) % 2 == 1:
            entry = entry[:-1] + next(lines, (0, ""))[1].lstrip(" \t\f")
        yield number, entry


def _unescape(text: str) -> str:
    return _ESCAPE.sub(lambda match: chr(int(match[1], 16)) if match[1] else _ESCAPED.get(match[2], match[2]), text)
