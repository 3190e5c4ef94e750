"""The log of a store as a merge or a scan reads it: its versions, sorted once, as columns.

Where each row lies is found row by row; its parts are gathered by column, from an array of bytes.
"""

from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from struct import error as struct_error
from typing import Any, Final

import numpy
import pyarrow

from pqbroker.tables.sorted.blocks import BLOCK_BYTES_MAX
from pqbroker.tables.sorted.log_entries import ENTRY_HEAD, MAGIC, ROW_HEAD
from pqbroker.tables.sorted.packed_rows import HEAD_BYTES, KIND_AT, LENGTH, Kind, slot_letter
from pqbroker.tables.work.sorted.key_columns import decode_keys
from pqbroker.tables.work.sorted.refusal import damaged, unreadable
from pqbroker.tables.work.sorted.stored_values import StoredValue
from pqbroker.tables.work.sorted.version_columns import (
    STORED_TYPES,
    ColumnVersions,
    SortedShape,
    VersionColumns,
    arrow_array,
)

MERGED_LOG_BYTES_MAX: Final = (1 << 31) - 1
"""Bytes of log that one merge reads: Arrow's offsets have 32 bits."""
SPANS_MAX: Final = 10_000
"""Rows of a log whose keys are looked for in chunks one by one."""
_WORD_BYTES = 8
_SLOT_BYTES = {LENGTH: 4}


@dataclass(frozen=True, slots=True)
class _LogPlaces:
    """Places of rows in the log, arrays of numpy."""

    keys: Any
    """Position of each row's key."""
    versions: Any
    """Position of its version, where the key ends."""
    ends: Any
    columns: Any
    """Number of value columns that its entry has."""

    def take(self, numbers: Any) -> "_LogPlaces":
        return _LogPlaces(self.keys[numbers], self.versions[numbers], self.ends[numbers], self.columns[numbers])


class LogRun:
    """The log values of one or several stores."""

    def __init__(self, values: Mapping[int, StoredValue], shape: SortedShape, wanted: Sequence[int]) -> None:
        """Take values by the number of their input. `wanted`: numbers of the columns that are read, in the table's
        order. MergeRefused."""
        self._shape = shape
        self._wanted = wanted
        self._number = min(values)
        """Number of the first input, which stands for all where it is not known better."""
        size = sum(value.size for value in values.values())
        if size > MERGED_LOG_BYTES_MAX:
            raise damaged(f"logs have {size} bytes; a merge takes {MERGED_LOG_BYTES_MAX} at most", self._number)
        self._data = numpy.zeros(size + _WORD_BYTES, numpy.uint8)
        places = _Places()
        begin = 0
        for number, value in values.items():
            end = begin + value.size
            part = self._data[begin:end].data
            try:
                value.read_into(part, 0)
            except OSError as error:
                raise unreadable(error, number) from None
            places.add(part, begin, number)
            begin = end
        rows = places.found()
        self._check(rows)
        keys = self._binary(rows.keys, rows.versions)
        timestamps = self._words(rows.versions)
        unsorted = VersionColumns(keys, timestamps, self._data[rows.versions + KIND_AT] == Kind.DELETE, ())
        order = unsorted.order()
        self._rows = rows.take(order)
        self._keys = keys.take(pyarrow.array(order))
        self._sizes = numpy.cumsum(self._rows.ends - self._rows.keys)
        self.greatest_timestamp = int(timestamps.max(initial=0))
        self.row_count = len(order)

    def marks(self) -> Iterator[tuple[bytes, int]]:
        """Yield keys where it may be cut, each with the bytes from it to the next."""
        number, before = 0, 0
        while number < self.row_count:
            after = int(numpy.searchsorted(self._sizes, before + BLOCK_BYTES_MAX))
            end = min(max(after, number + 1), self.row_count)
            yield self._keys[number].as_py(), int(self._sizes[end - 1]) - before
            number, before = end, int(self._sizes[end - 1])

    def spans(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield ranges of keys that it may reach into, the last key included: where it is small, each key."""
        if self.row_count <= SPANS_MAX:
            keys = self._keys.to_pylist()
            yield from zip(keys, keys, strict=True)
        else:
            marks = [key for key, _ in self.marks()]
            yield from zip(marks, [*marks[1:], self._keys[-1].as_py()], strict=True)

    def rows(self, first: bytes, end: bytes | None) -> VersionColumns | None:
        """Return the versions of the keys from `first` to before `end`; None: it has none. MergeRefused."""
        begin = self._find(first)
        stop = self.row_count if end is None else self._find(end)
        if begin >= stop:
            return None
        by_place = numpy.argsort(self._rows.keys[begin:stop])
        ranks = numpy.empty(stop - begin, numpy.int64)
        ranks[by_place] = numpy.arange(stop - begin)
        return self._columns(self._rows.take(by_place + begin)).take(ranks)

    def _find(self, key: bytes) -> int:
        """Return the number of the first row whose key is not less."""
        low, high = 0, self.row_count
        while low < high:
            middle = (low + high) // 2
            if self._keys[middle].as_py() < key:
                low = middle + 1
            else:
                high = middle
        return low

    def _columns(self, rows: _LogPlaces) -> VersionColumns:
        """Return rows in the order of their places, with the columns that are wanted."""
        keys = self._binary(rows.keys, rows.versions)
        deletes = self._data[rows.versions + KIND_AT] == Kind.DELETE
        key_count = len(self._shape.key_columns)
        key_columns = self._key_columns(keys) if min(self._wanted, default=key_count) < key_count else ()
        values = {at - key_count for at in self._wanted if at >= key_count}
        value_columns = self._value_columns(rows, deletes, values)
        columns = [
            ColumnVersions(key_columns[at], None) if at < key_count else value_columns[at - key_count]
            for at in self._wanted
        ]
        return VersionColumns(keys, self._words(rows.versions), deletes, columns)

    def _key_columns(self, keys: Any) -> list[Any]:
        try:
            return decode_keys(keys, self._shape.key_types)
        except ValueError as damage:
            raise damaged(f"a log has a row whose key is none: {damage}", self._number) from None

    def _value_columns(self, rows: _LogPlaces, deletes: Any, wanted: set[int]) -> dict[int, ColumnVersions]:
        """Return value columns by their number. Entries before a change of the table have fewer columns than later."""
        bodies = rows.versions + KIND_AT
        is_update = self._data[bodies] == Kind.UPDATE
        bitmap_bytes = (rows.columns + 7) >> 3
        found: dict[int, ColumnVersions] = {}
        slots = bodies + 1 + 2 * bitmap_bytes
        contents = slots + _slots_bytes(self._shape, rows.columns)
        for number, (_, kind) in enumerate(self._shape.value_columns):
            letter = slot_letter(kind)
            has = ~deletes & (rows.columns > number)
            is_present = has & self._bits(bodies + 1, number, has)
            is_valid = is_present & self._bits(bodies + 1 + bitmap_bytes, number, has)
            is_needed = number in wanted
            if letter == LENGTH:
                lengths = numpy.where(is_valid, self._words(numpy.where(has, slots, 0)) & 0xFFFFFFFF, 0).astype(int)
                begins = numpy.where(has, contents, bodies)
                if is_needed:
                    array = self._binary(begins, begins + lengths, is_valid, kind)
                contents = contents + lengths
            elif is_needed:
                array = _fixed(self._words(numpy.where(has, slots, 0)), kind, is_valid)
            slots = slots + _SLOT_BYTES.get(letter, _WORD_BYTES)
            if is_needed:
                absent = is_update & ~is_present
                found[number] = ColumnVersions(array, ~absent if absent.any() else None)
        return found

    def _bits(self, bitmaps: Any, number: int, has: Any) -> Any:
        """Return the bit of a column in each row's bitmap; False where the row has no such column."""
        taken = self._data[numpy.where(has, bitmaps + (number >> 3), 0)]
        return has & ((taken >> (number & 7)) & 1).astype(bool)

    def _words(self, positions: Any) -> Any:
        """Return the 8 bytes at each position as uint64."""
        windows = numpy.ndarray(len(self._data) - _WORD_BYTES + 1, f"V{_WORD_BYTES}", self._data, strides=(1,))
        return windows[positions].view(numpy.uint64)

    def _binary(self, begins: Any, ends: Any, validity: Any = None, kind: str = "string") -> Any:
        """Return the bytes between positions, which rise: every second item of an array over the log as it lies."""
        offsets = numpy.empty(2 * len(begins), numpy.int32)
        offsets[::2] = begins
        offsets[1::2] = ends
        buffers = [None, pyarrow.py_buffer(offsets), pyarrow.py_buffer(self._data)]
        items = pyarrow.Array.from_buffers(STORED_TYPES[kind], max(2 * len(begins) - 1, 0), buffers)
        array = items.take(pyarrow.array(numpy.arange(0, 2 * len(begins), 2)))
        if validity is None or validity.all():
            return array
        return arrow_array(kind, len(begins), validity, array.buffers()[1:])

    def _check(self, rows: _LogPlaces) -> None:
        """Refuse rows whose lengths do not fit together. MergeRefused."""
        sizes = rows.ends - rows.versions
        if not len(sizes):
            return
        kinds = self._data[numpy.minimum(rows.versions + KIND_AT, len(self._data) - 1)]
        deletes = kinds == Kind.DELETE
        least = HEAD_BYTES + numpy.where(
            deletes, 0, 2 * ((rows.columns + 7) >> 3) + _slots_bytes(self._shape, rows.columns)
        )
        is_wrong = (sizes < least) | ~numpy.isin(kinds, list(Kind)) | (deletes & (sizes != HEAD_BYTES))
        is_wrong |= rows.columns > len(self._shape.value_columns)
        if is_wrong.any():
            at = int(rows.keys[is_wrong.argmax()])
            raise damaged(f"a log has no version of a row where its key at byte {at} ends", self._number)
        self._check_contents(rows, deletes)

    def _check_contents(self, rows: _LogPlaces, deletes: Any) -> None:
        contents = numpy.zeros(len(deletes), numpy.int64)
        bodies = rows.versions + KIND_AT
        bitmap_bytes = (rows.columns + 7) >> 3
        slots = bodies + 1 + 2 * bitmap_bytes
        for column, (_, kind) in enumerate(self._shape.value_columns):
            has = ~deletes & (rows.columns > column)
            if (letter := slot_letter(kind)) == LENGTH:
                is_valid = self._bits(bodies + 1, column, has) & self._bits(bodies + 1 + bitmap_bytes, column, has)
                words = self._words(numpy.where(has, slots, 0)) & 0xFFFFFFFF
                contents += numpy.where(is_valid, words, 0).astype(numpy.int64)
            slots = slots + _SLOT_BYTES.get(letter, _WORD_BYTES)
        ends = bodies + 1 + 2 * bitmap_bytes + _slots_bytes(self._shape, rows.columns) + contents
        is_wrong = ~deletes & (ends != rows.ends)
        if is_wrong.any():
            at = int(rows.versions[is_wrong.argmax()])
            raise damaged(f"a version of a row at byte {at} of a log does not end where its columns do", self._number)


class _Places:
    """Places of rows, found one by one: arrays that grow, for objects of Python would take more than the rows."""

    def __init__(self) -> None:
        self._keys, self._versions, self._ends, self._columns = (array("q") for _ in range(4))

    def add(self, value: memoryview, shift: int, number: int) -> None:
        """Find the rows of one value, which lies at a shift among all. MergeRefused."""
        position = 0
        try:
            while position < len(value):
                magic, columns, zero, rows, size = ENTRY_HEAD.unpack_from(value, position)
                position += ENTRY_HEAD.size
                end = position + size
                if magic != MAGIC or zero or end > len(value):
                    raise damaged(f"a log of {len(value)} bytes has no entry before byte {position}", number)
                position = self._add_rows(value, position, rows, shift)
                if position != end:
                    raise damaged(f"an entry of a log ends at byte {end}, its rows at {position}", number)
                self._columns.extend([columns] * rows)
        except struct_error:
            raise damaged(f"a log of {len(value)} bytes ends within an entry", number) from None

    def _add_rows(self, value: memoryview, position: int, rows: int, shift: int) -> int:
        """Return the position behind the rows."""
        unpack, head = ROW_HEAD.unpack_from, ROW_HEAD.size
        keys: list[int] = []
        versions: list[int] = []
        ends: list[int] = []
        position += shift
        for _ in range(rows):
            version_bytes, key_bytes = unpack(value, position - shift)
            position += head
            keys.append(position)
            position += key_bytes
            versions.append(position)
            position += version_bytes
            ends.append(position)
        self._keys.extend(keys)
        self._versions.extend(versions)
        self._ends.extend(ends)
        return position - shift

    def found(self) -> _LogPlaces:
        parts = (self._keys, self._versions, self._ends, self._columns)
        return _LogPlaces(*(numpy.frombuffer(part, numpy.int64) for part in parts))


def _slots_bytes(shape: SortedShape, columns: Any) -> Any:
    """Return the bytes of all slots of a row, given how many columns it has."""
    sizes = [_SLOT_BYTES.get(slot_letter(kind), _WORD_BYTES) for _, kind in shape.value_columns]
    return numpy.cumsum([0, *sizes])[numpy.minimum(columns, len(sizes))]


def _fixed(words: Any, kind: str, validity: Any) -> Any:
    """Return the array of a column that has a slot of 8 bytes."""
    if kind == "boolean":
        bits = numpy.packbits(words != 0, bitorder="little")
        return arrow_array(kind, len(words), validity, [pyarrow.py_buffer(bits)])
    letter = slot_letter(kind)
    width = STORED_TYPES[kind].to_pandas_dtype()
    values = words.view(letter).astype(width, copy=False)
    return arrow_array(kind, len(words), validity, [pyarrow.py_buffer(numpy.ascontiguousarray(values))])
