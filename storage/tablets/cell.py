"""A cell: one engine instance and the tablets it hosts. Opening it starts every tablet again, in one commit.

    absent --create--> running --drop--> dropping --portions--> absent
    running --open, restart--> running, one generation later; only then a channel that was moved writes elsewhere
    any     --open, its record or block cannot be read--> unreadable: it is left as it is

While anything that is stored in the cell cannot be read nothing is dropped.
"""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from types import MappingProxyType
from typing import NamedTuple

from pqbroker.conf.storage import StorageProfile
from pqbroker.storage.blobs.blob_storage import BlobStorage, garbage_prefix
from pqbroker.storage.blobs.channel_history import RANGES_MAX
from pqbroker.storage.copy_steps import CellElsewhere, CopiedBytes, CopySteps
from pqbroker.storage.engine import BackupFacts, Batch, Opener, Shard, ShardLost, ShardStats
from pqbroker.storage.ids import TabletId
from pqbroker.storage.pool_status import Colour
from pqbroker.storage.quarantine import Quarantine
from pqbroker.storage.tablets.cell_facts import FactRows, put_facts, read_facts
from pqbroker.storage.tablets.cell_inspection import CellInspection
from pqbroker.storage.tablets.cell_rows import delete_blobs, delete_rows, stored_records
from pqbroker.storage.tablets.channel_profiles import ChannelProfiles
from pqbroker.storage.tablets.scheme_mark import SchemeMark
from pqbroker.storage.tablets.tablet import (
    COMMITS_MAX,
    StandIn,
    TabletRecord,
    TabletStorage,
    TabletType,
    Wear,
    record_key,
)
from pqbroker.storage.tablets.tablet_kinds import TABLET_KINDS
from pqbroker.storage.unreadable import StoredUnreadable

_MADE_AT_ONCE = 200
"""Tablets of thousands that are created together: each turn of the loop has some."""


class NewTablet(NamedTuple):
    """A tablet to create."""

    tablet_id: TabletId
    type: TabletType
    owner: str


class TabletTaken(Exception):
    """A tablet of that id exists already and is another's, or is being dropped."""


class TabletUnknown(Exception):
    """No tablet of that id runs in the cell."""


class MoveRefused(ValueError):
    """The tablet has no such channel, or the cell no such pool; or it was moved too often."""


class Cell:
    """Hosts tablets on one open shard. Made by `Cell.open`."""

    def __init__(
        self, shard: Shard, name: str, facts: FactRows, profile: StorageProfile, wear: Wear
    ) -> None:
        self.name = name
        self._wear = wear
        self._shard = shard
        self._blobs = BlobStorage(shard, facts.pools)
        self._profiles = ChannelProfiles(profile, shard, self._blobs)
        self._records: dict[TabletId, TabletRecord] = {}
        self.scheme_mark = SchemeMark(shard, facts.mark)
        self.object_tablets = 0
        """Tablets that belong to objects, those half dropped included."""
        self.inspection = CellInspection(shard, self._blobs, self._records)
        self._storages: dict[int, TabletStorage] = {}
        self._unreadable: dict[TabletId, StoredUnreadable] = {}
        self._changes = asyncio.Lock()

    @classmethod
    async def open(
        cls,
        engine: Opener,
        *,
        name: str = "0",
        profile: StorageProfile = MappingProxyType({}),
        releases: bool = True,
        commits_max: int = COMMITS_MAX,
    ) -> "Cell":
        """Open the cell; one commit raises every tablet's generation and blocks the earlier one.

        `profile` says where the channels of new tablets go, and the limits of all. `releases=False`: the caller calls
        `release` once what runs on the tablets was loaded. `commits_max`: after how many commits a tablet is `worn`.
        Raises EngineError, and CommitRefused or ShardLost when that commit fails.
        """
        shard = await engine.open()
        try:
            cell = cls(shard, name, await read_facts(shard, name), profile, Wear(commits_max))
            await cell._start_tablets()
            if releases:
                await cell.release()
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

    @property
    def reading_only(self) -> str:
        """Return why the cell is open for reading only, with the cure; empty where it takes writes."""
        return self._shard.reading_only

    async def release(self) -> None:
        """All that lives in the cell was loaded: what is dead may be removed, unless something cannot be read."""
        await self._shard.release()

    @property
    def quarantine(self) -> Quarantine:
        """Return the quarantine: what of the cell is unreadable."""
        return self._shard.quarantine

    @property
    def unreadable(self) -> Mapping[TabletId, StoredUnreadable]:
        """Tablets that do not run, since their record or block cannot be read, by id."""
        return MappingProxyType(self._unreadable)

    def tablets(self) -> Mapping[TabletId, TabletRecord]:
        """Return every tablet of the cell by id, those half dropped included."""
        return MappingProxyType(self._records)

    def worn(self) -> list[TabletId]:
        """Ids of tablets that have to be restarted, before their instances have no blob id left."""
        return sorted(self._wear.worn)

    def storage(self, tablet_id: TabletId) -> TabletStorage:
        """Return what the tablet's instance writes through: the same object until the tablet is restarted.

        KeyError when there is no such tablet or it is being dropped. One that is unreadable gives nothing.
        """
        return self._storages[tablet_id]

    async def create_tablets(self, tablets: Sequence[tuple[TabletId, TabletType, str]], generation: int = 1) -> None:
        """Create those that do not exist yet, in one commit; `generation` to begin with, above every one that they had
        elsewhere. Raises TabletTaken, CommitRefused, ShardLost."""
        async with self._changes:
            batch = Batch()
            records = []
            for number, wanted in enumerate(tablets, 1):
                item = NewTablet(*wanted)
                if not self._is_there(item):
                    record = TabletRecord(
                        item.tablet_id, item.type, max(generation, self._blobs.blocked_generation(item.tablet_id) + 1),
                        self._profiles.new_channels(item.type), item.owner,
                    )  # fmt: skip
                    batch.put(record_key(record.tablet_id), record.encode())
                    records.append(record)
                if not number % _MADE_AT_ONCE:
                    await asyncio.sleep(0)
            if records:
                self.scheme_mark.put(batch)
                await self._shard.commit(batch)
            for number, record in enumerate(records, 1):
                await self._host(record)
                if not number % _MADE_AT_ONCE:
                    await asyncio.sleep(0)

    @property
    def pools(self) -> tuple[str, ...]:
        """The names of the pools by number, as channels name them."""
        return self._blobs.pools

    async def move_channel(self, tablet_id: TabletId, channel: int, pool: int) -> None:
        """Let a tablet's channel write to another pool from the tablet's next start on; old blobs stay where they are.

        Raises TabletUnknown, MoveRefused, CommitRefused, ShardLost.
        """
        async with self._changes:
            record = self._running(tablet_id)
            if not 0 <= channel < len(record.channels):
                raise MoveRefused(f"tablet {tablet_id} has channels 0 to {len(record.channels) - 1}, no {channel}")
            if not 0 <= pool < len(self.pools):
                known = ", ".join(f"{number} ({pool})" for number, pool in enumerate(self.pools))
                raise MoveRefused(f"cell {self.name} has no pool {pool}; it has {known}")
            channels = list(record.channels)
            channels[channel] = channels[channel].moved(record.generation + 1, pool)
            if len(channels[channel].ranges) > RANGES_MAX:
                raise MoveRefused(f"channel {channel} of tablet {tablet_id} was moved {RANGES_MAX - 1} times already")
            moved = replace(record, channels=tuple(channels))
            batch = Batch()
            batch.put(record_key(tablet_id), moved.encode())
            await self._shard.commit(batch)
            self._records[tablet_id] = moved

    async def restart_tablet(self, tablet_id: TabletId) -> TabletStorage:
        """Restart a tablet, one generation later: what its next instance writes through.

        The instance before can do nothing more from this call on, but what it committed before is done. When this is
        refused the next instance continues in its generation. Raises TabletUnknown, CommitRefused, ShardLost.
        """
        async with self._changes:
            record = self._running(tablet_id)
            started = replace(record, generation=record.generation + 1)
            batch = Batch()
            batch.put(record_key(tablet_id), started.encode())
            earlier = self._storages[tablet_id]
            self._storages[tablet_id] = earlier.succeeded(record)
            await self._blobs.block(batch, {tablet_id: record.generation})
            self._records[tablet_id] = started
            later = self._storages[tablet_id] = earlier.succeeded(started)
            self._wear.worn.discard(tablet_id)
            return later

    async def drop_tablet(self, tablet_id: TabletId) -> None:
        """Remove a tablet with its rows and blobs, in portions; what a crash interrupts, a second call completes.

        The running instance can commit nothing from the first portion on. No such tablet: nothing to do. Waits until
        the cell is known to be sound; Quarantined when it is not.
        """
        await self._shard.quarantine.check()
        async with self._changes:
            record = self._records.get(tablet_id)
            if record is None:
                return
            if not record.dropping:
                await self._begin_drop(record)
            await delete_blobs(self._shard, tablet_id)
            await delete_rows(self._shard, tablet_id)
            batch = Batch()
            batch.delete_range(garbage_prefix(tablet_id), garbage_prefix(TabletId(tablet_id + 1)))
            batch.delete(record_key(tablet_id))
            await self._shard.commit(batch)
            del self._records[tablet_id]
            self.object_tablets -= TABLET_KINDS[record.type].belongs_to_object
            self._wear.worn.discard(tablet_id)
            self._profiles.forget(tablet_id)

    def stats(self) -> ShardStats:
        return self._shard.stats()

    def colour(self, pool: str) -> Colour:
        """Return how full a pool is, by the last look; asks no disk."""
        return self._shard.colour(pool)

    @property
    def round_seconds(self) -> float:
        """Return how long commits take now, where that is a second or more; see `Shard.round_seconds`."""
        return self._shard.round_seconds

    async def confirm(self) -> None:
        """Return once it is certain that the cell has no later owner now; else raise ShardLost."""
        await self._shard.confirm()

    async def backup(
        self, name: str, others: "Mapping[str, Cell | CellElsewhere]",
        during: AbstractAsyncContextManager[None] | None = None,
    ) -> BackupFacts:
        """Copy what the cell and the broker's other cells, by name, hold to a new directory, while they serve;
        `during`: see `Shard.backup`. EngineCannot, BackupRefused, ShardLost."""
        shards = {other: cell._shard if isinstance(cell, Cell) else cell for other, cell in others.items()}
        return await self._shard.backup(name, shards, during)

    async def copy_into(self, name: str, steps: CopySteps) -> CopiedBytes:
        """Copy the cell into a backup of another process; see `Shard.copy_into`."""
        return await self._shard.copy_into(name, self.name, steps)

    async def close(self) -> None:
        """Make all that was committed durable and release the cell."""
        await self._shard.close()

    async def _start_tablets(self) -> None:
        records: list[TabletRecord] = []
        async for tablet_id, row in stored_records(self._shard):
            try:
                records.append(TabletRecord.decode(tablet_id, row))
            except StoredUnreadable as unreadable:
                self._leave(tablet_id, unreadable)
        for tablet_id, blocked in (await self._blobs.start(record.tablet_id for record in records)).items():
            self._leave(tablet_id, blocked)
        records = [record for record in records if record.tablet_id not in self._unreadable]
        batch = Batch()
        put_facts(batch, self.name, self._blobs.pools)
        starting = [record for record in records if not record.dropping]
        for record in starting:
            batch.put(record_key(record.tablet_id), replace(record, generation=record.generation + 1).encode())
        await self._blobs.block(batch, {record.tablet_id: record.generation for record in starting})
        for record in records:
            if record.dropping:
                self._know(record)
        for record in starting:
            await self._host(replace(record, generation=record.generation + 1))

    def _leave(self, tablet_id: TabletId, unreadable: StoredUnreadable) -> None:
        """A tablet that does not run: it gives nothing, takes nothing, and stays as it is."""
        self._unreadable[tablet_id] = unreadable
        self._shard.quarantine.found(unreadable.place, unreadable.cause)
        storage = self._storages[tablet_id] = TabletStorage(self._shard, self._blobs, StandIn(tablet_id))
        storage.leave(unreadable)

    def _know(self, record: TabletRecord) -> None:
        """Take in the record of a tablet that the cell did not have."""
        self._records[record.tablet_id] = record
        self.object_tablets += TABLET_KINDS[record.type].belongs_to_object

    async def _host(self, record: TabletRecord) -> None:
        self._know(record)
        await self._profiles.limit(record)
        limits = self._profiles.limits
        self._storages[record.tablet_id] = TabletStorage(self._shard, self._blobs, record, limits, self._wear)

    def _running(self, tablet_id: TabletId) -> TabletRecord:
        record = self._records.get(tablet_id)
        if record is None or record.dropping:
            raise TabletUnknown(f"no tablet {tablet_id} runs in cell {self.name}")
        return record

    def _is_there(self, wanted: NewTablet) -> bool:
        if wanted.tablet_id in self._unreadable:
            return True
        found = self._records.get(wanted.tablet_id)
        if found is None:
            return False
        if found.dropping or (found.type, found.owner) != (wanted.type, wanted.owner):
            raise TabletTaken(f"{wanted} is wanted, but the cell has {found}")
        return True

    async def _begin_drop(self, record: TabletRecord) -> None:
        batch = Batch()
        dropping = replace(record, dropping=True)
        batch.put(record_key(record.tablet_id), dropping.encode())
        self.scheme_mark.put(batch)
        await self._blobs.block(batch, {record.tablet_id: record.generation})
        self._records[record.tablet_id] = dropping
        self._storages.pop(record.tablet_id)
