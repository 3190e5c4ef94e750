"""Answers as JSON lines, CSV and Arrow."""

import csv
import io
import json
import math
from collections.abc import Collection
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow
import pyarrow.ipc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pqbroker.tables.types import show_string
from pqbroker.tables.work.refusal import QueryRefused
from pqbroker.tables.work.results import ROWS_AT_ONCE, WRITERS
from pqbroker.tables.work.shown_columns import as_shown


def written(format_: str, table: Any, documents: Collection[int] = ()) -> bytes:
    return b"".join(WRITERS[format_](table.schema, table.to_batches(), documents))


def json_rows(table: Any, documents: Collection[int] = ()) -> list[Any]:
    return [json.loads(line) for line in written("json", table, documents).splitlines()]


def test_json_has_numbers_text_and_base64_for_bytes_that_are_none() -> None:
    columns: dict[str, list[Any]] = {
        "large": [2**63 - 1, None], "unsigned": [2**64 - 1, 0], "text": ["ü\n", ""], "bytes": [b"\xff", "ü".encode()],
        "real": [1.5, float("nan")], "yes": [True, None], "sum": [Decimal(10) ** 30, Decimal("0.5")],
        "nested": [[{"key": "h", "value": b"\x80"}], []], "day": [date(2024, 1, 2), None],
        "at": [datetime(2024, 1, 2, 3, 4, 5, tzinfo=UTC), None],
    }  # fmt: skip
    types = {"unsigned": pyarrow.uint64(), "sum": pyarrow.decimal128(38, 1)}
    table = pyarrow.table({name: pyarrow.array(values, types.get(name)) for name, values in columns.items()})
    assert json_rows(table) == [
        {
            "large": 2**63 - 1, "unsigned": 2**64 - 1, "text": "ü\n", "bytes": {"base64": "/w=="}, "real": 1.5,
            "yes": True, "sum": 10**30, "nested": [{"key": "h", "value": {"base64": "gA=="}}], "day": "2024-01-02",
            "at": "2024-01-02T03:04:05+00:00",
        },
        {
            "large": None, "unsigned": 0, "text": "", "bytes": "ü", "real": None, "yes": None, "sum": 0.5,
            "nested": [], "day": None, "at": None,
        },
    ]  # fmt: skip


def test_documents_are_what_they_hold_in_json_and_text_in_csv() -> None:
    table = pyarrow.table({"a": ['{"x":[1]}', None, "broken"], "b": ["1", "2", "3"]})
    assert [row["a"] for row in json_rows(table, {0})] == [{"x": [1]}, None, "broken"]
    assert [row["b"] for row in json_rows(table, {0})] == ["1", "2", "3"]
    assert b'"{""x"":[1]}",1\n' in written("csv", table, {0})


def test_columns_of_one_name_stay_apart_in_json() -> None:
    table = pyarrow.Table.from_arrays([pyarrow.array([n]) for n in range(4)], names=["a", "a", "a_1", "a"])
    assert json_rows(table) == [{"a": 0, "a_1": 1, "a_1_1": 2, "a_2": 3}]


def test_many_rows_leave_in_pieces_and_none_is_lost() -> None:
    table = pyarrow.table({"n": list(range(2 * ROWS_AT_ONCE + 1))})
    assert len(list(WRITERS["json"](table.schema, table.to_batches(), ()))) == 3
    assert [row["n"] for row in json_rows(table)] == list(range(2 * ROWS_AT_ONCE + 1))


def test_csv_has_a_head_and_quotes_what_needs_it() -> None:
    table = pyarrow.table({"n": [1, None], "text": ['a "b",\nc', ""], "yes": [True, False], "list": [[1, 2], None]})
    text = written("csv", table).decode()
    assert list(csv.reader(io.StringIO(text))) == [
        ["n", "text", "yes", "list"], ["1", 'a "b",\nc', "true", "[1,2]"], ["", "", "false", ""],
    ]  # fmt: skip


def test_csv_without_rows_is_its_head() -> None:
    assert written("csv", pyarrow.table({"n": pyarrow.array([], pyarrow.int64())})) == b"n\n"


def test_arrow_is_a_stream_that_is_read_back_as_it_was() -> None:
    table = pyarrow.table({"n": [1, 2], "value": [b"\xff", None]})
    assert pyarrow.ipc.open_stream(written("arrow", table)).read_all() == table
    empty = table.slice(0, 0)
    assert pyarrow.ipc.open_stream(written("arrow", empty)).read_all().schema == table.schema


@pytest.mark.parametrize(
    "value",
    [
        "INTERVAL 1 DAY", "INTERVAL '14 months 3 days 04:05:06.7'", "INTERVAL (-14) MONTH", "INTERVAL (-90) SECOND",
        "INTERVAL 0 SECOND", "INTERVAL '1 year 100:00:00.000001'", "INTERVAL '2 days' - INTERVAL '3 hours'",
        "INTERVAL '-3000000 hours'", "[INTERVAL '3000000 hours']", "MAP {'a': INTERVAL 1 HOUR}",
        "{'a': INTERVAL 2 DAY}", "MAP {INTERVAL 1 DAY: 2}", "MAP {}", "MAP {7: {'x': MAP {'y': [1]}}}",
        "MAP {DATE '2024-01-02': true}",
        "MAP {true: NULL}", "MAP {1.0::DOUBLE: 1}", "NULL::MAP(VARCHAR, INT)", "MAP {'a\"b': '[1, \"x\"]'::JSON}",
        "['{\"a\": null}'::JSON, NULL]", "{'d': '1e2'::JSON}", "union_value(k := 1)", "[union_value(k := [1])]",
        "'101'::BIT", "TIMETZ '03:04:05+02'", "['-12345678901234567890123456789012345678901'::BIGNUM]",
    ],
)  # fmt: skip
def test_intervals_maps_and_what_arrow_loses_are_as_in_duckdbs_own_json(value: str) -> None:
    with duckdb.connect() as connection:
        relation, documents = as_shown(connection.sql(f"SELECT {value} AS v, to_json({value})::VARCHAR AS expected"))
        table = relation.to_arrow_table()
    (row,) = json_rows(table, documents)
    expected = row["expected"]
    assert row["v"] == (None if expected is None else json.loads(expected))
    cell = next(csv.reader(io.StringIO(written("csv", table.select(["v"])).decode().splitlines()[1])), [])
    if isinstance(row["v"], str):
        assert cell == [row["v"]]


@pytest.mark.parametrize("digits", ["12345678901234567890123456789.1234", "-0.05", "100", "0", "1.5"])
def test_a_decimal_has_every_digit_and_no_zeros_behind_them(digits: str) -> None:
    table = pyarrow.table({"d": pyarrow.array([Decimal(digits)], pyarrow.decimal128(38, 4))})
    assert written("json", table) == f'{{"d":{digits}}}\n'.encode()


def test_documents_have_null_for_what_json_has_no_number_for() -> None:
    with duckdb.connect() as connection:
        relation, documents = as_shown(connection.sql("SELECT {'n': 'NaN'::DOUBLE, 'i': INTERVAL 1 DAY} AS s, 1 AS s"))
        table = relation.to_arrow_table()
    assert json_rows(table, documents) == [{"s": {"n": None, "i": "1 day"}, "s_1": 1}]


@pytest.mark.parametrize("format_", ["json", "csv"])
@pytest.mark.parametrize("value", ["DATE 'infinity'", "[DATE '0044-03-15 (BC)']", "TIMESTAMP '290000-01-01 00:00:00'"])
def test_a_time_that_has_no_form_is_refused_by_the_name_of_its_column(format_: str, value: str) -> None:
    with duckdb.connect() as connection:
        table = connection.sql(f'SELECT 1 AS n, {value} AS "when"').to_arrow_table()
    with pytest.raises(QueryRefused, match="column 'when' has a date or time before year 1") as refused:
        written(format_, table)
    assert '"when"::VARCHAR' in refused.value.cure


@pytest.mark.parametrize("format_", ["json", "csv"])
def test_nanoseconds_are_shown_to_the_last_digit(format_: str) -> None:
    table = pyarrow.table({"at": pyarrow.array([1_700_000_000_123_456_789, None], pyarrow.timestamp("ns"))})
    assert b"2023-11-14T22:13:20.123456789" in written(format_, table)


def test_a_map_is_an_object() -> None:
    query = """SELECT MAP {'a': 1, 'b': NULL} AS texts, MAP {7: {'x': MAP {'y': [1]}}} AS numbers,
        MAP {DATE '2024-01-02': true} AS days, [MAP {'k': 2.5::DOUBLE}] AS listed, NULL::MAP(VARCHAR, INT) AS none"""
    with duckdb.connect() as connection:
        table = connection.sql(query).to_arrow_table()
    assert json_rows(table) == [
        {
            "texts": {"a": 1, "b": None}, "numbers": {"7": {"x": {"y": [1]}}}, "days": {"2024-01-02": True},
            "listed": [{"k": 2.5}], "none": None,
        }
    ]  # fmt: skip
    assert '"{""a"":1,""b"":null}"' in written("csv", table).decode()


CELLS = st.fixed_dictionaries(
    {
        "n": st.none() | st.integers(-(1 << 63), (1 << 63) - 1), "d": st.none() | st.floats(allow_nan=False),
        "t": st.none() | st.text(st.characters(exclude_categories=["Cs"])), "y": st.none() | st.booleans(),
        "b": st.none() | st.binary(max_size=4),
    }
)  # fmt: skip
TYPES = {
    "n": pyarrow.int64(), "d": pyarrow.float64(), "t": pyarrow.string(), "y": pyarrow.bool_(), "b": pyarrow.binary(),
}  # fmt: skip


@given(st.lists(CELLS, max_size=6), st.integers(0, 2))
def test_rows_are_what_python_would_write(rows: list[dict[str, Any]], skipped: int) -> None:
    table = pyarrow.table({name: pyarrow.array([row[name] for row in rows], kind) for name, kind in TYPES.items()})
    expected = []
    for row in rows[skipped:]:
        shown = dict(row)
        if row["d"] is not None and not math.isfinite(row["d"]):
            shown["d"] = None
        if row["b"] is not None:
            shown["b"] = show_string(row["b"])
        expected.append(shown)
    found = json_rows(table.slice(skipped))
    assert found == expected
    assert [type(row["d"]) for row in found] == [type(row["d"]) for row in expected]
