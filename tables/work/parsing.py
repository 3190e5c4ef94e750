"""What a query reads, found in its text by sqlglot: refused unless it is one SELECT over topics, and for each topic
the names, tablets, rows and times that can be in its answer.

A range is taken from comparisons with numbers that stand in a WHERE alone or joined by AND: what they refuse is in no
answer, whatever joins come in between. All else is DuckDB's to decide.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from pqbroker.pq.log.row_facts import TIMESTAMP
from pqbroker.tables.work.refusal import QueryRefused
from pqbroker.tables.work.spelling import spell, topic_of

_LEAST: Final = -(1 << 63)
_MOST: Final = (1 << 63) - 1
_FUNCTIONS: Final = frozenset(("generate_series", "range", "unnest"))
"""Table functions that read nothing."""
_READ: Final = "SQL only reads here: give one SELECT over topics. POST /v1/topics/NAME/records writes."


@dataclass(frozen=True, slots=True)
class Range:
    """Numbers from least to most, both included."""

    least: int = _LEAST
    most: int = _MOST

    def within(self, other: "Range") -> "Range":
        return Range(max(self.least, other.least), min(self.most, other.most))


@dataclass(frozen=True, slots=True)
class Named:
    """A topic where the query names it, under a name of ours: each place is read for itself."""

    relation: str
    topic: str
    used: frozenset[str]
    """Names in the query, in lower case: columns of the topic among them."""
    has_star: bool
    """Whether all columns that are shown unasked are used."""
    tablets: Range = Range()
    rows: Range = Range()
    times: Range = Range()
    commits: Range = Range()
    """Of `$timestamp`."""
    is_read_once: bool = False
    """Whether the rows may pass by: nothing in the query can ask for them again. DuckDB refuses where that is wrong."""


@dataclass(frozen=True, slots=True)
class Parsed:
    """What DuckDB is given, and what it needs for that."""

    sql: str
    topics: tuple[Named, ...]


def parse(text: str) -> Parsed:
    """QueryRefused INVALID_QUERY, NOT_A_QUERY."""
    tree = _tree(spell(text))
    _check(tree)
    used = frozenset(name.name.lower() for name in tree.find_all(exp.Identifier))
    has_star = _has_star(tree)
    is_single = len(list(tree.find_all(exp.Select))) == 1
    is_read_once = is_single and not any(tree.find_all(exp.With, exp.Pivot, exp.Window))
    narrows = _is_row_by_row(tree)
    found: list[Named] = []
    for number, table in enumerate(_topics(tree)):
        named = Named(f"topic_{number}", _topic(table), used, has_star, is_read_once=is_read_once)
        found.append(_narrowed(named, table) if narrows else named)
        alias = table.alias or table.name
        table.replace(exp.alias_(exp.to_table(named.relation), alias, table=True, quoted=True))
    return Parsed(tree.sql(dialect="duckdb"), tuple(found))


def _tree(text: str) -> Any:
    try:
        trees = sqlglot.parse(text, dialect="duckdb")
    except (SqlglotError, RecursionError) as error:
        cause = "it is nested too deeply" if isinstance(error, RecursionError) else str(error).partition("\n")[0]
        told = f"the query cannot be parsed: {cause[:500].rstrip('.')}"
        raise QueryRefused("INVALID_QUERY", told, "Correct the SQL.") from None
    statements = [tree for tree in trees if tree is not None]
    if len(statements) != 1:
        raise QueryRefused("INVALID_QUERY", f"the query has {len(statements)} statements", "Give one SELECT.")
    return statements[0]


def _check(tree: Any) -> None:
    """Refuse what is not a read of topics. DuckDB, which may reach no file either, is the second lock."""
    if not isinstance(tree, exp.Query):
        raise QueryRefused("NOT_A_QUERY", f"the statement is {tree.key.upper()}, no SELECT", _READ)
    for node in tree.walk():
        if isinstance(node, exp.Into | exp.Command | exp.DDL | exp.DML) and not isinstance(node, exp.Query):
            raise QueryRefused("NOT_A_QUERY", f"the query has {node.key.upper()} in it", _READ)
        if isinstance(node, exp.Table | exp.Lateral) and isinstance(node.this, exp.Func):
            name = node.this.name if isinstance(node.this, exp.Anonymous) else node.this.sql_name().lower()
            if name.lower() not in _FUNCTIONS:
                raise QueryRefused("NOT_A_QUERY", f"the function {name} is not for queries over topics", _READ)


def _topics(tree: Any) -> list[Any]:
    """Places where a topic is named, rather than a common table expression."""
    return [table for table in tree.find_all(exp.Table) if not _is_ours(table)]


def _is_ours(table: Any) -> bool:
    if isinstance(table.this, exp.Func):
        return True
    if table.args.get("db") is not None:
        return False
    name, node = table.name.lower(), table
    while node.parent is not None:
        child, node = node, node.parent
        if any(each.alias.lower() == name for each in _expressions_seen(node, child)):
            return True
    return False


def _expressions_seen(node: Any, child: Any) -> list[Any]:
    """The common table expressions of a node that its child sees: one of them sees those before it, and itself only
    where it is recursive."""
    if isinstance(node, exp.With):
        at = next(number for number, each in enumerate(node.expressions) if each is child)
        return list(node.expressions[: at + bool(node.recursive)])
    with_ = node.args.get("with_")
    return list(with_.expressions) if with_ is not None and with_ is not child else []


def _topic(table: Any) -> str:
    """The topic's name: one quoted name, a path in one, or names with dots between them."""
    return topic_of(".".join(part.name for part in table.parts))


def _has_star(tree: Any) -> bool:
    """Whether the query has a star, or uses rows as a whole."""
    if any(not isinstance(star.parent, exp.Count) for star in tree.find_all(exp.Star)):
        return True
    whole_rows = {(table.alias or table.name).lower() for table in tree.find_all(exp.Table)}
    return any(column.name.lower() in whole_rows for column in tree.find_all(exp.Column))


def _is_row_by_row(tree: Any) -> bool:
    """Whether rows that a WHERE refuses mean nothing to others: they do where the nearest row is joined, or the one in
    the same place, and where rows are sampled or become columns before the WHERE."""
    methods = {join.method.upper() for join in tree.find_all(exp.Join)}
    return methods <= {"", "NATURAL"} and not any(tree.find_all(exp.TableSample, exp.Pivot))


def _narrowed(named: Named, table: Any) -> Named:
    """With the ranges of the SELECT that the table stands in."""
    select = table.find_ancestor(exp.Select)
    where = select.args.get("where") if select is not None else None
    if where is None:
        return named
    alias = table.alias or table.name
    is_alone = not select.args.get("joins") and len(list(select.find_all(exp.Table))) == 1
    for column, found in _ranges(where.this, alias, is_alone=is_alone):
        if column == "$tablet_index":
            named = replace(named, tablets=named.tablets.within(found))
        elif column == "$row_index":
            named = replace(named, rows=named.rows.within(found))
        elif column == "timestamp_ms":
            named = replace(named, times=named.times.within(found))
        elif column == TIMESTAMP:
            named = replace(named, commits=named.commits.within(found))
    return named


def _ranges(condition: Any, alias: str, *, is_alone: bool) -> Iterator[tuple[str, Range]]:
    for part in _conjuncts(condition):
        found = _range(part)
        if found is None:
            continue
        column, range_ = found
        if column.table == alias or (not column.table and is_alone):
            yield column.name.lower(), range_


def _conjuncts(condition: Any) -> Sequence[Any]:
    condition = condition.unnest()
    if isinstance(condition, exp.And):
        return [*_conjuncts(condition.left), *_conjuncts(condition.right)]
    return [condition]


def _range(part: Any) -> tuple[Any, Range] | None:
    """A column, and the numbers that it is compared with."""
    if isinstance(part, exp.Between) and isinstance(part.this, exp.Column):
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
