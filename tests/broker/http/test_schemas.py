import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from pqbroker.broker.web.routing.schemas import Schema, SchemaError, check, object_of, parse_json, parse_text
from pqbroker.broker.web.served import ROUTES

NAMES = st.sampled_from(["name", "partitions", "count", "records", "value", "key", "headers", "base64", "config", "x"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 1 << 64) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=12,
)
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
        parse_json(text.encode("latin-1"))


@given(JSON)
def test_json_is_read_as_it_is(value: object) -> None:
    assert parse_json(json.dumps(value).encode()) == value


@pytest.mark.parametrize("text", ["", "x", "1.5", "1_000", "-1"])
def test_a_count_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(SchemaError, match="limit"):
        parse_text(text, {"type": "integer", "minimum": 0}, "limit")


def test_many_fields_are_searched_for_a_repeated_one_in_no_time_and_named_in_short() -> None:
    fields = ",".join(f'"{number:09}": 0' for number in range(50_000))
    begun_s = time.process_time()
    with pytest.raises(SchemaError, match="'000049999' twice"):
        parse_json(f'{{{fields}, "000049999": 0}}'.encode())
    assert time.process_time() - begun_s < 2
    with pytest.raises(SchemaError) as refused:
        check({"x" * 1_000_000: 0}, object_of({}), "body")
    assert len(str(refused.value)) < 300
