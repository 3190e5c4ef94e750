"""Checks of the attributes that a sorted table is given. `conf/sorted_attributes.py` says what they mean."""

import math
from collections.abc import Mapping
from typing import Any

from pqbroker.conf.declare import ConfigError, Declaration, Kind, declarations
from pqbroker.conf.sorted_attributes import (
    AT_MOST,
    FORCED_REVISION,
    NULLABLE,
    STRICTLY_BELOW,
    SortedAttributes,
    sorted_document,
)
from pqbroker.conf.table_attributes import DEFAULTS as ORDERED
from pqbroker.tables.attributes import NUMBER_MAX
from pqbroker.tables.refusals import TableError, nearest

_NAME_CHARACTERS_MAX = 100
_AS_WRITTEN = 1
"""The forced revision that stands for the table's next one."""
_FORMS: Mapping[Kind, str] = {
    Kind.BOOLEAN: "true or false",
    Kind.INT: "a whole number",
    Kind.LONG: "a whole number",
    Kind.DOUBLE: "a number",
    Kind.STRING: "a text",
}


def check_sorted_attributes(given: Mapping[str, Any], before: Mapping[str, Any]) -> None:
    """Check attributes that are to be set, beside those that are set `before`.

    TableError INVALID_ATTRIBUTE for a name or a value that no sorted table has, and for values that do not fit each
    other.
    """
    known = declarations(SortedAttributes)
    for name, value in given.items():
        shown = name[:_NAME_CHARACTERS_MAX]
        if name in ORDERED and name not in known:
            raise _invalid(f"attributes.{name} is of ordered tables", "Leave it out: this table is sorted.")
        if name not in known:
            raise _invalid(f"attributes has the unknown name {shown!r}", nearest(shown, known))
        _check_value(known[name], value)
    _check_together({**before, **given}, given)


def with_next_revision(given: Mapping[str, Any], next_revision: int) -> dict[str, Any]:
    """Return the attributes to store: a forced revision of 1 becomes the table's next one.

    Every chunk has a lower revision then, and those that are made later have this one or a higher one. TableError
    INVALID_ATTRIBUTE for a revision that no chunk has yet: chunks would be compacted again and again.
    """
    revision = given.get(FORCED_REVISION)
    if revision is None:
        return dict(given)
    if revision > max(next_revision, _AS_WRITTEN):
        text = f"attributes.{FORCED_REVISION} is {revision}, and the table's next revision is {next_revision}"
        raise _invalid(text, "Give 1: it stands for that one.")
    return {**given, FORCED_REVISION: next_revision if revision == _AS_WRITTEN else revision}


def _check_value(declared: Declaration, value: object) -> None:
    if value is None and declared.name in NULLABLE:
        return
    if not _is_of(declared.kind, value):
        form = f"one of {', '.join(declared.choices)}" if declared.choices else _FORMS[declared.kind]
        or_null = ", or null" if declared.name in NULLABLE else ""
        raise _invalid(f"attributes.{declared.name} is {_short(value)}", f"Give {form}{or_null}.")
    if declared.choices and value not in declared.choices:
        raise _invalid(f"attributes.{declared.name} is {_short(value)}", nearest(str(value)[:100], declared.choices))
    try:
        declared.check(value)
    except ConfigError as wrong:
        text, _, cure = f"attributes.{wrong}".partition("; ")
        raise _invalid(text, f"{cure[:1].upper()}{cure[1:]}.") from None


def _is_of(kind: Kind, value: object) -> bool:
    if kind is Kind.BOOLEAN:
        return isinstance(value, bool)
    if kind is Kind.STRING:
        return isinstance(value, str)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    if kind is Kind.DOUBLE:
        return math.isfinite(value) if isinstance(value, float) else abs(value) <= NUMBER_MAX
    return isinstance(value, int) and abs(value) <= (NUMBER_MAX if kind is Kind.LONG else (1 << 31) - 1)


def _check_together(after: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """Only what is given is refused: values that were set by an earlier rule are nobody's mistake now."""
    values = sorted_document(after)
    pairs = [*((*pair, True) for pair in STRICTLY_BELOW), *((*pair, False) for pair in AT_MOST)]
    for low, high, is_strict in pairs:
        least, most = values[low], values[high]
        if (low in given or high in given) and (least >= most if is_strict else least > most):
            text = f"attributes.{low} is {least} and {high} is {most}"
            raise _invalid(text, f"Give {low} {'below' if is_strict else 'at most'} {high}, both in one change.")


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _NAME_CHARACTERS_MAX else f"{text[:_NAME_CHARACTERS_MAX]}…"


def _invalid(message: str, cure: str) -> TableError:
    return TableError("INVALID_ATTRIBUTE", message, cure)
