"""Filters of `consume`: it prints records in which a pattern is found, or whose JSON value has something at a path."""

import json
import operator
import re
from collections.abc import Callable, Sequence
from typing import Any

from pqbroker.cli.records.formats import ReadRecord
from pqbroker.cli.refusals import WrongInput

Filter = Callable[[ReadRecord], bool]

_STEP = re.compile(r"\.?([^.\[\]=!<>\s]+)|\[(\d{1,9})\]")
_CONDITION = re.compile(r"\s*(!=|<=|>=|=|<|>)\s*(.*)", re.DOTALL)
_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
_FORMS = "give PATH or PATH=VALUE (also != < <= > >=), as in customer.address[0].city=Berlin"
_MISSING = object()


def grep(pattern: str) -> Filter:
    """Records in whose key, value or header a regular expression is found; WrongInput."""
    try:
        compiled = re.compile(pattern.encode(errors="surrogateescape"))
    except re.error as error:
        raise WrongInput(f"--grep {pattern!r} is no regular expression: {error}") from None

    def is_found(record: ReadRecord) -> bool:
        parts = (record.value, record.key, *(content for _, content in record.headers))
        return any(part is not None and compiled.search(part) for part in parts)

    return is_found


def where(text: str) -> Filter:
    """Records whose value is JSON that has something at a path, or what is compared with there; WrongInput."""
    steps, rest = _parse_path(text)
    if not rest:
        return lambda record: _find(record.value, steps) is not _MISSING
    condition = _CONDITION.fullmatch(rest)
    if condition is None:
        raise WrongInput(f"--where {text!r}: {_FORMS}")
    compare, wanted = _COMPARE[condition[1]], _value(condition[2])
    return lambda record: _holds(compare, _find(record.value, steps), wanted)


def _parse_path(text: str) -> tuple[list[str | int], str]:
    """The steps of a path, and what follows it."""
    steps: list[str | int] = []
    position = 0
    while found := _STEP.match(text, position):
        steps.append(found[1] if found[2] is None else int(found[2]))
        position = found.end()
    if not steps:
        raise WrongInput(f"--where {text!r}: {_FORMS}")
    return steps, text[position:]


def _value(text: str) -> Any:
    """Return the value to compare with: a JSON value, or else the text itself."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def _find(value: bytes | None, steps: Sequence[str | int]) -> Any:
    try:
        found = json.loads(value or b"")
    except (ValueError, RecursionError):
        return _MISSING
    for step in steps:
        if isinstance(found, dict):
            found = found.get(str(step), _MISSING)
        elif isinstance(found, list) and isinstance(step, int) and step < len(found):
            found = found[step]
        else:
            return _MISSING
    return found


def _holds(compare: Callable[[Any, Any], bool], found: Any, wanted: Any) -> bool:
    """Nothing is smaller or larger than what is of another kind; a text of digits is also a number's equal."""
    if found is _MISSING:
        return False
    if isinstance(found, str) and not isinstance(wanted, str):
        wanted = json.dumps(wanted)
    try:
        return compare(found, wanted)
    except TypeError:
        return False
