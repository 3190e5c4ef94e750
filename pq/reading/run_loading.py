"""The run of batches that holds an offset: the head's, or a page of a body, from the node's cache or read from the KV
tablet. A page is read once at a time, however many wait for it.

A body that vanishes under a read was deleted from the front, or replaced: KeyMissing or BlobMissing. Its key may be
that of its replacement then, so the name is looked at before each read of the key.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from pqbroker.pq.log.batch_run import Run
from pqbroker.pq.log.body import BODY_PAGE_BYTES, TAIL_BYTES, BodyIndex, BodyName, decode_index, index_bytes
from pqbroker.pq.log.partition import Partition
from pqbroker.pq.reading.cache import INDEX_PAGE, BlobCache, PageKey
from pqbroker.pq.reading.damaged_body import rebuild_index
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.storage.engine import BlobCorrupt
from pqbroker.storage.kv.commands import KeyMissing
from pqbroker.storage.kv.tablet import KeyValueTablet

PARTITION_READ_BYTES_MAX = 8 << 20
"""Bytes that one read takes from the store at most."""
ATTEMPTS_MAX = 10
"""Tries of a read whose data is deleted or dropped while it loads."""

_log = logging.getLogger(__name__)


class RunLoader:
    """Runs of one partition; `number` is the partition's in the cache."""

    __slots__ = ("_cache", "_kv", "_load_head", "_loading", "_number", "_partition")

    def __init__(
        self,
        partition: Partition,
        kv: KeyValueTablet,
        cache: BlobCache,
        number: int,
        load_head: Callable[[], Awaitable[None]],
    ) -> None:
        self._partition = partition
        self._kv = kv
        self._cache = cache
        self._number = number
        self._load_head = load_head
        self._loading: dict[PageKey, asyncio.Task[dict[PageKey, Run]]] = {}

    def find(self, offset: int, held: dict[PageKey, Run]) -> Run | None:
        """The run, if it is in memory; `held` are pages just loaded. CORRUPT_MESSAGE."""
        partition = self._partition
        bodies = partition.bodies
        ends = bodies.ends
        if not ends or ends[-1] <= offset:
            head = partition.head
            return head.run if offset >= head.warm_offset(partition.end_offset) else None
        number = bodies.find(offset)
        body_offset, version = bodies.offsets[number], bodies.versions[number]
        index = self._cache.get((self._number, body_offset, INDEX_PAGE, version))
        if not isinstance(index, BodyIndex):
            return _held_run(held, (self._number, body_offset, version), max(offset, body_offset))
        if offset >= index.end_offset:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"the batch at offset {offset} is damaged")
        key = (self._number, body_offset, index.page_of(offset), version)
        run = held.get(key) or self._cache.get(key)
        return run if isinstance(run, Run) else None

    def bounds(self, run: Run, end_offset: int) -> tuple[int, int]:
        """Return where a reader that sees up to `end_offset` stops in a run: the position, and the offset there."""
        head = self._partition.head
        stop, stop_offset = run.end, run.end_offset
        if run is head.run:
            stop, stop_offset = head.end_position, self._partition.end_offset
        return (run.locate(end_offset, stop), end_offset) if end_offset < stop_offset else (stop, stop_offset)

    async def get(self, offset: int) -> Run:
        """The run that holds `offset` or the batch behind a hole there. KeyMissing, BlobMissing; NOT_LEADER_OR_FOLLOWER
        when the head cannot be loaded."""
        loaded: dict[PageKey, Run] = {}
        for _ in range(ATTEMPTS_MAX):
            run = self.find(offset, loaded)
            if run is not None:
                return run
            loaded = await self.load(offset, 1)
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the partition's head is gone")

    async def load(self, offset: int, bytes_max: int) -> dict[PageKey, Run]:
        """Read the pages that a read of `bytes_max` from `offset` touches in one body, or the head's content."""
        bodies = self._partition.bodies
        number = bodies.find(offset)
        if number == len(bodies):
            await self._load_head()
            return {}
        name = bodies.name(number)
        index = await self.index(number)
        first = last = index.page_of(offset)
        wanted = min(bytes_max, PARTITION_READ_BYTES_MAX)
        start = index.positions[max(index.entry_of(offset), index.pages[first])]
        while last + 1 < len(index.pages) and index.positions[index.pages[last + 1]] - start < wanted:
            last += 1
        return await self.load_pages(name, index, range(first, last + 1))

    async def load_pages(self, name: BodyName, index: BodyIndex, pages: Sequence[int]) -> dict[PageKey, Run]:
        """Pages of a body: those that are not cached are read together; what somebody reads already is waited for."""
        loaded: dict[PageKey, Run] = {}
        for page in pages:
            key = self._page_key(name, page)
            if key in self._cache and isinstance(run := self._cache.get(key), Run):
                loaded[key] = run  # the index may not be kept, without which nobody finds it in the cache
        pages = [page for page in pages if self._page_key(name, page) not in loaded]
        missing = [page for page in pages if self._page_key(name, page) not in self._loading]
        tasks = {self._loading[self._page_key(name, page)] for page in pages if page not in missing}
        if missing:
            task = asyncio.get_running_loop().create_task(self._read_pages(name, index, missing))
            task.add_done_callback(_retrieve)
            keys = [self._page_key(name, page) for page in missing]
            self._loading.update(dict.fromkeys(keys, task))
            tasks.add(task)
        for task in tasks:
            loaded |= await asyncio.shield(task)
        return loaded

    async def index(self, number: int) -> BodyIndex:
        """The sparse index of a body as it is now, read once and cached; rebuilt from the batches when it is damaged.
        KeyMissing, BlobMissing when it is deleted or replaced meanwhile."""
        bodies = self._partition.bodies
        name = bodies.name(number)
        key = self._page_key(name, INDEX_PAGE)
        found = self._cache.get(key)
        if isinstance(found, BodyIndex):
            return found
        size, end = bodies.sizes[number], bodies.ends[number]
        index = await self._read_index(name, size)
        if index is None:
            text = "the index of the body at offset %d in partition %d is damaged: rebuilt"
            _log.error(text, name.offset, self._partition.index)
            index = await rebuild_index(partial(self.read_bytes, name), (name.offset, end))
            pages = size // BODY_PAGE_BYTES + 1  # cut where the index before had its pages
            self._cache.forget(self._number, name, pages)
        self._cache.put(key, index, asyncio.get_running_loop().time())
        still = bodies.number_of(name)
        if still is not None:
            bodies.stamps[still] = index.max_timestamp
        return index

    async def read_bytes(self, name: BodyName, position: int, size: int) -> memoryview:
        """Bytes of a body, joined. KeyMissing, BlobMissing, BlobCorrupt."""
        buffers = (await self._kv.read([(self.key_of(name), position, size)]))[0]
        return memoryview(buffers[0] if len(buffers) == 1 else b"".join(buffers))

    def _page_key(self, name: BodyName, page: int) -> PageKey:
        return self._number, name.offset, page, name.version

    async def _read_pages(self, name: BodyName, index: BodyIndex, pages: Sequence[int]) -> dict[PageKey, Run]:
        try:
            body_key = self.key_of(name)
            spans = [index.span(*index.page_entries(page)) for page in pages]
            data = await self._kv.read([(body_key, position, size) for position, size, _ in spans])
            loaded = {
                self._page_key(name, page): index.run(buffers, *index.page_entries(page))
                for page, buffers in zip(pages, data, strict=True)
            }
            now_s = asyncio.get_running_loop().time()
            for key, run in loaded.items():
                self._cache.put(key, run, now_s)
            return loaded
        finally:
            for page in pages:
                self._loading.pop(self._page_key(name, page), None)

    def key_of(self, name: BodyName) -> bytes:
        """The key of a body, for a read that begins in this turn of the loop; KeyMissing when it was deleted or
        replaced."""
        bodies = self._partition.bodies
        number = bodies.number_of(name)
        if number is None:
            raise KeyMissing(b"")
        return bodies.key(self._partition.index, number)

    async def _read_index(self, name: BodyName, size: int) -> BodyIndex | None:
        tail_bytes = min(TAIL_BYTES, size)
        try:
            tail = await self.read_bytes(name, size - tail_bytes, tail_bytes)
            wanted = index_bytes(tail)
            if wanted is not None and tail_bytes < wanted <= size:
                tail = await self.read_bytes(name, size - wanted, wanted)
        except BlobCorrupt as damage:
            _log.error("%s", damage)
            return None
        return decode_index(tail)


def _held_run(held: dict[PageKey, Run], body: tuple[int, int, int], offset: int) -> Run | None:
    """The page of a body (partition, offset, version) that holds an offset, or the gap that it is in; `offset`: at or
    behind the body's."""
    for (partition, body_offset, page, version), run in held.items():
        is_of_body = (partition, body_offset, version) == body
        if is_of_body and offset < run.end_offset and (run.offsets[0] <= offset or not page):
            return run
    return None


def _retrieve(task: "asyncio.Task[dict[PageKey, Run]]") -> None:
    """A failure reaches the reads that wait for the task; there may be none."""
    if not task.cancelled():
        task.exception()
