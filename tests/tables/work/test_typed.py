"""Typed columns: what DuckDB's JSON functions make of documents is what the rules say, of rows and of what is none."""

import json
from base64 import b64decode
from typing import Any

import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pqbroker.tables.rows import ERROR, decode_row, encode_row
from pqbroker.tables.schema import Schema, read_schema
from pqbroker.tables.types import TIMESTAMP_END, TYPES
from pqbroker.tables.work import typed
from pqbroker.tables.work.typed import TypedColumns
from pqbroker.tables.work.views import view_of

PLAIN: list[dict[str, Any]] = [
    {"name": "id", "type": "int8", "required": True}, {"name": "u", "type": "uint64"}, {"name": "d", "type": "double"},
    {"name": "b", "type": "boolean"}, {"name": "s", "type": "string"}, {"name": "t", "type": "utf8"},
    {"name": "at", "type": "timestamp"},
]  # fmt: skip
WITH_ANY = [*PLAIN, {"name": "any", "type": "any"}]
WITH_KEY = [*PLAIN, {"name": "k", "type": "int64", "required": True, "from": "key"}]
NUMBERS = st.integers(-130, 130) | st.integers(0, 1 << 64) | st.floats(width=32) | st.just(TIMESTAMP_END)
NESTED = st.sampled_from([[], {}, {"base64": "/w=="}, [[1]]])
VALUES = st.none() | st.booleans() | NUMBERS | st.text(max_size=3) | NESTED
NAMES = [column["name"] for column in WITH_KEY] + ["any", "other"]
DOCUMENTS = st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=5).map(lambda each: json.dumps(each).encode())
GOOD = st.builds(
    lambda number, text: json.dumps({"id": number, "t": text, "u": 1 << 63, "d": 0.1, "at": 5, "k": 7}).encode(),
    st.integers(-128, 127),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=3),
)
ODD = (
    b"", b"null", b"[]", b"1", b"{}{}", b'{"id":1}{"id":1}', b'{"id":1},{"value":{"id":1}', b"{", b'{"id":', b"1}\n",
    b'{"id":NaN}', b'{"id":1,"d":NaN}', b'{"id":1,"d":-Infinity}', b'{"id":1,"d":1e400}', b'{"id":1.0}', b'{"id":1e1}',
    b'{"id":1,"id":2}', b'{"id":1,"t":"\xff"}', b'{"id":1,"t":"\\ud800"}', b'{"id":1,"x":"\xff"}', b' {"id":\n 1}\r\n',
    b'{"id":-0}', b'{"id":1,"s":{"base64":"/w=="}}', b'{"id":1,"s":"\\u0000"}', '{"id":1}'.encode("utf-16"),
    b'\xef\xbb\xbf{"id":1}', None, b'{"id":1}}\n{"value":{"id":2}',
    b'{"id":1,}', b'{"id":1 ,\n}', b'{"id":1,"x":[1,]}', b'{"id":1,"x":[1 , ]}', b'{"id":nan}', b'{"id":1,"d":inf}',
    b'{"id":1,"x":nan}', b'{"id":1,"x":[-Infinity]}', b'{"id":1,"x":[ infinity ]}', b'{"id" :1, "id"\t:2}',
    b'{"id":1,"x":2,"x":3}', b'{"x":2,"id":1,"y":{"id":3,"id":4}}', b'{"\\u0069d":1,"id":2}', b'{"\\u0069d":1}',
    b'{"id":1,"t":"\\"id\\":5"}', b'{"id":1,"t":"\\u0000\\n\\u00e9\\\\"}', b'{"id":1,"d":1e-400}', b'{"id":1,"d":-0}',
    b'{"id":1,"d":1%b}' % (b"0" * 400), b'{"id":1,"d":9%b}' % (b"0" * 5000), b'{"id":1%b}' % (b"0" * 5000),
    b'{"id":1,"d":0.1000000000000000055511151231257827021181583404541015625}', b'{"id":1,"x":9%b}' % (b"0" * 5000),
    b'{"id":1,"d":123456789012345678901234567890}', b'{"id":1,"u":18446744073709551616}', b'{"id":1,"u":-1}',
    b'{"id":1,"x":%b%b}' % (b"[" * 5000, b"]" * 5000), b'{"id":1,"any":%b%b}' % (b"[" * 5000, b"]" * 5000),
    b'{"id":1,"any":{"a":1,"a":2.50,"b":[null,1e5]}}', b'{"id":1,"any":nan}', b'{"id":1,"any":"null"}', b'"id"',
    b'{"id":null}', b'{"id":1,"b":"true","t":5}', b'{"id":"1"}', b'{"id":true}', b'{"id":[1]}', b'{"id":1,"t":"null"}',
    b'{"id":1,"s":"\xc3\xa9"}', b'{"id":1,"t":"\xed\xa0\x80"}', b'{"id":1} x', b'{"id":+1}', b'{"id":1,"d":.5}',
    b'{"id":1,/**/"d":5}', b'{"id":1,"t":"a\tb"}', b"{'id':1}", b'{"id":1,"at":-1}', b'{"id":300}', b'{"id":01}',
)  # fmt: skip
"""Documents at whose edges two parsers may differ."""


def expected(schema: list[dict[str, Any]], key: bytes | None, value: bytes | None) -> dict[str, Any]:
    """A row as Arrow would hand it over."""
    row = decode_row(read_schema(schema, len(schema)), key, value)
    for column in schema:
        stored = row[column["name"]]
        if stored is None:
            continue
        if column["type"] == "string":
            row[column["name"]] = b64decode(stored["base64"]) if isinstance(stored, dict) else stored.encode()
        elif column["type"] == "any":
            row[column["name"]] = json.dumps(stored, ensure_ascii=False, separators=(",", ":"))
    return {ERROR: None, **row}


def parts_of(keys: list[bytes | None], values: list[bytes | None]) -> dict[str, Any]:
    return {"key": pyarrow.array(keys, pyarrow.binary()), "value": pyarrow.array(values, pyarrow.binary())}


def made(schema: list[dict[str, Any]], keys: list[bytes | None], values: list[bytes | None]) -> list[dict[str, Any]]:
    arrays = TypedColumns(read_schema(schema, len(schema))).make(parts_of(keys, values))
    columns = {name: array.to_pylist() for name, array in arrays.items()}
    for column in schema:
        if column["type"] == "timestamp":
            columns[column["name"]] = arrays[column["name"]].cast("int64").to_pylist()
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


@pytest.mark.parametrize("schema", [PLAIN, WITH_ANY, WITH_KEY], ids=["plain", "any", "key"])
@given(st.lists(st.tuples(DOCUMENTS | GOOD, st.one_of(DOCUMENTS, GOOD, st.sampled_from(ODD))), max_size=5))
def test_columns_are_what_the_rules_say(
    schema: list[dict[str, Any]], records: list[tuple[bytes, bytes | None]]
) -> None:
    keys: list[bytes | None] = [key for key, _ in records]
    values = [value for _, value in records]
    assert made(schema, keys, values) == [expected(schema, *each) for each in zip(keys, values, strict=True)]


@pytest.mark.parametrize("value", ODD, ids=range(len(ODD)))
@pytest.mark.parametrize("beside", [b'{"id":5}', b"{}"])
def test_an_odd_document_is_alone_in_its_row(value: bytes | None, beside: bytes) -> None:
    values = [beside, value, beside]
    for schema in (PLAIN, WITH_ANY):
        assert made(schema, [None] * 3, values) == [expected(schema, None, each) for each in values]


@pytest.mark.parametrize("name", ["0", "#", "-", "~", "~1", "/", "a/b", "*", ".", '"', "'", "[0]", " ", "é"])
def test_any_name_is_that_field(name: str) -> None:
    schema: list[dict[str, Any]] = [{"name": name, "type": "int64"}, {"name": "other", "type": "utf8"}]
    values = [json.dumps(each).encode() for each in ({name: 5}, {"other": "x"}, {name: 1, "other": "y"}, {name: "z"})]
    assert made(schema, [None] * 4, list(values)) == [expected(schema, None, each) for each in values]


def test_documents_that_duckdb_refuses_leave_the_others_to_it() -> None:
    values = [b'{"id":1,"t":"a"}', b"{", b'{"id":2,"more":[1]}', b'{"id":3} 4', b"\xff", b'{"id":7}'] * 50
    read: list[Any] = []

    def decode(schema: Schema, key: bytes | None, value: bytes | None) -> dict[str, Any]:
        read.append(value)
        return decode_row(schema, key, value)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(typed, "decode_row", decode)
        rows = made(PLAIN, [None] * len(values), list(values))
    assert rows == [expected(PLAIN, None, each) for each in values]
    assert set(read) == {b"{", b'{"id":3} 4', b"\xff"}


def test_a_null_is_no_row_where_no_column_is_required() -> None:
    schema = [{"name": "a", "type": "int64"}]
    values = [b"{}", b"null", b'{"a":1}']
    rows = made(schema, [None] * 3, list(values))
    assert rows == [expected(schema, None, each) for each in values]
    assert [row[ERROR] is None for row in rows] == [True, False, True]


@pytest.mark.parametrize("number", [-1, 0, TIMESTAMP_END - 1, TIMESTAMP_END])
def test_a_timestamp_outside_its_range_is_alone_in_its_row(number: int) -> None:
    values = [b'{"id":1,"at":%d}' % each for each in (5, number, 7)]
    rows = made(PLAIN, [None] * 3, list(values))
    assert rows == [expected(PLAIN, None, each) for each in values]
    assert [row[ERROR] is None for row in rows] == [True, 0 <= number < TIMESTAMP_END, True]


@given(st.lists(GOOD, min_size=1, max_size=5))
def test_rows_that_fit_are_not_read_one_by_one(values: list[bytes]) -> None:
    columns = TypedColumns(read_schema(WITH_KEY, len(WITH_KEY)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(typed, "decode_row", None)
        columns.make(parts_of(list(values), list(values)))


def test_what_is_inserted_is_what_is_read() -> None:
    schema = read_schema(WITH_KEY, len(WITH_KEY))
    row = {"id": -1, "u": 2**64 - 1, "d": -0.5, "b": False, "s": {"base64": "/w=="}, "t": "ü", "at": 1, "k": 2**62}
    encoded = encode_row(schema, row, "row")
    (read,) = made(WITH_KEY, [encoded.key], [encoded.value])
    assert read == {**row, "s": b"\xff", ERROR: None}


def test_every_type_has_an_arrow_type() -> None:
    columns = [{"name": name, "type": name} for name in TYPES]
    assert list(TypedColumns(read_schema(columns, len(columns))).types) == [*TYPES, ERROR]


def test_a_star_is_the_schema_and_a_column_of_the_schema_hides_the_records() -> None:
    view = view_of([{"name": "Id", "type": "int64"}, {"name": "value", "type": "utf8"}], {})
    assert view.columns((), has_star=True) == ("$tablet_index", "$row_index", "Id", "value")
    assert view.columns(("key", "id", ERROR), has_star=False) == ("Id", "key", ERROR)
    assert view.is_typed("value")
    assert not view.is_typed("key")
    assert [name for name in view.types if name == "value"] == ["value"]


def test_a_raw_value_that_is_json_is_no_document() -> None:
    columns = TypedColumns(read_schema([{"name": "all", "type": "utf8"}], 1, {"value.format": "raw"}))
    for values in ([b'{"all":"x"}'], [b"{}", None]):
        made = columns.make(parts_of([None] * len(values), list(values)))
        assert made["all"].to_pylist() == [None if value is None else value.decode() for value in values]
