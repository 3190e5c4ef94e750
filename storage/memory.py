"""An engine in memory: the disk engine's semantics and faults on cue, for tests, simulation and `--data :memory:`."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from itertools import islice

from pqbroker.storage.copy_steps import CellElsewhere, CopiedBytes, CopySteps
from pqbroker.storage.damaged_blobs import DamagedBlobs
from pqbroker.storage.engine import (
    BLOB_BYTES_MAX,
    BackupFacts,
    Batch,
    BlobKey,
    BlobMissing,
    Buffer,
    Caps,
    CommitRefused,
    EngineCannot,
    EngineTask,
    Fenced,
    FileRange,
    PoolStats,
    SegmentFacts,
    Shard,
    ShardLost,
    ShardStats,
    StoreFailed,
)
from pqbroker.storage.faults import Faults, Loss
from pqbroker.storage.kept_errors import raised_again
from pqbroker.storage.memory_store import MEMORY_BATCH_BYTES_MAX, MemoryStore, StoredBefore
from pqbroker.storage.outcome import Outcome, Told
from pqbroker.storage.pool_status import DEFAULT_THRESHOLDS, Colour, Thresholds
from pqbroker.storage.quarantine import Quarantine
from pqbroker.storage.turn_queue import Queued

_INDEX_BLOB_BYTES_MAX = 1000


class MemoryEngine:
    """Keeps one cell in memory for as long as the object lives; it can be opened again, which fences the shard before.

    Faults on cue: `faults`, `tell_colour`, `crash`, and `forget`, which takes back the last `forgettable` commits of an
    opening.
    """

    def __init__(
        self,
        bytes_max: int,
        *,
        pools: Sequence[str] = ("main",),
        thresholds: Thresholds = DEFAULT_THRESHOLDS,
        forgettable: int = 0,
    ) -> None:
        self.faults = Faults()
        self._thresholds = thresholds
        self._told: dict[str, Colour] = {}
        self._forgettable = forgettable
        self._store = MemoryStore(bytes_max, tuple(pools))
        self._generation = 0
        self._shard: MemoryShard | None = None
        self._siblings: dict[str, MemoryEngine] = {}

    async def open(self) -> "MemoryShard":
        """Return a shard of the next generation; the one before is fenced."""
        if self._shard is not None:
            self._shard.lose(Fenced(f"generation {self._generation + 1} has opened the cell"))
        self._generation += 1
        self.faults.release()
        self._shard = MemoryShard(self._store, self._generation, self.colour, self.faults)
        self._shard.undo = deque(maxlen=self._forgettable)
        return self._shard

    def for_reading(self, cause: str) -> None:
        """Memory needs no room for a log; see `Engine.for_reading`."""

    def sibling(self, name: str, *, must_exist: bool) -> "MemoryEngine":
        """An engine for another cell of the same size; see `Engine.sibling`."""
        if name not in self._siblings:
            self._siblings[name] = MemoryEngine(
                self._store.bytes_max, pools=self._store.pools, thresholds=self._thresholds,
                forgettable=self._forgettable,
            )  # fmt: skip
        return self._siblings[name]

    async def remove_sibling(self, name: str) -> None:
        self._siblings.pop(name, None)

    def copied(self) -> "MemoryEngine":
        """Return another engine with what is durable in this one now, as a backup holds it; without siblings."""
        copy = MemoryEngine(self._store.bytes_max, pools=self._store.pools, thresholds=self._thresholds)
        copy._store, copy._generation = self._store.copied(), self._generation
        return copy

    def take_sibling(self, name: str, engine: "MemoryEngine") -> None:
        """Have an engine for another cell, as a restored backup has it."""
        self._siblings[name] = engine

    @property
    def is_open(self) -> bool:
        """Return True if anybody has opened the cell so far."""
        return self._shard is not None

    def crash(self, *, durable: int = 0) -> None:
        """The owner dies, and with it the cues not met; the shard is lost. Open again for what is durable.

        Of the commits that wait the first `durable` become so, unacknowledged; the others are gone.
        """
        self._last_shard().crash(durable)
        self.faults.clear()

    def forget(self, commits: int) -> None:
        """The last commits of a shard that was lost are gone though they were acknowledged: nobody had synced them.

        So it is where `pqbroker.durability` is none. At most `forgettable`; before the cell is opened again.
        """
        self._last_shard().forget(commits)

    def tell_colour(self, colour: Colour | None, pool: str = "main") -> None:
        """Give a pool this colour, however much is free; None: its own again."""
        if colour is None:
            self._told.pop(pool, None)
        else:
            self._told[pool] = colour

    def colour(self, pool: str) -> Colour:
        """Return the pool's colour now."""
        bytes_max = self._store.bytes_max
        return self._told.get(pool) or self._thresholds.colour(bytes_max - self._store.total_bytes, bytes_max)

    def _last_shard(self) -> "MemoryShard":
        assert self._shard is not None, "the engine has not been opened"
        return self._shard


class MemoryShard:
    """One open instance. A round takes all that is queued, in the loop's next turn."""

    def __init__(
        self,
        store: MemoryStore,
        generation: int,
        colour: Callable[[str], Colour],
        faults: Faults,
    ) -> None:
        self.generation = generation
        self.colour = colour
        self.pools = store.pools
        self.caps = Caps(BLOB_BYTES_MAX, _INDEX_BLOB_BYTES_MAX, MEMORY_BATCH_BYTES_MAX)
        self.lost: asyncio.Future[ShardLost] = asyncio.get_running_loop().create_future()
        self.quarantine = Quarantine()
        self.damaged_blobs = DamagedBlobs()
        self.reading_only = ""
        self.undo: deque[StoredBefore] = deque(maxlen=0)
        """The last commits, to be taken back by a crash."""
        self._faults = faults
        self._store = store
        self._queue: deque[Queued] = deque()
        self._reason: ShardLost | None = None
        self._awaited = False
        self._commits = self._rounds = self._refused = self._bytes_written = 0
        faults.released = self._round_later

    async def release(self) -> None:
        self.quarantine.release()

    def submit(self, batch: Batch, told: Told) -> None:
        if self._reason is not None:
            asyncio.get_running_loop().call_soon(told, self._reason)
            return
        self._queue.append((batch, told))
        self._round_later()

    def commit(self, batch: Batch) -> Outcome[None]:
        return Outcome.of(partial(self.submit, batch))

    def plan_later(self, plan: Callable[[], None]) -> None:
        asyncio.get_running_loop().call_soon(plan)

    async def scan(self, lo: bytes, hi: bytes, rows_max: int) -> list[tuple[bytes, bytes]]:
        self._check()
        rows = self._store.rows
        return [(key, rows[key]) for key in _first(rows.irange(lo, hi, inclusive=(True, False)), rows_max)]

    async def get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        self._check()
        return [self._store.rows.get(key) for key in keys]

    async def scan_blobs(
        self, lo: bytes, hi: bytes, rows_max: int, *, reverse: bool = False
    ) -> list[tuple[BlobKey, int]]:
        self._check()
        blobs = self._store.blobs
        found = blobs.irange(lo, hi, inclusive=(True, False), reverse=reverse)
        return [(blob, len(blobs[blob])) for blob in _first(found, rows_max)]

    async def places(self, blobs: Sequence[BlobKey]) -> list[str | None]:
        self._check()
        return [self._store.places.get(blob) for blob in blobs]

    async def read(self, ranges: Sequence[tuple[BlobKey, int, int]]) -> list[Buffer]:
        self._check()
        found: list[Buffer] = []
        for blob, offset, size in ranges:
            content = self._store.blobs.get(blob)
            if content is None:
                raise BlobMissing(blob.hex())
            found.append(memoryview(content)[offset : offset + size])
        return found

    async def verify(
        self, ranges: Sequence[tuple[BlobKey, int, int]], *, by_reader: bool = False
    ) -> list[Buffer | FileRange]:
        return list(await self.read(ranges))

    async def confirm(self) -> None:
        self._check()

    async def backup(
        self, name: str, others: Mapping[str, Shard | CellElsewhere] | None = None,
        during: AbstractAsyncContextManager[None] | None = None,
    ) -> BackupFacts:
        raise EngineCannot("memory", EngineTask.BACK_UP, "only a data directory has backups; give one with --data DIR")

    async def copy_into(self, name: str, cell: str, steps: CopySteps) -> CopiedBytes:
        raise EngineCannot("memory", EngineTask.BACK_UP, "only a data directory has backups; give one with --data DIR")

    @property
    def round_seconds(self) -> float:
        return 0.0

    def stats(self) -> ShardStats:
        store = self._store
        free = max(0, store.bytes_max - store.total_bytes)
        live = store.pool_bytes
        pools = (
            PoolStats(
                name, ":memory:", free, store.bytes_max, live[name], live[name], self.colour(name)
            )
            for name in self.pools
        )
        return ShardStats(self._commits, self._rounds, self._bytes_written, 0, self._refused, 0, tuple(pools))

    def segments(self) -> tuple[SegmentFacts, ...]:
        return ()

    async def close(self) -> None:
        if self._reason is None:
            self._faults.release()
            self._round()
            self.lose(ShardLost("the shard is closed"), announce=False)

    def lose(self, reason: ShardLost, *, announce: bool = True) -> None:
        """Fail what is queued and everything later."""
        if self._reason is not None:
            return
        self._reason = reason
        self.quarantine.end()
        if announce:
            self.lost.set_result(reason)
        while self._queue:
            self._queue.popleft()[1](reason)

    def crash(self, durable: int) -> None:
        """See `MemoryEngine.crash`."""
        if self._reason is not None:
            return
        for batch, _ in islice(self._queue, durable):
            if self._store.refusal(batch) is None:
                self._store.apply(batch)
        self.lose(StoreFailed("a crash on cue"))

    def forget(self, commits: int) -> None:
        """See `MemoryEngine.forget`."""
        assert self._reason is not None, "what an owner has acknowledged it remembers while it lives"
        for _ in range(min(commits, len(self.undo))):
            self._store.restore(self.undo.pop())

    def _round_later(self) -> None:
        if not self._awaited and self._reason is None:
            self._awaited = True
            asyncio.get_running_loop().call_soon(self._round)

    def _round(self) -> None:
        self._awaited = False
        if self._faults.is_holding:
            return
        self._rounds += bool(self._queue)
        for _ in range(len(self._queue)):
            if self._reason is not None:
                return
            batch, told = self._queue[0]
            fault = self._faults.meet(batch)
            if isinstance(fault, Loss):
                if fault.stored and self._store.refusal(batch) is None:
                    self._store.apply(batch)
                self.lose(StoreFailed("a fault on cue"))
                return
            self._queue.popleft()
            refusal = fault or self._store.refusal(batch)
            self._commit(batch, refusal)
            told(refusal)

    def _commit(self, batch: Batch, refusal: CommitRefused | None) -> None:
        if refusal is not None:
            self._refused += 1
            return
        if self.undo.maxlen:
            self.undo.append(self._store.before(batch))
        self._store.apply(batch)
        self._commits += 1
        self._bytes_written += batch.bytes

    def _check(self) -> None:
        if self._reason is not None:
            raise raised_again(self._reason)


def _first(keys: Iterable[BlobKey], count: int) -> list[BlobKey]:
    return [key for key, _ in zip(keys, range(count), strict=False)]
