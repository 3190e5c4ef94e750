"""Whole batches of a partition where they lie, for a reader in another process: regions of segment files, and the bytes
of what has none.

Files are kept by nobody. A reader verifies what it reads there by the checksums of its batches and where these follow
one another. One that finds a file gone, or other bytes in it, asks again, and for files that are verified here.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from pqbroker.pq.log.batch_run import Batches
from pqbroker.pq.log.body import BodyIndex, BodyName
from pqbroker.pq.log.partition import Partition
from pqbroker.pq.reading.query import ReadQuery
from pqbroker.pq.reading.reader import Reader
from pqbroker.pq.serving.served_reads import read_served
from pqbroker.storage.engine import Buffer, FileRange
from pqbroker.storage.kv.tablet import KeyValueTablet

EARLIEST_MS = -(1 << 62)
"""No record is before that."""
HEAD = -1
"""Stands for the head in place of a body's first offset."""


class StretchQuery(NamedTuple):
    """Batches from the one that holds `offset` up to the one before `end_offset`, about `bytes_max` of them.

    Those may be left out that hold no record at or after `timestamp_min`.
    """

    offset: int
    end_offset: int
    bytes_max: int
    timestamp_min: int = EARLIEST_MS
    is_verified: bool = True
    """True if the broker verifies files before it answers; False: the reader does."""


class Stretch(NamedTuple):
    """The pieces end to end are whole batches; a few may lie before or behind what was asked for."""

    pieces: Sequence[Buffer | FileRange]
    next_offset: int
    """Offset to read at next; the query's end when no more batches follow."""
    blob: int
    """First offset of the body that they are from, or HEAD."""
    bounds: tuple[int, int] | None = None
    """Offset of the first batch, and where the last one ends at most; None: they are in memory, and so are known to be
    whole."""


class _InBody(NamedTuple):
    """The place of a stretch in a body: position and size, and what is known of its batches."""

    body: BodyName
    position: int
    size: int
    bounds: tuple[int, int]


class StretchReader:
    """The reader of one partition's stretches. KafkaError CORRUPT_MESSAGE where a batch is damaged,
    NOT_LEADER_OR_FOLLOWER."""

    __slots__ = ("_check_served", "_kv", "_partition", "_reader")

    def __init__(
        self, partition: Partition, kv: KeyValueTablet, reader: Reader, check_served: Callable[[], None]
    ) -> None:
        self._partition = partition
        self._kv = kv
        self._reader = reader
        self._check_served = check_served

    async def read(self, query: StretchQuery, most: int = 1) -> list[Stretch]:
        """The next batches: one stretch at least, and up to `most` that follow one another and lie in files. What was
        deleted since the query began is passed over."""
        return await read_served(self._check_served, partial(self._read, query, most))

    async def _read(self, query: StretchQuery, most: int) -> list[Stretch]:
        bodies = self._partition.bodies
        offset = max(query.offset, self._partition.start_offset)
        found: list[_InBody] = []
        while offset < query.end_offset and len(found) < most:
            number = bodies.find(offset)
            if number == len(bodies):
                if found:
                    break
                return [await self._read_head(query, offset)]
            name = bodies.name(number)
            if name.offset >= query.end_offset:
                break
            index = await self._reader.runs.index(number)
            first = _first_entry(index, offset, query.timestamp_min)
            if first < len(index.positions):
                position, size, offset = index.span(first, _last_entry(index, first, query))
                found.append(_InBody(name, position, size, (index.offsets[first], offset)))
            else:
                offset = index.end_offset
        return await self._read_bodies(query, found) if found else [Stretch((), query.end_offset, HEAD)]

    async def _read_bodies(self, query: StretchQuery, asked: Sequence[_InBody]) -> list[Stretch]:
        """Return the stretches that lie in files; or the first one, whose bytes are in memory then."""
        located = await self._kv.verify([self._where(each) for each in asked], by_reader=not query.is_verified)
        found: list[Stretch] = []
        for each, at in zip(asked, located, strict=True):
            bounds, blob = each.bounds, each.body.offset
            pieces: Sequence[Buffer | FileRange] | None = at
            if pieces is None or not all(isinstance(piece, FileRange) for piece in pieces):
                if found:
                    break
                if pieces is None:
                    (pieces,) = await self._kv.read([self._where(each)])
                return [Stretch(pieces, min(bounds[1], query.end_offset), blob, bounds)]
            found.append(Stretch(pieces, min(bounds[1], query.end_offset), blob, bounds))
        return found

    def _where(self, each: _InBody) -> tuple[bytes, int, int]:
        """Key, position and size for a read that begins in this turn of the loop; KeyMissing."""
        return self._reader.runs.key_of(each.body), each.position, each.size

    async def _read_head(self, query: StretchQuery, offset: int) -> Stretch:
        """A reader's view never ends within a batch, and this one's may: what lies behind it comes along."""
        read = self._reader.read(ReadQuery(offset, self._partition.end_offset, query.bytes_max))
        found = read if isinstance(read, Batches) else await read
        next_offset = found.next_offset if found.size else query.end_offset
        return Stretch(found.in_memory(), min(next_offset, query.end_offset), HEAD)


def _first_entry(index: BodyIndex, offset: int, timestamp_min: int) -> int:
    """Return the first entry, from the one that holds the offset on, that may hold such a record; the count when none
    does."""
    entry = index.entry_of(offset)
    while entry < len(index.positions) and index.stamps[entry] < timestamp_min:
        entry += 1
    return entry


def _last_entry(index: BodyIndex, first: int, query: StretchQuery) -> int:
    """Behind the last entry of a stretch that begins with `first`: one at least."""
    positions = index.positions
    limit = positions[first] + query.bytes_max
    last = len(positions) if index.data_bytes <= limit else bisect_right(positions, limit, first) - 1
    last = max(min(last, bisect_left(index.offsets, query.end_offset, first)), first + 1)
    if query.timestamp_min > EARLIEST_MS:
        stamps = index.stamps[first + 1 : last]
        last = first + 1 + next((at for at, stamp in enumerate(stamps) if stamp < query.timestamp_min), len(stamps))
    return last
