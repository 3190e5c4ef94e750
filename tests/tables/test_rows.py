"""Rows as records and back, what they weigh, and what is refused by field."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pqbroker.tables.refusals import TableError
from pqbroker.tables.rows import ERROR, TABLET_INDEX, decode_row, encode_row
from pqbroker.tables.schema import Schema, read_schema
from pqbroker.tables.types import TIMESTAMP_END, TYPES


def schema_of(**types: str) -> Schema:
    return read_schema([{"name": name, "type": kind} for name, kind in types.items()], 100)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    **{name: st.integers(*kind.bounds) for name, kind in TYPES.items() if kind.bounds},
    "double": st.floats(allow_nan=False, allow_infinity=False),
    "boolean": st.booleans(),
    "string": st.text(),
    "utf8": st.text(),
    "any": JSON,
    "timestamp": st.integers(0, TIMESTAMP_END - 1),
}


def test_every_type_has_values() -> None:
    assert VALUES.keys() == TYPES.keys()


@pytest.mark.spec("K.5")
@given(st.fixed_dictionaries({}, optional=VALUES), st.sets(st.sampled_from(sorted(TYPES))))
def test_a_row_reads_back_as_it_was_written(row: dict[str, Any], from_key: set[str]) -> None:
    items = [{"name": name, "type": name, "from": "key" if name in from_key else "value"} for name in TYPES]
    schema = read_schema(items, 100)
    encoded = encode_row(schema, row, "row")
    assert decode_row(schema, encoded.key, encoded.value) == {name: row.get(name) for name in TYPES}
    assert (encoded.key is None) == (not from_key)


@pytest.mark.spec("E.8")
def test_weights_are_one_a_row_eight_a_number_one_a_boolean_none_a_null_and_lengths() -> None:
    schema = schema_of(n="int8", d="double", t="timestamp", b="boolean", s="string", u="utf8", a="any")
    assert encode_row(schema, {}, "row").weight == 1
    assert encode_row(schema, {"s": "aaa"}, "row").weight == 1 + 3
    row = {"n": 1, "d": 0.5, "t": 1, "b": False, "s": {"base64": "/w=="}, "u": "ä", "a": {"x": 1}}
    assert encode_row(schema, row, "row").weight == 1 + 8 + 8 + 8 + 1 + 1 + 2 + 7


def test_bytes_that_are_no_text_are_base64_and_text_is_text() -> None:
    schema = schema_of(s="string")
    assert decode_row(schema, None, encode_row(schema, {"s": {"base64": "/w=="}}, "row").value) == {
        "s": {"base64": "/w=="}
    }
    assert decode_row(schema, None, encode_row(schema, {"s": {"base64": "YQ=="}}, "row").value) == {"s": "a"}


def test_a_row_may_name_its_tablet() -> None:
    assert encode_row(schema_of(a="int8"), {"a": 1, TABLET_INDEX: 4}, "row").tablet_index == 4
    assert encode_row(schema_of(a="int8"), {"a": 1}, "row").tablet_index is None


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("int8", 128), ("int8", -129), ("uint8", -1), ("uint64", 1 << 64), ("int64", 1 << 63), ("int8", 1.0),
        ("int8", True), ("int8", "1"), ("double", "1"), ("double", True), ("double", 10**400), ("double", math.inf),
        ("boolean", 1), ("utf8", 1), ("utf8", "\ud800"), ("utf8", {"base64": "YQ=="}), ("string", 1),
        ("string", {"base64": "Y"}), ("string", {"base64": "ä"}), ("string", {"base64": 1}), ("string", {"hex": "00"}),
        ("any", "\ud800"), ("timestamp", -1), ("timestamp", TIMESTAMP_END),
    ],
)  # fmt: skip
def test_a_value_of_another_type_is_refused_by_field(kind: str, value: Any) -> None:
    with pytest.raises(TableError) as refused:
        encode_row(schema_of(a=kind), {"a": value}, "body.rows[7]")
    assert refused.value.code == "INVALID_ROW"
    assert refused.value.message == f"body.rows[7].a is no {kind}"
    assert refused.value.cure.startswith("Give ")


@pytest.mark.parametrize(
    ("row", "word"),
    [
        ([], "no object"),
        ({"b": 1}, "'b'"),
        ({}, "row.a is missing"),
        ({"a": None}, "row.a is missing"),
        ({"a": 1, TABLET_INDEX: "x"}, TABLET_INDEX),
        ({"a": 1, TABLET_INDEX: True}, TABLET_INDEX),
    ],
)
def test_a_row_that_does_not_fit_is_refused(row: Any, word: str) -> None:
    schema = read_schema([{"name": "a", "type": "int8", "required": True}], 9)
    with pytest.raises(TableError) as refused:
        encode_row(schema, row, "row")
    assert word in refused.value.message


@pytest.mark.parametrize(
    "value", [b"x", b"[]", b"\xff", b'{"a":"x"}', b'{"a":300}', b"{}", None, b"[" * 100_000]
)
def test_a_record_of_another_producer_that_is_no_row_says_why(value: bytes | None) -> None:
    schema = read_schema([{"name": "a", "type": "int8", "required": True}, {"name": "b", "type": "any"}], 9)
    row = decode_row(schema, None, value)
    assert row.keys() == {"a", "b", ERROR}
    assert row["a"] is None
    assert row[ERROR]


def test_fields_that_the_schema_does_not_have_are_left_out() -> None:
    assert decode_row(schema_of(a="int8"), None, b'{"a":1,"z":2}') == {"a": 1}
