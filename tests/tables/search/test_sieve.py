"""A sieve lets each record through that matches, whatever the other records of its batch hold."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from pqbroker.protocol.expression_engine import compile_search
from pqbroker.protocol.records import Record, encode_batch, read_header
from pqbroker.tables.search.batch_search import candidates, unpack
from pqbroker.tables.search.sieve import sieve_of
from pqbroker.tables.search.terms import SearchTerms, read_terms

_WORDS = some.sampled_from(["a", "ab", "Berlin", "BERLIN", "é", "e\u0301", "\U0001f600", '"', "\\", "/", "7", "70", ""])
_TEXTS = some.lists(_WORDS, max_size=4).map("".join)
_NUMBERS = some.one_of(some.integers(-80, 80), some.sampled_from([7.0, 70e-1, 6.999999999999999999, 1e400, -0.0]))
_VALUES = some.recursive(
    some.one_of(_TEXTS, _NUMBERS, some.booleans(), some.none()),
    lambda inner: some.one_of(some.lists(inner, max_size=3), some.dictionaries(_TEXTS, inner, max_size=3)),
    max_leaves=6,
)
_JSON = some.builds(
    lambda value, is_ascii: json.dumps({"ab": value, "é": value}, ensure_ascii=is_ascii).encode(), _VALUES,
    some.booleans(),
)  # fmt: skip
_RAW_JSON = some.sampled_from(
    [b'{"ab":70e-1}', b'[{"ab":7}]', b'{"ab":[70E-1]}', b'{"ab":0.7e1 }',
     b'{"ab":7.0}', b'{"\\u0061b":"\\u0037"}', b'{"ab":"a\\/b"}']
)  # fmt: skip
_CONTENTS = some.one_of(some.none(), _TEXTS.map(str.encode), some.binary(max_size=5), _JSON, _RAW_JSON)
_RECORDS = some.lists(
    some.builds(
        lambda key, value, headers: Record(0, 5, key, value, tuple(headers)),
        _CONTENTS, _CONTENTS, some.lists(some.tuples(_TEXTS, _CONTENTS), max_size=2),
    ),
    min_size=1, max_size=6,
)  # fmt: skip
_CONDITIONS = some.builds(
    lambda path, sign, wanted: f"{path} {sign} {wanted}",
    some.sampled_from(["ab", "é", "ab[0]", "ab.ab"]), some.sampled_from(["=", "!=", "<", "contains"]),
    some.one_of(_TEXTS.filter(bool), _VALUES.map(json.dumps)),
)  # fmt: skip
_TERMS = some.fixed_dictionaries(
    {},
    optional={
        "text": _TEXTS.filter(bool), "ignore_case": some.booleans(), "key": _TEXTS,
        "regex": some.sampled_from(["a.*b", "^a", "b$", "[^a]b", r"\bab\b", "(?i)berlin", "a|7", ".*", r"\[^a", "é+"]),
        "headers": some.lists(some.fixed_dictionaries({"key": _TEXTS}, optional={"value": _TEXTS}), max_size=1),
        "where": some.lists(_CONDITIONS, max_size=2),
    },
)  # fmt: skip


@given(_RECORDS, _TERMS, some.sampled_from([0, 3, 4]))
def test_a_sieve_lets_each_record_through_that_matches(records: list[Record], terms: Any, codec: int) -> None:
    wanted = read_terms(terms)
    matches = wanted.matcher().matches
    run = bytes(encode_batch(records, codec=codec, base_offset=9))
    header = read_header(run)
    found = [
        record.offset
        for record in candidates(unpack(run, 0, header, 1 << 20), header, sieve_of(wanted))
        if matches(record)
    ]
    assert found == [9 + index for index, record in enumerate(records) if matches(record)]


@pytest.mark.parametrize(
    "terms",
    [
        {"text": "needle"}, {"key": "needle"}, {"where": ["id = needle"]}, {"regex": "need[^x]e"},
        {"text": "NEEDLE", "ignore_case": True}, {"headers": [{"key": "x", "value": "needle"}]},
        {"where": ["name contains needle"]}, {"where": ["id = 1234567"]}, {"where": ["needle > 5"]},
        {"where": ["uuid = needle", "uuid"]},
    ],
)  # fmt: skip
def test_a_sieve_keeps_records_that_lack_what_is_sought(terms: Any) -> None:
    sieve = sieve_of(read_terms(terms))
    assert sieve is not None
    record = b'{"name": "x", "id": 5, "uuid": "3e5a7E4"}'
    assert sieve(record, 0, len(record)) == -1
    assert sieve(b'{"needle": 1234567}', 0, 19) >= 0


def test_a_search_for_all_records_has_no_sieve() -> None:
    assert sieve_of(SearchTerms()) is None
    assert sieve_of(SearchTerms(expression=b"^a")) is None


@pytest.mark.parametrize(
    ("terms", "decoded", "has_sieve"),
    [
        ({"text": "x1"}, ["value"], False), ({"text": "x1"}, ["key"], False), ({"regex": "x1"}, ["value"], False),
        ({"where": ["a = x1"]}, ["value"], False), ({"where": ["a = x1"]}, ["key"], True),
        ({"key": "x1"}, ["value"], True), ({"key": "x1"}, ["key"], False),
        ({"text": "longer", "key": "x1"}, ["value"], True),
        ({"text": "y", "headers": [{"key": "x1"}]}, ["key", "value"], True),
    ],
)  # fmt: skip
def test_a_sieve_looks_at_no_bytes_that_a_schema_decodes(terms: Any, decoded: list[str], has_sieve: bool) -> None:
    sieve = sieve_of(read_terms(terms), decoded)
    assert (sieve is not None) == has_sieve
    if sieve is not None:
        assert sieve(b"..x1", 0, 4) == 2


def test_an_expression_is_sought_between_two_positions() -> None:
    find = compile_search(b"b+")
    assert (find(b"abbab", 0, 5), find(b"abbab", 3, 5), find(b"abbab", 3, 4)) == (1, 4, -1)


@pytest.mark.parametrize(
    ("condition", "value"),
    [
        ("ab = 75", b'{"ab":0.00075e5}'), ("ab = 75", b'{"ab": 7.5E+1 }'), ("ab contains 75", b'{"ab":[75]}'),
        ("ab = 7", b'{"ab":6.99999999999999999999}'), ("ab = 7", b'{"ab":"\\u0037"}'),
        ("ab = Bern", b'{"ab":"B\\u0065rn"}'), ("ab contains Bern", b'{"ab":["B\\u0065rn"]}'),
        ("abc", b'{"\\u0061bc":1}'), ("ab = a/bc", b'{"ab":"a\\/bc"}'),
    ],
)  # fmt: skip
def test_a_sieve_lets_json_through_however_it_is_written(condition: str, value: bytes) -> None:
    wanted = read_terms({"where": [condition]})
    assert wanted.matcher().matches(Record(value=value))
    sieve = sieve_of(wanted)
    assert sieve is not None
    assert sieve(value, 0, len(value)) >= 0
