"""The base tablet: tables in memory, every commit a log blob in channel 0, at times a snapshot in channel 1 (spec K.2).

    idle --transact--> planning --commit--> in flight --durable--> applied, idle
                          |                     |-----refused, lost--> nothing changed, idle
                          '--plan raises--> idle

For tablets whose state is small. One transaction at a time, in the order of calls.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any, TypeVar

from pqbroker.storage.blobid import BlobId
from pqbroker.storage.blobstorage import following
from pqbroker.storage.engine import Batch, BlobKey, CommitRefused, ShardLost
from pqbroker.storage.outcome import Outcome
from pqbroker.storage.tables import Changed, Key, Row, Table, TableError, Transaction, apply, snapshot
from pqbroker.storage.tablet import LOG_CHANNEL, SNAPSHOT_CHANNEL, TabletStorage
from pqbroker.storage.values import decode, encode

LOG_BLOBS_MAX = 256
LOG_BYTES_MAX = 4 << 20
"""A snapshot is due after so many log blobs, or bytes of them."""
PART_BYTES_MAX = 8 << 20
"""Largest log blob, and part of a snapshot."""

_FORMAT = 1

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class LogRecord:
    """What a log blob says. `first` begins the chain that this one ends: itself (None), or one that has a snapshot."""

    first: BlobKey | None
    previous: BlobKey | None
    snapshot: tuple[BlobKey, ...]
    operations: Sequence[Sequence[Any]]

    def encode(self) -> bytes:
        return bytes((_FORMAT,)) + encode([self.first, self.previous, self.snapshot, self.operations])

    @classmethod
    def decode(cls, blob: bytes | bytearray | memoryview) -> "LogRecord":
        assert blob[0] == _FORMAT, blob[0]
        fields: Any = decode(memoryview(blob)[1:])
        first, previous, parts, operations = fields
        return cls(first, previous, tuple(parts), operations)


class BaseTablet:
    """Tables of one tablet. `changed` is told of every row that replay or a durable transaction sets or removes."""

    def __init__(
        self,
        storage: TabletStorage,
        *,
        changed: Changed | None = None,
        log_blobs_max: int = LOG_BLOBS_MAX,
        log_bytes_max: int = LOG_BYTES_MAX,
    ) -> None:
        self._storage = storage
        self._changed = changed or _nobody_listens
        self._log_blobs_max = log_blobs_max
        self._log_bytes_max = log_bytes_max
        self._tables: dict[str, Table] = {}
        self._first: BlobKey | None = None
        self._last: BlobKey | None = None
        self._log_blobs = 0
        self._log_bytes = 0
        self._turn = asyncio.Lock()
        self._applied: asyncio.Future[None] | None = None
        self._collection: asyncio.Task[None] | None = None

    @property
    def tables(self) -> Mapping[str, Table]:
        """What is durable."""
        return MappingProxyType(self._tables)

    async def start(self) -> None:
        """Find the last log blob, follow its references, replay. Raises ShardLost, BlobCorrupt."""
        found = await self._storage.discover()
        if found is None:
            return
        assert found.body is not None
        last = found.blob.key()
        first = LogRecord.decode(found.body).first or last
        keys = [key async for key, _ in self._storage.stored_blobs(first, following(last))]
        bodies = await self._storage.read([(key, 0, BlobId.from_key(key).size) for key in keys])
        previous: BlobKey | None = None
        for key, body in zip(keys, bodies, strict=True):
            record = LogRecord.decode(body)
            assert record.previous == previous, f"log blob {key.hex()} does not follow {previous!r}"
            if record.snapshot:
                await self._load_snapshot(record.snapshot)
            self._replay(record.operations)
            previous = key
        self._first, self._last = first, last
        self._log_blobs, self._log_bytes = len(keys), sum(map(len, bodies))

    async def transact(self, plan: Callable[[Transaction], T]) -> T:
        """Run `plan`, which reads the tables and says what changes; return what it returned when that is durable.

        What `plan` raises passes through and changes nothing, as do CommitRefused and ShardLost. A caller that is
        cancelled does not undo what is in flight.
        """
        async with self._turn:
            if self._applied is not None:
                await asyncio.wait([self._applied])
            transaction = Transaction(self._tables)
            result = plan(transaction)
            if transaction.operations:
                await asyncio.shield(self._commit(transaction.operations))
            return result

    async def stop(self) -> None:
        """Wait for the collection of garbage, if one runs."""
        if self._collection is not None:
            await asyncio.wait([self._collection])

    def _commit(self, operations: Sequence[Sequence[Any]]) -> "asyncio.Future[None]":
        batch = Batch()
        starts_chain = self._last is None or (
            self._log_blobs >= self._log_blobs_max or self._log_bytes >= self._log_bytes_max
        )
        if starts_chain:
            record = LogRecord(None, None, self._put_snapshot(batch), operations)
        else:
            record = LogRecord(self._first, self._last, (), operations)
        body = record.encode()
        if len(body) > PART_BYTES_MAX:
            raise TableError(f"a transaction of {len(body)} bytes; at most {PART_BYTES_MAX} are taken")
        key = self._storage.put_blob(batch, LOG_CHANNEL, [body], len(body))
        self._applied = asyncio.get_running_loop().create_future()
        committed = self._storage.commit(batch)
        committed.add_done_callback(partial(self._settle, self._applied, key, body))
        return self._applied

    def _put_snapshot(self, batch: Batch) -> tuple[BlobKey, ...]:
        if not self._tables:
            return ()
        body = memoryview(encode(snapshot(self._tables)))
        parts = [body[start : start + PART_BYTES_MAX] for start in range(0, len(body), PART_BYTES_MAX)]
        return tuple(self._storage.put_blob(batch, SNAPSHOT_CHANNEL, [part], len(part)) for part in parts)

    def _settle(
        self, applied: "asyncio.Future[None]", key: BlobKey, body: bytes, committed: Outcome[None]
    ) -> None:
        self._applied = None
        error = committed.exception()
        if error is not None:
            applied.set_exception(error)
            return
        record = LogRecord.decode(body)
        self._replay(record.operations)
        self._last = key
        if record.first is None:
            self._first = key
            self._log_blobs = self._log_bytes = 0
        if record.snapshot:
            self._collect_behind(BlobId.from_key(key))
        self._log_blobs += 1
        self._log_bytes += len(body)
        applied.set_result(None)

    def _replay(self, operations: Sequence[Sequence[Any]]) -> None:
        for operation in operations:
            apply(self._tables, operation, self._changed)

    async def _load_snapshot(self, parts: Sequence[BlobKey]) -> None:
        bodies = await self._storage.read([(part, 0, BlobId.from_key(part).size) for part in parts])
        operations: Any = decode(b"".join(bodies))
        self._replay(operations)

    def _collect_behind(self, log: BlobId) -> None:
        """Nothing before this log blob is referred to any more."""
        if self._collection is None or self._collection.done():
            self._collection = asyncio.get_running_loop().create_task(self._collect(log.generation, log.step - 1))

    async def _collect(self, generation: int, step: int) -> None:
        try:
            await self._storage.collect_garbage(LOG_CHANNEL, generation, step)
            await self._storage.collect_garbage(SNAPSHOT_CHANNEL, generation, step)
        except (CommitRefused, ShardLost):
            return  # the next snapshot's barrier lies further ahead and does this one's work


def _nobody_listens(table: str, key: Key, row: Row | None) -> None: ...
