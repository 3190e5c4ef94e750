"""Values of a query's parameters, `$1` or `$name`: checked here, bound by DuckDB, never a part of the text."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from sqlglot import exp

from pqbroker.tables.columns import folded
from pqbroker.tables.work.refusal import QueryRefused

_NUMBER_LIMIT: Final = 1 << 127
"""Whole numbers lie below it, and not below its negative: DuckDB knows none beyond."""
_SHOWN: Final = 100
"""Characters of a name that a refusal shows."""
_COLUMNS: Final = frozenset(("tablet_index", "row_index", "timestamp", "error"))
"""Names that with a dollar before them are columns."""


def read_parameters(tree: Any, given: Any) -> dict[str, Any]:
    """Return the values of the query's parameters by name, folded; `given` is a list, an object, or null.
    QueryRefused INVALID_QUERY."""
    values = _named(given)
    used: dict[str, str] = {}
    for placeholder in tree.find_all(exp.Placeholder):
        if not placeholder.args.get("this"):
            raise _refused("the query has a parameter without a name", "Write $1, $2 or $name in place of ?.")
        if isinstance(placeholder.parent, exp.Table):
            raise _refused(f"the parameter ${placeholder.name[:_SHOWN]} stands where a topic does", "Name the topic.")
        used[folded(placeholder.name)] = placeholder.name
    if missing := [name for folded_name, name in used.items() if folded_name not in values]:
        cure = "Give params a list, the first value for $1, or an object with a value for each $name."
        raise _refused(f"params has no value for ${missing[0][:_SHOWN]}", cure)
    if unused := [name for name in values if name not in used]:
        name = unused[0][:_SHOWN]
        more = f"; ${name} is a column, choose another name" if name in _COLUMNS else ""
        raise _refused(f"params has a value for ${name}, which the query does not name{more}",
                       "Leave it out, or name the parameter in the query.")  # fmt: skip
    for name, value in values.items():
        _check(name[:_SHOWN], value)
    return values


def with_numbers(condition: Any, values: Mapping[str, Any]) -> Any:
    """Return a condition in which parameters that are whole numbers stand as literals, for finding ranges; other
    parameters stay, and leave every row."""
    if not values:
        return condition
    numbers = {name: value for name, value in values.items() if type(value) is int}
    copied = condition.copy()
    for placeholder in list(copied.find_all(exp.Placeholder)):
        if (number := numbers.get(folded(placeholder.name))) is not None and placeholder.parent is not None:
            placeholder.replace(exp.Literal.number(str(number)) if number >= 0 else _negative(number))
    return copied


def _negative(number: int) -> Any:
    return exp.Neg(this=exp.Literal.number(str(-number)))


def _named(given: Any) -> dict[str, Any]:
    if given is None:
        return {}
    if isinstance(given, list):
        return {str(number): value for number, value in enumerate(given, 1)}
    named = {folded(name): value for name, value in given.items()}
    if len(named) < len(given):
        raise _refused("two names in params differ by upper and lower case alone", "Give each parameter one value.")
    return named


def _check(name: str, value: Any) -> None:
    """Check that DuckDB has a type for the value."""
    if isinstance(value, dict):
        raise _refused(f"params has an object for ${name}", f"Give its JSON as a text, and write ${name}::JSON.")
    each: Any
    for each in _elements(value):
        if isinstance(each, list | dict):
            raise _refused(f"params has arrays or objects within the array for ${name}",
                           f"Give its JSON as a text, and write ${name}::JSON.")  # fmt: skip
        if type(each) is int and not -_NUMBER_LIMIT <= each < _NUMBER_LIMIT:
            raise _refused(f"params has a number of more than 128 bits for ${name}", "Give it as a text.")
        if isinstance(each, str) and any("\ud800" <= letter <= "\udfff" for letter in each):
            raise _refused(f"params has half a surrogate pair for ${name}", "Give texts that UTF-8 can hold.")


def _elements(value: Any) -> Iterable[Any]:
    return value if isinstance(value, list) else (value,)


def _refused(text: str, cure: str) -> QueryRefused:
    return QueryRefused("INVALID_QUERY", text, cure)
