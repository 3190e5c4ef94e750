"""The engine: ordered keys and blobs with fencing, one open instance per cell. The interface, not an implementation.

Three outcomes of a commit, told by one call:
    durable   with None
    refused   with CommitRefused: provably nothing was written; the shard lives
    lost      with ShardLost; `Shard.lost` resolves, every later call fails the same way
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple, NewType, Protocol

from pqbroker.storage.copy_steps import CellElsewhere, CopiedBytes, CopySteps
from pqbroker.storage.outcome import Outcome, Told
from pqbroker.storage.pool_status import Colour

if TYPE_CHECKING:
    from pqbroker.storage.damaged_blobs import DamagedBlobs
    from pqbroker.storage.quarantine import Quarantine

Buffer = bytes | bytearray | memoryview
BlobKey = NewType("BlobKey", bytes)
"""The 24 bytes of a blob id, big-endian, in the sort order of the id."""

class FileRange(NamedTuple):
    """Place of verified bytes of a blob. Nothing keeps the file: to open it shows whether they still exist."""

    path: str
    position: int
    size: int

    def cut(self, start: int, stop: int) -> "FileRange":
        """Bytes [start, stop) of it."""
        return FileRange(self.path, self.position + start, stop - start)


BLOB_KEY_BYTES = 24
INDEX = "index"
"""Name of the place of blobs that are too small for a pool."""
BLOB_BYTES_MAX = 10 * (1 << 20)


class CommitRefused(Exception):
    """Nothing of the batch was written: no room, over a limit, or a fault on cue."""


class DiskFull(CommitRefused):
    """Refused for want of room in a pool or in the index."""


class ReadingOnly(DiskFull):
    """Refused, since the cell was opened for reading only: its disk had no room for a log; the text names the cure."""


class ShardLost(Exception):
    """The shard is unusable; what was not acknowledged may or may not be stored."""


class Fenced(ShardLost):
    """A later owner has opened the cell."""


class StoreFailed(ShardLost):
    """A write or a sync failed after its first byte."""


class StoreFull(StoreFailed):
    """A write found no room, after its first byte or where the engine looks for none."""


class RoomAgain(ShardLost):
    """A cell that is open for reading only has room to be opened for writing; nothing that it holds is lost."""


class DirectoryGone(ShardLost):
    """The cell's directory was removed or renamed while it was open."""


class BackupRefused(Exception):
    """No backup was made, and nothing is left of it; the text names cause and cure."""


class BlobMissing(Exception):
    """No blob of that id is stored."""


class BlobCorrupt(Exception):
    """A checksum of the blob's pages does not match; `blob` names it, `position` is where the bad bytes begin."""

    def __init__(self, blob: BlobKey, position: int, where: str) -> None:
        super().__init__(f"blob {blob.hex()} is corrupt at byte {position} ({where})")
        self.blob = blob
        self.position = position
        self.where = where


class EngineError(Exception):
    """A cell cannot be opened; the text names cause and cure."""


class EngineTask(StrEnum):
    """Tasks that an engine need not have; the texts follow "cannot"."""

    VERIFY = "verify its data"
    SALVAGE = "salvage its data"
    BACK_UP = "make a backup"
    RESTORE = "restore a backup"


class EngineCannot(EngineError):
    """A kind of engine does not have a task; `cure` names what to do instead."""

    def __init__(self, engine: str, task: EngineTask, cure: str) -> None:
        super().__init__(f"the {engine} engine cannot {task}: {cure}")
        self.cure = cure


class CellInUse(EngineError):
    """Another process has the cell open."""


class NoRoom(EngineError):
    """A cell cannot be opened for writing, since its disk is full. Nothing is lost."""


WANTS_ROOM = (NoRoom, DiskFull, StoreFull)
"""Errors of an opening that one for reading only does not meet."""


class IndexDamaged(EngineError):
    """A part of the index cannot be read; `cause` names the file."""

    cure = "restore a copy of the directory"

    def __init__(self, cause: str) -> None:
        super().__init__(f"{cause}; {self.cure}")
        self.cause = cause


class LogDamaged(IndexDamaged):
    """A round of the commit log cannot be read: what is whole can be salvaged."""

    cure = "restore a copy of the directory, or see with `pqbroker doctor --salvage` what can be saved without one"


@dataclass(frozen=True, slots=True)
class Caps:
    """Limits of what an engine can take: sizes in bytes."""

    blob_bytes_max: int
    index_blob_bytes_max: int
    batch_bytes_max: int


@dataclass(frozen=True, slots=True)
class PoolStats:
    """Space of one pool, in bytes; `directory` is where it lies, `:memory:` in memory."""

    name: str
    directory: str
    free_bytes: int
    total_bytes: int
    live_bytes: int
    stored_bytes: int
    colour: Colour


class SegmentFacts(NamedTuple):
    """One segment of a pool; sizes in bytes. What is not alive in it comes back when it is emptied."""

    pool: str
    name: str
    size_bytes: int
    live_bytes: int
    is_active: bool
    """True if it is written to."""


@dataclass(frozen=True, slots=True)
class ShardStats:
    """Counters of an open shard since its start; sizes in bytes."""

    commits: int
    rounds: int
    bytes_written: int
    syncs: int
    refused: int
    moved_bytes: int
    """Rewritten to give back the room of what was deleted beside it."""
    pools: tuple[PoolStats, ...]


@dataclass(frozen=True, slots=True)
class BackupFacts:
    """A backup: where it is, the last commit that it holds, and what it took."""

    directory: str
    commit: int
    files: int
    linked_bytes: int
    copied_bytes: int


class Move(NamedTuple):
    """A blob that an engine moves within a pool, if its index row is still `row`."""

    blob: BlobKey
    row: bytes
    content: Buffer
    pool: str


class InlineUse(NamedTuple):
    """Effect of a commit on a channel whose values are rows, not blobs: for the channel's limits, not for engines."""

    tablet: int
    channel: int
    puts: int
    put_bytes: int
    kept_bytes: int
    """More or, below zero, fewer bytes of such values are kept afterwards."""


class Batch:
    """Changes that become durable together. Later operations win over earlier ones on the same key.

    Buffers given to `put_blob` must not change before the commit's outcome is known.
    """

    __slots__ = ("blobs", "bytes", "dead", "inline", "moves", "ranges", "rows")

    def __init__(self) -> None:
        self.ranges: list[tuple[bytes, bytes]] = []
        """Ranges [lo, hi) deleted before everything else in the batch."""
        self.rows: list[tuple[bytes, bytes | None]] = []
        """Keys and values in order; None deletes."""
        self.blobs: list[tuple[BlobKey, Sequence[Buffer], int, str]] = []
        """Blob id, buffers, size, pool."""
        self.dead: list[BlobKey] = []
        self.moves: Sequence[Move] = ()
        """The engine's own; nothing else moves blobs."""
        self.inline: Sequence[InlineUse] = ()
        """Uses by tablets with limited channels; others are not counted."""
        self.bytes = 0

    def put(self, key: bytes, value: bytes) -> None:
        self.rows.append((key, value))
        self.bytes += len(key) + len(value)

    def delete(self, key: bytes) -> None:
        self.rows.append((key, None))
        self.bytes += len(key)

    def delete_range(self, lo: bytes, hi: bytes) -> None:
        """Delete keys in [lo, hi), before the rows of this batch apply."""
        self.ranges.append((lo, hi))
        self.bytes += len(lo) + len(hi)

    def put_blob(self, blob: BlobKey, buffers: Sequence[Buffer], size: int, pool: str) -> None:
        """Store `size` bytes, the buffers end to end. An id is written once."""
        self.blobs.append((blob, buffers, size, pool))
        self.bytes += size

    def delete_blob(self, blob: BlobKey) -> None:
        self.dead.append(blob)

    def take_in(self, other: "Batch") -> None:
        """Add another batch's changes to this one. They must not touch the same keys: ranges come before all rows."""
        self.ranges += other.ranges
        self.rows += other.rows
        self.blobs += other.blobs
        self.dead += other.dead
        self.inline = (*self.inline, *other.inline)
        self.bytes += other.bytes


class Shard(Protocol):
    """One cell's store, opened by one owner. Only the loop thread calls it."""

    @property
    def generation(self) -> int:
        """The cell's generation; greater than any before, even after a half-way crash."""

    @property
    def lost(self) -> "asyncio.Future[ShardLost]":
        """Resolves once, with the reason; terminal."""

    @property
    def quarantine(self) -> "Quarantine":
        """Return the quarantine: what of the cell is unreadable, and whether what is dead in it may be removed."""

    @property
    def damaged_blobs(self) -> "DamagedBlobs":
        """Return the blobs that reads found damaged."""

    @property
    def reading_only(self) -> str:
        """Return why every commit behind `release` is refused, with the cure: the cell is open for reading only. Empty:
        it takes writes."""

    async def release(self) -> None:
        """All that a start reads was read: begin to remove what is dead, unless something could not be read."""

    @property
    def caps(self) -> Caps: ...

    @property
    def pools(self) -> tuple[str, ...]: ...

    def submit(self, batch: Batch, told: Told) -> None:
        """Make the batch durable: atomic, and prefix-durable. `told` is called once, never within this call.

        Batches are applied in the order of the calls, and their outcomes come in that order.
        """

    def commit(self, batch: Batch) -> Outcome[None]:
        """Commit as `submit` does, for a caller that waits."""

    def plan_later(self, plan: Callable[[], None]) -> None:
        """Call `plan` at the end of the loop's turn; what all these submit is one round's, if nothing else is."""

    async def scan(self, lo: bytes, hi: bytes, rows_max: int) -> list[tuple[bytes, bytes]]:
        """Durable rows with lo <= key < hi, at most `rows_max`, in key order. For starts and administration."""

    async def get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Durable values of the keys, in their order; None where absent."""

    async def scan_blobs(
        self, lo: bytes, hi: bytes, rows_max: int, *, reverse: bool = False
    ) -> list[tuple[BlobKey, int]]:
        """Ids and sizes of durable blobs with lo <= id < hi, in id order, or from the end when `reverse`."""

    async def places(self, blobs: Sequence[BlobKey]) -> list[str | None]:
        """The pool that each durable blob is in, or INDEX; None where it is gone or its row is unreadable."""

    async def read(self, ranges: Sequence[tuple[BlobKey, int, int]]) -> list[Buffer]:
        """Bytes of each (blob, offset, size), every touched page verified.

        Raises BlobMissing, BlobCorrupt (naming the first bad one), ShardLost. Short only at a blob's end.
        """

    async def verify(
        self, ranges: Sequence[tuple[BlobKey, int, int]], *, by_reader: bool = False
    ) -> list[Buffer | FileRange]:
        """Read as `read` does, for bytes that are only to be sent: return where they lie in files, as far as they do.
        `by_reader`: their reader there verifies them, and nothing of a file is read here."""

    def colour(self, pool: str) -> Colour:
        """Return how full the pool was at the last look, a round or a second ago; asks nobody."""

    @property
    def round_seconds(self) -> float:
        """Return for how long the round of commits under way has been written, or the last one was where it took a
        second or more and ended within a second; else 0. Asks nobody."""

    async def confirm(self) -> None:
        """Return once it is certain that this owner is not fenced now; else raise ShardLost."""

    async def backup(
        self, name: str, others: "Mapping[str, Shard | CellElsewhere] | None" = None,
        during: AbstractAsyncContextManager[None] | None = None,
    ) -> BackupFacts:
        """Copy the cell as it is at one moment, not before this call, to a new directory, while it serves; and before
        that `others`, the other cells of the node by name, each as it is at a moment of its own. `during` is entered
        before the first moment and left behind the last one, long before all is copied. Cells elsewhere are copied by
        the process that has them, into the same directory.

        One at a time. It is completed though the caller is cancelled. Raises EngineCannot, BackupRefused, ShardLost.
        """

    async def copy_into(self, name: str, cell: str, steps: CopySteps) -> CopiedBytes:
        """Copy the cell, as the one of a name, into the backup that another process makes (`CellElsewhere`).
        Raises EngineCannot, BackupRefused, ShardLost."""

    def stats(self) -> ShardStats: ...

    def segments(self) -> Sequence[SegmentFacts]:
        """Return where blobs lie, the oldest first of each pool; nothing for an engine without files."""

    async def close(self) -> None:
        """Make all that was committed durable and release the cell."""


class Opener(Protocol):
    """Opens one cell in one way."""

    async def open(self) -> Shard: ...


class Engine(Protocol):
    """Opens shards."""

    async def open(self) -> Shard:
        """Open the cell with a new generation, fencing any earlier owner. Raises EngineError; NoRoom on a full disk."""

    def for_reading(self, cause: str) -> Opener | None:
        """Return what opens the cell for reading only, where `cause` kept it from being opened for writing.

        It changes nothing that is stored. Commits before the shard's `release` act in memory alone, so that tablets can
        start; later ones are refused. The shard is lost with RoomAgain once there is room. None: the engine has no such
        opening.
        """

    def sibling(self, name: str, *, must_exist: bool) -> "Engine":
        """The engine of another cell of the same node, below this one's place; the same object for the same name.

        `must_exist`: the cell was open before, so that a new one would hide that it is gone.
        """

    async def remove_sibling(self, name: str) -> None:
        """Delete all that a sibling stored, which is not open; none of that name: nothing to do. EngineError."""
