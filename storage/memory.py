"""An engine in memory: the disk engine's semantics and faults on cue, for tests, simulation and `--data :memory:`."""

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

from sortedcontainers import SortedDict

from pqbroker.storage.engine import (
    BLOB_BYTES_MAX,
    Batch,
    BlobKey,
    BlobMissing,
    Buffer,
    Caps,
    CommitRefused,
    DiskFull,
    Fenced,
    FileRange,
    PoolStats,
    ShardLost,
    ShardStats,
    StoreFailed,
)
from pqbroker.storage.faults import Faults, Loss
from pqbroker.storage.outcome import Outcome
from pqbroker.storage.quarantine import Quarantine
from pqbroker.storage.status import DEFAULT_THRESHOLDS, Colour, Thresholds

_INDEX_BLOB_BYTES_MAX = 1000
_BATCH_BYTES_MAX = 64 << 20


class _Before(NamedTuple):
    """What stood in the store under the keys and ids that a commit was about to change; None: nothing."""

    rows: list[tuple[bytes, bytes | None]]
    blobs: list[tuple[BlobKey, bytes | None, str]]
    """With the pool of each."""


@dataclass(slots=True)
class _Store:
    """What is kept: rows and blobs in key order, and how many bytes they are."""

    rows: SortedDict = field(default_factory=SortedDict)
    blobs: SortedDict = field(default_factory=SortedDict)
    places: dict[BlobKey, str] = field(default_factory=dict)
    """Pool of each blob."""
    pool_bytes: Counter[str] = field(default_factory=Counter)
    row_bytes: int = 0

    @property
    def blob_bytes(self) -> int:
        return self.pool_bytes.total()

    @property
    def total_bytes(self) -> int:
        return self.blob_bytes + self.row_bytes

    def refusal(self, batch: Batch, pools: tuple[str, ...], bytes_max: int) -> CommitRefused | None:
        """Why the batch cannot be taken; None when it can."""
        if batch.bytes > _BATCH_BYTES_MAX:
            return CommitRefused(f"a batch of {batch.bytes} bytes; at most {_BATCH_BYTES_MAX} are taken")
        for blob, buffers, size, pool in batch.blobs:
            if not 0 < size <= BLOB_BYTES_MAX or size != sum(map(len, buffers)):
                return CommitRefused(f"blob {blob.hex()} of {size} bytes; 1 to {BLOB_BYTES_MAX} are taken")
            if pool not in pools:
                return CommitRefused(f"there is no pool {pool!r}")
            if blob in self.blobs and self.blobs[blob] != b"".join(buffers):
                return CommitRefused(f"blob {blob.hex()} is stored with other content")
        if batch.blobs and self.total_bytes + batch.bytes > bytes_max:
            return DiskFull(f"{self.total_bytes} of {bytes_max} bytes are taken")
        return None

    def apply(self, batch: Batch) -> None:
        for lo, hi in batch.ranges:
            for key in list(self.rows.irange(lo, hi, inclusive=(True, False))):
                self._set(key, None)
        for key, value in batch.rows:
            self._set(key, value)
        for blob, buffers, _, pool in batch.blobs:
            if blob not in self.blobs:
                self._set_blob(blob, b"".join(buffers), pool)
        for blob in batch.dead:
            self._set_blob(blob, None, "")

    def before(self, batch: Batch) -> _Before:
        """What applying the batch would change, as it is now."""
        keys = {key for key, _ in batch.rows}
        for lo, hi in batch.ranges:
            keys.update(self.rows.irange(lo, hi, inclusive=(True, False)))
        blobs = {blob for blob, _, _, _ in batch.blobs}.union(batch.dead)
        return _Before(
            [(key, self.rows.get(key)) for key in keys],
            [(blob, self.blobs.get(blob), self.places.get(blob, "")) for blob in blobs],
        )

    def restore(self, before: _Before) -> None:
        for key, value in before.rows:
            self._set(key, value)
        for blob, content, pool in before.blobs:
            self._set_blob(blob, content, pool)

    def _set(self, key: bytes, value: bytes | None) -> None:
        old = self.rows.pop(key, None)
        if old is not None:
            self.row_bytes -= len(key) + len(old)
        if value is not None:
            self.rows[key] = value
            self.row_bytes += len(key) + len(value)

    def _set_blob(self, blob: BlobKey, content: bytes | None, pool: str) -> None:
        if blob in self.blobs:
            self.pool_bytes[self.places.pop(blob)] -= len(self.blobs.pop(blob))
        if content is not None:
            self.blobs[blob] = content
            self.places[blob] = pool
            self.pool_bytes[pool] += len(content)


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
        self._bytes_max = bytes_max
        self._thresholds = thresholds
        self._told: dict[str, Colour] = {}
        self._pools = tuple(pools)
        self._forgettable = forgettable
        self._store = _Store()
        self._generation = 0
        self._shard: MemoryShard | None = None

    async def open(self) -> "MemoryShard":
        """A shard of the next generation; the one before is fenced."""
        if self._shard is not None:
            self._shard.lose(Fenced(f"generation {self._generation + 1} has opened the cell"))
        self._generation += 1
        self.faults.release()
        self._shard = MemoryShard(
            self._store, self._generation, self._bytes_max, self._pools, self.colour, self.faults
        )
        self._shard.undo = deque(maxlen=self._forgettable)
        return self._shard

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
        """A pool has this colour, whatever is free; None: its own again."""
        if colour is None:
            self._told.pop(pool, None)
        else:
            self._told[pool] = colour

    def colour(self, pool: str) -> Colour:
        """What the pool has now."""
        return self._told.get(pool) or self._thresholds.colour(
            self._bytes_max - self._store.total_bytes, self._bytes_max
        )

    def _last_shard(self) -> "MemoryShard":
        assert self._shard is not None, "the engine has not been opened"
        return self._shard


class MemoryShard:
    """One open instance. A round takes all that is queued, in the loop's next turn."""

    def __init__(
        self,
        store: _Store,
        generation: int,
        bytes_max: int,
        pools: tuple[str, ...],
        colour: Callable[[str], Colour],
        faults: Faults,
    ) -> None:
        self.generation = generation
        self.colour = colour
        self.pools = pools
        self.caps = Caps(BLOB_BYTES_MAX, _INDEX_BLOB_BYTES_MAX, _BATCH_BYTES_MAX)
        self.lost: asyncio.Future[ShardLost] = asyncio.get_running_loop().create_future()
        self.quarantine = Quarantine()
        self.undo: deque[_Before] = deque(maxlen=0)
        """The last commits, to be taken back by a crash."""
        self._faults = faults
        self._store = store
        self._bytes_max = bytes_max
        self._queue: deque[tuple[Batch, Outcome[None]]] = deque()
        self._reason: ShardLost | None = None
        self._awaited = False
        self._commits = self._rounds = self._refused = self._bytes_written = 0
        faults.released = self._round_later

    async def release(self) -> None:
        self.quarantine.release()

    def commit(self, batch: Batch) -> Outcome[None]:
        if self._reason is not None:
            return Outcome.failed(self._reason)
        outcome: Outcome[None] = Outcome()
        self._queue.append((batch, outcome))
        self._round_later()
        return outcome

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

    async def verify(self, ranges: Sequence[tuple[BlobKey, int, int]]) -> list[Buffer | FileRange]:
        return list(await self.read(ranges))

    async def confirm(self) -> None:
        self._check()

    def stats(self) -> ShardStats:
        store = self._store
        free = max(0, self._bytes_max - store.total_bytes)
        live = store.pool_bytes
        pools = (
            PoolStats(
                name, ":memory:", free, self._bytes_max, live[name], live[name], self.colour(name)
            )
            for name in self.pools
        )
        return ShardStats(self._commits, self._rounds, self._bytes_written, 0, self._refused, 0, tuple(pools))

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
            self._queue.popleft()[1].set_exception(reason)

    def crash(self, durable: int) -> None:
        """See `MemoryEngine.crash`."""
        if self._reason is not None:
            return
        for batch, _ in islice(self._queue, durable):
            if self._store.refusal(batch, self.pools, self._bytes_max) is None:
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
            batch, outcome = self._queue[0]
            fault = self._faults.meet(batch)
            if isinstance(fault, Loss):
                if fault.stored and self._store.refusal(batch, self.pools, self._bytes_max) is None:
                    self._store.apply(batch)
                self.lose(StoreFailed("a fault on cue"))
                return
            self._queue.popleft()
            self._commit(batch, outcome, fault or self._store.refusal(batch, self.pools, self._bytes_max))

    def _commit(self, batch: Batch, outcome: Outcome[None], refusal: CommitRefused | None) -> None:
        if refusal is not None:
            self._refused += 1
            outcome.set_exception(refusal)
            return
        if self.undo.maxlen:
            self.undo.append(self._store.before(batch))
        self._store.apply(batch)
        self._commits += 1
        self._bytes_written += batch.bytes
        outcome.set_result(None)

    def _check(self) -> None:
        if self._reason is not None:
            raise self._reason


def _first(keys: Iterable[BlobKey], count: int) -> list[BlobKey]:
    return [key for key, _ in zip(keys, range(count), strict=False)]
