"""Rows as JSON lines: the texts of a column's values are made by Arrow where that writes them as Python does, and else
value by value.

Integers of 64 bits stay numbers, what is no number and no text is text. A map is an object. `shown_columns` has DuckDB
write what Arrow cannot hold.
"""

import json
import math
from base64 import b64encode
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from functools import partial
from typing import Any, Final

import pyarrow
import pyarrow.compute as compute
from pyarrow import types

from pqbroker.tables.work.refusal import QueryRefused

_ESCAPED: Final = r'["\\\x00-\x1f]'
"""Characters that JSON has an escape for."""
Show = Callable[[Any], Any]


class RowWriter:
    """Writes the rows of one answer. `documents`: numbers of the columns that hold JSON documents. Of columns with one
    name, which an object cannot hold, the later have a number behind it."""

    __slots__ = ("_heads", "_writers")

    def __init__(self, schema: Any, documents: Collection[int]) -> None:
        names = [dump(name) for name in _distinct(schema.names)]
        self._heads = [f'{"," if number else "{"}{name}:' for number, name in enumerate(names)]
        self._writers = [
            partial(_each, name, _document) if number in documents else _writer(name, kind)
            for number, (name, kind) in enumerate(zip(schema.names, schema.types, strict=True))
        ]

    def write(self, batch: Any) -> bytes:
        """Return the lines of a batch."""
        if not self._heads or not batch.num_rows:
            return b"{}\n" * int(batch.num_rows)
        parts: list[Any] = []
        for head, write, column in zip(self._heads, self._writers, batch.columns, strict=True):
            parts += [_large(head), write(column).fill_null("null").cast(pyarrow.large_string())]
        return _content(compute.binary_join_element_wise(*parts, _large("}\n"), _large("")))


def dump(value: Any) -> str:
    """Return a value as JSON in one line."""
    return _encode(value)


def shown_by(kind: Any) -> Show:
    """Return a function that makes of a value of an Arrow type the value that JSON has for it."""
    if types.is_map(kind):
        return partial(_map, shown_by(kind.key_type), shown_by(kind.item_type))
    if types.is_struct(kind):
        return partial(_struct, {field.name: shown_by(field.type) for field in kind})
    if any(is_one(kind) for is_one in (types.is_list, types.is_large_list, types.is_fixed_size_list)):
        return partial(_list, shown_by(kind.value_type))
    return _shown


def text_of(value: Any) -> str:
    """Return a value that is neither number nor text as text."""
    return value.isoformat() if isinstance(value, datetime | date | time) else str(value)


def values_of(name: str, column: Any) -> list[Any]:
    """Return the values of a column as Python's. QueryRefused for a time that Python has none for."""
    if types.is_timestamp(column.type) and column.type.unit == "ns":
        column = compute.replace_substring(column.cast(pyarrow.string()), " ", "T", max_replacements=1)
    try:
        values: list[Any] = column.to_pylist()
    except (OverflowError, ValueError):
        raise QueryRefused(
            "QUERY_FAILED",
            f"column {name!r} has a date or time before year 1, after 9999, infinite, or finer than a microsecond",
            f'Cast it, "{name}"::VARCHAR, or ask for the format arrow.',
        ) from None
    return values


def _writer(name: str, kind: Any) -> Callable[[Any], Any]:
    if types.is_integer(kind):
        return _cast
    if types.is_float32(kind) or types.is_float64(kind):
        return _doubles
    if types.is_boolean(kind):
        return _cast
    if types.is_string(kind) or types.is_large_string(kind) or types.is_binary(kind) or types.is_large_binary(kind):
        return _texts
    return _decimals if types.is_decimal(kind) else partial(_each, name, shown_by(kind))


def _cast(column: Any) -> Any:
    return column.cast(pyarrow.string())


def _doubles(column: Any) -> Any:
    """Numbers that are whole have a point, so that they stay doubles for those who read them."""
    numbers = column.cast(pyarrow.float64())
    is_finite = compute.is_finite(numbers)
    if compute.all(is_finite).as_py() is False:
        numbers = compute.if_else(is_finite, numbers, None)
    texts = numbers.cast(pyarrow.string())
    is_whole = compute.invert(compute.match_substring_regex(texts, "[.e]"))
    if not compute.any(is_whole).as_py():
        return texts
    return compute.if_else(is_whole, compute.binary_join_element_wise(texts, ".0", ""), texts)


def _decimals(column: Any) -> Any:
    """Every digit, without zeros behind the point: a double would round those beyond the 17th."""
    texts = compute.replace_substring_regex(column.cast(pyarrow.string()), r"(\.[0-9]*?)0+$", r"\1")
    return compute.replace_substring_regex(texts, r"\.$", "")


def _texts(column: Any) -> Any:
    try:
        texts = column.cast(pyarrow.string())
    except pyarrow.ArrowInvalid:  # some are no UTF-8, or there are too many bytes for one array
        return _dumped(map(_shown, column.to_pylist()))
    is_escaped = compute.match_substring_regex(texts, _ESCAPED)
    quoted = compute.binary_join_element_wise('"', texts, '"', "")
    if not compute.any(is_escaped).as_py():
        return quoted
    escaped = [dump(text) for text in texts.filter(is_escaped).to_pylist()]
    return compute.replace_with_mask(quoted, is_escaped.fill_null(False), pyarrow.array(escaped, pyarrow.string()))


def _each(name: str, show: Show, column: Any) -> Any:
    return _dumped(map(show, values_of(name, column)))


def _dumped(values: Iterable[Any]) -> Any:
    """Surrogates that a text has alone, which UTF-8 cannot hold, are escaped."""
    texts = (None if value is None else dump(value).encode(errors="backslashreplace") for value in values)
    return pyarrow.array(texts, pyarrow.binary()).cast(pyarrow.string())


def _large(text: str) -> Any:
    """Return a constant for lines that may together be larger than 2 GiB."""
    return pyarrow.scalar(text, pyarrow.large_string())


def _content(lines: Any) -> bytes:
    """Return the bytes of all texts, end to end."""
    offsets = memoryview(lines.buffers()[1]).cast("q")
    start, end = offsets[lines.offset], offsets[lines.offset + len(lines)]
    data: bytes = memoryview(lines.buffers()[2])[start:end].tobytes()
    return data


def _distinct(names: Iterable[str]) -> Sequence[str]:
    found: dict[str, None] = {}
    for name in names:
        number, free = 1, name
        while free in found:
            free, number = f"{name}_{number}", number + 1
        found[free] = None
    return list(found)


def _shown(value: Any) -> Any:
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return {"base64": b64encode(value).decode()}
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    return text_of(value)


def _map(show_key: Show, show: Show, pairs: Sequence[tuple[Any, Any]] | None) -> Any:
    if pairs is None:
        return None
    return {_key(show_key(key)): show(value) for key, value in pairs}


def _key(shown: Any) -> str:
    return shown if isinstance(shown, str) else dump(shown)


def _struct(shows: dict[str, Show], fields: dict[str, Any] | None) -> Any:
    return None if fields is None else {name: shows[name](value) for name, value in fields.items()}


def _list(show: Show, values: Sequence[Any] | None) -> Any:
    return None if values is None else [show(value) for value in values]


def _document(value: str | None) -> Any:
    """A JSON document as what it is. DuckDB writes NaN and Infinity, which JSON has not."""
    try:
        return None if value is None else json.loads(value, parse_constant=_null)
    except ValueError:
        return value


def _null(_: str) -> None:
    """Stand for a number that JSON has not."""


_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
