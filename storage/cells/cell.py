"""A cell: one engine instance and the tablets it hosts. Opening it starts every tablet anew in one commit.

    absent --create--> running --drop--> dropping --portions--> absent
    running --open--> running, one generation later
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import NamedTuple

from pqbroker.storage.blobid import tablet_bounds
from pqbroker.storage.blobstorage import BlobStorage, garbage_prefix
from pqbroker.storage.engine import Batch, Engine, EngineError, Shard, ShardLost, ShardStats
from pqbroker.storage.history import ChannelHistory
from pqbroker.storage.outcome import Outcome
from pqbroker.storage.tablet import (
    RECORD,
    USER_CHANNEL,
    TabletRecord,
    TabletStorage,
    TabletType,
    record_key,
    row_prefix,
)

FACTS = b"C"
"""First byte of the rows of the cell's own facts."""
FORMAT_VERSION = 1
CHANNELS = USER_CHANNEL + 1
PAGE_ROWS = 1000
"""Rows or blobs that one step of start or drop takes."""

_FORMAT_KEY = FACTS + b"format"
_NAME_KEY = FACTS + b"name"
_POOLS_KEY = FACTS + b"pools"
_RECORDS_END = bytes((RECORD[0] + 1,))


class NewTablet(NamedTuple):
    """A tablet to create."""

    tablet_id: int
    type: TabletType
    owner: str


class TabletTaken(Exception):
    """A tablet of that id exists already and is another's, or is being dropped."""


class Cell:
    """Hosts tablets on one open shard. Made by `Cell.open`."""

    def __init__(self, shard: Shard, name: str, pools: tuple[str, ...]) -> None:
        self.name = name
        self._shard = shard
        self._blobs = BlobStorage(shard, pools)
        self._records: dict[int, TabletRecord] = {}
        self._storages: dict[int, TabletStorage] = {}
        self._changes = asyncio.Lock()

    @classmethod
    async def open(cls, engine: Engine, *, name: str = "0") -> "Cell":
        """Open the cell; one commit raises every tablet's generation and blocks the earlier one.

        Raises EngineError, and CommitRefused or ShardLost when that commit fails.
        """
        shard = await engine.open()
        try:
            cell = cls(shard, name, await _read_facts(shard, name))
            await cell._start_tablets()
        except BaseException:
            await shard.close()
            raise
        return cell

    @property
    def generation(self) -> int:
        return self._shard.generation

    @property
    def lost(self) -> "asyncio.Future[ShardLost]":
        """Resolves once, with the reason, when the cell can store nothing more."""
        return self._shard.lost

    def tablets(self) -> Mapping[int, TabletRecord]:
        """Every tablet of the cell by id, those half dropped included."""
        return MappingProxyType(self._records)

    def storage(self, tablet_id: int) -> TabletStorage:
        """What the tablet's instance of this generation writes through: the same object at every call.

        KeyError when there is no such tablet or it is being dropped.
        """
        return self._storages[tablet_id]

    async def create_tablets(self, tablets: Sequence[tuple[int, TabletType, str]]) -> None:
        """Create those that do not exist yet, in one commit. Raises TabletTaken, CommitRefused, ShardLost."""
        async with self._changes:
            new = [NewTablet(*item) for item in tablets if not self._is_there(NewTablet(*item))]
            batch = Batch()
            records = [
                TabletRecord(item.tablet_id, item.type, 1, (ChannelHistory(((1, 0),)),) * CHANNELS, item.owner)
                for item in new
            ]
            for record in records:
                batch.put(record_key(record.tablet_id), record.encode())
            if records:
                await self._shard.commit(batch)
            for record in records:
                self._host(record)

    async def drop_tablet(self, tablet_id: int) -> None:
        """Remove a tablet with its rows and blobs, in portions; what a crash interrupts, a second call completes.

        The running instance can commit nothing from the first portion on. No such tablet: nothing to do.
        """
        async with self._changes:
            record = self._records.get(tablet_id)
            if record is None:
                return
            if not record.dropping:
                await self._begin_drop(record)
            await self._drop_blobs(tablet_id)
            await self._drop_rows(tablet_id)
            batch = Batch()
            batch.delete_range(garbage_prefix(tablet_id), garbage_prefix(tablet_id + 1))
            batch.delete(record_key(tablet_id))
            await self._shard.commit(batch)
            del self._records[tablet_id]

    def stats(self) -> ShardStats:
        return self._shard.stats()

    async def confirm(self) -> None:
        """Return once it is certain that the cell has no later owner now; else raise ShardLost."""
        await self._shard.confirm()

    async def close(self) -> None:
        """Make all that was committed durable and release the cell."""
        await self._shard.close()

    async def _start_tablets(self) -> None:
        records = await self._read_records()
        await self._blobs.start(record.tablet_id for record in records)
        batch = Batch()
        batch.put(_FORMAT_KEY, bytes((FORMAT_VERSION,)))
        batch.put(_NAME_KEY, self.name.encode())
        batch.put(_POOLS_KEY, "\0".join(self._blobs.pools).encode())
        starting = [record for record in records if not record.dropping]
        for record in starting:
            self._blobs.plan_block(batch, record.tablet_id, record.generation)
            batch.put(record_key(record.tablet_id), replace(record, generation=record.generation + 1).encode())
        await self._shard.commit(batch)
        self._records.update((record.tablet_id, record) for record in records if record.dropping)
        for record in starting:
            self._blobs.blocked(record.tablet_id, record.generation)
            self._host(replace(record, generation=record.generation + 1))

    async def _read_records(self) -> list[TabletRecord]:
        records: list[TabletRecord] = []
        lo = RECORD
        while page := await self._shard.scan(lo, _RECORDS_END, PAGE_ROWS):
            records.extend(TabletRecord.decode(int.from_bytes(key[1:], "big"), row) for key, row in page)
            lo = page[-1][0] + b"\0"
        return records

    def _host(self, record: TabletRecord) -> None:
        self._records[record.tablet_id] = record
        self._storages[record.tablet_id] = TabletStorage(self._shard, self._blobs, record)

    def _is_there(self, wanted: NewTablet) -> bool:
        found = self._records.get(wanted.tablet_id)
        if found is None:
            return False
        if found.dropping or (found.type, found.owner) != (wanted.type, wanted.owner):
            raise TabletTaken(f"{wanted} is wanted, but the cell has {found}")
        return True

    async def _begin_drop(self, record: TabletRecord) -> None:
        batch = Batch()
        dropping = replace(record, dropping=True)
        self._blobs.plan_block(batch, record.tablet_id, record.generation)
        batch.put(record_key(record.tablet_id), dropping.encode())
        committed = self._shard.commit(batch)
        committed.add_done_callback(partial(self._block_is_durable, record))
        await committed
        self._records[record.tablet_id] = dropping
        self._storages.pop(record.tablet_id)
        await self._shard.commit(Batch())  # behind this, what the instance committed meanwhile can be found

    def _block_is_durable(self, record: TabletRecord, committed: Outcome[None]) -> None:
        """In the call that tells of it, so that nothing behind the block in the queue is begun before it holds."""
        if committed.exception() is None:
            self._blobs.blocked(record.tablet_id, record.generation)

    async def _drop_blobs(self, tablet_id: int) -> None:
        lo, hi = tablet_bounds(tablet_id)
        while page := await self._shard.scan_blobs(lo, hi, PAGE_ROWS):
            batch = Batch()
            for blob, _ in page:
                batch.delete_blob(blob)
            await self._shard.commit(batch)
            lo = page[-1][0]

    async def _drop_rows(self, tablet_id: int) -> None:
        lo, hi = row_prefix(tablet_id), row_prefix(tablet_id + 1)
        while page := await self._shard.scan(lo, hi, PAGE_ROWS):
            batch = Batch()
            for key, _ in page:
                batch.delete(key)
            await self._shard.commit(batch)
            lo = page[-1][0]


async def _read_facts(shard: Shard, name: str) -> tuple[str, ...]:
    """Pool names by group number: those known, then the new ones. EngineError for a cell that is not ours to open."""
    version, stored_name, stored_pools = await shard.get([_FORMAT_KEY, _NAME_KEY, _POOLS_KEY])
    if version is not None and version[0] > FORMAT_VERSION:
        raise EngineError(
            f"cell {name} has format {version[0]}, written by a newer version; this one reads up to {FORMAT_VERSION}: "
            "run the version that wrote it"
        )
    if stored_name is not None and stored_name.decode() != name:
        raise EngineError(f"the directory holds cell {stored_name.decode()}, not cell {name}: check the path")
    known = tuple(stored_pools.decode().split("\0")) if stored_pools else ()
    missing = [pool for pool in known if pool not in shard.pools]
    if missing:
        raise EngineError(f"cell {name} keeps blobs in pool {', '.join(missing)}, which is not set: add it back")
    return known + tuple(pool for pool in shard.pools if pool not in known)
