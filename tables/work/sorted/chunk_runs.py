"""A chunk as a merge or a scan reads it: its versions of a range of keys, as columns."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy
import pyarrow

from pqbroker.tables.sorted.blocks import COLUMN_BUFFERS, KEY_BUFFERS, WIDTHS, Block
from pqbroker.tables.sorted.chunks import FOOTER_BYTES, ChunkDamaged, ChunkIndex, Trait, read_index_bytes
from pqbroker.tables.work.sorted.refusal import damaged, unreadable
from pqbroker.tables.work.sorted.stored_values import StoredValue
from pqbroker.tables.work.sorted.version_columns import (
    STORED_TYPES,
    ColumnVersions,
    SortedShape,
    VersionColumns,
    concatenated,
)


class ChunkRun:
    """One chunk. `wanted`: numbers of the columns that are read, in the table's order."""

    def __init__(self, value: StoredValue, shape: SortedShape, wanted: Sequence[int], input_number: int) -> None:
        """MergeRefused."""
        self._value = value
        self._number = input_number
        self.blocks_read = 0
        self.bytes_read = 0
        """Bytes of blocks, as they are stored."""
        try:
            footer = bytes(value.read(max(value.size - FOOTER_BYTES, 0), min(value.size, FOOTER_BYTES)))
            index_bytes = read_index_bytes(footer)
            if index_bytes > value.size:
                raise ChunkDamaged(f"a chunk of {value.size} bytes has no room for an index of {index_bytes}")
            self.index = ChunkIndex.decode(bytes(value.read(value.size - index_bytes, index_bytes)))
        except ChunkDamaged as damage:
            raise damaged(str(damage), input_number) from None
        except OSError as error:
            raise unreadable(error, input_number) from None
        self.greatest_timestamp = self.index.facts.greatest_timestamp
        facts = self.index.facts
        known = {name: (at, kind) for at, (name, kind) in enumerate((*facts.key_columns, *facts.value_columns))}
        names = [name for name, _ in shape.columns]
        if set(known).difference(names) or facts.key_columns != shape.key_columns:
            raise damaged(f"a chunk has the columns {', '.join(known)}, the table {', '.join(names)}", input_number)
        self._columns = [(shape.columns[number][1], known.get(names[number])) for number in wanted]
        """Type of each column in the table; its place and type in the chunk, or None: the chunk is older."""

    def marks(self) -> Iterator[tuple[bytes, int]]:
        """Yield keys where it may be cut, each with the bytes from it to the next."""
        for place in self.index.places:
            yield place.first_key, place.unpacked_bytes

    def spans(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield ranges of keys that it may reach into, the last key included."""
        yield self.index.first_key, self.index.last_key

    def rows(self, first: bytes, end: bytes | None) -> VersionColumns | None:
        """Return the versions of the keys from `first` to before `end`; None: it has none. MergeRefused."""
        numbers = self.index.blocks_of_range(first, end)
        blocks = self.blocks(numbers)
        parts = []
        for number, block in zip(numbers, blocks, strict=True):
            place = self.index.places[number]
            begin = block.find(first) if place.first_key < first else 0
            is_last = number + 1 >= numbers.stop
            stop = block.find(end) if is_last and end is not None else block.rows
            if begin < stop:
                whole = self.columns_of(block, place.traits)
                parts.append(whole if stop - begin == block.rows else whole.slice(begin, stop))
        return concatenated(parts) if parts else None

    def blocks(self, numbers: range) -> list[Block]:
        """Read blocks that follow one another. MergeRefused."""
        if not numbers:
            return []
        places = [self.index.places[number] for number in numbers]
        begin = places[0].position
        self.blocks_read += len(places)
        try:
            data = memoryview(self._value.read(begin, places[-1].position + places[-1].stored_bytes - begin))
            self.bytes_read += len(data)
            return [
                self.index.block(number, data[place.position - begin : place.position - begin + place.stored_bytes])
                for number, place in zip(numbers, places, strict=True)
            ]
        except ChunkDamaged as damage:
            raise damaged(str(damage), self._number) from None
        except OSError as error:
            raise unreadable(error, self._number) from None

    def columns_of(self, block: Block, traits: int) -> VersionColumns:
        """Return a block's versions; nothing of it is copied but bitmaps."""
        rows = block.rows
        keys = pyarrow.Array.from_buffers(
            pyarrow.binary(), rows, [None, pyarrow.py_buffer(block.buffer(0)), pyarrow.py_buffer(block.buffer(1))]
        )
        deletes = _booleans(block.buffer(3), rows) if traits & Trait.DELETES else numpy.zeros(rows, bool)
        columns = [self.column_of(block, number) for number in range(len(self._columns))]
        return VersionColumns(keys, numpy.frombuffer(block.buffer(2), numpy.uint64), deletes, columns)

    def column_of(self, block: Block, number: int) -> ColumnVersions:
        """Return one of the wanted columns."""
        kind, known = self._columns[number]
        rows = block.rows
        if known is None:
            return ColumnVersions(pyarrow.nulls(rows, STORED_TYPES[kind]), numpy.zeros(rows, bool))
        at, stored_kind = known
        first = KEY_BUFFERS + COLUMN_BUFFERS * at
        presence, *buffers = (block.buffer(first + each) for each in range(COLUMN_BUFFERS))
        if stored_kind in WIDTHS:
            del buffers[1]
        arrow = [pyarrow.py_buffer(each) if each or each_at else None for each_at, each in enumerate(buffers)]
        values = pyarrow.Array.from_buffers(STORED_TYPES[stored_kind], rows, arrow)
        if stored_kind != kind:
            values = values.cast(STORED_TYPES[kind])
        return ColumnVersions(values, _booleans(presence, rows) if presence else None)


def _booleans(bitmap: Any, rows: int) -> Any:
    return numpy.unpackbits(numpy.frombuffer(bitmap, numpy.uint8), count=rows, bitorder="little").astype(bool)
