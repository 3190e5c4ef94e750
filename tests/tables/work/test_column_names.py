"""Columns whose names clash, or only look alike, in queries that read only what they need: they answer as DuckDB does,
or are refused as it refuses them."""

from collections.abc import Sequence

import duckdb
import pytest

from pqbroker.tables.work.refusal import QueryRefused
from pqbroker.tables.work.views import view_of
from tests.support.column_names import CLASHING, NEAR
from tests.tables.work import test_pruning
from tests.tables.work.test_pruning import TABLES, VIEWS, answered, check, greedy, quoted, unpruned

__all__ = ["greedy"]
FORMS = (
    "SELECT {0} FROM p", "SELECT {1} FROM p", "SELECT sum({1}) AS m, {0} FROM p GROUP BY {0}",
    "SELECT {0} AS {1} FROM p WHERE {1} > 1", "SELECT n FROM p WHERE {0} = 1 AND {1} < 3 AND \"$row_index\" > 1",
    "SELECT s.{1} FROM (SELECT {0} FROM p WHERE \"$row_index\" < 3) AS s",
    "SELECT o.{0}, {1}.n FROM p AS o JOIN p AS {1} ON o.\"$row_index\" = {1}.\"$row_index\"",
    "SELECT {0}.n FROM p AS {0} WHERE {1}.\"$row_index\" > 2", "SELECT count(*) FROM p JOIN p AS q USING ({1})",
    "WITH {0} AS (SELECT n AS v FROM p WHERE \"$row_index\" = 1) SELECT v FROM {0}",
    "WITH {0} AS (SELECT 99 AS v) SELECT v, {1} FROM {0}, p", "WITH {0} AS (SELECT 7 AS v) SELECT v FROM {1}",
    "SELECT * FROM p WHERE {1} > 0", "SELECT COLUMNS(LAMBDA c : c = '{2}') FROM p", "SELECT n FROM p ORDER BY {1}, n",
    "SELECT unnest([{0}, {1}]) AS u FROM p",
)  # fmt: skip
"""Queries over a topic p with the columns n and the first name, or with both."""


@pytest.fixture
def topic(monkeypatch: pytest.MonkeyPatch) -> "Topic":
    return Topic(monkeypatch)


class Topic:
    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._patch = patch

    def of(self, *names: str) -> None:
        """Let the topic p have columns of these names."""
        columns = [{"name": name, "type": "int64"} for name in names]
        self._patch.setattr(test_pruning, "VIEWS", {**VIEWS, "p": (columns, view_of(columns, {}))})
        self._patch.setitem(TABLES, "p", test_pruning._table("p"))


def compared(query: str) -> None:
    """Both answer, and the same, or both refuse."""
    try:
        expected = unpruned(query)
    except duckdb.Error:
        with pytest.raises(QueryRefused):
            answered(query)
        return
    check(query, expected)


def queries(name: str, other: str) -> Sequence[str]:
    literal = name.replace("'", "''")
    return [form.format(quoted(name), quoted(other), literal) for form in FORMS]


@pytest.mark.parametrize("pair", [*CLASHING, *NEAR], ids=ascii)
def test_a_column_is_meant_by_what_duckdb_takes_for_its_name(topic: Topic, pair: tuple[str, str]) -> None:
    for name, other in (pair, pair[::-1]):
        topic.of("n", name)
        for query in queries(name, other):
            compared(query)


@pytest.mark.parametrize("pair", NEAR, ids=ascii)
def test_two_columns_that_look_alike_are_two(topic: Topic, pair: tuple[str, str]) -> None:
    topic.of("n", *pair)
    for query in [*queries(*pair), *queries(*pair[::-1])]:
        compared(query)
