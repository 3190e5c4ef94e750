"""One open cell on disk as the loop thread sees it: commits go to the commit thread, reads to a few reading threads."""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import TypeVar

from pqbroker.storage import indexrows
from pqbroker.storage.committer import Committer, OpenCell, Pace, ReadableIndex, fail_all
from pqbroker.storage.compaction import Compaction, CompactionPace
from pqbroker.storage.directory import CellDirectory
from pqbroker.storage.engine import (
    Batch,
    BlobKey,
    Buffer,
    Caps,
    EngineError,
    FileRange,
    ShardLost,
    ShardStats,
)
from pqbroker.storage.faults import Faults
from pqbroker.storage.lasting import Lasting
from pqbroker.storage.outcome import Outcome
from pqbroker.storage.plan import Queued
from pqbroker.storage.quarantine import Quarantine
from pqbroker.storage.reading import BlobReader
from pqbroker.storage.status import Colour
from pqbroker.storage.unreadable import StoredUnreadable

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class ShardOptions:
    """How a shard is opened; `told`: colours on cue, by pool."""

    caps: Caps
    pace: Pace
    compaction: CompactionPace
    read_threads: int
    told: Mapping[str, Colour]
    faults: Faults | None


class DiskShard:
    """A `Shard` over an index and segments. Created by its engine, which awaits `start` before handing it out."""

    def __init__(
        self,
        directory: CellDirectory,
        index: ReadableIndex,
        reader: BlobReader,
        options: ShardOptions,
        damages: Mapping[str, str],
    ) -> None:
        """`damages`: what earlier openings found in the index, by place."""
        self.generation = directory.generation
        self.caps = options.caps
        self.pools = tuple(directory.pools)
        self._loop = asyncio.get_running_loop()
        self.lost: asyncio.Future[ShardLost] = self._loop.create_future()
        self._directory = directory
        self._index = index
        self._reader = reader
        self._options = options
        self._told = options.told
        self._threads = ThreadPoolExecutor(options.read_threads, "read")
        self._reason: ShardLost | None = None
        self.quarantine = Quarantine(damages, self._hold_compaction)
        self._closing: asyncio.Task[None] | None = None
        self._compacting: asyncio.Task[None] | None = None

    async def start(self, open_cell: Callable[[], OpenCell]) -> None:
        """Start the commit thread, which opens the index. Raises EngineError, and then holds nothing."""
        opened: asyncio.Future[OpenCell] = self._loop.create_future()

        def on_open(result: OpenCell | EngineError) -> None:
            if isinstance(result, EngineError):
                opened.set_exception(result)
            else:
                opened.set_result(result)

        self._committer = Committer(
            loop=self._loop,
            open_cell=open_cell,
            is_ours=self._directory.is_ours,
            why_not_ours=self._directory.loss,
            pace=self._options.pace,
            faults=self._options.faults,
            on_open=on_open,
            on_lost=self._on_lost,
        )
        self._submit = self._committer.submit
        self._committer.start()
        try:
            self._cell = await asyncio.shield(opened)
        except EngineError:
            await asyncio.to_thread(self._release)
            raise
        self._compaction = Compaction(
            self._cell.pools,
            self._index.get,
            self.commit,
            self._in_thread,
            self._options.compaction,
            self.quarantine,
        )

    async def release(self) -> None:
        if not self.quarantine.release():
            return
        await self._in_thread(self._cell.leftovers.remove)
        await self._in_thread(partial(self._index.compact, is_on=True))
        if self._options.compaction.bytes_per_second and self._reason is None:
            self._compacting = self._loop.create_task(self._compaction.run())

    def commit(self, batch: Batch) -> Outcome[None]:
        if self._reason is not None:
            return Outcome.failed(self._reason)
        outcome: Outcome[None] = Outcome()
        self._submit((batch, outcome))
        return outcome

    async def scan(self, lo: bytes, hi: bytes, rows_max: int) -> list[tuple[bytes, bytes]]:
        found = await self._in_thread(self._scan, indexrows.ROW + lo, indexrows.ROW + hi, rows_max, False)
        return [(key[1:], value) for key, value in found]

    async def get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        return await self._in_thread(self._get, [indexrows.ROW + key for key in keys])

    async def scan_blobs(
        self, lo: bytes, hi: bytes, rows_max: int, *, reverse: bool = False
    ) -> list[tuple[BlobKey, int]]:
        found = await self._in_thread(self._scan, indexrows.BLOB + lo, indexrows.BLOB + hi, rows_max, reverse)
        try:
            return [(BlobKey(key[1:]), indexrows.blob_size(row)) for key, row in found]
        except ValueError as bad:
            raise StoredUnreadable(f"a blob's row in the index between {lo.hex()} and {hi.hex()}", str(bad)) from bad

    async def places(self, blobs: Sequence[BlobKey]) -> list[str | None]:
        rows = await self._in_thread(self._get, [indexrows.BLOB + blob for blob in blobs])
        return [None if row is None else indexrows.place(row) for row in rows]

    async def read(self, ranges: Sequence[tuple[BlobKey, int, int]]) -> list[Buffer]:
        return await self._in_thread(self._reader.read, ranges)

    async def verify(self, ranges: Sequence[tuple[BlobKey, int, int]]) -> list[Buffer | FileRange]:
        return await self._in_thread(self._reader.verify, ranges)

    def colour(self, pool: str) -> Colour:
        return self._told.get(pool) or self._cell.rooms.colour(pool)

    async def confirm(self) -> None:
        if not await self._in_thread(self._directory.is_ours):
            raise self._directory.loss()

    def stats(self) -> ShardStats:
        counted = self._committer.counters
        pools = tuple(pool.stats(self.colour(pool.name)) for pool in self._cell.pools)
        return ShardStats(
            counted.commits,
            counted.rounds,
            counted.bytes_written,
            counted.syncs,
            counted.refused,
            self._compaction.moved_bytes,
            pools,
        )

    async def close(self) -> None:
        if self._closing is None:
            self._closing = self._loop.create_task(self._close())
        await Lasting(self._closing)

    async def _close(self) -> None:
        self.quarantine.end()
        if self._compacting is not None:
            self._compacting.cancel()
            await asyncio.wait([self._compacting])
        if self._reason is None:
            self._reason = ShardLost("the shard is closed")
            self._committer.finish()
        await asyncio.to_thread(self._release)

    def _release(self) -> None:
        """Wait for the threads, then let go of the files and the lock."""
        self._committer.join()
        self._threads.shutdown()
        self._index.close()
        self._directory.release()

    def _on_lost(self, reason: ShardLost, round_: list[Queued]) -> None:
        """The commit thread has ended and takes nothing more."""
        self._reason = reason
        self.quarantine.end()
        if not self.lost.done():
            self.lost.set_result(reason)
        fail_all(deque(round_ + self._committer.drain()), reason)

    def _hold_compaction(self) -> None:
        """In any thread: the first damage in a cell that was thought sound."""
        with suppress(RuntimeError):  # the threads have ended, and RocksDB with them
            self._threads.submit(self._index.compact, is_on=False)

    def _scan(self, lo: bytes, hi: bytes, rows_max: int, reverse: bool) -> list[tuple[bytes, bytes]]:
        with self._index.undurable:
            rows = self._index.rows(lo, hi, reverse=reverse)
        return list(islice(rows, rows_max))

    def _get(self, keys: list[bytes]) -> list[bytes | None]:
        with self._index.undurable:
            return self._index.get(keys)

    async def _in_thread(self, call: Callable[..., R], *arguments: object) -> R:
        if self._reason is not None:
            raise self._reason
        return await self._loop.run_in_executor(self._threads, call, *arguments)
