"""Checks of records against a schema say what `decode_row` says, of any document."""

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pqbroker.tables.row_checks import RowCheck
from pqbroker.tables.rows import ERROR, decode_row, read_row
from pqbroker.tables.schema import Schema, read_schema
from pqbroker.tables.types import TIMESTAMP_END, TYPES

ALL = read_schema([{"name": name, "type": name} for name in TYPES], 100)
KEYED = read_schema(
    [
        {"name": "id", "type": "int64", "required": True, "from": "key"},
        {"name": "a b", "type": "utf8"},
        {"name": "class", "type": "any", "required": True},
    ],
    100,
)
_BOUNDS = sorted({bound + step for each in TYPES.values() for bound in each.bounds or () for step in (-1, 0, 1)})
VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.sampled_from(_BOUNDS), st.floats(), st.text(max_size=5),
    st.just({"base64": "/w=="}), st.just({"base64": "x"}), st.just([None, {"a": 1}]),
)  # fmt: skip
DOCUMENTS = st.dictionaries(st.sampled_from([*TYPES, "other"]), VALUES, max_size=4).map(
    lambda fields: json.dumps(fields).encode()
)


def told(schema: Schema, *records: tuple[bytes | None, bytes | None]) -> dict[int, str]:
    errors = RowCheck(schema).errors(records, len(records))
    decoded = {number: decode_row(schema, *record).get(ERROR) for number, record in enumerate(records)}
    assert errors == {number: error for number, error in decoded.items() if error is not None}
    return errors


@given(DOCUMENTS)
def test_a_document_is_a_row_where_decode_row_says_so(value: bytes) -> None:
    told(ALL, (None, value))


@given(st.binary(max_size=8), DOCUMENTS, st.integers(0, 40))
def test_so_is_a_damaged_one(garbage: bytes, value: bytes, at: int) -> None:
    told(ALL, (None, value[:at] + garbage + value[at + len(garbage) :]), (garbage, value), (None, None))


@given(DOCUMENTS)
@example(b'{"utf8":"\xc3\xbc","string":"\xe2\x82\xac"}')
@example(b'{"any":"text"}')
@example(b'{"any":null,"int64":1}')
@example(b'{"boolean":1}')
def test_a_record_weighs_what_its_row_does(value: bytes) -> None:
    assert list(RowCheck(ALL).weights([(None, value)])) == [read_row(ALL, None, value)[1]]


@pytest.mark.parametrize(
    "value",
    [
        b'{"int64":123456789012345678901234567890}', b'{"uint64":18446744073709551616}',
        b'{"uint64":9223372036854775808}',
        b'{"double":1e400}', b'{"double":NaN}', b'{"other":NaN}', b'{"other":"\xff"}',
        b'{"\xff":1}', b'{"utf8":"\\ud800"}',
        b'{"int8":"x","int8":1}', b'{"int8":1,"int8":"x"}', b'\xef\xbb\xbf{"int8":1}', b'{"int8":1} x', b"[1]", b"",
        b'{"int8":01}', b'{"int8":1.0}', b'{"any":1e400}', b'{"boolean":1}', b'{"timestamp":-1}',
        b'{"timestamp":%d}' % (TIMESTAMP_END - 1), b'{"timestamp":%d}' % TIMESTAMP_END,
        b'{"any":' + b"[" * 3000 + b"]" * 3000 + b"}",
    ],
)  # fmt: skip
def test_corners_of_json(value: bytes) -> None:
    told(ALL, (None, value))


def test_records_and_fields_are_named() -> None:
    records: list[tuple[Any, Any]] = [
        (b'{"id":1}', b'{"class":1}'), (None, b'{"class":1}'), (b'{"id":1}', b'{"class":null}'), (b'{"id":1}', None),
        (b'{"id":"1"}', b'{"class":1}'), (b'{"id":1}', b'{"class":1,"a b":2}'),
    ]  # fmt: skip
    assert told(KEYED, *records) == {
        1: "id is missing, or null",
        2: "class is missing, or null",
        3: "class is missing, or null",
        4: "id: give an integer",
        5: "a b: give a text",
    }
    assert list(RowCheck(KEYED).errors(records, 2)) == [1, 2]


def test_a_part_that_no_column_comes_from_may_hold_anything() -> None:
    assert told(ALL, (b"no JSON", b"{}")) == {}
    assert told(read_schema([{"name": "id", "type": "int8", "from": "key"}], 10), (b'{"id":1}', b"no JSON")) == {}
