"""Memory of a node that all its partitions share: the cache of body pages, and the budget of head contents. Both
count bytes."""

from collections import OrderedDict
from concurrent.futures import Executor, ThreadPoolExecutor
from itertools import islice
from typing import Protocol

from pqbroker.pq.log.body import BodyName
from pqbroker.storage.counters import Histogram, KeyValueCounters
from pqbroker.storage.file_regions import SentFiles

INDEX_PAGE = -1
"""The page number under which a body's index is cached."""

_DROPS_AT_ONCE = 16

PageKey = tuple[int, int, int, int]
"""Partition (unique in this process), first offset of the body, page number, version of the body."""


class Cacheable(Protocol):
    """A value that can be cached: it knows what it pins."""

    @property
    def bytes_held(self) -> int: ...


class _Kept:
    """A cached page: the bytes it pins, when it was put there, whether a read has found it."""

    __slots__ = ("held", "is_used", "page", "since_s")

    def __init__(self, page: Cacheable, held: int, since_s: float) -> None:
        self.page = page
        self.held = held
        self.since_s = since_s
        self.is_used = False


class BlobCache:
    """Least recently used pages go first (A.10). What does not fit at all is not kept."""

    __slots__ = ("_pages", "bytes_max", "evictions", "hits", "kept_seconds", "misses", "size", "unused_evictions")

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.size = 0
        self.hits = 0
        self.misses = 0
        self.evictions = 0
        self.unused_evictions = 0
        """Evicted pages that no read had used."""
        self.kept_seconds = 0.0
        """Seconds that evicted pages spent in the cache, summed over pages."""
        self._pages: OrderedDict[PageKey, _Kept] = OrderedDict()

    def __len__(self) -> int:
        return len(self._pages)

    def __contains__(self, key: PageKey) -> bool:
        return key in self._pages

    def get(self, key: PageKey) -> Cacheable | None:
        found = self._pages.get(key)
        if found is None:
            self.misses += 1
            return None
        self.hits += 1
        found.is_used = True
        self._pages.move_to_end(key)
        return found.page

    def put(self, key: PageKey, page: Cacheable, now_s: float) -> None:
        """Keep a page; one that is kept already stays. `now_s` counts from anywhere."""
        held = page.bytes_held
        if key in self._pages or held > self.bytes_max:
            return
        self._pages[key] = _Kept(page, held, now_s)
        self.size += held
        while self.size > self.bytes_max:
            _, gone = self._pages.popitem(last=False)
            self.size -= gone.held
            self.evictions += 1
            self.unused_evictions += not gone.is_used
            self.kept_seconds += now_s - gone.since_s

    def forget(self, partition: int, body: BodyName, pages: int) -> None:
        """Drop what is kept of a body that is deleted or replaced."""
        offset, version = body
        for page in range(INDEX_PAGE, pages):
            found = self._pages.pop((partition, offset, page, version), None)
            if found is not None:
                self.size -= found.held


class HeadContent(Protocol):
    """A partition's head as the budget sees it."""

    def drop_content(self) -> bool:
        """Forget the content, to be loaded when needed; False when it is in use."""


class HeadBudget:
    """Bytes of all heads' contents; over the budget the coldest are dropped and read like bodies."""

    __slots__ = ("_heads", "bytes_max", "drops", "size")

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.size = 0
        self.drops = 0
        self._heads: OrderedDict[HeadContent, int] = OrderedDict()

    def touch(self, head: HeadContent, held: int) -> None:
        """The head was written or loaded and pins `held` bytes now."""
        heads = self._heads
        self.size += held - heads.get(head, 0)
        heads[head] = held
        heads.move_to_end(head)
        if self.size > self.bytes_max:
            self._shrink(head)

    def forget(self, head: HeadContent) -> None:
        self.size -= self._heads.pop(head, 0)

    def _shrink(self, newest: HeadContent) -> None:
        for head in list(islice(self._heads, _DROPS_AT_ONCE)):
            if self.size <= self.bytes_max:
                return
            if head is not newest and head.drop_content():
                self.forget(head)
                self.drops += 1


class NodeMemory:
    """The budgets, the numbers that tell partitions apart in the cache, and what all tablets count together."""

    __slots__ = ("_partitions", "cache", "cycles", "decoding", "heads", "key_values", "sent_files", "starts")

    def __init__(self, cache_bytes: int, head_bytes: int, sent_files_max: int, decode_threads: int = 1) -> None:
        self.cache = BlobCache(cache_bytes)
        self.heads = HeadBudget(head_bytes)
        self.sent_files = SentFiles(sent_files_max)
        self.cycles = Histogram()
        """Write cycles, from their plan to durable."""
        self.starts = Histogram()
        """Starts of PQ tablets, from their first row read to serving."""
        self.key_values = KeyValueCounters()
        self.decoding: Executor = ThreadPoolExecutor(decode_threads, "pqbroker-decode")
        """Threads that decompress batches: each may take 128 MiB, so only a few run at once."""
        self._partitions = 0

    def new_partition(self) -> int:
        self._partitions += 1
        return self._partitions
