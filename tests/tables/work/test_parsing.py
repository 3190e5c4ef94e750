"""What a query may be, and what of each topic it reads."""

import pytest

from pqbroker.tables.work.parsing import Named, Parsed
from pqbroker.tables.work.parsing import parse as parse_to_a_depth
from pqbroker.tables.work.ranges import LISTED_MAX, Range, runs
from pqbroker.tables.work.refusal import QueryRefused
from pqbroker.tables.work.views import RAW, RAW_VIEW

LEAST, MOST = -(1 << 63), (1 << 63) - 1


def parse(query: str) -> Parsed:
    return parse_to_a_depth(query, 100)


def only(query: str) -> Named:
    (named,) = parse(query).topics
    return named


@pytest.mark.parametrize(
    ("query", "topic"),
    [
        ("SELECT * FROM t", "t"),
        ('SELECT * FROM "a.b.c"', "a.b.c"),
        ("SELECT * FROM a.b.c", "a.b.c"),
        ("SELECT * FROM [//a/b/c]", "a.b.c"),
        ('SELECT * FROM "//a/b/c"', "a.b.c"),
        ("* from [//a/b] where [$row_index] = 1", "a.b"),
        ("FROM t", "t"),
        ('SELECT * FROM "it-has_dashes"', "it-has_dashes"),
        ("WITH x AS (SELECT * FROM t) SELECT * FROM x", "t"),
        ("WITH t AS (SELECT * FROM t) SELECT * FROM t", "t"),
        ("WITH RECURSIVE x AS (FROM t UNION ALL FROM x) FROM x", "t"),
        ("WITH x AS (FROM t), y AS (FROM x) FROM y, x", "t"),
        ("SELECT * FROM (SELECT * FROM t) AS s", "t"),
        ("SELECT (SELECT count(*) FROM t)", "t"),
        ("SELECT * FROM range(3), unnest([1]), t", "t"),
        ("SELECT * FROM t;", "t"),
    ],
)
def test_a_topic_is_found_wherever_it_is_named(query: str, topic: str) -> None:
    assert only(query).topic == topic


def test_a_query_may_name_no_topic_or_several_and_one_twice() -> None:
    assert parse("SELECT 1").topics == ()
    found = parse("SELECT * FROM a JOIN b USING (key) JOIN a AS c USING (key)").topics
    assert [named.topic for named in found] == ["a", "b", "a"]
    assert len({named.relation for named in found}) == 3


@pytest.mark.parametrize(
    "query",
    [
        "DROP TABLE t", "INSERT INTO t VALUES (1)", "DELETE FROM t", "UPDATE t SET key = 1", "CREATE TABLE x AS FROM t",
        "COPY t TO 'x.csv'", "COPY (SELECT 1) TO 'x.csv'", "ATTACH 'x.db'", "INSTALL httpfs", "LOAD httpfs",
        "SET threads = 4", "PRAGMA database_list", "CALL pragma_version()", "EXPORT DATABASE 'x'",
        "SELECT * FROM read_csv('/etc/passwd')", "SELECT * FROM read_text('/etc/passwd')", "SELECT * FROM glob('/*')",
        "SELECT * FROM duckdb_settings()", "SELECT * FROM query('SELECT 1')", "SELECT * FROM parquet_scan('x')",
        "SELECT (SELECT max(content) FROM read_text('/etc/passwd'))", "WITH x AS (FROM read_csv('a')) FROM x",
        "SELECT * FROM t, LATERAL read_text('/etc/passwd')", "SELECT * FROM t JOIN read_blob('x') ON true",
        "EXPLAIN SELECT 1", "DESCRIBE SELECT 1", "SHOW ALL TABLES", "USE x", "VACUUM", "BEGIN",
    ],
)  # fmt: skip
def test_what_is_no_read_of_topics_is_refused(query: str) -> None:
    with pytest.raises(QueryRefused) as refusal:
        parse(query)
    assert refusal.value.code in ("NOT_A_QUERY", "INVALID_QUERY")
    assert refusal.value.cure


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("selec 1", "the query cannot be parsed at '1' behind 'selec': Invalid expression / Unexpected token"),
        ("select a\n\nfrom", "the query cannot be parsed at 'from' behind 'select a': Expected table name"),
        ("select 1 +", "the query cannot be parsed at '+' behind 'select 1': Required keyword: 'expression' missing"),
        (")", "the query cannot be parsed at ')': Invalid expression / Unexpected token"),
        ("select 'a", "the query cannot be parsed: Error tokenizing 'select '"),
    ],
)
def test_a_query_that_cannot_be_parsed_is_shown_where_it_is_wrong(query: str, said: str) -> None:
    with pytest.raises(QueryRefused) as refusal:
        parse(query)
    assert str(refusal.value).startswith(said)


@pytest.mark.parametrize("query", ["", ";", "SELECT * FROM", "SELECT 1; SELECT 2", "SELECT (" * 2000])
def test_what_is_no_sql_is_refused(query: str) -> None:
    with pytest.raises(QueryRefused) as refusal:
        parse(query)
    assert refusal.value.code == "INVALID_QUERY"


@pytest.mark.parametrize(
    ("where", "rows"),
    [
        ('"$row_index" = 5', Range(5, 5)),
        ('"$row_index" > 5', Range(6, MOST)),
        ('"$row_index" >= 5 AND "$row_index" < 9', Range(5, 8)),
        ('5 < "$row_index" AND 9 >= "$row_index"', Range(6, 9)),
        ('"$row_index" BETWEEN 100 AND 200', Range(100, 200)),
        ('("$row_index" > 5) AND (key = \'k\' AND "$row_index" <= 9)', Range(6, 9)),
        ('"$row_index" IN (7, 3, 5)', Range(3, 7)),
        ('"$row_index" > -5', Range(-4, MOST)),
        ('t."$row_index" = 5', Range(5, 5)),
        ('"$row_index" = 5 OR key = \'k\'', Range()),
        ('NOT "$row_index" = 5', Range()),
        ('"$row_index" <> 5', Range()),
        ('"$row_index" BETWEEN SYMMETRIC 9 AND 5', Range()),
        ('"$row_index" + 1 = 5', Range()),
        ('"$row_index" > 1.5', Range()),
        ('"$row_index" > "$tablet_index"', Range()),
        ('"$row_index" NOT IN (1)', Range()),
        ('"$row_index" IN (1, key)', Range()),
        ('"$row_index" = - -5', Range(5, 5)),
        ('"$row_index" = -(-5)', Range(5, 5)),
        ('"$row_index" = \'1_0\'', Range()),
        ('"$row_index" = 99999999999999999999', Range()),
    ],
)
def test_a_range_of_rows_is_what_the_where_leaves(where: str, rows: Range) -> None:
    assert only(f"SELECT * FROM t WHERE {where}").rows == rows


def test_every_indexed_column_has_its_range() -> None:
    named = only('SELECT * FROM t WHERE "$tablet_index" = 1 AND timestamp_ms >= 7 AND "$row_index" < 3')
    assert (named.tablets, named.rows, named.times) == (Range(1, 1), Range(LEAST, 2), Range(7, MOST))
    assert only("* from [//t] where [$timestamp] between 3 and 5 and timestamp_ms < 2").commits == Range(3, 5)


def test_a_range_belongs_to_the_topic_that_its_column_is_of() -> None:
    a, b = parse('SELECT * FROM a JOIN b ON a.key = b.key WHERE a."$row_index" = 1 AND "$row_index" = 2').topics
    assert (a.rows, b.rows) == (Range(1, 1), Range())
    query = 'SELECT * FROM (SELECT * FROM a WHERE "$row_index" = 1) AS s, b WHERE b."$row_index" = 2'
    assert {named.topic: named.rows for named in parse(query).topics} == {"a": Range(1, 1), "b": Range(2, 2)}


@pytest.mark.parametrize(
    "places",
    [
        "t ASOF JOIN t AS u ON t.timestamp_ms >= u.timestamp_ms",
        "t POSITIONAL JOIN t AS u",
        "t TABLESAMPLE 3 ROWS, t AS u",
        "t, t AS u PIVOT (count(*) FOR key IN ('a'))",
    ],
)
def test_nothing_is_left_out_where_one_row_decides_about_another(places: str) -> None:
    first, second = parse(f'SELECT * FROM {places} WHERE t."$row_index" > 5 AND u."$row_index" > 6').topics
    assert (first.rows, second.rows) == (Range(), Range())


@pytest.mark.parametrize(
    ("query", "columns"),
    [
        ("SELECT * FROM t", tuple(RAW)),
        ("SELECT t.* FROM t", tuple(RAW)),
        ("SELECT t FROM t", tuple(RAW)),
        ("SELECT count(*) FROM t", ("$row_index",)),
        ("SELECT value FROM t WHERE key = 'k'", ("key", "value")),
        ("SELECT VALUE FROM t ORDER BY Timestamp_MS", ("timestamp_ms", "value")),
        ("SELECT 1 FROM a JOIN b USING (key)", ("key",)),
    ],
)
def test_only_the_columns_that_are_used_are_made(query: str, columns: tuple[str, ...]) -> None:
    named = parse(query).topics[0]
    assert RAW_VIEW.columns(named.used, has_star=named.has_star) == columns


def test_rows_pass_by_where_nothing_can_ask_for_them_again() -> None:
    assert only("SELECT key FROM t WHERE key = 'a' LIMIT 3").is_read_once
    for query in ("WITH x AS (FROM t) FROM x, x AS y", "SELECT * FROM (FROM t) AS s", "SELECT 1 WHERE 1 IN (FROM t)"):
        assert not only(query).is_read_once


def test_a_list_names_numbers_and_those_that_lie_near_are_one_range() -> None:
    tablets = '"$tablet_index" IN (0, 2) AND "$tablet_index" IN (2, 7)'
    named = only(f'SELECT * FROM t WHERE "$row_index" IN (9000, 1, 3) AND {tablets}')
    assert named.listed_tablets == frozenset((2,))
    assert list(runs(named.listed_rows, Range(0, 99_999))) == [Range(1, 3), Range(9000, 9000)]
    assert list(runs(named.listed_rows, Range(2, 5))) == [Range(3, 3)]
    assert list(runs(frozenset(), Range(2, 5))) == []
    assert list(runs(None, Range(2, 5))) == [Range(2, 5)]
    assert list(runs(None, Range(5, 2))) == []
    for where in ('"$row_index" IN (1, key)', '"$row_index" NOT IN (1, 2)', '"$row_index" IN (SELECT 1)'):
        assert only(f"SELECT * FROM t WHERE {where}").listed_rows is None
    many = ", ".join(map(str, range(LISTED_MAX + 1)))
    assert only(f'SELECT * FROM t WHERE "$row_index" IN ({many})').listed_rows is None
