"""BlobStorage: immutable blobs under 192-bit ids, with the block that fences a tablet's past (spec B.3).

It never looks into a blob, and it keeps no blob's bytes: those are the engine's. Garbage has its own rules.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from struct import Struct

from pqbroker.storage.blobs.blob_id import BlobId, blob_size, channel_bounds
from pqbroker.storage.blobs.garbage import Barriers, Collection
from pqbroker.storage.counters import BlobCounters
from pqbroker.storage.engine import (
    BLOB_BYTES_MAX,
    Batch,
    BlobKey,
    Buffer,
    CommitRefused,
    IndexDamaged,
    Shard,
    ShardLost,
)
from pqbroker.storage.ids import TabletId
from pqbroker.storage.quarantine import Quarantined
from pqbroker.storage.unreadable import INDEX_CURE, StoredUnreadable, check_version

GARBAGE = b"G"
"""First byte of the rows of blocks and garbage barriers: `G`, tablet id, kind, …"""
BLOCK = b"B"
BARRIERS = b"C"
FLAG = b"K"
KEEP = b"\x01"
DO_NOT_KEEP = b"\x02"
BLOB_PAGE_ROWS = 1000

_TABLET_KEY = Struct(">cQ")
_BLOCK = Struct(">BI")
_FORMAT = 1


class Blocked(ShardLost):
    """The tablet's generation was blocked by a later start: this instance may change nothing any more."""


class BlobRefused(ValueError):
    """A blob that cannot be stored: empty, or larger than 10 MiB."""


@dataclass(frozen=True, slots=True)
class Discovered:
    """The latest blob of a tablet's channel 0 and the generation that is blocked."""

    blob: BlobId
    body: Buffer | None
    blocked_generation: int


class BlobStorage:
    """Puts are planned into a batch that the caller commits; reads are answered by the shard.

    `pools` is the list of pool names by number.
    """

    __slots__ = ("_blocked", "_collecting", "_shard", "counters", "pools")

    def __init__(self, shard: Shard, pools: Sequence[str]) -> None:
        self._shard = shard
        self._blocked: dict[TabletId, int] = {}
        self._collecting = asyncio.Lock()
        self.pools = tuple(pools)
        self.counters = BlobCounters()

    async def start(self, tablets: Iterable[TabletId]) -> dict[TabletId, StoredUnreadable]:
        """Learn the blocks of the tablets; returns those whose block cannot be read, and why."""
        tablets = list(tablets)
        unreadable: dict[TabletId, StoredUnreadable] = {}
        for start in range(0, len(tablets), BLOB_PAGE_ROWS):
            page = tablets[start : start + BLOB_PAGE_ROWS]
            try:
                await self._learn_blocks(page, unreadable)
            except IndexDamaged:
                await self._learn_one_by_one(page, unreadable)
        return unreadable

    async def _learn_one_by_one(
        self, tablets: Sequence[TabletId], unreadable: dict[TabletId, StoredUnreadable]
    ) -> None:
        for tablet in tablets:
            try:
                await self._learn_blocks([tablet], unreadable)
            except IndexDamaged as damage:
                unreadable[tablet] = StoredUnreadable(f"the block of tablet {tablet}", damage.cause, INDEX_CURE)

    async def _learn_blocks(self, tablets: Sequence[TabletId], unreadable: dict[TabletId, StoredUnreadable]) -> None:
        rows = await self._shard.get([block_key(tablet) for tablet in tablets])
        for tablet, row in zip(tablets, rows, strict=True):
            if row is None:
                continue
            try:
                self._blocked[tablet] = decode_block(row)
            except ValueError as bad:
                unreadable[tablet] = StoredUnreadable(f"the block of tablet {tablet}", str(bad))

    def put(self, batch: Batch, blob: BlobId, buffers: Sequence[Buffer], pool: int) -> BlobKey:
        """Plan to store `blob.size` bytes, the buffers end to end. Raises Blocked, BlobRefused."""
        if blob.generation <= self._blocked.get(blob.tablet, 0):
            raise self._blocked_error(blob.tablet, blob.generation)
        if not 0 < blob.size <= BLOB_BYTES_MAX:
            raise BlobRefused(f"{blob} has {blob.size} bytes; a blob has 1 to {BLOB_BYTES_MAX}")
        key = blob.key()
        batch.put_blob(key, buffers, blob.size, self.pools[pool])
        counters = self.counters
        counters.puts += 1
        counters.put_bytes += blob.size
        return key

    async def get(self, key: BlobKey, shift: int = 0, size: int = 0) -> Buffer:
        """Bytes [shift, shift + size) of a blob, to its end when `size` is 0. Raises BlobMissing, BlobCorrupt."""
        rest = blob_size(key) - shift
        assert shift >= 0
        assert size >= 0
        if rest <= 0:
            return b""
        (data,) = await self._shard.read([(key, shift, min(size or rest, rest))])
        return data

    async def range(self, lo: BlobKey, hi: BlobKey) -> AsyncIterator[tuple[BlobKey, int]]:
        """Keys and sizes of the blobs with lo <= key < hi, in order, read in pages."""
        while page := await self._shard.scan_blobs(lo, hi, BLOB_PAGE_ROWS):
            for item in page:
                yield item
            if len(page) < BLOB_PAGE_ROWS:
                return
            lo = following(page[-1][0])

    async def bodies(self, lo: BlobKey, hi: BlobKey) -> AsyncIterator[tuple[BlobKey, Buffer]]:
        """Yield what `range` yields, with each blob's body. Raises BlobMissing when one is deleted meanwhile,
        BlobCorrupt."""
        portion: list[tuple[BlobKey, int, int]] = []
        portion_bytes = 0
        async for key, size in self.range(lo, hi):
            if portion and portion_bytes + size > BLOB_BYTES_MAX:
                for item in await self._read(portion):
                    yield item
                portion, portion_bytes = [], 0
            portion.append((key, 0, size))
            portion_bytes += size
        for item in await self._read(portion):
            yield item

    async def used_bytes(self, tablet: TabletId, channel: int) -> int:
        """Bytes of the channel's blobs; asks the index for all of them."""
        return sum([size async for _, size in self.range(*channel_bounds(tablet, channel))])

    async def discover(self, tablet: TabletId, *, read_body: bool = False) -> Discovered | None:
        """The latest blob of channel 0 by generation and step; None when there is none."""
        lo, hi = channel_bounds(tablet, 0)
        found = await self._shard.scan_blobs(lo, hi, 1, reverse=True)
        if not found:
            return None
        key = found[0][0]
        body = await self.get(key) if read_body else None
        return Discovered(BlobId.from_key(key), body, self.blocked_generation(tablet))

    async def collect_garbage(self, collection: Collection) -> None:
        """Move the channel's barriers and flags in one commit, then delete in portions what is garbage now.

        Repeating the last collection completes it. Waits until the cell is known to be sound, refused when it is not.
        Raises GarbageRefused, Blocked, CommitRefused, ShardLost.
        """
        await self._shard.quarantine.check()
        tablet, channel = collection.tablet, collection.channel
        collection.check()
        key = _barriers_key(tablet, channel)
        async with self._collecting:
            barriers = await self._barriers(tablet, channel)
            flags = await self._flags(collection)
            self.check(tablet, collection.generation)
            if not barriers.repeats(collection):
                barriers = barriers.moved(collection)
                batch = Batch()
                batch.put(key, barriers.encode())
                for blob, flag in flags.items():
                    batch.put(flag_key(blob), flag)
                await self._shard.commit(batch)
            await self._delete_garbage(tablet, channel, barriers)
            self.counters.collections += 1

    async def barriers(self, tablet: TabletId, channels: int) -> list[Barriers]:
        """Return where the barriers of the tablet's channels 0, 1, … stand."""
        return [await self._barriers(tablet, channel) for channel in range(channels)]

    def blocked_generation(self, tablet: TabletId) -> int:
        """Puts of this generation and below are refused; 0 when none was blocked."""
        return self._blocked.get(tablet, 0)

    def check(self, tablet: TabletId, generation: int) -> None:
        """Raise Blocked when the tablet's instance of that generation may change nothing any more."""
        if generation <= self._blocked.get(tablet, 0):
            raise self._blocked_error(tablet, generation)

    async def block(self, batch: Batch, generations: Mapping[TabletId, int]) -> None:
        """Commit the batch with blocks of these tablets up to these generations. Raises Blocked, CommitRefused…

        From this call on their instances can do nothing more, so that nothing of theirs comes behind the block; they
        continue when it is refused.
        """
        for tablet, generation in generations.items():
            self.check(tablet, generation)
            batch.put(block_key(tablet), _BLOCK.pack(_FORMAT, generation))
        before = {tablet: self._blocked.get(tablet, 0) for tablet in generations}
        self._blocked.update(generations)
        try:
            await self._shard.commit(batch)
        except CommitRefused:
            self._blocked.update(before)
            raise

    async def _read(self, portion: Sequence[tuple[BlobKey, int, int]]) -> list[tuple[BlobKey, Buffer]]:
        found = await self._shard.read(portion) if portion else []
        return [(key, body) for (key, _, _), body in zip(portion, found, strict=True)]

    async def _barriers(self, tablet: TabletId, channel: int) -> Barriers:
        """Raises Quarantined when their row is of no form that is known."""
        (row,) = await self._shard.get([_barriers_key(tablet, channel)])
        try:
            return Barriers.decode(row)
        except ValueError as bad:
            place = f"the garbage barriers of tablet {tablet}, channel {channel}"
            self._shard.quarantine.found(place, str(bad))
            raise Quarantined(f"{place} cannot be read: {bad}") from bad

    async def _flags(self, collection: Collection) -> dict[BlobKey, bytes]:
        """The flags that the collection sets: nothing brings back what was given up."""
        given_up = await self._shard.get([flag_key(blob) for blob in collection.keep])
        flags = {
            blob: KEEP for blob, flag in zip(collection.keep, given_up, strict=True) if flag != DO_NOT_KEEP
        }
        return flags | dict.fromkeys(collection.do_not_keep, DO_NOT_KEEP)

    async def _delete_garbage(self, tablet: TabletId, channel: int, barriers: Barriers) -> None:
        lo = channel_bounds(tablet, channel)[0]
        hi = barriers.end(tablet, channel)
        while page := await self._shard.scan_blobs(lo, hi, BLOB_PAGE_ROWS):
            blobs = [blob for blob, _ in page]
            flags = await self._shard.get([flag_key(blob) for blob in blobs])
            self._check_flags(tablet, flags)
            kept = frozenset(blob for blob, flag in zip(blobs, flags, strict=True) if flag == KEEP)
            batch = Batch()
            for blob in barriers.condemned(tablet, channel, blobs, kept):
                batch.delete_blob(blob)
                batch.delete(flag_key(blob))
            if batch.dead:
                await self._shard.commit(batch)
            lo = following(blobs[-1])

    def _check_flags(self, tablet: TabletId, flags: Sequence[bytes | None]) -> None:
        """Raises Quarantined for a flag that is not known: it may say that its blob is kept."""
        unknown = next((flag for flag in flags if flag not in (None, KEEP, DO_NOT_KEEP)), None)
        if unknown is not None:
            place, cause = f"a keep flag of tablet {tablet}", f"there is no flag {unknown.hex()}"
            self._shard.quarantine.found(place, cause)
            raise Quarantined(f"{place} cannot be read: {cause}")

    def _blocked_error(self, tablet: TabletId, generation: int) -> Blocked:
        self.counters.blocked += 1
        blocked = self._blocked.get(tablet, 0)
        return Blocked(f"tablet {tablet} is blocked up to generation {blocked}; this is generation {generation}")


def block_key(tablet: TabletId) -> bytes:
    """Row of the tablet's blocked generation."""
    return garbage_prefix(tablet) + BLOCK


def _barriers_key(tablet: TabletId, channel: int) -> bytes:
    return garbage_prefix(tablet) + BARRIERS + bytes((channel,))


def decode_block(row: bytes) -> int:
    """The generation up to which a tablet is blocked. ValueError for a row of another form."""
    check_version(row, _FORMAT)
    if len(row) != _BLOCK.size:
        raise ValueError(f"it has {len(row)} bytes, not {_BLOCK.size}")
    return int(_BLOCK.unpack(row)[1])


def flag_key(blob: BlobKey) -> bytes:
    """Row of a blob's keep or do-not-keep flag."""
    return garbage_prefix(TabletId(int.from_bytes(blob[:8], "big"))) + FLAG + blob


def garbage_prefix(tablet: TabletId) -> bytes:
    """First bytes of a tablet's rows of blocks, barriers and keep flags."""
    return _TABLET_KEY.pack(GARBAGE, tablet)


def following(key: bytes) -> BlobKey:
    """The blob key right behind `key`."""
    return BlobKey((int.from_bytes(key, "big") + 1).to_bytes(24, "big"))
