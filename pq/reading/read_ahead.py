"""Reading ahead of sequential readers: into the node's cache, or, for one whose answers are only sent, verified where
it lies and sent from its files.

A reader is recognised by where its last read ended; the second read that begins where one ended makes it sequential.
"""

import asyncio
from collections import deque

from pqbroker.pq.log.batch_run import Batches
from pqbroker.pq.log.body import BodyIndex, BodyName
from pqbroker.pq.log.partition import Partition
from pqbroker.pq.reading.cache import NodeMemory
from pqbroker.pq.reading.query import ReadQuery
from pqbroker.pq.reading.run_loading import PARTITION_READ_BYTES_MAX, RunLoader
from pqbroker.pq.reading.verified_range import VerifiedRange
from pqbroker.storage.engine import BlobCorrupt, BlobMissing, Buffer, ShardLost
from pqbroker.storage.file_regions import FileRegion
from pqbroker.storage.kv.commands import KeyMissing
from pqbroker.storage.kv.tablet import KeyValueTablet

_PAGES_AHEAD = 8
"""Read ahead at once; a sequential reader has up to twice as much ahead of it."""
_CACHE_BYTES_MIN = 2 * PARTITION_READ_BYTES_MAX
"""A smaller cache would lose what is read ahead before it is read."""
_READERS_MAX = 16
"""Sequential readers of one partition that are recognised."""


class _SequentialReader:
    """The offsets [begin, end) read ahead last, the task that reads them, and what was verified in its files."""

    __slots__ = ("begin", "end", "task", "verified")

    def __init__(self) -> None:
        self.begin = self.end = -1
        self.task: asyncio.Task[None] | None = None
        self.verified: deque[VerifiedRange] = deque(maxlen=2)


class ReadAhead:
    """The sequential readers of one partition's bodies."""

    __slots__ = ("_cache", "_files", "_kv", "_partition", "_runs", "readers")

    def __init__(self, partition: Partition, kv: KeyValueTablet, runs: RunLoader, memory: NodeMemory) -> None:
        self._partition = partition
        self._kv = kv
        self._runs = runs
        self._cache = memory.cache
        self._files = memory.sent_files
        self.readers: dict[int, _SequentialReader] = {}
        """Readers by the offset that each would read next."""

    def verified(self, query: ReadQuery) -> Batches | None:
        """Whole batches out of what was verified ahead; None when the first is not in it."""
        reader = self.readers.get(query.offset)
        if reader is None:
            return None
        found: list[Buffer | FileRegion] = []
        size, following = 0, query.offset
        for one in reader.verified:
            if one.begin <= following < one.end <= query.end_offset and size < query.bytes_max:
                part = one.read(following, query.bytes_max - size)
                opened = None if part is None else self._files.open(part[0], one.verified_s)
                if part is None or opened is None:
                    break
                found += opened
                size += part[1]
                following = part[2]
        return Batches(found, size, following) if size else None

    async def wait(self, offset: int) -> None:
        """Return when what is being read ahead for the sequential reader at `offset` has been read."""
        reader = self.readers.get(offset)
        if reader is not None and reader.task is not None:
            await asyncio.wait((reader.task,))

    def follow(self, offset: int, next_offset: int, *, is_sent: bool) -> None:
        """After a read of [offset, next_offset): read ahead what a sequential reader wants next.

        `is_sent`: it is sent as it is, so that it need not be in memory.
        """
        if offset == next_offset:
            return
        reader = self.readers.pop(offset, None)
        if self._partition.bodies.find(next_offset) == len(self._partition.bodies):
            return
        is_sequential = reader is not None
        reader = self.readers[next_offset] = reader or _SequentialReader()
        if len(self.readers) > _READERS_MAX:
            del self.readers[next(iter(self.readers))]
        is_due = is_sequential and reader.task is None and next_offset >= reader.begin
        if is_due and self._cache.bytes_max >= _CACHE_BYTES_MIN:
            reader.task = asyncio.get_running_loop().create_task(self._read(reader, next_offset, is_sent))
            reader.task.add_done_callback(_retrieve)

    async def _read(self, reader: _SequentialReader, offset: int, is_sent: bool) -> None:
        """Read what follows the range read ahead last, while the reader is still at that."""
        try:
            begin = max(offset, reader.end)
            number = self._partition.bodies.find(begin)
            if number == len(self._partition.bodies):
                return
            name = self._partition.bodies.name(number)
            index = await self._runs.index(number)
            first = index.page_of(begin)
            last = min(first + _PAGES_AHEAD, len(index.pages)) - 1
            reader.begin = begin
            reader.end = index.span(*index.page_entries(last))[2]
            verified = await self._verify(index, name, begin, last) if is_sent else None
            if verified is not None:
                reader.verified.append(verified)
            else:
                await self._runs.load_pages(name, index, range(first, last + 1))
        except (KeyMissing, BlobMissing, BlobCorrupt, ShardLost):
            return
        finally:
            reader.task = None

    async def _verify(self, index: BodyIndex, name: BodyName, begin: int, last: int) -> VerifiedRange | None:
        """Verify the batches from the offset `begin` up to the end of a page where they lie, if they can be sent so."""
        key = self._runs.key_of(name)
        position = self._position(index, begin)
        if position is None:
            return None
        begun, size, end = index.span(*index.page_entries(last))
        if position >= begun + size:  # in the gap behind the batches
            return None
        (pieces,) = await self._kv.verify([(key, position, begun + size - position)])
        if pieces is None:
            return None
        verified_s = asyncio.get_running_loop().time()
        return VerifiedRange(index, (begin, end), position, pieces, verified_s)

    def _position(self, index: BodyIndex, offset: int) -> int | None:
        """Return the position in its body at which the batch at an offset begins; None when that is not known without
        reading."""
        entry = index.entry_of(offset)
        if offset <= index.offsets[entry]:
            return index.positions[entry]
        run = self._runs.find(offset, {})
        return None if run is None else run.locate(offset, run.end)


def _retrieve(task: "asyncio.Task[None]") -> None:
    """A failure ends the reading ahead; the reader's own read meets it."""
    if not task.cancelled():
        task.exception()
