"""One open cell on disk as the loop thread sees it: commits go to the commit thread, reads to a few reading threads."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice
from queue import SimpleQueue
from typing import Any, TypeVar, cast

from pqbroker.storage.copy_steps import CellElsewhere, CopiedBytes, CopySteps
from pqbroker.storage.disk import index_rows
from pqbroker.storage.disk.backups.backup import Backup, BackupDirectory, CellCopy, CopiesInto, CopyDirectories
from pqbroker.storage.disk.backups.copying import Copier
from pqbroker.storage.disk.blob_reading import BlobReader
from pqbroker.storage.disk.committer import Committer, OpenCell, Ownership, Pace
from pqbroker.storage.disk.directory import CellDirectory
from pqbroker.storage.disk.free_space import room_cure
from pqbroker.storage.disk.index import ReadableIndex
from pqbroker.storage.disk.reading_only import ReadingSpace
from pqbroker.storage.disk.segment_emptying import EmptyingPace, SegmentEmptying
from pqbroker.storage.engine import (
    BackupFacts,
    BackupRefused,
    Batch,
    BlobKey,
    Buffer,
    Caps,
    EngineError,
    FileRange,
    SegmentFacts,
    Shard,
    ShardLost,
    ShardStats,
)
from pqbroker.storage.faults import Faults
from pqbroker.storage.kept_errors import raised_again
from pqbroker.storage.outcome import Outcome
from pqbroker.storage.pool_status import Colour
from pqbroker.storage.quarantine import Quarantine
from pqbroker.storage.turn_queue import Queued, TurnQueue
from pqbroker.storage.uninterrupted import Uninterrupted
from pqbroker.storage.unreadable import StoredUnreadable

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class ShardOptions:
    """Options of an opening of a shard; `told`: colours on cue, by pool."""

    caps: Caps
    pace: Pace
    emptying: EmptyingPace
    read_threads: int
    told: Mapping[str, Colour]
    faults: Faults | None
    backups: BackupDirectory
    reading: ReadingSpace | None
    """None: the cell takes writes."""


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
        self.quarantine = Quarantine(damages, self._hold_emptying)
        self.damaged_blobs = reader.damaged
        self._backup: asyncio.Task[Any] | None = None
        self._copy = partial(CellCopy, directory, index.settled_files, self._between_rounds)
        self._closing: asyncio.Task[None] | None = None
        self._is_emptying: asyncio.Task[None] | None = None

    async def start(self, open_cell: Callable[[], OpenCell]) -> None:
        """Start the commit thread, which opens the index. Raises EngineError, and then holds nothing."""
        opened: asyncio.Future[OpenCell] = self._loop.create_future()

        def on_open(result: OpenCell | EngineError) -> None:
            if isinstance(result, EngineError):
                opened.set_exception(result)
            else:
                opened.set_result(result)

        directory, options = self._directory, self._options
        submitted: SimpleQueue[list[Queued] | None] = SimpleQueue()
        self._turn_queue = TurnQueue(self._loop, submitted.put)
        self.submit, self.plan_later = self._turn_queue.commit, self._turn_queue.plan
        ownership = Ownership(
            directory.path,
            open_cell,
            directory.is_ours,
            directory.loss,
            on_open,
            self._turn_queue.tell,
            self._on_lost,
        )
        self._committer = Committer(self._loop, submitted, ownership, options.pace, options.faults)
        self._committer.start()
        try:
            self._cell = await asyncio.shield(opened)
        except EngineError:
            await asyncio.to_thread(self._release)
            raise
        self._emptying = SegmentEmptying(
            self._cell.pools, self._index.get, self.commit, self._in_thread, self._options.emptying
        )

    @property
    def reading_only(self) -> str:
        reading = self._options.reading
        return "" if reading is None else reading.told

    async def release(self) -> None:
        if (reading := self._options.reading) is not None:
            reading.seal()
            self.quarantine.end(f"it is open for reading only: {room_cure()}")
            return
        if not self.quarantine.release():
            return
        await self._in_thread(self._cell.leftovers.remove)
        await self._in_thread(partial(self._index.compact, is_on=True))
        if self._options.emptying.bytes_per_second and self._reason is None:
            self._is_emptying = self._loop.create_task(self._emptying.run())

    def commit(self, batch: Batch) -> Outcome[None]:
        return Outcome.of(partial(self.submit, batch))

    async def scan(self, lo: bytes, hi: bytes, rows_max: int) -> list[tuple[bytes, bytes]]:
        found = await self._in_thread(self._scan, index_rows.ROW + lo, index_rows.ROW + hi, rows_max, False)
        return [(key[1:], value) for key, value in found]

    async def get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        return await self._in_thread(self._index.get, [index_rows.ROW + key for key in keys])

    async def scan_blobs(
        self, lo: bytes, hi: bytes, rows_max: int, *, reverse: bool = False
    ) -> list[tuple[BlobKey, int]]:
        found = await self._in_thread(self._scan, index_rows.BLOB + lo, index_rows.BLOB + hi, rows_max, reverse)
        try:
            return [(BlobKey(key[1:]), index_rows.blob_size(row)) for key, row in found]
        except ValueError as bad:
            raise StoredUnreadable(f"a blob's row in the index between {lo.hex()} and {hi.hex()}", str(bad)) from bad

    async def places(self, blobs: Sequence[BlobKey]) -> list[str | None]:
        rows = await self._in_thread(self._index.get, [index_rows.BLOB + blob for blob in blobs])
        return [None if row is None else index_rows.place(row) for row in rows]

    async def read(self, ranges: Sequence[tuple[BlobKey, int, int]]) -> list[Buffer]:
        return await self._in_thread(self._reader.read, ranges)

    async def verify(
        self, ranges: Sequence[tuple[BlobKey, int, int]], *, by_reader: bool = False
    ) -> list[Buffer | FileRange]:
        return await self._in_thread(self._reader.locate if by_reader else self._reader.verify, ranges)

    def colour(self, pool: str) -> Colour:
        return self._told.get(pool) or self._cell.space.colour(pool)

    @property
    def round_seconds(self) -> float:
        return self._committer.round_seconds

    async def confirm(self) -> None:
        if not await self._in_thread(self._directory.is_ours):
            raise self._directory.loss()

    async def backup(
        self, name: str, others: Mapping[str, Shard | CellElsewhere] | None = None,
        during: AbstractAsyncContextManager[None] | None = None,
    ) -> BackupFacts:
        backup = Backup(self._options.backups, name, during or nullcontext())
        copies = {cell: _copies(shard, name) for cell, shard in (others or {}).items()}
        work = self._back_up(backup.run(self._copy, list(self._directory.pools), copies))
        return await Uninterrupted(work)

    async def copy_into(self, name: str, cell: str, steps: CopySteps) -> CopiedBytes:
        directories = CopyDirectories.below(self._options.backups.draft(name), ())
        copier = Copier(threading.Event())
        try:
            await self.copy_beside(partial(directories.of_cell, cell), copier, steps)
        except OSError as failure:
            raise BackupRefused(f"the backup cannot be written: {failure}") from failure
        return CopiedBytes(copier.files, copier.linked_bytes, copier.copied_bytes)

    async def copy_beside(
        self, place: Callable[[Iterable[str]], CopyDirectories], copier: Copier, steps: CopySteps
    ) -> None:
        """Copy the cell as part of the backup of another one; see `CopiesInto`."""
        await self._back_up(self._copy(place(self._directory.pools), copier).run(steps))

    def _back_up(self, work: Coroutine[Any, Any, R]) -> asyncio.Task[R]:
        """One at a time; cancelled when the cell ends."""
        if self.reading_only:
            work.close()
            cure = "stop the broker and copy the directory, in which nothing is changed, or ask again after that"
            raise BackupRefused(f"{self.reading_only}: until then no backup is made; {cure}")
        if self._reason is not None:
            work.close()
            raise raised_again(self._reason)
        if self._backup is not None and not self._backup.done():
            work.close()
            raise BackupRefused("a backup is being made already: wait for its end")
        task = self._loop.create_task(work)
        self._backup = task
        return task

    def stats(self) -> ShardStats:
        counted = self._committer.counters
        pools = tuple(pool.stats(self.colour(pool.name)) for pool in self._cell.pools)
        return ShardStats(
            counted.commits,
            counted.rounds,
            counted.bytes_written,
            self._cell.writer.syncs,
            counted.refused,
            self._emptying.moved_bytes,
            pools,
        )

    def segments(self) -> list[SegmentFacts]:
        return [facts for pool in self._cell.pools for facts in pool.describe()]

    async def close(self) -> None:
        if self._closing is None:
            self._closing = self._loop.create_task(self._close())
        await Uninterrupted(self._closing)

    async def _close(self) -> None:
        self.quarantine.end()
        if self._is_emptying is not None:
            self._is_emptying.cancel()
            await asyncio.wait([self._is_emptying])
        if self._backup is not None and not self._backup.done():
            self._backup.cancel()
            await asyncio.wait([self._backup])
        if self._reason is None:
            self._turn_queue.end()
            self._reason = ShardLost("the shard is closed")
            self._turn_queue.lose(self._reason, ())
            self._committer.finish()
        await asyncio.to_thread(self._release)

    def _release(self) -> None:
        """Wait for the threads, then let go of the files and the lock."""
        self._committer.join()
        self._threads.shutdown()
        self._index.close()
        self._directory.release()

    def _between_rounds(self, errand: Callable[[OpenCell], R]) -> asyncio.Future[R]:
        """Run `errand` in the commit thread between two rounds, and return its result; pending for ever once that has
        ended."""
        done: asyncio.Future[R] = self._loop.create_future()
        self._committer.between_rounds(errand, partial(_resolve, done))
        return done

    def _on_lost(self, reason: ShardLost, round_: list[Queued]) -> None:
        """The commit thread has ended and takes nothing more."""
        self._reason = reason
        self.quarantine.end()
        if self._backup is not None:
            self._backup.cancel()
        if not self.lost.done():
            self.lost.set_result(reason)
        self._turn_queue.lose(reason, round_ + self._committer.drain())

    def _hold_emptying(self) -> None:
        """Hold compaction at the first damage in a cell that was thought sound. Called in any thread."""
        with suppress(RuntimeError):  # the threads have ended, and RocksDB with them
            self._threads.submit(self._index.compact, is_on=False)

    def _scan(self, lo: bytes, hi: bytes, rows_max: int, reverse: bool) -> list[tuple[bytes, bytes]]:
        return list(islice(self._index.rows(lo, hi, reverse=reverse), rows_max))

    async def _in_thread(self, call: Callable[..., R], *arguments: object) -> R:
        if self._reason is not None:
            raise raised_again(self._reason)
        return await self._loop.run_in_executor(self._threads, call, *arguments)


def _resolve(done: asyncio.Future[R], result: R) -> None:
    if not done.done():
        done.set_result(result)


def _copies(shard: Shard | CellElsewhere, name: str) -> CopiesInto:
    """Return what copies a cell beside the one that is backed up."""
    if isinstance(shard, DiskShard):
        return shard.copy_beside
    elsewhere = cast(CellElsewhere, shard)  # cells of one engine: a shard of another one does not come here

    async def copy(
        place: Callable[[Iterable[str]], CopyDirectories], copier: Copier, steps: CopySteps
    ) -> None:
        took = await elsewhere.copy(name, steps)
        copier.files += took.files
        copier.linked_bytes += took.linked_bytes
        copier.copied_bytes += took.copied_bytes

    return copy
