"""SQL as it may be typed, made what a parser of DuckDB's SQL takes: //a/b/c and [columns] of the tables' own language.

    * from [//a/b/c] where [$row_index] > 3     SELECT * from "a.b.c" where "$row_index" > 3

Strings, quoted names and comments are left as they are.
"""

import re
from collections.abc import Iterator

_TOKEN = re.compile(
    r"""
    (?P<kept> '(?:[^']|'')*' | "(?:[^"]|"")*" | --[^\n]* | /\*.*?\*/ | \$(?P<tag>\w*)\$.*?\$(?P=tag)\$ )
    | \[ \s* (?P<path> //[^\]\s"]+ ) \s* \]
    | \[ \s* (?P<column> \$(?:tablet_index|row_index|timestamp|error) ) \s* \]
    | (?P<bare> \$(?:tablet_index|row_index|timestamp|error)\b )
    | (?P<word> \w[\w$]* ) | (?P<space> \s+ ) | (?P<other> . )
    """,
    re.VERBOSE | re.DOTALL | re.IGNORECASE,
)
_STATEMENT = re.compile(
    r"""
    alter | analyze | attach | begin | call | checkpoint | comment | commit | copy | create | deallocate | delete
    | describe | detach | drop | execute | explain | export | from | grant | import | insert | install | load | merge
    | pivot | pragma | prepare | reset | revoke | rollback | select | set | show | start | summarize | table | truncate
    | unpivot | update | use | vacuum | values | with | [(;]
    """,
    re.VERBOSE | re.IGNORECASE,
)
"""First token of a statement."""


def spell(text: str) -> str:
    """The query as DuckDB spells it; what is wrong in it stays wrong."""
    pieces = list(_pieces(text))
    first = next((piece for kind, piece in pieces if not _is_blank(kind, piece)), "")
    written = "".join(piece for _, piece in pieces)
    if not first or _STATEMENT.fullmatch(first):
        return written
    return f"SELECT {written}"


def topic_of(path: str) -> str:
    """The topic of a table's path: //a/b/c is a.b.c."""
    return path.removeprefix("//").replace("/", ".")


def _pieces(text: str) -> Iterator[tuple[str, str]]:
    for token in _TOKEN.finditer(text):
        kind, piece = token.lastgroup or "", token[0]
        if token["path"]:
            piece = _quoted(topic_of(token["path"]))
        elif token["column"] or token["bare"]:
            piece = _quoted((token["column"] or token["bare"]).lower())
        yield kind, piece


def _is_blank(kind: str, piece: str) -> bool:
    return kind == "space" or piece.startswith(("--", "/*"))


def _quoted(name: str) -> str:
    return f'"{name}"'
