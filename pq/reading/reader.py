"""Reads of one partition: one question, one answer, from memory at once or from the store.

Nothing is decided here about writing. A body that vanishes under a read was deleted from the front: the read is tried
again. So it is where a body was replaced.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Generator
from functools import partial
from typing import Any, Final, TypeVar

from pqbroker.pq.counters import ReadCounters
from pqbroker.pq.log.batch_run import Batches, Run
from pqbroker.pq.log.head import first_kept
from pqbroker.pq.log.partition import Partition
from pqbroker.pq.reading.cache import NodeMemory, PageKey
from pqbroker.pq.reading.damaged_body import read_around
from pqbroker.pq.reading.query import ReadQuery
from pqbroker.pq.reading.read_ahead import ReadAhead
from pqbroker.pq.reading.run_loading import ATTEMPTS_MAX, RunLoader
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.storage.engine import BlobCorrupt, BlobMissing, ShardLost
from pqbroker.storage.kv.commands import KeyMissing
from pqbroker.storage.kv.tablet import KeyValueTablet

SENT_BYTES_MIN = 256 << 10
"""Least limit of a read whose answer may stay in its files."""

_T = TypeVar("_T")
_log = logging.getLogger(__name__)


class StoredRead:
    """A read from the store that begins when it is awaited, and may be dropped before."""

    __slots__ = ("_read",)

    def __init__(self, read: Callable[[], Coroutine[Any, Any, Batches]]) -> None:
        self._read: Final = read

    def __await__(self) -> Generator[Any, Any, Batches]:
        return self._read().__await__()


class Reader:
    """Reads the batches of one partition, a bounded number of reads from its store at once."""

    __slots__ = ("_ahead", "_decoding", "_partition", "_turns", "counters", "runs")

    def __init__(
        self, partition: Partition, kv: KeyValueTablet, runs: RunLoader, memory: NodeMemory, reads_max: int
    ) -> None:
        self._partition = partition
        self.runs = runs
        self._ahead = ReadAhead(partition, kv, runs, memory)
        self._decoding = memory.decoding
        self._turns = asyncio.Semaphore(reads_max)
        self.counters = ReadCounters()

    def read(self, query: ReadQuery) -> Batches | Awaitable[Batches]:
        """Whole batches, at once when they are in memory; empty at the end. KafkaError OFFSET_OUT_OF_RANGE,
        CORRUPT_MESSAGE when the first batch is damaged, NOT_LEADER_OR_FOLLOWER."""
        partition = self._partition
        offset, end_offset, bytes_max, one_at_least, in_files, _ = query
        if not partition.start_offset <= offset <= partition.end_offset:
            self._check_range(query)
        is_sent = in_files and bytes_max >= SENT_BYTES_MIN
        batches, ends = None, partition.bodies.ends
        if offset >= end_offset:
            batches = Batches([], 0, offset)
        elif not ends or ends[-1] <= offset:
            batches = partition.head.read(offset, (end_offset, partition.end_offset), bytes_max, one_at_least)
        elif is_sent:
            batches = self._ahead.verified(query)
        if batches is None:
            batches = self._gather(query, {})
            if batches is None:
                return StoredRead(partial(self._read_stored, query, is_sent))
        return self._finish(query, batches, is_sent)

    def has_records(self, offset: int, end_offset: int) -> bool:
        """Return True unless [offset, end_offset) is a hole, as a salvage or the cleaner leaves it. From memory."""
        partition = self._partition
        blobs = partition.head.blobs
        if blobs and offset < end_offset and blobs[0].offset <= offset < blobs[-1].end:
            return True
        return first_kept(partition.bodies, partition.head, offset) < end_offset

    def readable_bytes(self, offset: int, end_offset: int, bytes_max: int) -> int:
        """About how many bytes a read of [offset, end_offset) would return, at most `bytes_max`.
        Answered from memory."""
        if offset >= end_offset:
            return 0
        partition = self._partition
        head, bodies = partition.head, partition.bodies
        number = bodies.find(offset)
        if number < len(bodies):
            found = head.size
            while number < len(bodies) and found < bytes_max:
                found += bodies.sizes[number]
                number += 1
            return min(found, bytes_max)
        if offset < head.warm_offset(partition.end_offset):
            return min(head.size, bytes_max)
        stop, _ = self.runs.bounds(head.run, end_offset)
        return min(stop - head.run.locate(offset, stop), bytes_max)

    def decode(self, look: Callable[[], _T]) -> "asyncio.Future[_T]":
        """Look into batches, off the loop; few looks of a node at once, in their order (pqbroker.decode.threads)."""
        return asyncio.get_running_loop().run_in_executor(self._decoding, look)

    def _check_range(self, query: ReadQuery) -> None:
        partition, offset = self._partition, query.offset
        is_kept = partition.start_offset <= offset or query.with_trimmed
        if not is_kept or offset > partition.end_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {offset} is outside [{partition.start_offset}, {partition.end_offset}]",
            )

    def _gather(self, query: ReadQuery, held: dict[PageKey, Run]) -> Batches | None:
        """Whole batches out of memory; None when the first is not there. `held` are pages just read."""
        offset, end_offset, bytes_max, one_at_least, *_ = query
        found = None
        size, following = 0, offset
        while following < end_offset and (size < bytes_max or not size):
            try:
                run = self.runs.find(following, held)
            except KafkaError:
                if not size:
                    raise
                break
            if run is None:
                return found if size else None
            stop, stop_offset = self.runs.bounds(run, end_offset)
            part = run.read(following, bytes_max - size, one_at_least and not size, stop, stop_offset)
            found = part if found is None else found.followed_by(part)
            if part.next_offset <= following:
                break
            size += part.size
            following = part.next_offset
        if found is None and offset >= end_offset:
            return Batches([], 0, offset)
        return found

    async def _read_stored(self, query: ReadQuery, is_sent: bool) -> Batches:
        """Return what is being verified for this reader, else read it from the store."""
        async with self._turns:
            batches = None
            if is_sent:
                await self._ahead.wait(query.offset)
                batches = self._ahead.verified(query)
            batches = batches or await self._load(query)
        self.counters.reads_from_store += 1
        return self._finish(query, batches, is_sent)

    async def _load(self, query: ReadQuery) -> Batches:
        """Whole batches, loaded where need be."""
        held: dict[PageKey, Run] = {}
        for _ in range(ATTEMPTS_MAX):
            self._check_range(query)
            batches = self._gather(query, held)
            if batches is not None:
                return batches
            query = query._replace(offset=self._behind_gap(query, held))
            try:
                held |= await self.runs.load(query.offset, query.bytes_max)
            except BlobCorrupt as damage:
                batches = await self._read_around(query, damage)
                if batches is not None and (batches.size or batches.next_offset >= query.end_offset):
                    return batches
                if batches is not None:
                    query = query._replace(offset=batches.next_offset)
            except (KeyMissing, BlobMissing):
                continue
            except ShardLost:
                break
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the partition's store was lost")

    def _behind_gap(self, query: ReadQuery, held: dict[PageKey, Run]) -> int:
        """Return where to load: behind the runs in memory that end in the gap which the query's offset is in."""
        following = query.offset
        while following < query.end_offset:
            run = self.runs.find(following, held)
            if run is None:
                break
            following = max(following + 1, self.runs.bounds(run, query.end_offset)[1])
        return following

    async def _read_around(self, query: ReadQuery, damage: BlobCorrupt) -> Batches | None:
        """Serve the batches before a damaged page; CORRUPT_MESSAGE at the damage itself (design 7). None when it was
        deleted meanwhile, which is the way past it."""
        partition = self._partition
        _log.error("partition %d: %s", partition.index, damage)
        number = partition.bodies.find(query.offset)
        self._check_range(query)
        if number == len(partition.bodies):
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(damage))
        name = partition.bodies.name(number)
        try:
            return await read_around(partial(self.runs.read_bytes, name), await self.runs.index(number), query)
        except (KeyMissing, BlobMissing):
            return None

    def _finish(self, query: ReadQuery, batches: Batches, is_sent: bool) -> Batches:
        bodies = self._partition.bodies
        if self._ahead.readers or (bodies.ends and bodies.ends[-1] > batches.next_offset):
            self._ahead.follow(query.offset, batches.next_offset, is_sent=is_sent)
        counters = self.counters
        counters.reads += 1
        counters.bytes_read += batches.size
        return batches
