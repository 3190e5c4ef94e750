import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from pqbroker.broker.web.routing.schemas import (
    NESTING_MAX,
    Schema,
    SchemaError,
    TooManyObjects,
    check,
    object_of,
    parse_json,
    parse_json_lines,
    parse_text,
)
from pqbroker.broker.web.served import ROUTES

NAMES = st.sampled_from(["name", "partitions", "count", "records", "value", "key", "headers", "base64", "config", "x"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 1 << 64) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=12,
)
MANY = 1_000_000
BODIES = [route.body for route in ROUTES if route.body is not None]


@given(schema=st.sampled_from(BODIES), value=JSON)
def test_bodies_are_judged_as_a_json_schema_validator_judges_them(schema: Schema, value: object) -> None:
    try:
        check(value, schema, "body")
    except SchemaError:
        accepted = False
    else:
        accepted = True
    assert accepted == Draft202012Validator(dict(schema)).is_valid(value)


@pytest.mark.parametrize(
    "text", ["", "{", "nonsense", '{"a": NaN}', '{"a": 1, "a": 2}', "[" * 100_000, "9" * 5000, '"\xff"']
)
def test_what_is_no_json_is_refused(text: str) -> None:
    with pytest.raises(SchemaError, match="body"):
        parse_json(text.encode("latin-1"), MANY)


@given(JSON)
def test_json_is_read_as_it_is(value: object) -> None:
    assert parse_json(json.dumps(value).encode(), MANY) == value


@pytest.mark.parametrize("text", ["", "x", "1.5", "1_000", "-1"])
def test_a_count_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(SchemaError, match="limit"):
        parse_text(text, {"type": "integer", "minimum": 0}, "limit")


def test_many_fields_are_searched_for_a_repeated_one_in_no_time_and_named_in_short() -> None:
    fields = ",".join(f'"{number:09}": 0' for number in range(50_000))
    begun_s = time.process_time()
    with pytest.raises(SchemaError, match="'000049999' twice"):
        parse_json(f'{{{fields}, "000049999": 0}}'.encode(), MANY)
    assert time.process_time() - begun_s < 2
    with pytest.raises(SchemaError) as refused:
        check({"x" * 1_000_000: 0}, object_of({}), "body")
    assert len(str(refused.value)) < 300


HOSTILE = st.recursive(
    st.integers() | st.text("[]{}\\\"é", max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("[{\\\"", max_size=3), inner, max_size=3),
    max_leaves=20,
)


def count(value: object) -> int:
    """Objects and arrays."""
    if isinstance(value, dict):
        return 1 + sum(map(count, value.values()))
    return 1 + sum(map(count, value)) if isinstance(value, list) else 0


@given(value=HOSTILE, encoding=st.sampled_from(["utf-8", "utf-16-le"]), is_ascii=st.booleans())
def test_objects_and_arrays_are_counted_and_not_what_texts_hold(value: object, encoding: str, is_ascii: bool) -> None:
    body, most = json.dumps(value, ensure_ascii=is_ascii).encode(encoding), count(value)
    assert parse_json(body, most) == value
    if most:
        with pytest.raises(TooManyObjects, match=f"pqbroker.http.body.objects.max = {most - 1}"):
            parse_json(body, most - 1)


@given(values=st.lists(HOSTILE, max_size=5), ends=st.sampled_from(["\n", "\r\n", "\n\n", " \n \n"]))
def test_objects_of_all_lines_count_together(values: list[object], ends: str) -> None:
    body, most = "".join(json.dumps(value) + ends for value in values).encode(), sum(map(count, values))
    assert list(parse_json_lines(body, most)) == values
    if most:
        with pytest.raises(TooManyObjects):
            next(parse_json_lines(body, most - 1))


def test_a_line_is_parsed_when_it_is_asked_for_and_an_error_names_it() -> None:
    lines = parse_json_lines(b'1\n\r\n"\xe2\x80\xa8"\n{\n', MANY)
    assert [next(lines), next(lines)] == [1, "\u2028"]
    with pytest.raises(SchemaError, match="line 4: the body is no JSON"):
        next(lines)


def test_objects_and_arrays_lie_within_one_another_up_to_a_limit() -> None:
    for opened, closed in (("[", "]"), ('{"a":', "}")):
        most = parse_json((opened * NESTING_MAX + "1" + closed * NESTING_MAX).encode(), MANY)
        check(most, {}, "body")
        with pytest.raises(SchemaError, match=f"is nested too deeply; at most {NESTING_MAX}"):
            check([most], {}, "body")


def test_a_place_is_named_from_the_outside_in() -> None:
    schema = {"properties": {"rows": {"items": {"additionalProperties": {"type": ["integer", "null"]}}}}}
    for value, told in (({"a": "x"}, "body.rows[1].a is string; give integer or null"), ({"b" * 200: []}, "b" * 100)):
        with pytest.raises(SchemaError) as refused:
            check({"rows": [{}, value]}, schema, "body")
        assert str(refused.value).startswith(told if told.startswith("body") else f"body.rows[1].{told} is array")
