"""Arrow values of a column as the JSON that a record holds, and what they weigh: by column where that is possible, for
Python takes fifty times as long for a value. What `tables/types.py` refuses is refused here, by row and column.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import pyarrow
import pyarrow.compute as compute
from pyarrow import types

from pqbroker.tables.columns import Column
from pqbroker.tables.refusals import TableError
from pqbroker.tables.sorted.schema import SortedColumn
from pqbroker.tables.types import BOOLEAN_WEIGHT, NUMBER_WEIGHT, TIMESTAMP_END, show_string

JSON_EXTENSION = "arrow.json"
"""A column of this Arrow type has documents as text; every other one of type `any` has values."""
_ESCAPED = r'["\\\x00-\x1f]'
"""Characters that JSON has an escape for."""
_UNITS_A_SECOND = {"s": 1, "ms": 1000, "us": 1_000_000, "ns": 1_000_000_000}


AnyColumn = Column | SortedColumn


class ColumnTexts(NamedTuple):
    """`texts`: a string array, null where there is no value."""

    texts: Any
    weight: int


def column_texts(column: Column, values: Any) -> ColumnTexts:
    """The JSON of an Arrow array's values. TableError INVALID_ROW."""
    values = decoded(values)
    if types.is_null(values.type):
        return ColumnTexts(pyarrow.nulls(len(values), pyarrow.string()), 0)
    write = _integers if column.type.bounds is not None else _WRITERS[column.type.name]
    return write(column, values)


def decoded(values: Any) -> Any:
    """Return an array without a dictionary."""
    return values.dictionary_decode() if types.is_dictionary(values.type) else values


def text_bytes(texts: Any) -> int:
    """Return the size of all values in bytes."""
    return compute.sum(compute.binary_length(texts)).as_py() or 0


def _integers(column: Column, values: Any) -> ColumnTexts:
    if not types.is_integer(values.type):
        raise wrong_type(column, values.type)
    assert column.type.bounds is not None
    low, high = column.type.bounds
    check_range(column, values, low, high)
    return _numbers(values.cast(pyarrow.string()))


def _timestamps(column: Column, values: Any) -> ColumnTexts:
    return _numbers(microseconds(column, values).cast(pyarrow.string()))


def microseconds(column: AnyColumn, values: Any) -> Any:
    """Return integers of times of any unit and zone, parts of one left out, or of integers, which are microseconds.
    TableError INVALID_ROW."""
    if types.is_timestamp(values.type):
        units = _UNITS_A_SECOND[values.type.unit]
        counts = values.cast(pyarrow.timestamp(values.type.unit)).view(pyarrow.int64())
        check_range(column, counts, 0, TIMESTAMP_END * units // 1_000_000 - 1)
        return (
            compute.divide(counts, units // 1_000_000) if units > 1_000_000
            else compute.multiply(counts, 1_000_000 // units)
        )  # fmt: skip
    if not types.is_integer(values.type):
        raise wrong_type(column, values.type)
    check_range(column, values, 0, TIMESTAMP_END - 1)
    return values


def _doubles(column: Column, values: Any) -> ColumnTexts:
    texts = finite(column, values).cast(pyarrow.string())
    return _numbers(compute.if_else(compute.equal(texts, "-0"), "-0.0", texts))  # -0 would be read as an integer


def finite(column: AnyColumn, values: Any) -> Any:
    """Return numbers as doubles. TableError INVALID_ROW."""
    if not types.is_floating(values.type) and not types.is_integer(values.type):
        raise wrong_type(column, values.type)
    numbers = values.cast(pyarrow.float64(), safe=False)
    row = compute.index(compute.is_finite(numbers), False).as_py()
    if row >= 0:
        raise wrong_value(column, row, "Give a number that a double can hold.")
    return numbers


def _booleans(column: Column, values: Any) -> ColumnTexts:
    if not types.is_boolean(values.type):
        raise wrong_type(column, values.type)
    return ColumnTexts(compute.if_else(values, "true", "false"), BOOLEAN_WEIGHT * _count(values))


def _utf8(column: Column, values: Any) -> ColumnTexts:
    if not is_text(values.type):
        raise wrong_type(column, values.type)
    texts = values.cast(pyarrow.string())
    return ColumnTexts(_quoted(texts), text_bytes(texts))


def _strings(column: Column, values: Any) -> ColumnTexts:
    """Bytes or text."""
    if is_text(values.type):
        return _utf8(column, values)
    if not is_bytes(values.type):
        raise wrong_type(column, values.type)
    contents = values.cast(pyarrow.binary())
    try:
        texts = _quoted(contents.cast(pyarrow.string()))
    except pyarrow.ArrowInvalid:  # some are no UTF-8
        texts = _array(None if each is None else _dump(show_string(each)) for each in contents.to_pylist())
    return ColumnTexts(texts, text_bytes(contents))


def _anything(column: Column, values: Any) -> ColumnTexts:
    texts, weight = documents(column, values)
    return ColumnTexts(_array(texts), weight)


def documents(column: AnyColumn, values: Any) -> tuple[list[str | None], int]:
    """Return values as JSON, and what they weigh. TableError INVALID_ROW."""
    is_json = getattr(values.type, "extension_name", None) == JSON_EXTENSION
    if isinstance(values, pyarrow.ExtensionArray):
        values = values.storage
    texts: list[str | None] = []
    weight = 0
    for row, value in enumerate(values.to_pylist()):
        try:
            read = json.loads(value) if is_json and value is not None else value
            texts.append(None if read is None else _dump(read))
            weight += 0 if read is None else column.type.read(read)[1]
        except (ValueError, TypeError, RecursionError):
            raise wrong_value(column, row, "Give what JSON can hold.") from None
    return texts, weight


_WRITERS: Mapping[str, Callable[[Column, Any], ColumnTexts]] = {
    "timestamp": _timestamps,
    "double": _doubles,
    "boolean": _booleans,
    "utf8": _utf8,
    "string": _strings,
    "any": _anything,
}
"""Writers by the name of a column's type; integers have bounds instead."""


def check_range(column: AnyColumn, values: Any, low: int, high: int) -> None:
    """Check the range, value by value only where the least or the greatest is wrong."""
    ends = compute.min_max(values)
    least, most = ends["min"].as_py(), ends["max"].as_py()
    if least is None or (low <= least and most <= high):
        return
    row = next(row for row, each in enumerate(values.to_pylist()) if each is not None and not low <= each <= high)
    raise wrong_value(column, row, f"Give {low} to {high}.")


def _numbers(texts: Any) -> ColumnTexts:
    return ColumnTexts(texts, NUMBER_WEIGHT * _count(texts))


def _quoted(texts: Any) -> Any:
    if compute.any(compute.match_substring_regex(texts, _ESCAPED)).as_py():
        return _array(None if each is None else _dump(each) for each in texts.to_pylist())
    return compute.binary_join_element_wise('"', texts, '"', "")


def is_text(arrow_type: Any) -> bool:
    """Return True if values of an Arrow type are text."""
    return any(is_one(arrow_type) for is_one in (types.is_string, types.is_large_string, types.is_string_view))


def is_bytes(arrow_type: Any) -> bool:
    """Return True if values of an Arrow type are bytes."""
    kinds = (types.is_binary, types.is_large_binary, types.is_binary_view, types.is_fixed_size_binary)
    return any(is_one(arrow_type) for is_one in kinds)


def _array(texts: Any) -> Any:
    return pyarrow.array(texts, pyarrow.string())


def _count(values: Any) -> int:
    return len(values) - int(values.null_count)


def wrong_type(column: AnyColumn, arrow_type: Any) -> TableError:
    """Return the refusal of a column's Arrow type."""
    text = f"column {column.name!r} has the Arrow type {str(arrow_type)[:100]}, which is no {column.type.name}"
    return TableError("INVALID_ROW", text, "Cast it before it is sent; docs/tables.md lists what each type takes.")


def wrong_value(column: AnyColumn, row: int, cure: str) -> TableError:
    """Return the refusal of one value."""
    return TableError("INVALID_ROW", f"rows[{row}].{column.name} is no {column.type.name}", cure)


_dump = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode
