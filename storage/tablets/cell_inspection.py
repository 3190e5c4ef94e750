"""View of an open cell for people and metrics: blobs and where they are, blocks, barriers, counters."""

import asyncio
from collections.abc import Mapping, Sequence

from pqbroker.storage.blobs.blob_storage import BlobStorage
from pqbroker.storage.blobs.garbage import Barriers
from pqbroker.storage.counters import BlobCounters
from pqbroker.storage.engine import BlobKey, SegmentFacts, Shard
from pqbroker.storage.ids import TabletId
from pqbroker.storage.tablets.tablet import TabletRecord


class CellInspection:
    """Looks into one open cell; changes nothing."""

    def __init__(self, shard: Shard, blobs: BlobStorage, records: Mapping[TabletId, TabletRecord]) -> None:
        self._shard = shard
        self._blobs = blobs
        self._records = records

    @property
    def blob_counters(self) -> BlobCounters:
        """Return counts of what BlobStorage did since the cell was opened."""
        return self._blobs.counters

    @property
    def index_blob_bytes_max(self) -> int:
        """Return the size below which blobs are in the index, in any channel and pool."""
        return self._shard.caps.index_blob_bytes_max

    def blocked_generation(self, tablet_id: TabletId) -> int:
        """Instances of the tablet of this generation and below change nothing any more; 0: none was blocked."""
        return self._blobs.blocked_generation(tablet_id)

    async def barriers(self, tablet_id: TabletId) -> list[Barriers]:
        """The garbage barriers of the tablet's channels, by channel. ShardLost; KeyError when there is no tablet."""
        return await self._blobs.barriers(tablet_id, len(self._records[tablet_id].channels))

    async def stored_blobs(self, lo: BlobKey, hi: BlobKey, count_max: int) -> list[BlobKey]:
        """The first durable blobs with lo <= key < hi, in order. ShardLost."""
        return [blob for blob, _ in await self._shard.scan_blobs(lo, hi, count_max)]

    async def segments(self) -> Sequence[SegmentFacts]:
        """Return where the blobs of the pools lie. Runs in a thread, for there may be thousands."""
        return await asyncio.to_thread(self._shard.segments)

    async def places(self, blobs: Sequence[BlobKey]) -> list[str | None]:
        """Return where each durable blob is; see `Shard.places`. Raises ShardLost."""
        return await self._shard.places(blobs)

    async def damaged_blobs(self) -> Mapping[BlobKey, str]:
        """Return what is wrong, by blob, with those that reads found damaged and that are still there. ShardLost."""
        damaged = self._shard.damaged_blobs
        if not damaged:
            return {}
        blobs = list(damaged.found())
        places = await self._shard.places(blobs)
        damaged.forget(blob for blob, place in zip(blobs, places, strict=True) if place is None)
        return damaged.found()
