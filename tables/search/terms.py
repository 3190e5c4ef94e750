"""Terms of a search, all of which a record meets to match.

    text        bytes in the key, the value or the value of a header
    expression  a regular expression (RE2) that is found in one of these
    key         the key as a whole
    headers     a header of that name, with that value where one is given
    where       conditions on the value, which is JSON

A record that a registry's schemas decode is matched as decoded: `tables/work/decoding.py` makes one of it.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from pqbroker.protocol.expression_engine import FindFirst, compile_search, quote
from pqbroker.protocol.record_json import read_content, read_text
from pqbroker.tables.search.conditions import JsonCondition, parse_condition, parse_json

TERM_CHARACTERS_MAX: Final = 10_000
"""Characters of a text, an expression, a key, a header or a condition at most."""
TERMS_MAX: Final = 100
"""Headers and conditions of one search at most."""

_FIELD: Final = re.compile(r"[^a-z_]")

class SearchedRecord(Protocol):
    """A record that may match."""

    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def headers(self) -> Sequence[tuple[str, bytes | None]]: ...


class TermsError(ValueError):
    """Terms that are none; the text names the term and the right form. `term`: the field that has it."""

    @property
    def term(self) -> str:
        return _FIELD.split(str(self), maxsplit=1)[0]


@dataclass(frozen=True, slots=True)
class HeaderTerm:
    """A header of a name; `content` None: with any value."""

    name: str
    content: bytes | None = None


@dataclass(frozen=True, slots=True)
class SearchTerms:
    """The terms of one search. `ignore_case` is for `text` and `expression`."""

    text: bytes | None = None
    expression: bytes | None = None
    ignore_case: bool = False
    key: bytes | None = None
    headers: tuple[HeaderTerm, ...] = ()
    where: tuple[JsonCondition, ...] = ()

    def matcher(self) -> "Matcher":
        """Return the matcher of these terms. TermsError for an expression that is none."""
        return Matcher(self)


class Matcher:
    """Decides which records match."""

    def __init__(self, terms: SearchTerms) -> None:
        self._terms = terms
        self._finds = tuple(finds_of(terms))

    def matches(self, record: SearchedRecord) -> bool:
        terms = self._terms
        if terms.key is not None and record.key != terms.key:
            return False
        if terms.headers and not all(_has_header(record, each) for each in terms.headers):
            return False
        if not all(_is_found(find, record) for find in self._finds):
            return False
        if not terms.where:
            return True
        value = parse_json(record.value)
        return all(condition.holds(value) for condition in terms.where)


def finds_of(terms: SearchTerms) -> Iterator[FindFirst]:
    """Yield what finds text and expression in bytes. TermsError."""
    if terms.text is not None:
        yield compile_search(quote(terms.text), ignore_case=True) if terms.ignore_case else find_bytes(terms.text)
    if terms.expression is not None:
        try:
            yield compile_search(terms.expression, ignore_case=terms.ignore_case)
        except ValueError as wrong:
            shown = terms.expression.decode(errors="replace")[:100]
            raise TermsError(f"regex is {shown!r}, which is no regular expression of RE2: {wrong}") from None


def find_bytes(needle: bytes) -> FindFirst:
    """Return what finds these bytes in bytes."""

    def find(data: Any, start: int, end: int) -> int:
        found: int = data.find(needle, start, end)
        return found

    return find


def read_terms(document: Mapping[str, Any]) -> SearchTerms:
    """Return the terms that a JSON object names: text, regex, ignore_case, key, headers, where. TermsError."""
    if len(document.get("headers", ())) + len(document.get("where", ())) > TERMS_MAX:
        raise TermsError(f"headers and where have more than {TERMS_MAX} items; give fewer")
    return SearchTerms(
        _bytes(document, "text"),
        _bytes(document, "regex"),
        document.get("ignore_case", False),
        _key(document),
        tuple(_read_header(each, f"headers[{at}]") for at, each in enumerate(document.get("headers", ()))),
        tuple(_read_condition(each, f"where[{at}]") for at, each in enumerate(document.get("where", ()))),
    )


def _bytes(document: Mapping[str, Any], name: str) -> bytes | None:
    given = document.get(name)
    if given is None:
        return None
    if not given:
        raise TermsError(f"{name} is empty; give what is looked for, or leave it out")
    _check_length(given, name)
    return _encoded(given, name)


def _key(document: Mapping[str, Any]) -> bytes | None:
    given = document.get("key")
    if isinstance(given, str):
        _check_length(given, "key")
    try:
        return read_content(given, "key")
    except ValueError as wrong:
        raise TermsError(str(wrong)) from None


def _read_header(given: Mapping[str, Any], where: str) -> HeaderTerm:
    _check_length(given["key"], f"{where}.key")
    _encoded(given["key"], f"{where}.key")
    try:
        return HeaderTerm(given["key"], read_content(given.get("value"), f"{where}.value"))
    except ValueError as wrong:
        raise TermsError(str(wrong)) from None


def _read_condition(text: str, where: str) -> JsonCondition:
    _check_length(text, where)
    _encoded(text, where)
    try:
        return parse_condition(text)
    except ValueError as forms:
        raise TermsError(f"{where} is {text[:100]!r}; {forms}") from None


def _check_length(text: str, where: str) -> None:
    if len(text) > TERM_CHARACTERS_MAX:
        raise TermsError(f"{where} has {len(text)} characters; the most allowed is {TERM_CHARACTERS_MAX}")


def _encoded(text: str, where: str) -> bytes:
    try:
        return read_text(text, where)
    except ValueError as wrong:
        raise TermsError(str(wrong)) from None


def _has_header(record: SearchedRecord, term: HeaderTerm) -> bool:
    content = term.content
    return any(name == term.name and (content is None or content == value) for name, value in record.headers)


def _is_found(find: FindFirst, record: SearchedRecord) -> bool:
    value, key = record.value, record.key
    if value is not None and find(value, 0, len(value)) >= 0:
        return True
    if key is not None and find(key, 0, len(key)) >= 0:
        return True
    return any(content is not None and find(content, 0, len(content)) >= 0 for _, content in record.headers)
