"""Refusals of a table, as its client sees them."""

import difflib
from collections.abc import Iterable


class TableError(Exception):
    """A refusal: a code for programs; cause and cure for people."""

    def __init__(self, code: str, message: str, cure: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.cure = cure


def nearest(name: str, known: Iterable[str]) -> str:
    """Return a hint for a wrong name: the nearest known one, or all of them."""
    names = list(known)
    near = difflib.get_close_matches(name, names, n=1)
    return f"Did you mean {near[0]!r}?" if near else f"Give one of {', '.join(names) or 'none'}."
