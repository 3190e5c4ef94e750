"""Regular expressions in RE2, whose time is linear in the text; the engine is loaded with this module.

Kafka 4.3 uses RE2 too. Python's own engine is not for what clients send: its time has no bound.
"""

from collections.abc import Callable
from typing import Any, Final

import re2

from pqbroker.protocol.primitives import Buffer

EXPRESSION_BYTES_MAX: Final = 256 << 10
"""Memory of one expression at most: what it is compiled into, and its states while it runs. Above it is refused."""
SEARCH_EXPRESSION_BYTES_MAX: Final = 8 << 20
"""The same of an expression that searches many records: RE2 is slow where its states have no room."""

ExpressionMatch = Callable[[str], object]
"""Returns something true for a text that matches as a whole."""
FindFirst = Callable[[Buffer, int, int], int]
"""Returns where the first match between two positions begins; -1: there is none."""


def compile_expression(text: str) -> ExpressionMatch:
    """Compile an expression. ValueError says what is wrong with it."""
    matches: ExpressionMatch = _compiled(text, EXPRESSION_BYTES_MAX, ignore_case=False).fullmatch
    return matches


def compile_search(expression: bytes, *, ignore_case: bool = False) -> FindFirst:
    """Compile an expression that is looked for in bytes, most often UTF-8. ValueError says what is wrong with it."""
    search = _compiled(expression, SEARCH_EXPRESSION_BYTES_MAX, ignore_case=ignore_case).search

    def find(data: Buffer, start: int, end: int) -> int:
        found = search(data, start, end)
        return -1 if found is None else int(found.start())

    return find


def quote(literal: bytes) -> bytes:
    """Return the expression that matches these bytes alone."""
    quoted: bytes = re2.escape(literal)
    return quoted


def _compiled(expression: str | bytes, bytes_max: int, *, ignore_case: bool) -> Any:
    options = re2.Options()
    options.log_errors = False
    options.max_mem = bytes_max
    options.never_capture = True
    options.case_sensitive = not ignore_case
    try:
        return re2.compile(expression, options)
    except re2.error as wrong:
        cause = wrong.args[0] if wrong.args else "invalid"
        raise ValueError(cause.decode(errors="replace") if isinstance(cause, bytes) else str(cause)) from None
