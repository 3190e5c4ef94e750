"""Rows in Arrow as a sorted table writes them: encoded keys (`tables/sorted/keys.py`) and packed bodies
(`tables/sorted/packed_rows.py`), made by whole columns.

What JSON rows are refused for is refused here, by row and column.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy
import pyarrow
import pyarrow.compute as compute
from pyarrow import types

from pqbroker.tables.refusals import TableError, nearest
from pqbroker.tables.sorted.keys import ENCODED_KEY_BYTES_MAX
from pqbroker.tables.sorted.packed_rows import LENGTH, Kind, slot_letter
from pqbroker.tables.sorted.rows import ROWS_MAX, VALUE_BYTES_MAX, check_size
from pqbroker.tables.sorted.schema import SortedColumn, SortedSchema
from pqbroker.tables.work.arrow_rows import read_rows
from pqbroker.tables.work.column_texts import (
    check_range,
    decoded,
    documents,
    finite,
    is_bytes,
    is_text,
    microseconds,
    wrong_type,
)

_SIGN = numpy.uint64(1 << 63)
_WORD_BYTES = 8
_LENGTH_BYTES = 4
_WIDE: Final = {"q": pyarrow.int64(), "Q": pyarrow.uint64(), "d": pyarrow.float64()}
"""Arrow types of numbers by the letter of their slot."""


class PackedStream(NamedTuple):
    """Keys and bodies of rows, arrays of binary."""

    keys: Any
    bodies: Any

    def payload(self) -> bytes:
        """Return lengths of keys, lengths of bodies, 4 bytes each, then keys, then bodies, end to end."""
        lengths = [compute.binary_length(each).to_numpy().astype("<u4").tobytes() for each in self]
        return b"".join([*lengths, *(_content(each) for each in self)])


def pack_stream(schema: SortedSchema, stream: Any, *, is_update: bool) -> PackedStream:
    """Return the rows of an Arrow IPC stream; `is_update`: columns that it lacks stay as they were, else they are null.
    TableError INVALID_STREAM, INVALID_ROW, TOO_MANY_ROWS, ROWS_TOO_LARGE."""
    rows = read_rows(stream, _check_count)
    _check_columns(schema, rows.schema)
    given = [column for column in schema.columns.values() if column.expression is None]
    columns = {column.name: _values(column, rows, is_update=is_update) for column in given}
    columns |= _filled_by_table(schema, columns)
    keys = _keys([(column.type.name, columns[column.name]) for column in schema.keys])
    _check_keys(keys)
    check_size(_size(schema, columns, keys), "the rows of the stream")
    return PackedStream(keys, _bodies(schema, columns, rows.num_rows, is_update=is_update))


def _check_count(count: int) -> None:
    if count > ROWS_MAX:
        text = f"the stream has more than {ROWS_MAX} rows, which one request has at most"
        raise TableError("TOO_MANY_ROWS", text, "Send them in several requests.")


def _check_columns(schema: SortedSchema, given: Any) -> None:
    for name in given.names:
        if name not in schema.columns:
            text = f"the stream has the unknown column {name[:100]!r}"
            raise TableError("INVALID_ROW", text, nearest(name[:100], schema.columns))
        if schema.columns[name].expression is not None:
            text = f"the stream gives the column {name!r}"
            raise TableError("INVALID_ROW", text, "Leave it out: the table fills it.")
        if given.names.count(name) > 1:
            raise TableError("INVALID_ROW", f"the stream has the column {name!r} twice", "Give each column once.")


def _filled_by_table(schema: SortedSchema, columns: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of the key columns that the table fills by their expressions."""
    found: dict[str, Any] = {}
    for column in schema.keys:
        if (expression := column.expression) is not None:
            encoded = _keys([(schema.columns[name].type.name, columns[name]) for name in expression.columns])
            hashes = numpy.array([expression.value(each) for each in encoded.to_pylist()], numpy.uint64)
            found[column.name] = pyarrow.array(hashes).cast(_WIDE[slot_letter(column.type.name)])
    return found


def _values(column: SortedColumn, rows: Any, *, is_update: bool) -> Any:
    """Return a column's values, numbers in 64 bits, texts and JSON as binary; None: an update leaves it as it was."""
    letter = slot_letter(column.type.name)
    has_column = column.name in rows.schema.names
    if not has_column and is_update and not column.is_key:
        return None
    values = decoded(rows.column(column.name)) if has_column else pyarrow.nulls(rows.num_rows)
    if column.is_required and values.null_count:
        row = compute.index(values.is_null(), True).as_py()
        text = f"rows[{row}].{column.name} is missing, or null"
        raise TableError("INVALID_ROW", text, "Give a value: the column is required.")
    if types.is_null(values.type):
        return pyarrow.nulls(rows.num_rows, pyarrow.binary() if letter == LENGTH else _WIDE[letter])
    read = _integers if column.type.bounds is not None else _READERS[column.type.name]
    found = read(column, values)
    if letter != LENGTH:
        return found.cast(_WIDE[letter])
    lengths = compute.binary_length(found)
    if (compute.max(lengths).as_py() or 0) > VALUE_BYTES_MAX:
        row = compute.index(compute.greater(lengths, VALUE_BYTES_MAX), True).as_py()
        text = f"rows[{row}].{column.name} has {lengths[row].as_py()} bytes"
        raise TableError("INVALID_ROW", text, f"Give a value of at most {VALUE_BYTES_MAX} bytes.")
    return found


def _integers(column: SortedColumn, values: Any) -> Any:
    if not types.is_integer(values.type):
        raise wrong_type(column, values.type)
    assert column.type.bounds is not None
    check_range(column, values, *column.type.bounds)
    return values


def _booleans(column: SortedColumn, values: Any) -> Any:
    if not types.is_boolean(values.type):
        raise wrong_type(column, values.type)
    return values.cast(pyarrow.uint8())


def _texts(column: SortedColumn, values: Any) -> Any:
    if not is_text(values.type) and not (column.type.name == "string" and is_bytes(values.type)):
        raise wrong_type(column, values.type)
    if is_text(values.type):
        values = values.cast(pyarrow.string())
    return values.cast(pyarrow.binary())


def _documents(column: SortedColumn, values: Any) -> Any:
    return pyarrow.array(documents(column, values)[0], pyarrow.string()).cast(pyarrow.binary())


_READERS: Mapping[str, Callable[[SortedColumn, Any], Any]] = {
    "timestamp": microseconds, "double": finite, "boolean": _booleans, "utf8": _texts, "string": _texts,
    "any": _documents,
}  # fmt: skip
"""Readers of Arrow values by the name of a column's type; integers have bounds instead."""


def _keys(columns: Sequence[tuple[str, Any]]) -> Any:
    parts = [_key_part(kind, values) for kind, values in columns]
    return parts[0] if len(parts) == 1 else compute.binary_join_element_wise(*parts, b"")


def _key_part(kind: str, values: Any) -> Any:
    if slot_letter(kind) == LENGTH:
        if compute.any(compute.match_substring(values, b"\0")).as_py():
            values = compute.replace_substring(values, b"\0", b"\0\xff")
        encoded = compute.binary_join_element_wise(b"\1", values, b"\0\0", b"")
    elif kind == "boolean":
        encoded = _fixed(_filled(values).astype(numpy.uint8)[:, None])
    else:
        encoded = _fixed(_words(kind, _filled(values)).astype(">u8").view(numpy.uint8).reshape(-1, _WORD_BYTES))
    return encoded if not values.null_count else compute.if_else(values.is_valid(), encoded, pyarrow.scalar(b"\0"))


def _words(kind: str, values: Any) -> Any:
    """Return words that sort as the values do."""
    if kind == "double":
        bits = (values + 0.0).view(numpy.uint64)  # -0.0 + 0.0 is 0.0
        return bits ^ numpy.where(bits & _SIGN, ~numpy.uint64(0), _SIGN)
    return values.view(numpy.uint64) ^ _SIGN if kind.startswith("int") else values


def _fixed(matrix: Any) -> Any:
    """Return rows of bytes, each behind the byte of a value, as binary."""
    return _binary(numpy.concatenate([numpy.ones((len(matrix), 1), numpy.uint8), matrix], axis=1))


def _binary(matrix: Any) -> Any:
    rows, width = matrix.shape
    offsets = numpy.arange(0, (rows + 1) * width, width, dtype=numpy.int32)
    buffers = [None, pyarrow.py_buffer(offsets), pyarrow.py_buffer(numpy.ascontiguousarray(matrix))]
    return pyarrow.Array.from_buffers(pyarrow.binary(), rows, buffers)


def _filled(values: Any) -> Any:
    """Return numbers of 64 bits as an array of numpy, 0 for null."""
    return compute.fill_null(values, 0).to_numpy(zero_copy_only=False)


def _check_keys(keys: Any) -> None:
    lengths = compute.binary_length(keys)
    if compute.max(lengths).as_py() > ENCODED_KEY_BYTES_MAX:
        row = compute.index(compute.greater(lengths, ENCODED_KEY_BYTES_MAX), True).as_py()
        cure = f"Give a key of at most {ENCODED_KEY_BYTES_MAX} bytes; this one has {lengths[row]} when it is encoded."
        raise TableError("INVALID_ROW", f"rows[{row}] has a key that is too long, or no key", cure)
    if len(keys.unique()) == len(keys):
        return
    first: dict[bytes, int] = {}
    for row, key in enumerate(keys.to_pylist()):
        if (before := first.setdefault(key, row)) != row:
            cure = "Give each key once in a request: which row is the later one is not said."
            raise TableError("INVALID_ROW", f"rows[{row}] has the key of rows[{before}]", cure)


def _bodies(schema: SortedSchema, columns: Mapping[str, Any], rows: int, *, is_update: bool) -> Any:
    count = len(schema.values)
    presence, validity = (numpy.zeros((rows, -(-count // 8) * 8), bool) for _ in range(2))
    slots: list[Any] = []
    contents: list[Any] = []
    for number, column in enumerate(schema.values):
        letter, values = slot_letter(column.type.name), columns[column.name]
        width = _LENGTH_BYTES if letter == LENGTH else _WORD_BYTES
        if values is None:
            slots.append(numpy.zeros((rows, width), numpy.uint8))
            continue
        presence[:, number] = True
        validity[:, number] = values.is_valid().to_numpy(zero_copy_only=False)
        if letter == LENGTH:
            contents.append(compute.fill_null(values, b""))
            numbers = compute.binary_length(contents[-1]).to_numpy().astype("<u4")
        else:
            numbers = numpy.ascontiguousarray(_filled(values))
        slots.append(numbers.view(numpy.uint8).reshape(rows, width))
    kind = numpy.full((rows, 1), Kind.UPDATE if is_update else Kind.WRITE, numpy.uint8)
    bitmaps = [numpy.packbits(bits, axis=1, bitorder="little") for bits in (presence, validity)]
    heads = _binary(numpy.concatenate([kind, *bitmaps, *slots], axis=1))
    return compute.binary_join_element_wise(heads, *contents, b"") if contents else heads


def _size(schema: SortedSchema, columns: Mapping[str, Any], keys: Any) -> int:
    """Return the bytes of keys and bodies."""
    row = 1 + 2 * -(-len(schema.values) // 8)
    size: int = compute.sum(compute.binary_length(keys)).as_py()
    for column in schema.values:
        is_text = slot_letter(column.type.name) == LENGTH
        row += _LENGTH_BYTES if is_text else _WORD_BYTES
        if is_text and columns[column.name] is not None:
            size += compute.sum(compute.binary_length(columns[column.name])).as_py() or 0
    return size + row * len(keys)


def _content(values: Any) -> memoryview:
    """Return the bytes of an array of binary, end to end."""
    _, offsets, data = values.buffers()
    ends = numpy.frombuffer(offsets, numpy.int32)
    begin, end = int(ends[values.offset]), int(ends[values.offset + len(values)])
    return memoryview(b"" if data is None else data)[begin:end]
