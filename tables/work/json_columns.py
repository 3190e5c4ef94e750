"""Columns of JSON documents by DuckDB's JSON functions, thousands of documents at once.

The rules are those of `rows.decode_row`. DuckDB's parser takes more than Python's (a comma before a bracket, `nan`),
and of fields with one name the first, not the last. A document in which the two may differ, or that is no row, is
doubtful: its columns here mean nothing, and the caller reads it by the rules.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Final

import duckdb
import numpy
import pyarrow
import pyarrow.compute as compute

from pqbroker.tables.columns import Column
from pqbroker.tables.types import TIMESTAMP_END
from pqbroker.tables.work.database import connect

_MEMORY_BYTES: Final = 256 << 20
"""Memory that DuckDB has for its own needs while it parses; the documents are Arrow's."""
_EMPTY: Final = "{}"
_FOUND: Final = "SELECT json_extract(value, [{}]) AS found FROM {}"
_EVERY: Final = "documents"
_VALID: Final = "(SELECT CASE WHEN json_valid(value) THEN value ELSE '{}' END AS value FROM documents)"
_KEYS: Final = "SELECT json_keys(value) AS keys FROM documents"
_SCREENED_BYTES: Final = 128 << 10
"""Bytes that are screened at once: they stay in the processor's cache."""
_LOOSE_COMMA: Final = r",\s*[}\]]"
_LOOSE_NUMBER: Final = r"(?i)[:\[,]\s*-?(?:nan|inf)"
_LONG_BYTES: Final = 900
"""Shorter documents are not nested more deeply, and have no longer numbers, than Python's parser takes."""
_BRACKETS_MAX: Final = 400
_LONG_NUMBER: Final = r"[0-9]{900}"
_NUMBER: Final = "^-?[0-9]"


class JsonColumns:
    """Makes the columns of one part of records."""

    __slots__ = ("_columns", "_names", "_pointers")

    def __init__(self, columns: Sequence[Column]) -> None:
        self._columns = columns
        self._names = pyarrow.array([column.name for column in columns], pyarrow.string())
        self._pointers = ", ".join(_pointer(column.name) for column in columns)

    def make(self, documents: Any) -> tuple[Mapping[str, Any], Any]:
        """Return arrays by name, and which documents, a binary array, are doubtful. A null has only null columns."""
        texts, doubtful = _texts(documents)
        found = self._find(texts)
        if found is None:
            return self._nulls(len(texts)), numpy.ones(len(texts), bool)
        arrays: dict[str, Any] = {}
        present = numpy.zeros(len(texts), numpy.int64)
        for number, column in enumerate(self._columns):
            field = found.take(pyarrow.array(numpy.arange(number, len(found), len(self._columns))))
            present += _mask(field.is_valid())
            arrays[column.name], is_wrong = _MAKERS.get(column.type.name, _integers)(column, field)
            doubtful |= is_wrong
            if column.is_required and arrays[column.name].null_count:
                doubtful |= _mask(arrays[column.name].is_null())
        screen = _Screen(texts)
        doubtful |= screen.loose() | _too_long(texts)
        unlike = screen.unlike(present) & ~doubtful & _mask(documents.is_valid())
        self._look_closer(texts, numpy.flatnonzero(unlike), present, doubtful)
        return arrays, doubtful

    def _find(self, texts: Any) -> Any:
        """Return the fields of all documents, column by column of each, as texts of JSON; None where DuckDB refuses
        even documents that it calls valid."""
        for relation in (_EVERY, _VALID):
            try:
                fields = _whole(_ask(_FOUND.format(self._pointers, relation), texts).column("found")).flatten()
            except duckdb.Error:
                continue
            if len(fields) == len(texts) * len(self._columns):
                return fields.cast(pyarrow.string())
        return None

    def _look_closer(self, texts: Any, rows: Any, present: Any, doubtful: Any) -> None:
        """Mark those of the rows that have a column's field twice, no field at all, or a number that is not Python's.
        """
        if not len(rows):
            return
        some = texts.take(pyarrow.array(rows))
        is_loose = _mask(compute.match_substring_regex(some, _LOOSE_NUMBER))
        try:
            keys = _whole(_ask(_KEYS, some).column("keys"))
        except duckdb.Error:  # some are no JSON, and these columns were made of others in their place
            doubtful[rows] = True
            return
        is_ours = compute.is_in(keys.flatten(), value_set=self._names).to_numpy(zero_copy_only=False)
        sums = numpy.concatenate([[0], numpy.cumsum(is_ours)])
        ends = keys.offsets.to_numpy()
        named = sums[ends[1:]] - sums[ends[:-1]]
        doubtful[rows] = (named != present[rows]) | (ends[1:] == ends[:-1]) | is_loose

    def _nulls(self, count: int) -> Mapping[str, Any]:
        return {column.name: _nulls_of(column, count) for column in self._columns}


@cache
def _database() -> Any:
    return connect(_MEMORY_BYTES)


def _ask(query: str, texts: Any) -> Any:
    database = _database()
    database.register(_EVERY, pyarrow.table({"value": texts}))
    try:
        return database.sql(query).to_arrow_table()
    finally:
        database.unregister(_EVERY)


def _pointer(name: str) -> str:
    """A field as a JSON pointer, which means no other field whatever the name is, in a literal of SQL."""
    pointer = "/" + name.replace("~", "~0").replace("/", "~1")
    return "'" + pointer.replace("'", "''") + "'"


def _texts(documents: Any) -> tuple[Any, Any]:
    """Return the documents as text, and which of them are no UTF-8."""
    doubtful = numpy.zeros(len(documents), bool)
    try:
        texts = documents.cast(pyarrow.string())
    except pyarrow.ArrowInvalid:
        contents = [_text(each) for each in documents.to_pylist()]
        doubtful |= numpy.array([each is None for each in contents]) & _mask(documents.is_valid())
        texts = pyarrow.array(contents, pyarrow.string())
    return texts.fill_null(_EMPTY) if texts.null_count else texts, doubtful


def _text(content: bytes | None) -> str | None:
    try:
        return None if content is None else content.decode()
    except UnicodeDecodeError:
        return None


class _Screen:
    """The bytes of all documents: where quotes, colons, commas and brackets follow one another."""

    __slots__ = ("_data", "_offsets", "_texts", "has_loose", "has_spaced", "keys")

    def __init__(self, texts: Any) -> None:
        self._texts = texts
        ends = texts.buffers()[1]
        self._offsets = numpy.frombuffer(ends, numpy.int32)[texts.offset : texts.offset + len(texts) + 1]
        content = texts.buffers()[2]
        whole = numpy.frombuffer(b"" if content is None else content, numpy.uint8)
        self._data = whole[self._offsets[0] : self._offsets[-1]]
        self.has_loose = self.has_spaced = False
        self.keys = 0
        """Colons that follow a quote: as many as there are keys, where none follows a space."""
        for _, before, after in self._pieces():
            is_blank, is_colon = before <= ord(" "), after == ord(":")
            is_closing = (after | 0x20) == ord("}")  # or ]
            self.has_loose |= bool((is_closing & (is_blank | (before == ord(",")))).any())
            self.has_spaced |= bool((is_colon & is_blank).any())
            self.keys += int(numpy.count_nonzero(is_colon & (before == ord('"'))))

    def loose(self) -> Any:
        """Return which documents may have a comma before a closing bracket."""
        if not self.has_loose:
            return numpy.zeros(len(self._texts), bool)
        return _mask(compute.match_substring_regex(self._texts, _LOOSE_COMMA))

    def unlike(self, present: Any) -> Any:
        """Return which documents may have another number of keys than given, or no field at all."""
        if self.has_spaced:
            return numpy.ones(len(self._texts), bool)
        if self.keys == present.sum() and present.all():  # each has as many, for none has fewer keys than fields
            return numpy.zeros(len(self._texts), bool)
        found = [
            numpy.flatnonzero((after == ord(":")) & (before == ord('"'))) + at for at, before, after in self._pieces()
        ]
        colons = numpy.concatenate([numpy.zeros(0, numpy.int64), *found])
        ends = numpy.searchsorted(colons, self._offsets - self._offsets[0])
        return (numpy.diff(ends) != present) | (present == 0)

    def _pieces(self) -> Iterator[tuple[int, Any, Any]]:
        """Yield each place with the bytes from there on, and those behind each."""
        for at in range(0, len(self._data), _SCREENED_BYTES):
            piece = self._data[at : at + _SCREENED_BYTES + 1]
            yield at, piece[:-1], piece[1:]


def _too_long(texts: Any) -> Any:
    """Return which documents may be nested too deeply for Python, or have a number that is too long for it."""
    doubtful = numpy.zeros(len(texts), bool)
    is_long = _mask(compute.greater_equal(compute.binary_length(texts), _LONG_BYTES))
    rows = numpy.flatnonzero(is_long)
    if len(rows):
        some = texts.take(pyarrow.array(rows))
        brackets = compute.add(compute.count_substring(some, "["), compute.count_substring(some, "{"))
        is_deep = _mask(compute.greater(brackets, _BRACKETS_MAX))
        doubtful[rows] = is_deep | _mask(compute.match_substring_regex(some, _LONG_NUMBER))
    return doubtful


def _whole(column: Any) -> Any:
    """Return one array of a column in chunks."""
    chunks = column.chunks
    return chunks[0] if len(chunks) == 1 else pyarrow.concat_arrays(chunks or [pyarrow.array([], column.type)])


def _mask(flags: Any) -> Any:
    """Return flags as an array of numpy that may be changed; null is false."""
    flags = flags.fill_null(False) if flags.null_count else flags
    return numpy.array(flags.to_numpy(zero_copy_only=False))


def _without(field: Any, wrong: Any) -> Any:
    """Return the texts, null where a document says null, or is wrong."""
    return compute.if_else(pyarrow.array(wrong | _mask(compute.equal(field, "null"))), None, field)


def _nulls_of(column: Column, count: int) -> Any:
    return pyarrow.nulls(count, MADE_TYPES[column.type.name])


def _integers(column: Column, field: Any) -> tuple[Any, Any]:
    """Arrow takes nothing but digits for an integer, and none that does not fit."""
    _, most_of_type = column.type.bounds or (0, TIMESTAMP_END)
    digits = len(str(most_of_type))
    return _numbers(column, field, [rf"^-?[0-9]{{1,{most}}}$" for most in (digits, digits - 1)])


def _doubles(column: Column, field: Any) -> tuple[Any, Any]:
    numbers, wrong = _numbers(column, field, [_NUMBER])
    is_finite = compute.is_finite(numbers)
    if compute.all(is_finite).as_py() is False:
        wrong = wrong | ~_mask(is_finite.fill_null(True))
    return numbers, wrong


def _numbers(column: Column, field: Any, patterns: Sequence[str]) -> tuple[Any, Any]:
    """Return numbers of all texts; where one is none, of those that match a pattern, each narrower than the one before.
    """
    kind = MADE_TYPES[column.type.name]
    wrong = numpy.zeros(len(field), bool)
    try:
        return field.cast(kind), wrong
    except pyarrow.ArrowInvalid:
        field = _without(field, wrong)
    for pattern in patterns:
        wrong = ~_mask(compute.match_substring_regex(field, pattern).fill_null(True))
        try:
            return compute.if_else(pyarrow.array(wrong), None, field).cast(kind), wrong
        except pyarrow.ArrowInvalid:
            continue
    return pyarrow.nulls(len(field), kind), numpy.ones(len(field), bool)


def _timestamps(column: Column, field: Any) -> tuple[Any, Any]:
    numbers, wrong = _integers(column, field)
    least, most = compute.min_max(numbers).as_py().values()
    if least is not None and not 0 <= least <= most < TIMESTAMP_END:
        is_outside = compute.or_(compute.less(numbers, 0), compute.greater_equal(numbers, TIMESTAMP_END))
        wrong = wrong | _mask(is_outside)
    return numbers, wrong


def _booleans(column: Column, field: Any) -> tuple[Any, Any]:
    is_true, is_false = compute.equal(field, "true"), compute.equal(field, "false")
    values = compute.if_else(compute.or_(is_true, is_false), is_true, None)
    wrong = values.is_null() if values.null_count else None
    if wrong is None:
        return values, numpy.zeros(len(field), bool)
    return values, _mask(wrong) & ~_mask(compute.equal(field, "null").fill_null(True))


def _strings(column: Column, field: Any) -> tuple[Any, Any]:
    """Text in quotes. Bytes that are no text stand in an object, and are doubtful."""
    is_text = compute.starts_with(field, '"')
    wrong = numpy.zeros(len(field), bool)
    if compute.all(is_text, skip_nulls=True).as_py() is False:
        wrong = ~_mask(is_text.fill_null(True)) & ~_mask(compute.equal(field, "null"))
        field = _without(field, wrong)
    contents = compute.binary_slice(field.cast(pyarrow.binary()), 1, -1)
    buffer = contents.buffers()[2]
    if buffer is not None and b"\\" in memoryview(buffer).tobytes():
        contents = _unescaped(field, contents)
    return contents.cast(MADE_TYPES[column.type.name]), wrong


def _unescaped(field: Any, contents: Any) -> Any:
    is_escaped = compute.match_substring(field, "\\").fill_null(False)
    texts = [json.loads(text).encode() for text in field.filter(is_escaped).to_pylist()]
    return compute.replace_with_mask(contents, is_escaped, pyarrow.array(texts, pyarrow.binary()))


def _documents(column: Column, field: Any) -> tuple[Any, Any]:
    """Values of any kind, written as this release writes them."""
    wrong = numpy.zeros(len(field), bool)
    texts: list[str | None] = []
    for row, text in enumerate(field.to_pylist()):
        try:
            read = None if text is None else json.loads(text)
            texts.append(None if read is None else write_document(read))
        except (ValueError, RecursionError):
            texts.append(None)
            wrong[row] = True
    return pyarrow.array(texts, pyarrow.string()), wrong


MADE_TYPES: Final[Mapping[str, Any]] = {
    **{f"{sign}int{bits}": getattr(pyarrow, f"{sign}int{bits}")() for sign in ("", "u") for bits in (8, 16, 32, 64)},
    "double": pyarrow.float64(),
    "boolean": pyarrow.bool_(),
    "string": pyarrow.binary(),
    "utf8": pyarrow.string(),
    "any": pyarrow.string(),
    "timestamp": pyarrow.int64(),
}
"""Arrow types of what is made here, by the name of a column's type; timestamps and documents have another outside."""
_MAKERS: Final[Mapping[str, Callable[[Column, Any], tuple[Any, Any]]]] = {
    "double": _doubles,
    "boolean": _booleans,
    "string": _strings,
    "utf8": _strings,
    "any": _documents,
    "timestamp": _timestamps,
}
"""Makers by the name of a column's type; the others are integers."""
write_document = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
"""A value of type `any` as text."""
