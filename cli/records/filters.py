"""Filters of `consume`: terms that a record meets, by the rules with which brokers search (`tables/search`)."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pqbroker.cli.records.formats import ReadRecord
from pqbroker.cli.refusals import WrongInput
from pqbroker.tables.search.terms import TermsError, read_terms

Filter = Callable[[ReadRecord], bool]
TermsDocument = Mapping[str, Any]
"""Terms as `POST /v1/topics/NAME/search` takes them; empty: all records match."""

_OPTIONS = {"text": "--grep", "regex": "--grep", "key": "--key", "headers": "--header", "where": "--where"}


def terms_of(
    pattern: str | None, conditions: Sequence[str] | None, key: str | None, headers: Sequence[str] | None
) -> TermsDocument:
    """Return the terms that options say; WrongInput names the option that says none."""
    terms: dict[str, Any] = {}
    if pattern is not None:
        terms |= _grep(pattern)
    if conditions:
        terms["where"] = list(conditions)
    if key is not None:
        terms["key"] = key
    if headers:
        terms["headers"] = [_header(each) for each in headers]
    filters_of(terms)
    return terms


def filters_of(terms: TermsDocument) -> list[Filter]:
    """Return the filters that leave the records that match; none for terms that all records meet. WrongInput."""
    if not terms:
        return []
    try:
        return [read_terms(terms).matcher().matches]
    except TermsError as wrong:
        raise WrongInput(f"{_OPTIONS[wrong.term]}: {wrong}") from None


def _grep(pattern: str) -> dict[str, Any]:
    """/REGEX/, /REGEX/i, or a text."""
    for ending, ignores in (("/", False), ("/i", True)):
        if pattern.startswith("/") and pattern.endswith(ending) and len(pattern) > len(ending) + 1:
            return {"regex": pattern[1 : -len(ending)], **({"ignore_case": True} if ignores else {})}
    return {"text": pattern}


def _header(text: str) -> dict[str, str]:
    name, sign, value = text.partition("=")
    return {"key": name, "value": value} if sign else {"key": name}
