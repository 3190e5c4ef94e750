"""Ranges of encoded keys that comparisons leave of a sorted table: equality of its first key columns, then a range of
the next one.

A comparison that is not understood leaves every key. So does one whose outcome DuckDB may see otherwise, by a cast.
"""

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import groupby, product
from typing import Any, Final, NamedTuple

from pqbroker.tables.columns import folded
from pqbroker.tables.sorted.chunks import Columns
from pqbroker.tables.sorted.keys import key_encoder, prefix_end
from pqbroker.tables.work.comparisons import EQUAL, IS_NULL, Literal, LiteralComparison

KEY_RANGES_MAX: Final = 32
"""Ranges of one scan; where there are more, neighbours become one."""
KeyBounds = tuple[bytes, bytes | None]
"""Keys from the first to before the second; None: to the last one."""
EVERY_KEY: Final[KeyBounds] = (b"", None)
_NULL, _VALUES_FIRST, _VALUES_END = b"\0", b"\1", b"\2"
_INTEGER = re.compile(r"-?\d+")
_NUMBER = re.compile(r"-?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_TIME = re.compile(r"\d{4}-\d\d-\d\d([ T]\d\d:\d\d:\d\d(\.\d{1,6})?)?")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EXACT_MAX = 1 << 53
"""Integers up to this have a double of their own."""
_NEIGHBOURS = 4


class _Interval(NamedTuple):
    """Encoded values of one column, from the first to before the end. `is_point`: it is one value."""

    first: bytes
    end: bytes
    is_point: bool = False


_ALL_VALUES = _Interval(_VALUES_FIRST, _VALUES_END)


def key_ranges_of(key_columns: Columns, comparisons: Sequence[LiteralComparison]) -> list[KeyBounds]:
    """Return ranges that lie apart, in order; none: no key is left. All rows of the answer have keys in them."""
    prefixes: list[bytes] = [b""]
    ranges: list[KeyBounds] = [EVERY_KEY]
    for name, kind in key_columns:
        intervals = _intervals(kind, [each for each in comparisons if each.column == folded(name)])
        if intervals is None:
            break
        found = [(prefix + first, prefix + end) for prefix, (first, end, _) in product(prefixes, intervals)]
        ranges = _joined(sorted(found))
        prefixes = [prefix + interval.first for prefix, interval in product(prefixes, intervals)]
        if not all(interval.is_point for interval in intervals) or len(prefixes) > KEY_RANGES_MAX:
            break
    return ranges


def within(ranges: Sequence[KeyBounds], first: bytes, end: bytes | None) -> list[KeyBounds]:
    """Return the parts of ranges that lie in another one."""
    found = []
    for low, high in ranges:
        begin, stop = max(low, first), high if end is None else end if high is None else min(high, end)
        if stop is None or begin < stop:
            found.append((begin, stop))
    return found


def _joined(ranges: Sequence[tuple[bytes, bytes]]) -> list[KeyBounds]:
    """Return at most KEY_RANGES_MAX ranges, each of neighbours."""
    of_each = -(-len(ranges) // KEY_RANGES_MAX) or 1
    neighbours = (list(some) for _, some in groupby(enumerate(ranges), lambda numbered: numbered[0] // of_each))
    return [(some[0][1][0], max(end for _, (_, end) in some)) for some in neighbours]


def _intervals(kind: str, comparisons: Sequence[LiteralComparison]) -> list[_Interval] | None:
    """Return the intervals of a column that all its comparisons leave, in order; None: no comparison is understood."""
    known: list[_Interval] | None = None
    for comparison in comparisons:
        found = _of_comparison(kind, comparison)
        if found is not None:
            known = found if known is None else list(_shared_by(known, found))
    return None if known is None else _apart(sorted(set(known)))


def _apart(intervals: Sequence[_Interval]) -> list[_Interval]:
    """Return intervals in order, those that overlap as one."""
    found: list[_Interval] = []
    for interval in intervals:
        if found and interval.first < found[-1].end:
            found[-1] = _Interval(found[-1].first, max(found[-1].end, interval.end))
        else:
            found.append(interval)
    return found


def _shared_by(some: Sequence[_Interval], others: Sequence[_Interval]) -> Iterator[_Interval]:
    for one, other in product(some, others):
        first, end = max(one.first, other.first), min(one.end, other.end)
        if first < end:
            yield _Interval(first, end, one.is_point or other.is_point)


def _of_comparison(kind: str, comparison: LiteralComparison) -> list[_Interval] | None:
    if comparison.operator == IS_NULL:
        return [_Interval(_NULL, _VALUES_FIRST, is_point=True)]
    read = _READERS.get(kind, _integer)
    found: list[_Interval] = []
    for literal in comparison.values:
        bounds = read(kind, literal)
        if bounds is None:
            return None
        found += _compared(comparison.operator, bounds)
    return found


def _compared(operator: str, bounds: _Interval) -> Iterator[_Interval]:
    """Yield the values that compare so with one that lies within bounds."""
    first, end = {
        EQUAL: (bounds.first, bounds.end), "gt": (bounds.end, _VALUES_END), "gte": (bounds.first, _VALUES_END),
        "lt": (_VALUES_FIRST, bounds.first), "lte": (_VALUES_FIRST, bounds.end),
    }[operator]  # fmt: skip
    if operator in ("gt", "lt") and not bounds.is_point:  # the value lies anywhere within
        first, end = (bounds.first, end) if operator == "gt" else (first, bounds.end)
    if first < end:
        yield _Interval(first, end, operator == EQUAL and bounds.is_point)


def _point(kind: str, value: Any) -> _Interval | None:
    try:
        encoded = key_encoder([kind])([value])
    except ValueError:  # too long for a key
        return None
    end = prefix_end(encoded)
    return None if end is None else _Interval(encoded, end, is_point=True)


def _integer(kind: str, literal: Literal) -> _Interval | None:
    if literal.kind != "number" or not _INTEGER.fullmatch(literal.text) or len(literal.text) > 38:
        return None
    return _whole(kind, int(literal.text), is_signed=kind.startswith("int"))


def _whole(kind: str, value: int, *, is_signed: bool) -> _Interval | None:
    """Return the place of an integer: behind or before all others where 64 bits do not hold it."""
    least, most = (-(1 << 63), (1 << 63) - 1) if is_signed else (0, (1 << 64) - 1)
    if value < least:
        return _Interval(_VALUES_FIRST, _VALUES_FIRST, is_point=True)
    return _Interval(_VALUES_END, _VALUES_END, is_point=True) if value > most else _point(kind, value)


def _double(kind: str, literal: Literal) -> _Interval | None:
    """Return the place of a number: DuckDB may round its digits in another way, so some neighbours are in."""
    if literal.kind != "number" or not _NUMBER.fullmatch(literal.text):
        return None
    value = float(literal.text)
    if _INTEGER.fullmatch(literal.text) and abs(value) <= _EXACT_MAX:
        return _point(kind, value)
    low, high = (_point(kind, _beside(value, to)) for to in (-math.inf, math.inf))
    if not math.isfinite(value) or low is None or high is None:
        return None
    return _Interval(low.first, high.end)


def _beside(value: float, to: float) -> float:
    for _ in range(_NEIGHBOURS):
        value = math.nextafter(value, to)
    return value


def _text(kind: str, literal: Literal) -> _Interval | None:
    if literal.kind != "text":
        return None
    if kind == "utf8":
        return _point(kind, literal.text)
    is_plain = literal.text.isascii() and "\\" not in literal.text  # else DuckDB makes other bytes of it, or refuses it
    return _point(kind, literal.text.encode()) if is_plain else None


def _time(kind: str, literal: Literal) -> _Interval | None:
    if literal.kind not in ("text", "time") or not _TIME.fullmatch(literal.text):
        return None
    try:
        moment = datetime.fromisoformat(literal.text).replace(tzinfo=UTC)
    except ValueError:
        return None
    return _whole(kind, (moment - _EPOCH) // timedelta(microseconds=1), is_signed=False)


def _boolean(kind: str, literal: Literal) -> _Interval | None:
    return _point(kind, literal.text == "True") if literal.kind == "boolean" else None


_READERS: Mapping[str, Callable[[str, Literal], _Interval | None]] = {
    "double": _double, "utf8": _text, "string": _text, "timestamp": _time, "boolean": _boolean,
}  # fmt: skip
"""Readers of literals by the name of a column's type; integers are all others."""
