"""What may be typed for what DuckDB's parser takes."""

import pytest

from pqbroker.tables.work.spelling import spell, topic_of


@pytest.mark.parametrize(
    ("typed", "spelled"),
    [
        (
            "* from [//path/to/table] where [$tablet_index] = 10 and [$row_index] between 100 and 200",
            'SELECT * from "path.to.table" where "$tablet_index" = 10 and "$row_index" between 100 and 200',
        ),
        ("select $row_index from a.b", 'select "$row_index" from a.b'),
        ('"$row_index" from [ //a ]', 'SELECT "$row_index" from "a"'),
        ("-- all\n * from t", "SELECT -- all\n * from t"),
        ("  WITH x AS (SELECT 1) FROM x", "  WITH x AS (SELECT 1) FROM x"),
        ("from t", "from t"),
        ("(select 1)", "(select 1)"),
        ("drop table t", "drop table t"),
        ("", ""),
        ("select [1, 2][1], list[$1]", "select [1, 2][1], list[$1]"),
        ("select '[//a/b]', \"[//a]\", $$ $row_index $$", "select '[//a/b]', \"[//a]\", $$ $row_index $$"),
        ("select 'it''s [//a]' from [//a]", "select 'it''s [//a]' from \"a\""),
        ("select 1 /* [//a] */ from t", "select 1 /* [//a] */ from t"),
        ("select $row_index_2, a$row_index", "select $row_index_2, a$row_index"),
    ],
)
def test_a_query_is_spelled_as_duckdb_takes_it(typed: str, spelled: str) -> None:
    assert spell(typed) == spelled


def test_a_path_is_a_topic() -> None:
    assert topic_of("//a/b/c") == "a.b.c"
    assert topic_of("a.b.c") == "a.b.c"
