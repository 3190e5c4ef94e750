"""Queries that read only what they need answer as DuckDB does where it has every row and column of its own: over typed,
clashing and hostile names, and what may be left out is left out as far as it may be."""

import random
from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import duckdb
import pyarrow
import pyarrow.compute as compute
import pytest

from pqbroker.pq.log.commit_timestamps import timestamp_of
from pqbroker.tables.work import query as querying
from pqbroker.tables.work.kept_columns import KeptColumns
from pqbroker.tables.work.messages import Message
from pqbroker.tables.work.query import answer
from pqbroker.tables.work.refusal import QueryRefused
from pqbroker.tables.work.scanning import TopicScan
from pqbroker.tables.work.views import View, view_of
from tests.support.depth import examples

ROWS = 6
"""Of each of two tablets."""
NAMES = (
    "id", "Timestamp_MS", "KEY", "current_date", "user", "select", "topic_0", 'a"b', "a.b", "É", "ß", "'", " ", "*",
    "--", "[x]", "rowid", "localtime", "t", "x\ny",
)  # fmt: skip
"""Names of columns: one is the record's own in another case, some are functions, keywords, or what ends a name."""
TYPED = [
    *({"name": name, "type": "int64"} for name in NAMES), {"name": "$timestamp", "type": "uint64"},
]  # fmt: skip
VIEWS: Mapping[str, tuple[Any, View]] = {
    "t": (TYPED, view_of(TYPED, {})),
    "u": ([{"name": "ID", "type": "int64"}], view_of([{"name": "ID", "type": "int64"}], {})),
    "raw": (None, view_of(None, {})),
}
"""Schema and view of each topic."""


def _table(topic: str) -> Any:
    """All rows, with all columns."""
    view = VIEWS[topic][1]
    rows = [(tablet, row) for tablet in (0, 1) for row in range(ROWS)]
    times = [1000 * row + tablet for tablet, row in rows]
    made: dict[str, list[Any]] = {
        "$tablet_index": [tablet for tablet, _ in rows],
        "$row_index": [row for _, row in rows],
        "$timestamp": [timestamp_of(each) for each in times],
        "timestamp_ms": times,
    }
    dice = random.Random(topic)
    for name, kind in view.types.items():
        if name not in made:
            made[name] = [dice.randrange(4) if kind == pyarrow.int64() else None for _ in rows]
    return pyarrow.table({name: made[name] for name in view.types}, view.schema(list(view.types)))


TABLES = {topic: _table(topic) for topic in VIEWS}
DATABASE = duckdb.connect(":memory:")
"""Empty: each query has a connection, on which the tables are."""


class FakeLine:
    """A broker that knows the topics, and keeps what is sent."""

    def __init__(self) -> None:
        self.sent = b""
        self.is_stopped = False

    def ask(self, kind: str, document: Mapping[str, Any]) -> Message:
        assert kind == "find"
        for name in document["topics"]:
            if name not in VIEWS:
                raise QueryRefused("NO_TOPIC", f"there is no topic {name!r}", "Name one that exists.")
        found = {
            name: {"id": name, "bounds": [[0, ROWS]] * 2, "columns": VIEWS[name][0], "formats": {}, "unmounted": []}
            for name in document["topics"]
        }
        return Message("found", {"topics": found}, b"")

    def send(self, kind: str, document: Mapping[str, Any], payload: Any) -> None:
        assert kind == "result"
        self.sent += bytes(payload)


@pytest.fixture(autouse=True)
def greedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(querying, "scan", _scan)


def _scan(_: Any, wanted: TopicScan, *__: Any) -> Iterator[Any]:
    """Every row that may be left out is."""
    rows = TABLES[wanted.topic]
    tablet, row = rows.column("$tablet_index"), rows.column("$row_index")
    is_wanted = pyarrow.array([False] * rows.num_rows)
    for span in wanted.spans:
        begins = compute.and_(compute.greater_equal(row, span.start), compute.less(row, span.end))
        is_wanted = compute.or_(is_wanted, compute.and_(compute.equal(tablet, span.tablet), begins))
    times = compute.add(compute.multiply(row, 1000), tablet)
    is_wanted = compute.and_(is_wanted, compute.greater_equal(times, wanted.timestamp_min))
    if wanted.timestamp_max is not None:
        is_wanted = compute.and_(is_wanted, compute.less_equal(times, wanted.timestamp_max))
    if wanted.commits is not None:
        commits, (least, most) = rows.column("$timestamp").cast(pyarrow.int64()), wanted.commits
        lies = compute.and_(compute.greater_equal(commits, least), compute.less_equal(commits, most))
        is_wanted = compute.and_(is_wanted, lies)
    yield from rows.filter(is_wanted).select(wanted.columns).to_batches()


def answered(query: str) -> Any:
    """As a table of Arrow."""
    line: Any = FakeLine()
    watch: Any = SimpleNamespace(look=None)
    document = {
        "query": query, "format": "arrow", "explain": False, "depth_max": 100, "columns_bytes_max": 0,
        "memory_bytes_max": 1 << 30,
    }  # fmt: skip
    answer(line, document, KeptColumns(), watch)
    return pyarrow.ipc.open_stream(line.sent).read_all()


def unpruned(query: str) -> Any:
    """What DuckDB makes of the query itself. A star means no hidden column."""
    with DATABASE.cursor() as connection:
        for name, table in TABLES.items():
            has_star = any(mark in query for mark in ("*", "COLUMNS", "NATURAL"))
            columns = table.column_names[: VIEWS[name][1].starred] if has_star else table.column_names
            connection.register(name, table.select(columns))
        return connection.sql(query).to_arrow_table()


def check(query: str, expected: Any = None) -> None:
    pruned, whole = answered(query), unpruned(query) if expected is None else expected
    assert pruned.schema.names == whole.schema.names, query
    assert sorted(map(repr, pruned.to_pylist())) == sorted(map(repr, whole.to_pylist())), query


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


@pytest.mark.parametrize("name", [*NAMES, "$row_index", "$timestamp", "TIMESTAMP_MS", "key", "Id"])
@pytest.mark.parametrize("form", ["SELECT {0} FROM t", "SELECT t.{0}, count(*) FROM t GROUP BY ALL HAVING {0} > 0"])
def test_every_name_is_the_column_of_that_name(name: str, form: str) -> None:
    check(form.format(quoted(name)))


@pytest.mark.parametrize("name", ["current_date", "CURRENT_DATE", "user", "localtime", "Timestamp_ms", "rowid", "É"])
def test_a_name_without_quotes_is_the_column_even_where_it_is_a_function_elsewhere(name: str) -> None:
    check(f"SELECT sum({name}) AS n FROM t" if name != "localtime" else f"SELECT {quoted(name)} FROM t")


@pytest.mark.parametrize(
    "query",
    [
        "SELECT o.y FROM u AS o(x, z, y) WHERE x = 1",
        'SELECT "$row_index" FROM u AS o("$row_index", "$tablet_index") WHERE "$row_index" = 1',
        'FROM (t JOIN u USING ("$tablet_index", "$row_index")) SELECT count(*)',
        "SELECT count(*) FROM (t JOIN u ON t.id = u.id), raw",
        'SELECT s.n FROM u, LATERAL (SELECT u."$row_index" + 1 AS n) AS s',
        "SELECT count(*) FROM t NATURAL JOIN u",
        "SELECT COLUMNS('current.*|id') FROM t", "SELECT COLUMNS(LAMBDA c : c LIKE 'cur%') FROM t",
        "SELECT #3 FROM t", "SELECT #2 FROM u ORDER BY #1",
        "SELECT * FROM u PIVOT (count(*) FOR \"ID\" IN (0, 1, 2))",
        "SELECT * FROM (PIVOT u ON id USING count(*))",
        "SELECT * FROM u UNPIVOT (v FOR n IN (id, \"$row_index\"))",
        "SELECT count(*) FROM u TABLESAMPLE 100 PERCENT",
        "SELECT o AS \"*\" FROM u AS o", "SELECT s AS \"*\" FROM (FROM u) AS s",
        "WITH topic_0 AS (SELECT 99 AS id) SELECT id FROM u UNION ALL SELECT id FROM topic_0",
        "WITH topic_0 AS (SELECT 99 AS id), TOPIC_1 AS (SELECT 98 AS id) SELECT u.id FROM u, topic_0, topic_1",
        "WITH u AS (SELECT 7 AS id FROM u WHERE id = 1) SELECT id FROM U",
        'SELECT topic_0."$row_index" FROM u AS topic_0 JOIN t AS topic_1 ON topic_0.id = topic_1.topic_0',
        'SELECT u."$row_index" FROM u LEFT JOIN t ON u.id = t.id AND t."$row_index" > 3',
        'SELECT u."$row_index" FROM u LEFT JOIN t ON u.id = t.id WHERE t."$row_index" > 3',
        'SELECT u."$row_index" FROM u ANTI JOIN t ON u."$row_index" = t."$row_index" + 1 WHERE u."$row_index" > 2',
        'SELECT (SELECT count(*) FROM t WHERE t."$row_index" < u."$row_index") AS n FROM u WHERE "$row_index" > 1',
        'SELECT count(*) FROM t, u WHERE t."$row_index" = 1 AND U."$tablet_index" = 0',
        'SELECT id FROM u WHERE "$row_index" IN (1, 3) AND 1 = "$tablet_index"',
        "SELECT DISTINCT ON (id) id FROM u WHERE \"$row_index\" >= 2 ORDER BY id",
        "SELECT timestamp_ms FROM t WHERE timestamp_ms >= 2", "SELECT key FROM t WHERE Timestamp_MS > 2 AND KEY < 2",
    ],
)  # fmt: skip
def test_every_form_of_a_query_answers_as_duckdb_itself(query: str) -> None:
    check(query)


@pytest.mark.parametrize("seed", range(examples(40, least=10)))
def test_ranges_leave_out_only_what_the_where_refuses(seed: int) -> None:
    dice = random.Random(seed)
    for _ in range(5):
        topic, other = dice.choice(["t", "u", "raw"]), dice.choice(["t", "u"])
        condition = _condition(dice, "o", 0)
        check(f'SELECT o."$tablet_index", o."$row_index", o.timestamp_ms FROM {topic} AS o WHERE {condition}')
        second = _condition(dice, "p", 0)
        join = dice.choice(["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"])
        on = dice.choice(['o."$row_index" = p."$row_index"', 'p."$row_index" = 1', "true"])
        check(
            f'SELECT o."$row_index" AS a, p."$row_index" AS b FROM {topic} AS o {join} {other} AS p ON {on}'
            f" WHERE {condition} AND {second}"
        )


def _condition(dice: random.Random, alias: str, depth: int) -> str:
    if depth < 3 and dice.random() < 0.6:
        operator = dice.choice(["AND", "AND", "AND", "OR"])
        both = f"{_condition(dice, alias, depth + 1)} {operator} {_condition(dice, alias, depth + 1)}"
        return f"{dice.choice(['', '', 'NOT '])}({both})"
    name = dice.choice(['"$tablet_index"', '"$row_index"', "timestamp_ms", 'Timestamp_MS', '"$timestamp"'])
    scale = {'"$tablet_index"': 1, '"$row_index"': 1, '"$timestamp"': timestamp_of(1000)}.get(name, 1000)
    a, b = (scale * dice.randrange(-1 if scale < 9999 else 0, ROWS + 1) for _ in range(2))
    column = f"{alias}.{name}"
    return dice.choice(
        [
            f"{column} = {a}", f"{column} < {a}", f"{column} <= {a}", f"{column} > {a}", f"{a} >= {column}",
            f"{column} BETWEEN {a} AND {b}", f"{column} IN ({a}, {b})",
            f"{column} IN ({b}, {a}, {a}) AND {column} IN ({b})",
            f"{column} <> {a}", f"{column} NOT IN ({a})", f"{column} IS NOT NULL", f"{column} > {a}.5",
            f"{column} > - - {abs(a)}", f"({column}) >= ({a})", f"{column} + 0 = {a}", f"{column} IS DISTINCT FROM {a}",
        ]
    )  # fmt: skip


def test_columns_of_an_older_schema_that_sql_cannot_tell_apart_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    columns = [{"name": name, "type": "int64"} for name in ("a", "A", "b", "É", "é")]
    monkeypatch.setitem(globals(), "VIEWS", {"old": (columns, view_of(columns, {}))})
    monkeypatch.setitem(TABLES, "old", _table("old"))
    for query, names in {"SELECT a FROM old": "'a' and 'A'", "SELECT É FROM old": "'É' and 'é'"}.items():
        with pytest.raises(QueryRefused, match=names) as refusal:
            answered(query)
        assert refusal.value.code == "INVALID_SCHEMA"
    with pytest.raises(QueryRefused, match="'a' and 'A'"):
        answered("SELECT * FROM old")
    assert answered("SELECT count(b) AS n FROM old").to_pylist() == [{"n": 2 * ROWS}]
