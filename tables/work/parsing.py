"""Parsing of a query's text by sqlglot: a query is refused unless it is one SELECT over topics; for each topic, the
names, tablets, rows and times that can be in its answer.

A range is taken from comparisons with numbers that stand in a WHERE alone or joined by AND: what they refuse is in no
answer, whatever joins come in between. All else is DuckDB's to decide.
"""

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from sqlglot import TokenType, exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import SqlglotError

from pqbroker.pq.log.row_facts import TIMESTAMP
from pqbroker.tables.columns import folded
from pqbroker.tables.work.catalogs import Catalog, catalog_of, named_topic, names_left, rewritten
from pqbroker.tables.work.comparisons import LiteralComparison, comparisons
from pqbroker.tables.work.parameters import read_parameters, with_numbers
from pqbroker.tables.work.ranges import EVERY, Range, lists, ranges
from pqbroker.tables.work.refusal import QueryRefused
from pqbroker.tables.work.spelling import spell

_FUNCTIONS: Final = frozenset(("generate_series", "range", "unnest"))
"""Table functions that read nothing."""
_NO_READS: Final = exp.Into | exp.Command | exp.DDL | exp.DML | exp.Describe | exp.Summarize
_DUCKDB: Final = Dialect.get_or_raise("duckdb")
_OPENING: Final = frozenset((TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE, TokenType.CASE))
_CLOSING: Final = frozenset((TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE, TokenType.END))
_RELATION: Final = re.compile(r"topic_([0-9]{1,18})", re.IGNORECASE)
"""The names that `_relations` gives, in any spelling that means the same to DuckDB."""
_OF_LIBRARY: Final = re.compile(r" (?:but got|for) <.*", re.DOTALL)
"""Matches objects of the library in what it says."""
_SHOWN_BEHIND: Final = 40
"""Characters of a query that are shown at what is wrong with it, and as many before."""
_READ: Final = "SQL only reads here: give one SELECT over topics. POST /v1/topics/NAME/records writes."


@dataclass(frozen=True, slots=True)
class Named:
    """A topic where the query names it, under a name of ours: each place is read for itself."""

    relation: str
    topic: str
    used: frozenset[str]
    """Names in the query, in lower case: columns of the topic among them."""
    has_star: bool
    """True if the query uses every column that `*` shows."""
    tablets: Range = EVERY
    rows: Range = EVERY
    times: Range = EVERY
    commits: Range = EVERY
    """Range of `$timestamp`."""
    listed_tablets: frozenset[int] | None = None
    listed_rows: frozenset[int] | None = None
    """Numbers that an IN names; None: it names none."""
    comparisons: tuple[LiteralComparison, ...] = ()
    """Comparisons of its columns that each row of the answer holds."""
    is_read_once: bool = False
    """True if nothing in the query reads the rows a second time, so they need not be kept. If that is wrong, DuckDB
    refuses."""


@dataclass(frozen=True, slots=True)
class Parsed:
    """The text that DuckDB is given, and what it needs for that."""

    sql: str
    topics: tuple[Named, ...]
    parameters: Mapping[str, Any] = field(default_factory=dict)
    """Values of `$name` and `$1` in the text."""
    catalogs: tuple[Catalog, ...] = ()
    described: str | None = None
    """Topic or table that has to exist: DESCRIBE names it."""


def parse(text: str, depth_max: int, params: Any = None) -> Parsed:
    """Return the query as DuckDB takes it. `params`: values of its parameters, as JSON has them, or None.
    QueryRefused INVALID_QUERY, NOT_A_QUERY."""
    written = spell(text)
    try:
        try:
            return _parsed(written, depth_max, params)
        except SqlglotError as error:
            told = f"the query cannot be parsed{_place_of(_own_error(text) or error)}"
            raise QueryRefused("INVALID_QUERY", told, "Correct the SQL.") from None
    except RecursionError:
        raise _too_deep(depth_max) from None


def _parsed(text: str, depth_max: int, params: Any) -> Parsed:
    tree, words = _tree(text, depth_max)
    tree, described = rewritten(tree)
    _check(tree)
    values = read_parameters(tree, params)
    used = words.union(folded(name.name) for name in tree.find_all(exp.Identifier))
    has_star = _has_star(tree)
    is_single = len(list(tree.find_all(exp.Select))) == 1
    is_read_once = is_single and not any(tree.find_all(exp.With, exp.Pivot, exp.Window))
    narrows = _is_row_by_row(tree)
    relations = _relations(text)
    found: list[Named] = []
    catalogs: list[Catalog] = []
    for table in _topics(tree):
        named = Named(next(relations), named_topic(table), used, has_star, is_read_once=is_read_once)
        named = _narrowed(named, table, values) if narrows and not table.alias_column_names else named
        if (catalog := catalog_of(table)) is not None:
            catalogs.append(Catalog(named.relation, catalog, names_left(named.comparisons)))
        else:
            found.append(named)
        _rename(table, named.relation)
    return Parsed(tree.sql(dialect="duckdb"), tuple(found), values, tuple(catalogs), described)


def _relations(text: str) -> Iterator[str]:
    """Names for the places where topics are named. None of them is anywhere in the query, so nothing in it means one.
    """
    said = {int(number) for number in _RELATION.findall(text)}
    return (f"topic_{number}" for number in itertools.count() if number not in said)


def _rename(table: Any, relation: str) -> None:
    """Make the place name the relation, under the alias that it has. All else of it stays: names of its columns, joins,
    pivots, samples."""
    given = table.args.get("alias")
    columns = None if given is None else given.args.get("columns")
    alias = exp.TableAlias(this=exp.to_identifier(table.alias or table.name, quoted=True), columns=columns)
    table.set("this", exp.to_identifier(relation, quoted=True))
    table.set("db", None)
    table.set("catalog", None)
    table.set("alias", alias)


def _tree(text: str, depth_max: int) -> tuple[Any, frozenset[str]]:
    """The statement, and words in it that are a column's name where there is such a column, and else a function.
    SqlglotError; QueryRefused."""
    tokens = _DUCKDB.tokenize(text)
    _check_depth(tokens, depth_max)
    trees = _DUCKDB.parser().parse(tokens, text)
    statements = [tree for tree in trees if tree is not None]
    if len(statements) != 1:
        raise QueryRefused("INVALID_QUERY", f"the query has {len(statements)} statements", "Give one SELECT.")
    functions = _DUCKDB.parser_class.NO_PAREN_FUNCTIONS
    return statements[0], frozenset(folded(token.text) for token in tokens if token.token_type in functions)


def _own_error(text: str) -> SqlglotError | None:
    """Return what is wrong with a query as its writer has spelled it; None: it is wrong only where it is respelled."""
    try:
        _DUCKDB.parse(text)
    except SqlglotError as error:
        return error
    return None


def _place_of(error: SqlglotError) -> str:
    """Return where a query is wrong, and how."""
    found = next(iter(getattr(error, "errors", ())), None)
    if found is None:  # it has no words, such as a text without its end
        return f": {str(error).partition(chr(10))[0][:500].rstrip('.')}"
    behind = found["start_context"].split()
    place = f" behind {' '.join(behind)[-_SHOWN_BEHIND:]!r}" if behind else ""
    return f" at {found['highlight'][:_SHOWN_BEHIND]!r}{place}: {_OF_LIBRARY.sub('', found['description'])}"


def _check_depth(tokens: Sequence[Any], depth_max: int) -> None:
    """Brackets and CASE within one another: the parser calls itself for each."""
    depth = 0
    for token in tokens:
        if token.token_type in _OPENING:
            depth += 1
            if depth > depth_max:
                raise _too_deep(depth_max)
        elif token.token_type in _CLOSING:
            depth -= 1


def _too_deep(depth_max: int) -> QueryRefused:
    return QueryRefused(
        "INVALID_QUERY", f"the query is nested more than pqbroker.sql.depth.max = {depth_max} levels deep",
        "Nest less, by WITH for instance, or raise the setting.",
    )  # fmt: skip


def _check(tree: Any) -> None:
    """Refuse what is not a read of topics. DuckDB, which may reach no file either, is the second lock."""
    if not isinstance(tree, exp.Query):
        raise QueryRefused("NOT_A_QUERY", f"the statement is {tree.key.upper()}, no SELECT", _READ)
    for node in tree.walk():
        if isinstance(node, _NO_READS) and not isinstance(node, exp.Query):
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


def _has_star(tree: Any) -> bool:
    """Return True if the query has a star, or uses columns that it does not name: by place, by pattern, as a row."""
    if any(not isinstance(star.parent, exp.Count) for star in tree.find_all(exp.Star)):
        return True
    if any(tree.find_all(exp.Columns, exp.Pivot, exp.PositionalColumn)):
        return True
    if any(join.method.upper() == "NATURAL" for join in tree.find_all(exp.Join)):
        return True
    if any(alias.args.get("columns") for alias in tree.find_all(exp.TableAlias)):
        return True
    whole_rows = {folded(table.alias_or_name) for table in tree.find_all(exp.Table, exp.TableAlias)}
    return any(folded(column.name) in whole_rows for column in tree.find_all(exp.Column))


def _is_row_by_row(tree: Any) -> bool:
    """Return True if rows that a WHERE refuses mean nothing to others: they do where the nearest row is joined, or the
    one in the same place, and where rows are sampled or become columns before the WHERE."""
    methods = {join.method.upper() for join in tree.find_all(exp.Join)}
    return methods <= {"", "NATURAL"} and not any(tree.find_all(exp.TableSample, exp.Pivot))


def _narrowed(named: Named, table: Any, values: Mapping[str, Any]) -> Named:
    """Return `named` with the ranges of the SELECT that the table stands in. `values`: those of parameters."""
    select = table.find_ancestor(exp.Select)
    where = select.args.get("where") if select is not None else None
    if where is None:
        return named
    alias = table.alias or table.name
    is_alone = not select.args.get("joins") and len(list(select.find_all(exp.Table))) == 1
    named = replace(named, comparisons=tuple(comparisons(where.this, alias, is_alone=is_alone)))
    condition = with_numbers(where.this, values)
    for column, found in ranges(condition, alias, is_alone=is_alone):
        if column == "$tablet_index":
            named = replace(named, tablets=named.tablets.within(found))
        elif column == "$row_index":
            named = replace(named, rows=named.rows.within(found))
        elif column == "timestamp_ms":
            named = replace(named, times=named.times.within(found))
        elif column == TIMESTAMP:
            named = replace(named, commits=named.commits.within(found))
    for column, numbers in lists(condition, alias, is_alone=is_alone):
        if column == "$tablet_index":
            named = replace(named, listed_tablets=_both(named.listed_tablets, numbers))
        elif column == "$row_index":
            named = replace(named, listed_rows=_both(named.listed_rows, numbers))
    return named


def _both(some: frozenset[int] | None, others: frozenset[int]) -> frozenset[int]:
    return others if some is None else some & others
