"""Upper bounds of `timestamp_ms` in SQL: what an earlier query has read leaves out what it refuses, no other row."""

import random
from collections.abc import Iterator

import pytest

from pqbroker.testing import memory_broker
from tests.broker.web.test_sql import NOW_MS, Sql

ROWS = 120


@pytest.fixture(scope="module")
def sql() -> Iterator[Sql]:
    """No column is kept: each query reads again."""
    with memory_broker({"pqbroker.sql.worker.idle.ms": "600000", "pqbroker.sql.columns.bytes.max": "0"}) as running:
        yield Sql(running)


def produce(sql: Sql, topic: str, times: list[int], at_once: int = 8) -> None:
    sql.post("/v1/topics", {"name": topic})
    for start in range(0, len(times), at_once):
        some = times[start : start + at_once]
        sql.produce(topic, *({"partition": 0, "timestamp": NOW_MS + time, "value": "x" * 6000} for time in some))


@pytest.mark.parametrize(("topic", "rows", "queries"), [("mixed", ROWS, 30), ("bodies", 2400, 16)])
def test_windows_of_times_out_of_order_are_what_the_records_say(
    sql: Sql, topic: str, rows: int, queries: int
) -> None:
    """2400 records are in bodies and the head."""
    dice = random.Random(5)
    times = [number + dice.randrange(rows // 3) for number in range(rows)]
    produce(sql, topic, times, rows // 15)
    windows = [(0, 2 * rows // 3, rows), (0, -1, rows // 2)]
    windows += [
        (dice.choice((0, dice.randrange(rows))), dice.choice((-1, dice.randrange(rows))), dice.randrange(4 * rows // 3))
        for _ in range(queries)
    ]
    for first, least, most in windows:
        found = sql.rows(
            f'SELECT "$row_index" AS n FROM {topic} WHERE timestamp_ms <= {NOW_MS + most}'
            f' AND timestamp_ms >= {NOW_MS + least} AND "$row_index" >= {first} ORDER BY n'
        )
        assert [row["n"] for row in found] == [n for n in range(first, rows) if least <= times[n] <= most]


def test_an_upper_bound_leaves_out_what_an_earlier_query_has_read(sql: Sql) -> None:
    produce(sql, "rising", list(range(ROWS)))
    query = f"SELECT count(*) AS n FROM rising WHERE timestamp_ms < {NOW_MS + 4}"
    assert sql.explained(query)["rows_read"] == ROWS
    assert sql.explained(query)["rows_read"] < ROWS // 3
    assert sql.rows(query) == [{"n": 4}]
    assert sql.explained(f"SELECT key FROM rising WHERE timestamp_ms <= {NOW_MS - 1}")["rows_read"] == 0
    assert sql.rows(f"SELECT count(*) AS n FROM rising WHERE timestamp_ms + 0 <= {NOW_MS + 4}") == [{"n": 5}]
    produce(sql, "rising", [0])
    assert sql.rows(query) == [{"n": 5}]
