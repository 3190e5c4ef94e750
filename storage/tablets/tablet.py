"""A tablet: a singleton with id, type and generation; and the storage that its running instance writes through."""

import asyncio
import struct
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import partial
from itertools import starmap
from struct import Struct
from typing import NamedTuple, Protocol

from pqbroker.storage.blobs.blob_id import STEP_MAX, BlobId
from pqbroker.storage.blobs.blob_storage import BlobStorage, Blocked, Discovered
from pqbroker.storage.blobs.channel_history import ChannelHistory
from pqbroker.storage.blobs.channel_limits import ChannelLimits
from pqbroker.storage.blobs.garbage import Collection
from pqbroker.storage.counters import ChannelCounters
from pqbroker.storage.engine import Batch, BlobKey, Buffer, CommitRefused, FileRange, IndexDamaged, Shard, ShardLost
from pqbroker.storage.ids import TabletId
from pqbroker.storage.kept_errors import raised_again
from pqbroker.storage.outcome import Outcome, Told
from pqbroker.storage.pool_status import Colour
from pqbroker.storage.unreadable import INDEX_CURE, StoredUnreadable, check_version

LOG_CHANNEL = 0
SNAPSHOT_CHANNEL = 1
USER_CHANNEL = 2
"""The first channel for blobs of the tablet's users; 0 and 1 are the system's (spec B.1)."""

COMMITS_MAX = STEP_MAX - (1 << 20)
"""Commits after which a tablet wants a restart: before its blob ids have no step left."""

RECORD = b"T"
ROWS = b"K"
"""First bytes of a cell's rows: tablet records, and the rows of KV tablets."""

_FORMAT = 1
_HEADER = Struct(">BBBIB")
_RANGE = Struct(">II")
_KEY = Struct(">cQ")


class TabletType(IntEnum):
    """Types of tablets, by what runs on their storage. The numbers are stored."""

    SCHEME = 1
    PERSQUEUE = 2
    COORDINATOR = 3
    HIVE = 4
    SORTED = 5


@dataclass(frozen=True, slots=True)
class TabletRecord:
    """A cell's record of each tablet; `owner` says whose it is, such as a topic id in hex."""

    tablet_id: TabletId
    type: TabletType
    generation: int
    channels: tuple[ChannelHistory, ...]
    owner: str
    dropping: bool = False
    """True while its rows and blobs are being removed; it never starts again."""

    def encode(self) -> bytes:
        parts = [_HEADER.pack(_FORMAT, self.type, self.dropping, self.generation, len(self.channels))]
        for channel in self.channels:
            parts.append(bytes((len(channel.ranges),)))
            parts.extend(starmap(_RANGE.pack, channel.ranges))
        parts.append(self.owner.encode())
        return b"".join(parts)

    @classmethod
    def decode(cls, tablet_id: TabletId, row: bytes) -> "TabletRecord":
        """Raises StoredUnreadable."""
        try:
            check_version(row, _FORMAT)
            return cls._decode(tablet_id, row)
        except (ValueError, IndexError, struct.error) as bad:
            raise StoredUnreadable(f"the record of tablet {tablet_id}", str(bad)) from bad

    @classmethod
    def _decode(cls, tablet_id: TabletId, row: bytes) -> "TabletRecord":
        _, type_number, dropping, generation, count = _HEADER.unpack_from(row)
        position = _HEADER.size
        channels = []
        for _ in range(count):
            end = position + 1 + row[position] * _RANGE.size
            channels.append(ChannelHistory.decoded(tuple(_RANGE.iter_unpack(row[position + 1 : end]))))
            position = end
        owner = row[position:].decode()
        return cls(tablet_id, TabletType(type_number), generation, tuple(channels), owner, bool(dropping))


class Instance(Protocol):
    """An instance of a tablet: what its storage has to know of it."""

    @property
    def tablet_id(self) -> TabletId: ...

    @property
    def generation(self) -> int: ...

    @property
    def channels(self) -> Sequence[ChannelHistory]: ...


class StandIn(NamedTuple):
    """An `Instance` that reads and writes nothing: of the tablet no more than the id is known."""

    tablet_id: TabletId
    generation: int = 1
    channels: Sequence[ChannelHistory] = (ChannelHistory(((1, 0),)),) * (USER_CHANNEL + 1)


def record_key(tablet_id: TabletId) -> bytes:
    """Row of a tablet's record."""
    return _KEY.pack(RECORD, tablet_id)


def row_prefix(tablet_id: TabletId) -> bytes:
    """First bytes of every row of a tablet."""
    return _KEY.pack(ROWS, tablet_id)


class Wear:
    """The tablets of a cell that need a restart: after `commits_max` commits, or since a plan of theirs
    failed."""

    __slots__ = ("commits_max", "worn")

    def __init__(self, commits_max: int = COMMITS_MAX) -> None:
        self.commits_max = commits_max
        self.worn: set[TabletId] = set()


class TabletStorage:
    """Storage that one running instance of a tablet reads and writes through.

    Blob ids come from the step, which grows with every commit, and the cookie, which counts blobs within it.
    """

    __slots__ = (
        "_blobs",
        "_collections",
        "_cookie",
        "_is_over",
        "_limits",
        "_pools",
        "_refusal",
        "_shard",
        "_step",
        "_wear",
        "counters",
        "generation",
        "is_limited",
        "plan_later",
        "prefix",
        "tablet_id",
        "unreadable",
    )  # fmt: skip

    def __init__(
        self,
        shard: Shard,
        blobs: BlobStorage,
        instance: Instance,
        limits: ChannelLimits | None = None,
        wear: Wear | None = None,
    ) -> None:
        self._shard = shard
        self._blobs = blobs
        self._limits = limits
        """None: no channel in the cell is limited."""
        self.is_limited = limits is not None
        self.plan_later = shard.plan_later
        self._wear = wear or Wear()
        self._step = 1
        self._cookie = 0
        self._collections = 0
        self._is_over = False
        self._pools = [channel.pool_at(instance.generation) for channel in instance.channels]
        self.counters = [ChannelCounters() for _ in instance.channels]
        """Counters by channel."""
        self.tablet_id = instance.tablet_id
        self.generation = instance.generation
        self.prefix = row_prefix(instance.tablet_id)
        """First bytes of the tablet's rows in a batch."""
        self.unreadable: StoredUnreadable | None = None
        """Damage for which nothing of the tablet is read or written. Set by `leave`."""
        self._refusal = ""
        """Reason why every commit is refused; empty: none is refused for the tablet's sake."""

    def leave(self, unreadable: StoredUnreadable) -> None:
        """The tablet cannot be read: it stays as it is."""
        self.unreadable = unreadable
        self._refusal = str(unreadable)

    def started(self) -> None:
        """The tablet runs: what it writes from now on is refused where its cell is open for reading only."""
        self._refusal = self._refusal or self._shard.reading_only

    @property
    def reading_only(self) -> str:
        """Return why its cell is open for reading only; empty where it takes writes."""
        return self._shard.reading_only

    @property
    def is_lost(self) -> bool:
        """Return True if its cell can store nothing more."""
        return self._shard.lost.done()

    def check_not_lost(self) -> None:
        """Raise ShardLost if its cell can store nothing more: a commit may be stored that this instance knows nothing
        of."""
        if self._shard.lost.done():
            raise raised_again(self._shard.lost.result())

    @property
    def is_held(self) -> bool:
        """Return True if its cell was salvaged and the losses are not accepted yet."""
        return self._shard.quarantine.is_held

    @property
    def channel_count(self) -> int:
        return len(self._pools)

    @property
    def commits(self) -> int:
        """Return how many commits this instance asked for."""
        return self._step - 1

    def put_blob(self, batch: Batch, channel: int, buffers: Sequence[Buffer], size: int) -> BlobKey:
        """Plan to store a blob of `size` bytes, the buffers end to end. Raises Blocked, BlobRefused."""
        if self._step > STEP_MAX:
            raise Blocked(f"tablet {self.tablet_id} has used up the steps of its generation: it is restarted")
        cookie = self._cookie
        self._cookie = cookie + 1
        blob = BlobId(self.tablet_id, channel, self.generation, self._step, cookie, size)
        key = self._blobs.put(batch, blob, buffers, self._pools[channel])
        counters = self.counters[channel]
        counters.puts += 1
        counters.put_bytes += size
        return key

    def submit(self, batch: Batch, told: Told, beside: "Sequence[TabletStorage]" = ()) -> None:
        """Make the batch durable; see `Shard.submit`. A blocked instance's commit is lost.

        `beside`: other tablets of the cell that the batch changes too; one that is blocked loses it for all.
        """
        for storage in (self, *beside):
            storage._step += 1
            storage._cookie = 0
            if storage._step > storage._wear.commits_max:
                storage.wear_out()
        if self._limits is not None:
            submit = partial(self._submit, beside=beside) if beside else self._submit
            self._limits.commit(self.tablet_id, batch, told, submit)
        else:
            self._submit(batch, told, beside)

    def commit(self, batch: Batch) -> Outcome[None]:
        """Commit as `submit` does, for a caller that waits."""
        return Outcome.of(partial(self.submit, batch))

    def wear_out(self) -> None:
        """Have the tablet restarted soon: see `Cell.worn`."""
        self._wear.worn.add(self.tablet_id)

    def status(self, channel: int) -> Colour:
        """Return how full the channel is, at the last look: YELLOW_STOP and above stop user writes (A.12)."""
        colour = self._shard.colour(self._blobs.pools[self._pools[channel]])
        if self._limits is not None and self._limits.is_full(self.tablet_id, channel):
            return max(colour, Colour.YELLOW_STOP)
        return colour

    def holds_inline(self, channel: int, used: int) -> None:
        """Tell the channel's limits, at the tablet's start, how many bytes of its values are rows."""
        if self._limits is not None:
            self._limits.holds_inline(self.tablet_id, channel, used)

    def pool(self, channel: int) -> str:
        """Return the pool that the channel's blobs go to now."""
        return self._blobs.pools[self._pools[channel]]

    @property
    def is_blocked(self) -> bool:
        """Return True if `check` would raise."""
        return self._is_over or self.generation <= self._blobs.blocked_generation(self.tablet_id)

    def check(self) -> None:
        """Raises Blocked when a later instance of the tablet runs, or the tablet is being dropped."""
        if self._is_over:
            self._blobs.counters.blocked += 1
            raise Blocked(f"another instance of tablet {self.tablet_id} runs")
        self._blobs.check(self.tablet_id, self.generation)

    def succeeded(self, record: TabletRecord) -> "TabletStorage":
        """The next instance's storage. This one is over; in the same generation the next one continues its blob ids."""
        self._is_over = True
        later = TabletStorage(self._shard, self._blobs, record, self._limits, self._wear)
        if later.generation == self.generation:
            later._step, later._collections = self._step + 1, self._collections
        return later

    def found(self, unreadable: StoredUnreadable) -> None:
        """Note unreadable data of the tablet: nothing is removed from the cell any more."""
        self._shard.quarantine.found(f"tablet {self.tablet_id}: {unreadable.place}", unreadable.cause)

    def shares_cell(self, other: "TabletStorage") -> bool:
        """Return True if one commit can hold changes of both tablets."""
        return self._shard is other._shard

    @property
    def shard(self) -> object:
        """Return what tells tablets whose changes one commit can hold from others: to be compared only."""
        return self._shard

    async def scan(self, lo: bytes, hi: bytes | None, rows_max: int) -> list[tuple[bytes, bytes]]:
        """Durable rows of this tablet with lo <= key < hi (None: to the end), at most `rows_max`, in key order.

        Raises StoredUnreadable.
        """
        if self.unreadable is not None:
            raise raised_again(self.unreadable)
        last = row_prefix(TabletId(self.tablet_id + 1)) if hi is None else self.prefix + hi
        try:
            rows = await self._shard.scan(self.prefix + lo, last, rows_max)
        except IndexDamaged as damage:
            raise StoredUnreadable(f"the rows of tablet {self.tablet_id}", damage.cause, INDEX_CURE) from None
        skip = len(self.prefix)
        return [(key[skip:], value) for key, value in rows]

    async def get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Durable values of this tablet's rows, in the order of the keys; None where absent."""
        return await self._shard.get([self.prefix + key for key in keys])

    async def read(self, ranges: Sequence[tuple[BlobKey, int, int]]) -> list[Buffer]:
        """Bytes of each (blob, offset, size); see `Shard.read`."""
        return await self._shard.read(ranges)

    async def verify(
        self, ranges: Sequence[tuple[BlobKey, int, int]], *, by_reader: bool = False
    ) -> list[Buffer | FileRange]:
        """Bytes of each (blob, offset, size) that are only to be sent; see `Shard.verify`."""
        return await self._shard.verify(ranges, by_reader=by_reader)

    def stored_blobs(self, lo: BlobKey, hi: BlobKey) -> AsyncIterator[tuple[BlobKey, int]]:
        """Keys and sizes of the stored blobs with lo <= key < hi, in order."""
        return self._blobs.range(lo, hi)

    def stored_bodies(self, lo: BlobKey, hi: BlobKey) -> AsyncIterator[tuple[BlobKey, Buffer]]:
        """Keys and bodies of the stored blobs with lo <= key < hi, in order."""
        return self._blobs.bodies(lo, hi)

    async def discover(self) -> Discovered | None:
        """The latest blob of the log channel with its body. Raises StoredUnreadable, IndexDamaged, BlobCorrupt."""
        if self.unreadable is not None:
            raise raised_again(self.unreadable)
        return await self._blobs.discover(self.tablet_id, read_body=True)

    async def collect_garbage(self, channel: int, generation: int, step: int) -> None:
        """Delete the channel's blobs at or before (generation, step); see `BlobStorage.collect_garbage`."""
        self.check()
        self._collections += 1
        await self._blobs.collect_garbage(
            Collection(self.tablet_id, channel, self.generation, self._collections, barrier=(generation, step))
        )
        if self._limits is not None and self._limits.limits_space(self.tablet_id, channel):
            self._limits.measured(self.tablet_id, channel, await self._blobs.used_bytes(self.tablet_id, channel))

    def _submit(self, batch: Batch, told: Told, beside: "Sequence[TabletStorage]" = ()) -> None:
        try:
            if self._refusal:
                raise CommitRefused(self._refusal)
            self.check()
            for storage in beside:
                storage.check()
        except (CommitRefused, ShardLost) as error:
            asyncio.get_running_loop().call_soon(told, error)
        else:
            self._shard.submit(batch, told)
