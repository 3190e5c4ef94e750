"""Ranges of numbers that a WHERE leaves of a column: its comparisons with literals, alone or joined by AND."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from sqlglot import exp

_LEAST: Final = -(1 << 63)
_MOST: Final = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Range:
    """Numbers from least to most, both included."""

    least: int = _LEAST
    most: int = _MOST

    def within(self, other: "Range") -> "Range":
        return Range(max(self.least, other.least), min(self.most, other.most))


EVERY: Final = Range()
"""Every number."""
LISTED_MAX: Final = 1000
"""Numbers of an IN that are looked at one by one; a longer one is a range."""
NEAR: Final = 4096
"""Numbers that lie no further apart are one range: they are often in one batch."""


def ranges(condition: Any, alias: str, *, is_alone: bool) -> Iterator[tuple[str, Range]]:
    """Columns of the relation with this alias, in lower case, each with a range that it has to be in. `is_alone`: a
    column without a relation's name is its."""
    for part in conjuncts(condition):
        found = _range(part)
        if found is None:
            continue
        column, range_ = found
        if column.table == alias or (not column.table and is_alone):
            yield column.name.lower(), range_


def lists(condition: Any, alias: str, *, is_alone: bool) -> Iterator[tuple[str, frozenset[int]]]:
    """Columns as in `ranges`, each with the numbers that an IN names."""
    for part in conjuncts(condition):
        if not isinstance(part, exp.In) or not isinstance(part.this, exp.Column):
            continue
        numbers = [_number(each) for each in part.expressions[: LISTED_MAX + 1]]
        known = frozenset(each for each in numbers if each is not None)
        column, is_whole = part.this, None not in numbers and 0 < len(numbers) <= LISTED_MAX
        if is_whole and (column.table == alias or (not column.table and is_alone)):
            yield column.name.lower(), known


def runs(numbers: frozenset[int] | None, within: Range) -> Iterator[Range]:
    """Yield the range, or those of its parts that have the numbers, in order."""
    if numbers is None:
        if within.least <= within.most:
            yield within
        return
    run: Range | None = None
    for number in sorted(each for each in numbers if within.least <= each <= within.most):
        if run is not None and number - run.most > NEAR:
            yield run
            run = None
        run = Range(number if run is None else run.least, number)
    if run is not None:
        yield run


def conjuncts(condition: Any) -> Iterator[Any]:
    """Yield the parts in their order, without recursion: there may be thousands."""
    waiting = [condition]
    while waiting:
        part = waiting.pop().unnest()
        if isinstance(part, exp.And):
            waiting += [part.right, part.left]
        else:
            yield part


def _range(part: Any) -> tuple[Any, Range] | None:
    """Return a column and the range of numbers that it is compared with."""
    if isinstance(part, exp.Between) and isinstance(part.this, exp.Column):
        if part.args.get("symmetric"):
            return None
        least, most = _number(part.args["low"]), _number(part.args["high"])
        return None if least is None or most is None else (part.this, Range(least, most))
    if isinstance(part, exp.In) and isinstance(part.this, exp.Column):
        numbers = [_number(each) for each in part.expressions]
        known = [each for each in numbers if each is not None]
        return (part.this, Range(min(known), max(known))) if known and len(known) == len(numbers) else None
    if not isinstance(part, exp.EQ | exp.GT | exp.GTE | exp.LT | exp.LTE):
        return None
    left, right = part.left.unnest(), part.right.unnest()
    if isinstance(left, exp.Column) and (number := _number(right)) is not None:
        return left, _compared(part.key, number)
    if isinstance(right, exp.Column) and (number := _number(left)) is not None:
        return right, _compared(_MIRRORED[part.key], number)
    return None


_MIRRORED: Final = {"eq": "eq", "gt": "lt", "gte": "lte", "lt": "gt", "lte": "gte"}


def _compared(operator: str, number: int) -> Range:
    least = {"eq": number, "gt": number + 1, "gte": number}.get(operator, _LEAST)
    most = {"eq": number, "lt": number - 1, "lte": number}.get(operator, _MOST)
    return Range(least, most)


def _number(node: Any) -> int | None:
    """A literal integer that fits 64 bits."""
    sign = 1
    while isinstance(node, exp.Paren | exp.Neg):
        sign = -sign if isinstance(node, exp.Neg) else sign
        node = node.this
    if not isinstance(node, exp.Literal) or node.is_string:
        return None
    try:
        number = sign * int(node.this)
    except ValueError:
        return None
    return number if _LEAST < number < _MOST else None
