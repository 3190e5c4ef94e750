"""Terms of a search, and records that match."""

from typing import Any

import pytest

from pqbroker.protocol.records import Record
from pqbroker.tables.search.terms import TERM_CHARACTERS_MAX, TERMS_MAX, TermsError, read_terms

RECORD = Record(4, 5, b"order-1", b'{"city": "Berlin"}', (("trace", b"ab1"), ("trace", b"ab2"), ("raw", b"\xff")))


@pytest.mark.parametrize(
    "terms",
    [
        {}, {"text": "Berlin"}, {"text": "order"}, {"text": "ab2"}, {"text": "BERLIN", "ignore_case": True},
        {"regex": "^order-\\d$"}, {"regex": "b[12]$"}, {"key": "order-1"}, {"headers": [{"key": "trace"}]},
        {"headers": [{"key": "trace", "value": "ab2"}, {"key": "raw", "value": {"base64": "/w=="}}]},
        {"where": ["city = Berlin"]}, {"text": "Berlin", "key": "order-1", "where": ["city contains er"]},
    ],
)  # fmt: skip
def test_a_record_matches(terms: Any) -> None:
    assert read_terms(terms).matcher().matches(RECORD)


@pytest.mark.parametrize(
    "terms",
    [
        {"text": "BERLIN"}, {"text": "trace"}, {"regex": "^erlin"}, {"key": "order"}, {"headers": [{"key": "Trace"}]},
        {"headers": [{"key": "trace", "value": "ab"}]}, {"where": ["city = Bern"]},
        {"text": "Berlin", "where": ["city = Bern"]}, {"text": "Berlin", "regex": "Bern"},
    ],
)  # fmt: skip
def test_a_record_does_not_match(terms: Any) -> None:
    assert not read_terms(terms).matcher().matches(RECORD)


@pytest.mark.parametrize(
    ("terms", "words"),
    [
        ({"text": ""}, "text is empty"),
        ({"text": "\ud800"}, "text is no text"),
        ({"regex": "("}, r"regex is '\('"),
        ({"regex": "(a{1000}){1000}"}, "regex is"),
        ({"regex": r"(a)\1"}, "regex is"),
        ({"key": {"base64": "!"}}, "key.base64"),
        ({"headers": [{"key": "\ud800"}]}, r"headers\[0\].key"),
        ({"where": ["a", "= 1"]}, r"where\[1\] is '= 1'; give PATH"),
        ({"text": "x" * (TERM_CHARACTERS_MAX + 1)}, "10001 characters"),
        ({"where": ["a"] * (TERMS_MAX + 1)}, "more than 100"),
    ],
)
def test_terms_that_are_none_are_refused_by_name(terms: Any, words: str) -> None:
    with pytest.raises(TermsError, match=words):
        read_terms(terms).matcher()
