"""Conditions on values that are JSON: `customer.id = 7`, `lines[0].name contains pump`, or a path alone, which must
exist."""

import json
import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

CONTAINS: Final = "contains"
_STEP: Final = re.compile(r"\.?([^.\[\]=!<>\s]+)|\[(\d{1,9})\]")
_CONDITION: Final = re.compile(r"\s*(!=|<=|>=|=|<|>)\s*(.*)|\s+contains\s+(.+)", re.DOTALL)
_COMPARE: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "=": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
CONDITION_FORMS: Final = (
    "give PATH or PATH = VALUE (also != < <= > >= contains), as in customer.address[0].city = Berlin"
)
MISSING: Final = object()
"""Stands for a value that does not exist."""


@dataclass(frozen=True, slots=True)
class JsonCondition:
    """A path into a value, and what must stand there; `operator` "": anything."""

    steps: tuple[str | int, ...]
    operator: str
    wanted: Any

    def holds(self, value: Any) -> bool:
        """Return True if a value, as JSON has it, meets the condition. MISSING meets none."""
        found = _find(value, self.steps)
        if found is MISSING:
            return False
        if self.operator == CONTAINS:
            return _contains(found, self.wanted)
        return not self.operator or _holds(self.operator, found, self.wanted)


def parse_condition(text: str) -> JsonCondition:
    """Return the condition that a text says. ValueError says which forms there are."""
    steps: list[str | int] = []
    position = 0
    while found := _STEP.match(text, position):
        steps.append(found[1] if found[2] is None else int(found[2]))
        position = found.end()
    rest = text[position:]
    if not steps:
        raise ValueError(CONDITION_FORMS)
    if not rest.strip():
        return JsonCondition(tuple(steps), "", None)
    condition = _CONDITION.fullmatch(rest)
    if condition is None or (condition[1] is not None and not condition[2].strip()):
        raise ValueError(CONDITION_FORMS)
    if condition[1] is None:
        return JsonCondition(tuple(steps), CONTAINS, _wanted(condition[3]))
    return JsonCondition(tuple(steps), condition[1], _wanted(condition[2]))


def parse_json(content: bytes | None) -> Any:
    """Return the value of a JSON document in UTF-8; MISSING for bytes that are none."""
    if content is None:
        return MISSING
    try:
        return msgspec.json.decode(content)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        pass  # it is stricter than Python's parser about surrogates, great numbers and NaN
    try:
        return json.loads(content.decode())
    except (ValueError, RecursionError):
        return MISSING


def _wanted(text: str) -> Any:
    """Return the value to compare with: a JSON value, or else the text itself."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _find(found: Any, steps: Sequence[str | int]) -> Any:
    for step in steps:
        if isinstance(found, dict):
            found = found.get(str(step), MISSING)
        elif isinstance(found, list) and isinstance(step, int) and step < len(found):
            found = found[step]
        else:
            return MISSING
    return found


def _holds(sign: str, found: Any, wanted: Any) -> bool:
    """Nothing is smaller or larger than what is of another kind; a text of digits is also a number's equal."""
    if isinstance(found, str) and not isinstance(wanted, str):
        wanted = json.dumps(wanted)
    if isinstance(found, bool) != isinstance(wanted, bool):
        return sign == "!="
    try:
        return _COMPARE[sign](found, wanted)
    except (TypeError, OverflowError):
        return False


def _contains(found: Any, wanted: Any) -> bool:
    """A text contains its parts, an array its items, an object its fields."""
    if isinstance(found, str):
        return (wanted if isinstance(wanted, str) else json.dumps(wanted)) in found
    if isinstance(found, list):
        return any(_holds("=", item, wanted) for item in found)
    return isinstance(found, dict) and (wanted if isinstance(wanted, str) else json.dumps(wanted)) in found
