"""Schemas that are JSON documents, parsed within limits."""

import json
import re
from typing import Any, Final

from pqbroker.registry.limits import NAME_LETTERS_MAX, SCHEMA_LEVELS_MAX
from pqbroker.registry.undecodable import DEEP_SCHEMA, INVALID_SCHEMA, Undecodable

_BRACKETS: Final = re.compile(r'"(?:[^"\\]|\\.)*"?|[\[{]|[\]}]', re.DOTALL)
_SHORT: Final = 40
"""Letters of a text in a refusal."""


def parse_document(text: str, levels_max: int = SCHEMA_LEVELS_MAX) -> Any:
    """Return a JSON document. Undecodable SCHEMA_INVALID, SCHEMA_TOO_DEEP."""
    check_levels(text, levels_max)
    try:
        return json.loads(text)
    except ValueError as error:
        raise Undecodable(INVALID_SCHEMA, f"the schema is no JSON: {error}") from None


def check_levels(text: str, levels_max: int) -> None:
    """Refuse brackets within one another, texts left out, that recursive functions would follow. Undecodable
    SCHEMA_TOO_DEEP."""
    levels = 0
    for found in _BRACKETS.finditer(text):
        first = found[0][0]
        if first in "[{":
            levels += 1
            if levels > levels_max:
                raise Undecodable(DEEP_SCHEMA, f"the schema has more than {levels_max} levels of brackets")
        elif first in "]}":
            levels -= 1


def check_name(name: Any, where: str) -> str:
    """Return a name. Undecodable SCHEMA_INVALID for another thing, or a longer one than NAME_LETTERS_MAX."""
    if not isinstance(name, str) or not name:
        raise Undecodable(INVALID_SCHEMA, f"{where} has no name, or one that is no text")
    if len(name) > NAME_LETTERS_MAX:
        text = f"a name of {where} has {len(name)} letters; at most {NAME_LETTERS_MAX} are read"
        raise Undecodable(INVALID_SCHEMA, text)
    return name


def shorten(thing: Any) -> str:
    """Return the beginning of what a schema has in a wrong place."""
    text = repr(thing) if isinstance(thing, str | int | float | bool | None) else type(thing).__name__
    return text if len(text) <= _SHORT else f"{text[:_SHORT]}…"
