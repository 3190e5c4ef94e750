"""Sieves: where in the bytes of many records one that matches may be. A sieve passes over no record that matches, and
most others it does not let through; whole batches are looked at so, of which no record is decoded."""

import json
import re
from collections.abc import Collection, Iterator
from typing import Any, Final

from pqbroker.protocol.expression_engine import FindFirst, compile_search, quote
from pqbroker.tables.search.conditions import CONTAINS, JsonCondition
from pqbroker.tables.search.terms import SearchTerms, find_bytes, finds_of

_OFTEN_ESCAPED: Final = re.compile(r'["\\/\x00-\x1f\x7f]')
"""Characters that stand in JSON in several forms."""
_ESCAPE: Final = rb"\\u"
"""Any other character may stand in JSON as this and four digits."""
_WITH_EXPONENT: Final = rb"[0-9][eE][-+]?[0-9]+[\s,}\]]"
"""A number in an object or an array is not the last of the text; parts of a text of hexadecimal digits look like one,
but for what follows."""
_LONG_FRACTION: Final = rb"\.[0-9]{15}"
_EXACT: Final = 1 << 53
"""Whole numbers below it are exact in JSON's fractions."""
_NEGATED_CLASS: Final = re.compile(rb"(?<!\\)\[\^")
_EMPTY_WIDTH: Final = re.compile(rb"[\^$]|\\[AzZbBQ]")
"""Parts of an expression that look at where a text begins or ends, which of many records on end is elsewhere."""


def sieve_of(terms: SearchTerms, decoded: Collection[str] = ()) -> FindFirst | None:
    """Return a sieve for the bytes of records as batches have them, not compressed; None where there is none.
    `decoded`: the parts, "key" and "value", that schemas decode: their bytes say nothing of what they match."""
    literals: list[bytes] = []
    if terms.text is not None and not terms.ignore_case and not decoded:
        literals.append(terms.text)
    if terms.key and "key" not in decoded:
        literals.append(terms.key)
    literals += [part for header in terms.headers for part in (header.content, header.name.encode()) if part]
    if literals:
        return find_bytes(max(literals, key=len))
    if not decoded and (terms.text is not None or (terms.expression is not None and _is_anywhere(terms.expression))):
        return next(finds_of(terms))
    if "value" in decoded:
        return None
    by_value = [each for one in terms.where for each in _of_value(one)]
    by_name = [each for one in terms.where for step in one.steps if isinstance(step, str) for each in _of_text(step)]
    chosen = max(by_value or by_name, key=len, default=None)  # a name is in every record, most often
    return None if chosen is None else compile_search(chosen)


def _is_anywhere(expression: bytes) -> bool:
    """Return True if what the expression matches in a text it matches in all that holds the text, too."""
    return not _EMPTY_WIDTH.search(_NEGATED_CLASS.sub(b"[", expression))


def _of_value(condition: JsonCondition) -> Iterator[bytes]:
    """Yield an expression that is in any JSON text whose value meets the condition, for what it is compared with."""
    wanted = condition.wanted
    if condition.operator in ("=", CONTAINS) and isinstance(wanted, str):
        yield from _of_text(wanted)
    elif condition.operator == "=" and _is_exact(wanted):
        digits = json.dumps(abs(wanted)).encode()
        yield b"|".join((digits, _WITH_EXPONENT, _LONG_FRACTION, _ESCAPE))


def _of_text(text: str) -> Iterator[bytes]:
    longest = max(_OFTEN_ESCAPED.split(text), key=len)
    if len(longest) > 1:
        yield quote(longest.encode(errors="surrogatepass")) + b"|" + _ESCAPE


def _is_exact(wanted: Any) -> bool:
    return isinstance(wanted, int) and not isinstance(wanted, bool) and abs(wanted) < _EXACT
