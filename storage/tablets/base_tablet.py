"""The base tablet: row sets in memory, a log blob for each commit (channel 0), snapshots (channel 1); spec K.2.

    idle --change--> planning --log blob committed--> in flight --durable------> applied, idle
    idle --hold----> held ------in others' commit---> in flight --durable------> applied, idle
                          |                                 |-------refused, lost--> nothing changed, idle
                          '--plan raises--> idle

    snapshot due:   parts stored --> the log blob that names them, and begins a chain --> barriers behind both
                    parts refused, as on a full disk --> the chain becomes longer, up to a limit

Nothing refers to the parts before the log blob does, so a crash between two of these steps leaves only garbage, which
the next start or the next snapshot collects. For tablets whose state is small. One change at a time, in the order
of calls.
"""

import asyncio
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeVar, cast

from pqbroker.storage.blobs.blob_id import BlobId, channel_bounds
from pqbroker.storage.blobs.blob_storage import following
from pqbroker.storage.engine import (
    Batch,
    BlobCorrupt,
    BlobKey,
    BlobMissing,
    CommitRefused,
    IndexDamaged,
    ShardLost,
)
from pqbroker.storage.tablets.numbered_changes import ChangeLog, number_of
from pqbroker.storage.tablets.row_sets import (
    Changed,
    Key,
    Row,
    RowChanges,
    RowSet,
    RowSetError,
    apply,
    operation_count,
    snapshot,
)
from pqbroker.storage.tablets.tablet import LOG_CHANNEL, SNAPSHOT_CHANNEL, TabletStorage
from pqbroker.storage.tablets.value_encoding import (
    Decoding,
    decode,
    decode_items,
    encode,
    encode_list_head,
    encode_some,
)
from pqbroker.storage.uninterrupted import Uninterrupted
from pqbroker.storage.unreadable import INDEX_CURE, VERSION_CURE, StoredUnreadable, check_version

LOG_BLOBS_MAX = 256
LOG_BYTES_MAX = 4 << 20
"""A snapshot is due after this many log blobs, or bytes of them, but not before the log has as many bytes as the last
snapshot: however many rows there are, a change writes no more than twice its own bytes."""
SMALL_SNAPSHOT_BYTES = 64 << 10
"""Size up to which the last snapshot does not count: over the changes of a chain it is little."""
CHAINS_MAX = 16
"""Greatest length of a chain while no snapshot can be stored, in lengths at which one is due."""
PART_BYTES_MAX = 8 << 20
"""Most that a log blob says, and largest part of a snapshot; each part is a commit: row sets may outgrow one."""
TURN_BYTES = 16 << 10
"""A snapshot is encoded and decoded in portions of about this size, and the loop turns between them (1 to 3 ms)."""
TURN_OPERATIONS = 500
"""Operations of a change that are applied in one turn of the loop where nobody follows the row sets."""

LOG_FORMAT = 1
"""Version of log records."""
_UNREADABLE = (
    BlobCorrupt, BlobMissing, IndexDamaged, LookupError, StoredUnreadable, TypeError, ValueError, struct.error,
)  # fmt: skip
"""Errors from bytes that no tablet of this version wrote."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class LogRecord:
    """Content of a log blob. `first` begins the chain that this one ends: itself (None), or one that has a snapshot."""

    first: BlobKey | None
    previous: BlobKey | None
    snapshot: tuple[BlobKey, ...]
    operations: Sequence[Sequence[Any]]

    @classmethod
    def decode(cls, blob: bytes | bytearray | memoryview) -> "LogRecord":
        """ValueError or TypeError for bytes that are no log record of this version."""
        check_version(blob, LOG_FORMAT)
        return cls._of(decode(memoryview(blob)[1:]))

    @classmethod
    async def decode_in_turns(cls, blob: bytes | bytearray | memoryview) -> "LogRecord":
        """Return a log record of this version; the loop turns meanwhile. ValueError, TypeError as `decode`."""
        decoding = Decoding(memoryview(blob)[1:])
        while True:
            if decoding.go_on(TURN_BYTES):
                return cls._of(decoding.value)
            await asyncio.sleep(0)

    @classmethod
    def _of(cls, fields: Any) -> "LogRecord":
        first, previous, parts, operations = fields
        return cls(first, previous, tuple(parts), operations)


class BaseTablet:
    """Row sets of one tablet. `changed` is called with every row that replay or a durable change sets or removes."""

    def __init__(
        self,
        storage: TabletStorage,
        *,
        changed: Changed | None = None,
        log_blobs_max: int = LOG_BLOBS_MAX,
        log_bytes_max: int = LOG_BYTES_MAX,
        changes: ChangeLog | None = None,
    ) -> None:
        """`changes` is given every durable change, for mirrors on other nodes. Where neither it nor `changed` is given,
        only plans read the row sets: a large change is applied over several turns of the loop."""
        self._storage = storage
        self._changed = changed or _nobody_listens
        self._log_blobs_max = log_blobs_max
        self._log_bytes_max = log_bytes_max
        self._change_log = changes
        self._row_sets: dict[str, RowSet] = {}
        self.row_sets: Mapping[str, RowSet] = MappingProxyType(self._row_sets)
        """The durable row sets, for others to read."""
        self._first: BlobKey | None = None
        self._last: BlobKey | None = None
        self._log_blobs = 0
        self._log_bytes = 0
        self._snapshot: tuple[BlobKey, ...] | None = None
        """Parts that are stored and hold the row sets as they are, though no log blob names them yet."""
        self._least_bytes = 0
        """Bytes that the log has at least before a snapshot is due: those of the last one, unless that is small."""
        self._due_blobs = log_blobs_max
        self._due_bytes = log_bytes_max
        """Length of the chain at which a snapshot is tried."""
        self._lock = asyncio.Lock()
        self._committing: asyncio.Task[None] | None = None
        self._collection: asyncio.Task[None] | None = None

    @property
    def is_lost(self) -> bool:
        """Return True if its cell can store nothing more: of what was asked for last, the outcome may be unknown."""
        return self._storage.is_lost

    async def start(self) -> None:
        """Find the last log blob, follow its references, replay. Raises StoredUnreadable, ShardLost."""
        try:
            await self._read_log()
        except _UNREADABLE as bad:
            cure = VERSION_CURE if isinstance(bad, ValueError) else INDEX_CURE
            found = StoredUnreadable(f"the log of tablet {self._storage.tablet_id}", _text(bad), cure)
            self._storage.found(found)
            raise found from bad
        if self._change_log is not None:
            self._change_log.begin(number_of(self._last), self.row_sets)

    async def _read_log(self) -> None:
        found = await self._storage.discover()
        if found is None:
            return
        assert found.body is not None
        last = found.blob.key()
        check_version(found.body, LOG_FORMAT)
        first = (await LogRecord.decode_in_turns(found.body)).first or last
        previous: BlobKey | None = None
        parts: Sequence[BlobKey] = ()
        async for key, body in self._storage.stored_bodies(first, following(last)):
            check_version(body, LOG_FORMAT)
            record = await LogRecord.decode_in_turns(body)
            if record.previous != previous:
                raise ValueError(f"log blob {BlobId.from_key(key)} does not follow the one before it")
            if record.snapshot:
                parts = record.snapshot
                await self._load_snapshot(parts)
                self._least_bytes = _least_bytes(parts)
            await self._replay_in_turns(record.operations)
            previous = key
            self._log_blobs += 1
            self._log_bytes += len(body)
        self._first, self._last = first, last
        lo, _ = channel_bounds(found.blob.tablet, LOG_CHANNEL)
        if await anext(self._storage.stored_blobs(lo, first), None) is not None:
            self._collect_behind(first, parts)

    async def change(self, plan: Callable[[RowChanges], T]) -> T:
        """Run `plan`, which reads the row sets and says what changes; return what it returned when that is durable.

        What `plan` raises passes through and changes nothing, as do CommitRefused and ShardLost. A caller that is
        cancelled does not undo what is in flight.
        """
        async with self._lock:
            if self._committing is not None and not self._committing.done():
                await asyncio.wait([self._committing])
            self._storage.check_not_lost()  # else a plan would decide by what the last change may have ended
            changes = RowChanges(self._row_sets)
            result = plan(changes)
            if changes.operations:
                self._committing = asyncio.get_running_loop().create_task(self._commit(changes.operations))
                await Uninterrupted(self._committing)
            return result

    async def hold(self, *, may_store_snapshot: bool = True) -> "HeldTablet":
        """Let no change begin that is asked for from now on, for one that a commit of several tablets makes; `settle`
        has to follow. A snapshot that is due is stored first, or refuses it, where nobody may wait for that.
        CommitRefused, ShardLost."""
        await self._lock.acquire()
        try:
            if self._committing is not None and not self._committing.done():
                await asyncio.wait([self._committing])
            if self._is_snapshot_due:
                if not may_store_snapshot:
                    raise CommitRefused(f"a snapshot of tablet {self._storage.tablet_id} is due")
                await self._snapshot_if_room()
        except BaseException:
            self._lock.release()
            raise
        return HeldTablet(self._plan_held, self._end_held)

    def _plan_held(self, plan: Callable[[RowChanges], object]) -> tuple[Batch, BlobKey, bytes]:
        changes = RowChanges(self._row_sets)
        plan(changes)
        batch = Batch()
        body = self._record(_encoded(changes.operations))
        return batch, self._storage.put_blob(batch, LOG_CHANNEL, [body], len(body)), body

    def _end_held(self, key: BlobKey, body: bytes) -> None:
        try:
            if body:
                record = LogRecord.decode(body)
                self._replay(record.operations)
                self._end_change(key, record, len(body))
        finally:
            self._lock.release()

    async def stop(self) -> None:
        """Wait for the changes that were asked for before, and for the collection of garbage that is under way."""
        async with self._lock:
            pass
        for task in (self._committing, self._collection):
            if task is not None:
                await asyncio.wait([task])

    async def _commit(self, operations: Sequence[Sequence[Any]]) -> None:
        changes = await _encoded_in_turns(operations)
        if self._is_snapshot_due:
            await self._snapshot_if_room()
        body = self._record(changes)
        batch = Batch()
        key = self._storage.put_blob(batch, LOG_CHANNEL, [body], len(body))
        await self._storage.commit(batch)
        record = await LogRecord.decode_in_turns(body)
        is_followed = self._changed is not _nobody_listens or self._change_log is not None
        if is_followed or len(record.operations) <= TURN_OPERATIONS:
            self._replay(record.operations)
        else:
            await self._replay_in_turns(record.operations)
        self._end_change(key, record, len(body))

    def _record(self, changes: bytes | bytearray) -> bytes:
        """Return the log blob of a change: it begins a chain where there is a snapshot for it."""
        if self._snapshot is not None:
            return encode_record(None, None, self._snapshot, changes)
        return encode_record(self._first, self._last, (), changes)

    async def _snapshot_if_room(self) -> None:
        """Store a snapshot; on a full disk the chain grows instead for a while, since small log blobs are taken there
        and a snapshot is not. CommitRefused, ShardLost."""
        try:
            await self._store_snapshot()
        except CommitRefused:
            is_longest = self._log_bytes >= CHAINS_MAX * self._least_bytes
            if self._last is None or (is_longest and self._log_blobs >= CHAINS_MAX * self._log_blobs_max):
                raise
            self._due_blobs = self._log_blobs + max(self._log_blobs_max // CHAINS_MAX, 1)
            self._due_bytes = self._log_bytes + max(self._log_bytes_max // CHAINS_MAX, 1)

    @property
    def _is_snapshot_due(self) -> bool:
        """Return True if the next log blob begins a chain."""
        if self._last is None:
            return True
        is_long = self._log_blobs >= self._due_blobs or self._log_bytes >= self._due_bytes
        return is_long and self._log_bytes >= self._least_bytes

    def _end_change(self, key: BlobKey, record: LogRecord, size: int) -> None:
        """A log blob is durable and applied. It was decoded again, so that no other object shares the rows."""
        if record.first is None:
            if self._last is not None:
                self._collect_behind(key, record.snapshot)
            self._first = key
            self._snapshot = None
            self._least_bytes = _least_bytes(record.snapshot)
            self._log_blobs = self._log_bytes = 0
            self._due_blobs, self._due_bytes = self._log_blobs_max, self._log_bytes_max
        self._last = key
        self._log_blobs += 1
        self._log_bytes += size
        if self._change_log is not None:
            self._change_log.add(number_of(key), record.operations, size)

    async def _store_snapshot(self) -> tuple[BlobKey, ...]:
        """Blobs that hold the row sets as they are. Stored once, however often the log blob behind them is refused."""
        if self._snapshot is None:
            body = memoryview(await self._encode_snapshot() if self._row_sets else b"")
            keys: list[BlobKey] = []
            for start in range(0, len(body), PART_BYTES_MAX):
                batch = Batch()
                part = body[start : start + PART_BYTES_MAX]
                keys.append(self._storage.put_blob(batch, SNAPSHOT_CHANNEL, [part], len(part)))
                await self._storage.commit(batch)
            self._snapshot = tuple(keys)
        return self._snapshot

    async def _encode_snapshot(self) -> bytearray:
        """The operations that make the row sets, as one list. Nothing changes them meanwhile: the lock is ours."""
        body = bytearray(encode_list_head(operation_count(self._row_sets)))
        turned = 0
        for operation in snapshot(self._row_sets):
            body += encode(operation)
            if len(body) - turned >= TURN_BYTES:
                turned = len(body)
                await asyncio.sleep(0)
        return body

    async def _replay_in_turns(self, operations: Sequence[Sequence[Any]]) -> None:
        for begin in range(0, len(operations), TURN_OPERATIONS):
            if begin:
                await asyncio.sleep(0)
            self._replay(operations[begin : begin + TURN_OPERATIONS])

    def _replay(self, operations: Sequence[Sequence[Any]]) -> None:
        for operation in operations:
            apply(self._row_sets, operation, self._changed)

    async def _load_snapshot(self, parts: Sequence[BlobKey]) -> None:
        bodies = await self._storage.read([(part, 0, BlobId.from_key(part).size) for part in parts])
        turned = 0
        for operation, position in decode_items(b"".join(bodies)):
            self._replay([cast("list[Any]", operation)])
            if position - turned >= TURN_BYTES:
                turned = position
                await asyncio.sleep(0)

    def _collect_behind(self, first: BlobKey, parts: Sequence[BlobKey]) -> None:
        """Nothing before the chain's first log blob is referred to any more, nor are parts before its snapshot's."""
        if self._collection is None or self._collection.done():
            log, snapshot = BlobId.from_key(first), BlobId.from_key(parts[0] if parts else first)
            self._collection = asyncio.get_running_loop().create_task(self._collect(log, snapshot))

    async def _collect(self, log: BlobId, snapshot: BlobId) -> None:
        """The log goes last: as long as there is something behind its barrier, a start does all of this again."""
        try:
            for channel, blob in ((SNAPSHOT_CHANNEL, snapshot), (LOG_CHANNEL, log)):
                await self._storage.collect_garbage(channel, blob.generation, blob.step - 1)
        except (CommitRefused, ShardLost):
            return  # the next snapshot's barrier lies further ahead and does this one's work


class HeldTablet:
    """A base tablet of which nothing else is changed before `settle`."""

    __slots__ = ("_body", "_end", "_key", "_plan")

    def __init__(
        self, plan: Callable[[Callable[[RowChanges], object]], tuple[Batch, BlobKey, bytes]],
        end: Callable[[BlobKey, bytes], None],
    ) -> None:
        self._plan = plan
        self._end = end
        self._key = BlobKey(b"")
        self._body = b""

    def plan(self, plan: Callable[[RowChanges], object]) -> Batch:
        """Run `plan`, which reads the row sets and says what changes, once; return what makes it durable. Blocked."""
        batch, self._key, self._body = self._plan(plan)
        return batch

    def settle(self, error: BaseException | None) -> None:
        """The change is durable, or came to nothing; called once."""
        self._end(self._key, b"" if error is not None else self._body)


def _least_bytes(snapshot: Sequence[BlobKey]) -> int:
    size = sum(BlobId.from_key(part).size for part in snapshot)
    return size if size > SMALL_SNAPSHOT_BYTES else 0


def _encoded(operations: Sequence[Sequence[Any]]) -> bytes:
    changes = encode(operations)
    _check_size(len(changes))
    return changes


async def _encoded_in_turns(operations: Sequence[Sequence[Any]]) -> bytearray:
    """Return the bytes that `_encoded` returns; the loop turns meanwhile, while the caller has the lock."""
    changes, waiting = bytearray(), list[object]([operations])
    while True:
        encode_some(changes, waiting, len(changes) + TURN_BYTES)
        _check_size(len(changes))
        if not waiting:
            return changes
        await asyncio.sleep(0)


def _check_size(size: int) -> None:
    if size > PART_BYTES_MAX:
        raise RowSetError(f"a change of {size} bytes or more; at most {PART_BYTES_MAX} are taken")


def encode_record(
    first: BlobKey | None, previous: BlobKey | None, parts: Sequence[BlobKey], changes: bytes | bytearray
) -> bytes:
    """A log blob, of its encoded operations and the fields of `LogRecord`."""
    references = (encode(first), encode(previous), encode(parts))
    return b"".join((bytes((LOG_FORMAT,)), encode_list_head(4), *references, changes))


def _text(bad: Exception) -> str:
    if isinstance(bad, BlobMissing):
        return f"blob {bad} is gone"
    return bad.cause if isinstance(bad, StoredUnreadable | IndexDamaged) else str(bad) or type(bad).__name__


def _nobody_listens(row_set: str, key: Key, row: Row | None) -> None: ...
