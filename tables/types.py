"""Column types, with the names that YT has for them: the JSON that stands for a value, and what the value weighs (E.8).

A string is bytes: text in JSON where it is UTF-8, else {"base64": …}. A timestamp is in microseconds since 1970.
"""

import binascii
import json
import math
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

NUMBER_WEIGHT = 8
BOOLEAN_WEIGHT = 1
ROW_WEIGHT = 1
TIMESTAMP_END = 4_291_747_200_000_000
"""YT's timestamps end with the year 2105."""


@dataclass(frozen=True, slots=True)
class ColumnType:
    """One type. `read` gives the JSON that is stored for a JSON value and the value's weight; ValueError says what is
    wanted instead."""

    name: str
    read: Callable[[Any], tuple[Any, int]]
    bounds: tuple[int, int] | None = None
    """Least and greatest value of an integer type."""


def _read_integer(low: int, high: int, value: Any) -> tuple[Any, int]:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError("give an integer")
    if not low <= value <= high:
        raise ValueError(f"give {low} to {high}")
    return value, NUMBER_WEIGHT


def _read_double(value: Any) -> tuple[Any, int]:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError("give a number")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise ValueError("give a number that a double can hold")
    return number, NUMBER_WEIGHT


def _read_boolean(value: Any) -> tuple[Any, int]:
    if not isinstance(value, bool):
        raise ValueError("give true or false")
    return value, BOOLEAN_WEIGHT


def _read_utf8(value: Any) -> tuple[Any, int]:
    if not isinstance(value, str):
        raise ValueError("give a text")
    return value, len(_encoded(value))


def _read_string(value: Any) -> tuple[Any, int]:
    if isinstance(value, str):
        return _read_utf8(value)
    if not isinstance(value, dict) or value.keys() != {"base64"} or not isinstance(value["base64"], str):
        raise ValueError('give a text, or {"base64": "…"} for bytes')
    try:
        content = b64decode(value["base64"], validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("give base64 that is whole and has no other characters") from None
    return show_string(content), len(content)


def _read_any(value: Any) -> tuple[Any, int]:
    return value, len(_encoded(json.dumps(value, ensure_ascii=False, separators=(",", ":"))))


def show_string(content: bytes) -> Any:
    """The JSON of a string's bytes."""
    try:
        return content.decode()
    except UnicodeDecodeError:
        return {"base64": b64encode(content).decode()}


def bytes_of(shown: Any) -> bytes:
    """The bytes of what `show_string` gave."""
    return b64decode(shown["base64"]) if isinstance(shown, dict) else shown.encode()


def is_text(text: str) -> bool:
    """Return True if UTF-8 can hold the text: JSON can name halves of surrogate pairs."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _encoded(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise ValueError("give a text without halves of surrogate pairs") from None


def _integer(name: str, low: int, high: int) -> ColumnType:
    return ColumnType(name, partial(_read_integer, low, high), (low, high))


_BITS = (8, 16, 32, 64)
TYPES: Mapping[str, ColumnType] = {
    column_type.name: column_type
    for column_type in (
        *(_integer(f"int{bits}", -(1 << bits - 1), (1 << bits - 1) - 1) for bits in _BITS),
        *(_integer(f"uint{bits}", 0, (1 << bits) - 1) for bits in _BITS),
        ColumnType("double", _read_double),
        ColumnType("boolean", _read_boolean),
        ColumnType("string", _read_string),
        ColumnType("utf8", _read_utf8),
        ColumnType("any", _read_any),
        ColumnType("timestamp", partial(_read_integer, 0, TIMESTAMP_END - 1)),
    )
}
"""Types by name."""
