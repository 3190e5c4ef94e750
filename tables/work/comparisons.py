"""Comparisons of columns with literals that a WHERE asks for, alone or joined by AND: what they refuse is in no answer.

Nothing is known here of the columns' types; who knows a column's type says what rows a comparison leaves.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from sqlglot import exp

from pqbroker.tables.columns import folded
from pqbroker.tables.work.ranges import conjuncts

EQUAL: Final = "eq"
IS_NULL: Final = "null"
_MIRRORED: Final = {"eq": "eq", "gt": "lt", "gte": "lte", "lt": "gt", "lte": "gte"}
_TIMES: Final = frozenset(("TIMESTAMP", "TIMESTAMPNTZ", "DATE"))
DATE_LENGTH: Final = 10
VALUES_MAX: Final = 1000
"""Values of an IN that are looked at; a longer one leaves every row."""


@dataclass(frozen=True, slots=True)
class Literal:
    """A literal as it is written. `kind`: number, text, time (a text that is cast to a timestamp) or boolean."""

    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class LiteralComparison:
    """A column, folded, that compares so with one of the values: eq, gt, gte, lt, lte, or null, which has no value."""

    column: str
    operator: str
    values: tuple[Literal, ...] = ()


def comparisons(condition: Any, alias: str, *, is_alone: bool) -> Iterator[LiteralComparison]:
    """Yield the comparisons of the relation with this alias. `is_alone`: the SELECT reads no other relation, so that a
    column without a relation's name is its, and no join makes rows of nulls for it."""
    for part in conjuncts(condition):
        for column, operator, values in _compared(part):
            is_ours = column.table == alias or (not column.table and is_alone)
            if is_ours and (operator != IS_NULL or is_alone):
                yield LiteralComparison(folded(column.name), operator, values)


def _compared(part: Any) -> Iterator[tuple[Any, str, tuple[Literal, ...]]]:
    if isinstance(part, exp.Between):
        if not part.args.get("symmetric"):
            yield from _of_two(part.this, "gte", part.args["low"])
            yield from _of_two(part.this, "lte", part.args["high"])
    elif isinstance(part, exp.In):
        values = [_literal(each) for each in part.expressions[: VALUES_MAX + 1]]
        known = tuple(each for each in values if each is not None)
        if isinstance(part.this, exp.Column) and known and len(known) == len(values) <= VALUES_MAX:
            yield part.this, EQUAL, known
    elif isinstance(part, exp.Is):
        if isinstance(part.this, exp.Column) and isinstance(part.expression, exp.Null):
            yield part.this, IS_NULL, ()
    elif isinstance(part, exp.EQ | exp.GT | exp.GTE | exp.LT | exp.LTE):
        left, right = part.left.unnest(), part.right.unnest()
        yield from _of_two(left, part.key, right)
        yield from _of_two(right, _MIRRORED[part.key], left)


def _of_two(column: Any, operator: str, value: Any) -> Iterator[tuple[Any, str, tuple[Literal, ...]]]:
    literal = _literal(value)
    if isinstance(column, exp.Column) and literal is not None:
        yield column, operator, (literal,)


def _literal(node: Any) -> Literal | None:
    is_negative = False
    while isinstance(node, exp.Paren | exp.Neg):
        is_negative ^= isinstance(node, exp.Neg)
        node = node.this
    if isinstance(node, exp.Literal):
        if node.is_string:
            return None if is_negative else Literal("text", node.this)
        return Literal("number", f"-{node.this}" if is_negative else node.this)
    if is_negative:
        return None
    if isinstance(node, exp.Boolean):
        return Literal("boolean", str(bool(node.this)))
    return _time(node) if isinstance(node, exp.Cast) else None


def _time(cast: Any) -> Literal | None:
    """Return a text that is cast to a timestamp; a date with a time behind it is left to DuckDB, which cuts it."""
    kind, inner = cast.to.sql("duckdb"), cast.this
    if kind not in _TIMES or not isinstance(inner, exp.Literal) or not inner.is_string:
        return None
    return None if kind == "DATE" and len(inner.this) != DATE_LENGTH else Literal("time", inner.this)
