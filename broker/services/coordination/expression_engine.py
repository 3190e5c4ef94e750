"""Regular expressions in RE2, whose time is linear in the text; the engine is loaded with this module.

Kafka 4.3 uses RE2 too. Python's own engine is not for what clients send: its time has no bound.
"""

from collections.abc import Callable
from typing import Final

import re2

EXPRESSION_BYTES_MAX: Final = 256 << 10
"""Memory of one expression at most: what it is compiled into, and its states while it runs. Above it is refused."""

ExpressionMatch = Callable[[str], object]
"""Returns something true for a text that matches as a whole."""


def compile_expression(text: str) -> ExpressionMatch:
    """Compile an expression. ValueError says what is wrong with it."""
    options = re2.Options()
    options.log_errors = False
    options.max_mem = EXPRESSION_BYTES_MAX
    try:
        matches: ExpressionMatch = re2.compile(text, options).fullmatch
    except re2.error as wrong:
        cause = wrong.args[0] if wrong.args else "invalid"
        raise ValueError(cause.decode(errors="replace") if isinstance(cause, bytes) else str(cause)) from None
    return matches
