"""Columns of an answer in JSON or CSV that DuckDB itself writes: those whose Arrow form loses what they are.

For Arrow a JSON document within a list, map or struct is a text, a union has no tag, a BIT and a BIGNUM are bytes of
DuckDB's own, a time with a zone has none, and an interval of more than 292 years of hours is another one.
"""

from collections.abc import Iterator
from typing import Any, Final

_TEXTS: Final = frozenset(("bit", "interval", "time with time zone"))
"""Types that are shown as the text that DuckDB has for them."""
_DOCUMENTS: Final = frozenset(("bignum", "union"))
_DOCUMENT: Final = "JSON"


def as_shown(relation: Any) -> tuple[Any, frozenset[int]]:
    """Return a relation with such columns written by DuckDB, and the numbers of its columns of JSON documents."""
    shown = [_expression(number, kind) for number, kind in enumerate(relation.types, 1)]
    if any(shown):
        listed = (
            f'{expression or f"#{number}"} AS "{name.replace(chr(34), chr(34) * 2)}"'
            for number, (expression, name) in enumerate(zip(shown, relation.columns, strict=True), 1)
        )
        relation = relation.project(", ".join(listed))
    return relation, frozenset(number for number, kind in enumerate(relation.types) if str(kind) == _DOCUMENT)


def _expression(number: int, kind: Any) -> str | None:
    """Return how DuckDB writes a column; None: as Arrow does."""
    if kind.id in _TEXTS:
        return f"#{number}::VARCHAR"
    is_needed = str(kind) != _DOCUMENT and any(
        part.id in _TEXTS or part.id in _DOCUMENTS or str(part) == _DOCUMENT for part in _parts(kind)
    )
    return f"to_json(#{number})" if is_needed else None


def _parts(kind: Any) -> Iterator[Any]:
    """Yield a type, and the types in it; without recursion, for types may be deep."""
    waiting = [kind]
    while waiting:
        part = waiting.pop()
        yield part
        if part.id in ("list", "array", "map", "struct", "union"):
            waiting += [child for _, child in part.children if hasattr(child, "id")]
