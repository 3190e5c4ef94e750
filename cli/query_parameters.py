"""`--param`: values of a query's parameters as they are typed, as POST /v1/sql takes them."""

import json
import re
from collections.abc import Sequence
from typing import Any

from pqbroker.cli.refusals import WrongInput

_NAMED = re.compile(r"\$?([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)


def read_params(texts: Sequence[str]) -> list[Any] | dict[str, Any] | None:
    """Return the values of $1, $2 and so on, or those of names; None without any. WrongInput."""
    named = {found[1]: value_of(found[2]) for text in texts if (found := _NAMED.fullmatch(text))}
    if not named:
        return [value_of(text) for text in texts] or None
    if len(named) == len(texts):
        return named
    if all(map(_NAMED.fullmatch, texts)):
        raise WrongInput("--param gives one name two values; give each parameter one")
    raise WrongInput("--param is given with names and without; a query has $1 and $2, or names")


def value_of(text: str) -> Any:
    """Return the value as JSON has it; what is no JSON, or an object, is a text."""
    try:
        value = json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return text
    return text if isinstance(value, dict) else value


def _refuse(name: str) -> None:
    raise ValueError(name)
