"""Chunks as they are written: versions in order are cut into blocks, each is packed, and leaves at once."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from itertools import pairwise
from typing import Any, Final
from zlib import crc32

import numpy
from crc32c import crc32c

from pqbroker.tables.sorted.blocks import (
    BLOCK_BYTES_MAX,
    BUFFER_STEP,
    COLUMN_BUFFERS,
    KEY_BUFFERS,
    WIDTHS,
    encode_block,
    head_bytes,
)
from pqbroker.tables.sorted.chunks import (
    FILTER_MIX,
    FILTER_SHIFTS,
    ChunkSummary,
    Place,
    Trait,
    encode_index,
    filter_words,
    pack_block,
)
from pqbroker.tables.work.sorted.samples import Samples
from pqbroker.tables.work.sorted.version_columns import ColumnVersions, SortedShape, VersionColumns

_BITS = 8
_ROW_BITS: Final = _BITS * (8 + 4) + 1
"""Bits of a row's timestamp, of its key's offset, and whether it is a delete."""
_NOTHING: Final = b""


class ChunkWriter:
    """One chunk that is being written. `send` takes its bytes, in order."""

    def __init__(self, shape: SortedShape, samples_max: int, send: Callable[[bytes], None]) -> None:
        self._shape = shape
        self._samples = Samples(samples_max)
        self._send = send
        self._places: list[Place] = []
        self._hashes: list[Any] = []
        self._rows = self._deletes = self._unpacked_bytes = 0
        self._least, self._greatest = (1 << 64) - 1, 0
        self._last_key = _NOTHING
        self.stored_bytes = 0
        """Bytes of its blocks so far."""
        self.keys = 0
        """Keys so far, each of which takes memory until the filter is made."""

    def write(self, rows: "BlockRows", begin: int, end: int) -> None:
        """Write versions as one block."""
        block, traits = rows.block(begin, end)
        stored = pack_block(block)
        self._places.append(
            Place(self.stored_bytes, len(stored), len(block), end - begin, traits, crc32c(stored), rows.key(begin))
        )
        hashes = rows.hashes(begin, end)
        self._hashes.append(hashes)
        self.keys += len(hashes)
        self._samples.add(rows, begin, end)
        timestamps = rows.timestamps[begin:end]
        self._least = min(self._least, int(timestamps.min()))
        self._greatest = max(self._greatest, int(timestamps.max()))
        self._rows += end - begin
        self._deletes += int(rows.deletes[begin:end].sum())
        self._unpacked_bytes += len(block)
        self._last_key = rows.key(end - 1)
        self.stored_bytes += len(stored)
        self._send(stored)

    def end(self) -> dict[str, Any]:
        """Write the index: return the facts of the chunk for those who have only these."""
        facts = ChunkSummary(
            self._rows, self.keys, self._deletes, self._unpacked_bytes, self._least, self._greatest,
            self._last_key.hex(), self._shape.key_columns, self._shape.value_columns, self._samples.found(),
        )  # fmt: skip
        index = encode_index(self._places, _filter(self.keys, self._hashes), facts)
        self._send(index)
        return {
            "rows": facts.rows, "keys": facts.keys, "deletes": facts.deletes, "blocks": len(self._places),
            "size": self.stored_bytes + len(index), "index_bytes": len(index), "unpacked_bytes": facts.unpacked_bytes,
            "least_timestamp": facts.least_timestamp, "greatest_timestamp": facts.greatest_timestamp,
            "first_key": self._places[0].first_key.hex(), "last_key": facts.last_key, "samples": facts.samples,
        }  # fmt: skip


class BlockRows:
    """Versions in order, prepared to be cut into blocks."""

    def __init__(self, rows: VersionColumns, shape: SortedShape) -> None:
        self.timestamps = rows.timestamps
        self.deletes = rows.deletes
        self.is_first = rows.first_of_keys()
        self._keys = _Texts(rows.keys)
        self._columns = [
            _column(column, kind) for column, (_, kind) in zip(rows.columns, shape.columns, strict=True)
        ]
        bits = sum((column.bits for column in self._columns), _BITS * self._keys.sizes.astype(numpy.int64))
        self._ends = numpy.cumsum(bits + _ROW_BITS)
        """Bits of all rows up to each."""
        buffers = KEY_BUFFERS + COLUMN_BUFFERS * len(self._columns)
        padding = BUFFER_STEP * (KEY_BUFFERS + sum(column.buffer_count for column in self._columns))
        self._room = max(BLOCK_BYTES_MAX - head_bytes(buffers) - padding, 0) * _BITS

    def end_of_block(self, begin: int) -> int:
        """Return where the block that begins with a row ends."""
        before = int(self._ends[begin - 1]) if begin else 0
        return max(int(numpy.searchsorted(self._ends, before + self._room, "right")), begin + 1)

    def end_of_key(self, row: int) -> int:
        """Return where the versions of a row's key end."""
        later = self.is_first[row + 1 :]
        return row + 1 + int(later.argmax()) if later.any() else len(self.is_first)

    def sizes(self, begin: int, end: int) -> Any:
        """Return about how many bytes each row takes in a block."""
        before = int(self._ends[begin - 1]) if begin else 0
        return numpy.diff(self._ends[begin:end], prepend=before) // _BITS

    def block(self, begin: int, end: int) -> tuple[bytes, int]:
        """Return rows as a block, and its traits."""
        deletes = self.deletes[begin:end]
        has_deletes = bool(deletes.any())
        buffers = [
            *self._keys.buffers(begin, end), _bytes(self.timestamps[begin:end]),
            _bits_of(deletes) if has_deletes else _NOTHING,
        ]  # fmt: skip
        has_absent = False
        for column in self._columns:
            presence, *others = column.buffers(begin, end)
            has_absent = has_absent or bool(presence)
            buffers += (presence, *others)
        traits = Trait.DELETES if has_deletes else Trait(0)
        if not self.is_first[begin]:
            traits |= Trait.CONTINUES
        if not self.is_first[begin + 1 : end].all():
            traits |= Trait.SEVERAL
        if has_absent:
            traits |= Trait.ABSENT
        return encode_block(end - begin, buffers), int(traits)

    def key(self, row: int) -> bytes:
        return self._keys.value(row)

    def hashes(self, begin: int, end: int) -> Any:
        """Return the crc32 of each key that begins within rows."""
        return self._keys.hashes(begin, end, self.is_first[begin:end])


class _Texts:
    """Strings of a column, or keys: their bytes end to end."""

    def __init__(self, array: Any) -> None:
        _, offsets, data = array.buffers()
        self._offsets = numpy.frombuffer(offsets, numpy.int32)[array.offset : array.offset + len(array) + 1]
        self._data = memoryview(data if data is not None else _NOTHING)
        self.sizes = numpy.diff(self._offsets)

    def buffers(self, begin: int, end: int) -> tuple[Any, Any]:
        offsets = self._offsets[begin : end + 1]
        return _bytes(offsets - offsets[0]), self._data[offsets[0] : offsets[-1]]

    def value(self, row: int) -> bytes:
        return bytes(self._data[self._offsets[row] : self._offsets[row + 1]])

    def hashes(self, begin: int, end: int, is_first: Any) -> Any:
        offsets = self._offsets[begin : end + 1]
        data = bytes(self._data[offsets[0] : offsets[-1]])
        bounds = (offsets - offsets[0]).tolist()
        hashes = numpy.fromiter((crc32(data[low:high]) for low, high in pairwise(bounds)), numpy.uint32, end - begin)
        return hashes[is_first]


class _Column(ABC):
    """A column prepared to be cut: which rows have it, which are valid, their values."""

    def __init__(self, column: ColumnVersions) -> None:
        values = column.values
        self._presence = column.presence
        self._validity = values.is_valid().to_numpy(zero_copy_only=False) if values.null_count else None
        bitmaps = (self._presence is not None) + (self._validity is not None)
        self.bits: Any = numpy.array([bitmaps], numpy.int64)
        """Bits that each row takes, or one number for all."""
        self.buffer_count = 1 + bitmaps

    def buffers(self, begin: int, end: int) -> tuple[Any, Any, Any, Any]:
        """Return the buffers of a block's rows."""
        bitmaps = (_bitmap(self._presence, begin, end), _bitmap(self._validity, begin, end))
        return *bitmaps, *self._values_of(begin, end)

    @abstractmethod
    def _values_of(self, begin: int, end: int) -> tuple[Any, Any]:
        """Return the lengths of a block's rows, empty where all have one width, and their contents."""


class _TextColumn(_Column):
    def __init__(self, column: ColumnVersions) -> None:
        super().__init__(column)
        self._texts = _Texts(column.values)
        self.bits = self.bits + _BITS * (self._texts.sizes.astype(numpy.int64) + 4)
        self.buffer_count += 1

    def _values_of(self, begin: int, end: int) -> tuple[Any, Any]:
        return self._texts.buffers(begin, end)


class _FixedColumn(_Column):
    def __init__(self, column: ColumnVersions, width: int) -> None:
        super().__init__(column)
        values = column.values
        self._is_boolean = not width
        if self._is_boolean:
            self._values = values.fill_null(False).to_numpy(zero_copy_only=False)
        else:
            dtype = values.type.to_pandas_dtype()
            self._values = numpy.frombuffer(values.buffers()[1], dtype)[values.offset : values.offset + len(values)]
        self.bits = self.bits + (_BITS * width or 1)

    def _values_of(self, begin: int, end: int) -> tuple[Any, Any]:
        values = self._values[begin:end]
        return _NOTHING, _bits_of(values) if self._is_boolean else _bytes(values)


def _column(column: ColumnVersions, kind: str) -> _Column:
    width = WIDTHS.get(kind)
    return _TextColumn(column) if width is None else _FixedColumn(column, width)


def _bitmap(booleans: Any, begin: int, end: int) -> Any:
    """Return a bitmap of the form: none where all bits are set."""
    if booleans is None or booleans[begin:end].all():
        return _NOTHING
    return _bits_of(booleans[begin:end])


def _bits_of(booleans: Any) -> Any:
    return _bytes(numpy.packbits(booleans, bitorder="little"))


def _bytes(values: Any) -> Any:
    return numpy.ascontiguousarray(values).view(numpy.uint8).data


def _filter(keys: int, hashes: list[Any]) -> bytes:
    """Return the words of a bloom filter, four bits of one word for each key. It takes the hashes out of their list:
    of millions of keys they are as large as all else."""
    words = numpy.zeros(filter_words(keys), numpy.uint64)
    while hashes:
        some = hashes.pop().astype(numpy.uint64)
        mixed = some * numpy.uint64(FILTER_MIX)
        masks = numpy.zeros(len(some), numpy.uint64)
        for shift in FILTER_SHIFTS:
            masks |= numpy.uint64(1) << ((mixed >> numpy.uint64(shift)) & numpy.uint64(63))
        numpy.bitwise_or.at(words, some % numpy.uint64(len(words)), masks)
    return words.tobytes()
