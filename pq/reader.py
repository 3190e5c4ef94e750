"""Reads of one partition: from the head and the node's cache at once, else from the KV tablet in ranges of a page or
more.

Nothing is decided here about writing. A body that vanishes under a read was deleted from the front: the read is tried
anew.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from pqbroker.pq.body import PAGE_BYTES, TAIL_BYTES, BodyIndex, decode_index, index_bytes
from pqbroker.pq.cache import INDEX_PAGE, NodeMemory, PageKey
from pqbroker.pq.damage import read_around, rebuild_index
from pqbroker.pq.partition import Partition
from pqbroker.pq.run import Pieces, Run
from pqbroker.pq.stretch import Regions, Stretch
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.storage.engine import BlobCorrupt, BlobMissing, Buffer, ShardLost
from pqbroker.storage.kv import KeyValueTablet
from pqbroker.storage.kv_commands import KeyMissing
from pqbroker.storage.regions import FileRegion

READ_BYTES_MAX = 8 << 20
"""Bytes that one cold read asks of the store at most."""
_PREFETCH_PAGES = 8
"""Read ahead at once; a sequential reader has up to twice as much ahead of it."""
_CACHE_BYTES_MIN = 2 * READ_BYTES_MAX
"""A smaller cache would lose what is read ahead before it is asked for."""
_STREAMS_MAX = 16
"""Sequential readers of one partition that are recognised."""
_ATTEMPTS = 10

_T = TypeVar("_T")
_log = logging.getLogger(__name__)


class _Stream:
    """A sequential reader: the offsets [begin, end) read ahead last, the task that reads them, and what was verified
    to be sent from its files."""

    __slots__ = ("begin", "end", "stretches", "task")

    def __init__(self) -> None:
        self.begin = self.end = -1
        self.task: asyncio.Task[None] | None = None
        self.stretches: deque[Stretch] = deque(maxlen=2)


class Reader:
    """Finds the batches of one partition."""

    __slots__ = ("_cache", "_decoding", "_files", "_kv", "_load_head", "_loading", "_number", "_partition", "_streams")

    def __init__(
        self,
        partition: Partition,
        kv: KeyValueTablet,
        memory: NodeMemory,
        number: int,
        load_head: Callable[[], Awaitable[None]],
    ) -> None:
        self._partition = partition
        self._kv = kv
        self._cache = memory.cache
        self._files = memory.sent_files
        self._decoding = memory.decoding
        self._number = number
        self._load_head = load_head
        self._loading: dict[PageKey, asyncio.Task[dict[PageKey, Run]]] = {}
        self._streams: dict[int, _Stream] = {}
        """Sequential readers of bodies by the offset where each would go on."""

    def check_range(self, offset: int) -> None:
        partition = self._partition
        if not partition.start_offset <= offset <= partition.end_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {offset} is outside [{partition.start_offset}, {partition.end_offset}]",
            )

    def gather(self, offset: int, bytes_max: int, one_at_least: bool, held: dict[PageKey, Run]) -> Pieces | None:
        """Whole batches from `offset` on out of memory; None when the first is not there. `held` are pages just
        read."""
        partition = self._partition
        found, size, following = None, 0, offset
        while following < partition.end_offset and (size < bytes_max or not size):
            try:
                run = self._run_at(following, held)
            except KafkaError:
                if not size:
                    raise
                break
            if run is None:
                break
            head = run is partition.head.run
            stop, stop_offset = (
                (partition.head.end_position, partition.end_offset) if head else (run.end, run.end_offset)
            )
            part = run.read(following, bytes_max - size, one_at_least and not size, stop, stop_offset)
            if found is None:
                found = part
            else:
                found.buffers.extend(part.buffers)
            if part.next_offset <= following:
                break
            size += part.size
            following = part.next_offset
        if found is None:
            return Pieces([], 0, offset) if offset >= partition.end_offset else None
        return Pieces(found.buffers, size, following)

    def regions(self, offset: int, bytes_max: int) -> Regions | None:
        """Whole batches from `offset` on out of what was verified ahead; None when the first is not in it."""
        stream = self._streams.get(offset)
        if stream is None:
            return None
        found: list[Buffer | FileRegion] = []
        size, following = 0, offset
        for stretch in stream.stretches:
            if stretch.begin <= following < stretch.end and size < bytes_max:
                part = stretch.read(following, bytes_max - size)
                opened = None if part is None else self._files.open(part[0], stretch.verified_s)
                if part is None or opened is None:
                    break
                found += opened
                size += part[1]
                following = part[2]
        return Regions(found, size, following) if size else None

    async def read_ahead(self, offset: int) -> None:
        """Wait until what is read ahead for the sequential reader at `offset` is there."""
        stream = self._streams.get(offset)
        if stream is not None and stream.task is not None:
            await asyncio.wait((stream.task,))

    async def read(self, offset: int, bytes_max: int, one_at_least: bool) -> Pieces:
        """Whole batches from `offset` on, from the store where need be. KafkaError 1, 2, 6."""
        held: dict[PageKey, Run] = {}
        for _ in range(_ATTEMPTS):
            self.check_range(offset)
            pieces = self.gather(offset, bytes_max, one_at_least, held)
            if pieces is not None:
                return pieces
            try:
                held |= await self._load(offset, bytes_max)
            except BlobCorrupt as damage:
                pieces = await self._read_around(offset, bytes_max, damage)
                if pieces is not None:
                    return pieces
            except (KeyMissing, BlobMissing):
                continue
            except ShardLost:
                break
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the partition's store was lost")

    def follow(self, offset: int, next_offset: int, *, is_sent: bool) -> None:
        """After a read of [offset, next_offset): read ahead what a sequential reader wants next.

        `is_sent`: it is sent as it is, so that it need not be in memory.
        """
        if offset == next_offset:
            return
        stream = self._streams.pop(offset, None)
        if self._partition.bodies.find(next_offset) == len(self._partition.bodies):
            return
        is_stream = stream is not None
        stream = self._streams[next_offset] = stream or _Stream()
        if len(self._streams) > _STREAMS_MAX:
            del self._streams[next(iter(self._streams))]
        is_due = is_stream and stream.task is None and next_offset >= stream.begin
        if is_due and self._cache.bytes_max >= _CACHE_BYTES_MIN:
            stream.task = asyncio.get_running_loop().create_task(self._prefetch(stream, next_offset, is_sent))
            stream.task.add_done_callback(_retrieve)

    async def index(self, number: int) -> BodyIndex:
        """The sparse index of a body, read once and cached; rebuilt from the batches when it is damaged."""
        bodies = self._partition.bodies
        key: PageKey = (self._number, bodies.offsets[number], INDEX_PAGE)
        found = self._cache.get(key)
        if isinstance(found, BodyIndex):
            return found
        name, size, end = bodies.key(self._partition.index, number), bodies.sizes[number], bodies.ends[number]
        index = await self._read_index(name, size)
        if index is None:
            _log.error("the index of %s in partition %d is damaged: rebuilt", name.decode(), self._partition.index)
            index = await rebuild_index(self._kv, name, end)
            self._cache.forget(self._number, key[1], size // PAGE_BYTES + 1)  # cut where the one before had its pages
        self._cache.put(key, index, asyncio.get_running_loop().time())
        number = bodies.find(key[1])
        if number < len(bodies) and bodies.offsets[number] == key[1]:
            bodies.stamps[number] = index.max_timestamp
        return index

    async def run_at(self, offset: int) -> Run:
        """The page or the head's run that holds `offset` or the batch behind a hole there. KeyMissing, BlobMissing when
        it is gone; KafkaError NOT_LEADER_OR_FOLLOWER when the head cannot be had."""
        loaded: dict[PageKey, Run] = {}
        for _ in range(_ATTEMPTS):
            run = self._run_at(offset, loaded)
            if run is not None:
                return run
            loaded = await self._load(offset, 1)
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the partition's head is gone")

    def decode(self, look: Callable[[], _T]) -> "asyncio.Future[_T]":
        """Look into batches, off the loop; few looks of a node at once, in their order (pqbroker.decode.threads)."""
        return asyncio.get_running_loop().run_in_executor(self._decoding, look)

    def _run_at(self, offset: int, held: dict[PageKey, Run]) -> Run | None:
        partition = self._partition
        bodies = partition.bodies
        number = bodies.find(offset)
        if number == len(bodies):
            return partition.head.run if offset >= partition.head.warm_offset(partition.end_offset) else None
        body_offset = bodies.offsets[number]
        index = self._cache.get((self._number, body_offset, INDEX_PAGE))
        if not isinstance(index, BodyIndex):
            wanted = max(offset, body_offset)  # in the gap before a body
            return next((run for run in held.values() if run.offsets[0] <= wanted < run.end_offset), None)
        if offset >= index.end_offset:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"the batch at offset {offset} is damaged")
        key = (self._number, body_offset, index.page_of(offset))
        run = held.get(key) or self._cache.get(key)
        return run if isinstance(run, Run) else None

    async def _load(self, offset: int, bytes_max: int) -> dict[PageKey, Run]:
        """Read the pages that a read of `bytes_max` from `offset` touches in one body, or the head's content."""
        bodies = self._partition.bodies
        number = bodies.find(offset)
        if number == len(bodies):
            await self._load_head()
            return {}
        body_offset = bodies.offsets[number]
        index = await self.index(number)
        first = last = index.page_of(offset)
        wanted = min(bytes_max, READ_BYTES_MAX)
        while last + 1 < len(index.pages) and self._bytes_behind(index, first, last, offset) < wanted:
            last += 1
        pages = [page for page in range(first, last + 1) if (self._number, body_offset, page) not in self._cache]
        return await self._pages(body_offset, index, pages)

    def _bytes_behind(self, index: BodyIndex, first: int, last: int, offset: int) -> int:
        start = index.positions[max(index.entry_of(offset), index.pages[first])]
        position, size, _ = index.span(*index.page_entries(last))
        return position + size - start

    async def _pages(self, body_offset: int, index: BodyIndex, pages: Sequence[int]) -> dict[PageKey, Run]:
        """Read pages of a body together; those that someone reads already are waited for."""
        missing = [page for page in pages if (self._number, body_offset, page) not in self._loading]
        tasks = {self._loading[self._number, body_offset, page] for page in pages if page not in missing}
        if missing:
            task = asyncio.get_running_loop().create_task(self._read_pages(body_offset, index, missing))
            task.add_done_callback(_retrieve)
            keys = [(self._number, body_offset, page) for page in missing]
            self._loading.update(dict.fromkeys(keys, task))
            tasks.add(task)
        loaded: dict[PageKey, Run] = {}
        for task in tasks:
            loaded |= await asyncio.shield(task)
        return loaded

    async def _read_pages(self, body_offset: int, index: BodyIndex, pages: Sequence[int]) -> dict[PageKey, Run]:
        partition = self._partition
        bodies = partition.bodies
        try:
            number = bodies.find(body_offset)
            if number == len(bodies) or bodies.offsets[number] != body_offset:
                raise KeyMissing(b"")
            name = bodies.key(partition.index, number)
            spans = [index.span(*index.page_entries(page)) for page in pages]
            data = await self._kv.read([(name, position, size) for position, size, _ in spans])
            loaded = {
                (self._number, body_offset, page): index.run(buffers, *index.page_entries(page))
                for page, buffers in zip(pages, data, strict=True)
            }
            now_s = asyncio.get_running_loop().time()
            for key, run in loaded.items():
                self._cache.put(key, run, now_s)
            return loaded
        finally:
            for page in pages:
                self._loading.pop((self._number, body_offset, page), None)

    async def _prefetch(self, stream: _Stream, offset: int, is_sent: bool) -> None:
        """Read what follows the stretch read ahead last, while the reader is still at that."""
        try:
            begin = max(offset, stream.end)
            number = self._partition.bodies.find(begin)
            if number == len(self._partition.bodies):
                return
            body_offset = self._partition.bodies.offsets[number]
            index = await self.index(number)
            first = index.page_of(begin)
            last = min(first + _PREFETCH_PAGES, len(index.pages)) - 1
            stream.begin = begin
            stream.end = index.span(*index.page_entries(last))[2]
            if is_sent and await self._verify(stream, index, body_offset, begin, last):
                return
            wanted = range(first, last + 1)
            pages = [page for page in wanted if (self._number, body_offset, page) not in self._cache]
            if pages:
                await self._pages(body_offset, index, pages)
        except (KeyMissing, BlobMissing, BlobCorrupt, ShardLost):
            return
        finally:
            stream.task = None

    async def _verify(self, stream: _Stream, index: BodyIndex, body_offset: int, begin: int, last: int) -> bool:
        """Verify the batches from the offset `begin` up to the end of a page where they lie, if they can be sent so."""
        bodies = self._partition.bodies
        number = bodies.find(body_offset)
        if number == len(bodies) or bodies.offsets[number] != body_offset:
            raise KeyMissing(b"")
        position, name = self._position(index, begin), bodies.key(self._partition.index, number)
        begun, size, end = index.span(*index.page_entries(last))
        pieces = None if position is None else await self._kv.verify((name, position, begun + size - position))
        if position is None or pieces is None:
            return False
        verified_s = asyncio.get_running_loop().time()
        stream.stretches.append(Stretch(index, begin, position, end, pieces, verified_s))
        return True

    def _position(self, index: BodyIndex, offset: int) -> int | None:
        """Where in its body the batch at an offset begins; None when that is not known without reading."""
        entry = index.entry_of(offset)
        if offset <= index.offsets[entry]:
            return index.positions[entry]
        run = self._run_at(offset, {})
        return None if run is None else run.locate(offset, run.end)

    async def _read_index(self, name: bytes, size: int) -> BodyIndex | None:
        tail_bytes = min(TAIL_BYTES, size)
        try:
            tail = await self._tail(name, size, tail_bytes)
            wanted = index_bytes(tail)
            if wanted is not None and tail_bytes < wanted <= size:
                tail = await self._tail(name, size, wanted)
        except BlobCorrupt as damage:
            _log.error("%s", damage)
            return None
        return decode_index(tail)

    async def _tail(self, name: bytes, size: int, count: int) -> bytes:
        return b"".join((await self._kv.read([(name, size - count, count)]))[0])

    async def _read_around(self, offset: int, bytes_max: int, damage: BlobCorrupt) -> Pieces | None:
        """Serve the batches before a damaged page; CORRUPT_MESSAGE at the damage itself (design 7). None when it was
        deleted meanwhile, which is the way past it."""
        _log.error("partition %d: %s", self._partition.index, damage)
        number = self._partition.bodies.find(offset)
        self.check_range(offset)
        if number == len(self._partition.bodies):
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(damage))
        name = self._partition.bodies.key(self._partition.index, number)
        try:
            return await read_around(self._kv, name, await self.index(number), offset, bytes_max)
        except (KeyMissing, BlobMissing):
            return None


def _retrieve(task: "asyncio.Task[dict[PageKey, Run]] | asyncio.Task[None]") -> None:
    """A failure reaches those who wait; nobody has to."""
    if not task.cancelled():
        task.exception()
