"""Parts of a KV tablet's values: where stored bytes are, in a row or in blobs; and pieces of values to be stored."""

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate

from pqbroker.storage.counters import KeyValueCounters
from pqbroker.storage.engine import BlobKey, Buffer, FileRange
from pqbroker.storage.kv.commands import PIECE_BYTES_MAX, KeyMissing
from pqbroker.storage.kv.rows import Entry
from pqbroker.storage.tablets.tablet import TabletStorage

SENT_PIECE_BYTES = 32_768
"""Least mean size of pieces that are sent from their files: each one takes a system call."""
Range = tuple[bytes, int, int]
"""Key, offset, size in bytes; size 0 means to the end (spec B.1)."""
ValuePart = tuple[BlobKey, int, int] | Buffer
"""Blob, offset and size of what is to be read; or the bytes themselves."""


class _ValueParts:
    """Finds them; the chain of the value that was read last is remembered: neighbours are read one by one."""

    __slots__ = ("_chain_of", "_chained")

    def __init__(self) -> None:
        self._chained: Entry | None = None
        self._chain_of: tuple[list[int], list[BlobKey]] = [0], []
        """The chain of the value `_chained`."""

    def locate(self, entry: Entry, offset: int, size: int) -> list[ValuePart]:
        """The parts of a range; size 0 means to the value's end. Short at its end."""
        end = min(offset + size, entry.size) if size else entry.size
        if entry.is_inline:
            return [entry.value[offset:end]] if offset < end else []
        found: list[ValuePart] = []
        if self._chained is not entry:
            self._chained = entry
            self._chain_of = list(accumulate(entry.pieces, initial=0)), list(entry.blobs())
        starts, blobs = self._chain_of
        index = bisect_right(starts, offset) - 1
        while offset < end:
            stop = min(end, starts[index + 1])
            found.append((blobs[index], offset - starts[index], stop - offset))
            offset = stop
            index += 1
        return found


class ValueReader:
    """Reads values of a tablet's entries, which only the tablet changes."""

    __slots__ = ("_counters", "_entries", "_parts", "_storage")

    def __init__(
        self, storage: TabletStorage, entries: Mapping[bytes, Entry], counters: KeyValueCounters
    ) -> None:
        self._storage = storage
        self._entries = entries
        self._counters = counters
        self._parts = _ValueParts()

    async def read(self, ranges: Sequence[Range]) -> list[list[Buffer]]:
        """The bytes of each range of a durable value as buffers in order, read together. Short at a value's end.

        Raises KeyMissing, BlobCorrupt, ShardLost; BlobMissing when a value is deleted while it is read.
        """
        self._counters.reads += len(ranges)
        parts = [self._locate(*item) for item in ranges]
        stored = [part for found in parts for part in found if isinstance(part, tuple)]
        data = iter(await self._storage.read(stored) if stored else ())
        return [[next(data) if isinstance(part, tuple) else part for part in found] for found in parts]

    async def verify(
        self, ranges: Sequence[Range], *, by_reader: bool = False
    ) -> list[list[Buffer | FileRange] | None]:
        """Read as `read` does, for bytes that are only to be sent; None for a range whose pieces are too small for
        that. `by_reader` as `Shard.verify` has it."""
        located: list[list[ValuePart] | None] = []
        for item in ranges:
            parts = self._locate(*item)
            located.append(None if len(parts) * SENT_PIECE_BYTES > item[2] else parts)
        asked = [parts for parts in located if parts is not None]
        self._counters.reads += len(asked)
        stored = [part for parts in asked for part in parts if isinstance(part, tuple)]
        data = iter(await self._storage.verify(stored, by_reader=by_reader) if stored else ())
        return [
            None if parts is None else [next(data) if isinstance(part, tuple) else part for part in parts]
            for parts in located
        ]

    def _locate(self, key: bytes, offset: int, size: int) -> list[ValuePart]:
        entry = self._entries.get(key)
        if entry is None:
            raise KeyMissing(key)
        return self._parts.locate(entry, offset, size)


def cut(buffers: Sequence[Buffer]) -> Iterator[tuple[list[Buffer], int]]:
    """The buffers in pieces of 8 MiB and a rest: slices, not copies; each with its size in bytes."""
    piece: list[Buffer] = []
    room = PIECE_BYTES_MAX
    for buffer in buffers:
        view = memoryview(buffer)
        while len(view) >= room:
            yield [*piece, view[:room]], PIECE_BYTES_MAX
            view = view[room:]
            piece, room = [], PIECE_BYTES_MAX
        if len(view):
            piece.append(view)
            room -= len(view)
    if piece:
        yield piece, PIECE_BYTES_MAX - room
