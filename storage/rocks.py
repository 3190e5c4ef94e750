"""The disk engine: a RocksDB index, blob segment files, one commit thread.

What is written when: `committer`, `plan`. The rows of the index: `rocks_index`. What a directory holds: `directory`.
The bytes of a blob: `segments`.
"""

import asyncio
import logging
import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from pqbroker.conf.storage import MAIN_POOL
from pqbroker.storage import indexrows
from pqbroker.storage.committer import OpenCell, Pace
from pqbroker.storage.compaction import DEFAULT_PACE, CompactionPace
from pqbroker.storage.directory import DURABILITIES, CellDirectory
from pqbroker.storage.diskshard import DiskShard, ShardOptions
from pqbroker.storage.engine import BLOB_BYTES_MAX, Caps
from pqbroker.storage.faults import Faults
from pqbroker.storage.plan import Planner
from pqbroker.storage.pools import Pool
from pqbroker.storage.quarantine import Quarantine
from pqbroker.storage.reading import BlobReader
from pqbroker.storage.recovery import load_segments
from pqbroker.storage.rocks_index import RocksIndex
from pqbroker.storage.room import (
    FLOOR_BYTES,
    INDEX_RESERVE_BYTES,
    POOL_RESERVE_BYTES,
    START_BYTES,
    Ballast,
    Room,
    Rooms,
    Space,
    TellsFullDisk,
    full_disk,
)
from pqbroker.storage.segments import UNSYNCED
from pqbroker.storage.status import DEFAULT_THRESHOLDS, Colour, Thresholds

_log = logging.getLogger(__name__)
_MIB = 1 << 20
_BATCH_ROUNDS_MAX = 4
"""A batch may be this many rounds large; above one it gets a round for itself."""


class RocksEngine:
    """Opens one cell in a directory. `pools`: names and directories for blobs; without them, one in the cell's own."""

    def __init__(
        self,
        directory: Path,
        *,
        durability: str = "fsync",
        sync_interval_ms: int = 100,
        segment_bytes: int = 64 * _MIB,
        round_bytes_max: int = 16 * _MIB,
        index_blob_bytes_max: int = 1000,
        ballast_bytes: int = 8 * _MIB,
        read_threads: int = 4,
        pools: Mapping[str, Path] | None = None,
        thresholds: Thresholds = DEFAULT_THRESHOLDS,
        compaction: CompactionPace = DEFAULT_PACE,
        statvfs: Callable[[Path], Space] = os.statvfs,
        faults: Faults | None = None,
    ) -> None:
        assert durability in DURABILITIES
        self._path = directory
        self._pools = pools
        self._thresholds = thresholds
        self._told: dict[str, Colour] = {}
        self._statvfs = statvfs
        self._durability = durability
        sync_seconds = {"fsync": 0.0, "interval": sync_interval_ms / 1000, "none": None}[durability]
        self._pace = Pace(round_bytes_max, sync_seconds)
        self._compaction = compaction
        self._segment_bytes = segment_bytes
        self._ballast_bytes = ballast_bytes
        self._read_threads = read_threads
        self.faults = faults
        self._damages: dict[str, str] = {}
        """Of the index, found since this object was created: an opening after a loss must not meet them again."""
        self._was_open = False
        self._caps = Caps(BLOB_BYTES_MAX, index_blob_bytes_max, _BATCH_ROUNDS_MAX * round_bytes_max)

    async def open(self) -> DiskShard:
        """Open the cell under its next generation, which fences any earlier owner. Raises EngineError."""
        directory = CellDirectory(self._path, self._pools, on_locked=self._make_room)
        await asyncio.to_thread(self._take, directory)
        index = RocksIndex(directory.index, self._has_room)
        reader = BlobReader(index.get, directory.pools)
        options = ShardOptions(self._caps, self._pace, self._compaction, self._read_threads, self._told, self.faults)
        shard = DiskShard(directory, index, reader, options, self._damages)
        index.on_damage = partial(self._note_damage, shard.quarantine)
        with TellsFullDisk(self._path):
            await shard.start(partial(self._open_cell, directory, index, reader, shard.quarantine))
        self._was_open = True
        return shard

    def tell_colour(self, colour: Colour | None, pool: str = MAIN_POOL) -> None:
        """A fault on cue: a pool has this colour, whatever is free; None: its own again."""
        if colour is None:
            self._told.pop(pool, None)
        else:
            self._told[pool] = colour

    def _note_damage(self, quarantine: Quarantine, place: str, cause: str) -> None:
        self._damages[place] = cause
        quarantine.found(place, cause)

    def _open_cell(
        self, directory: CellDirectory, index: RocksIndex, reader: BlobReader, quarantine: Quarantine
    ) -> OpenCell:
        """In the commit thread: open the index, see that it is whole, and load what the thread works on."""
        facts = directory.facts
        index.open(create=not facts.ready, synced=facts.durability == "fsync")
        last_number = indexrows.last_number(index.get(indexrows.number_keys()))
        pools = {
            name: Pool(
                name,
                path,
                directory.generation,
                segment_bytes=self._segment_bytes,
                dead_percent=self._compaction.dead_percent,
                quarantine=quarantine,
                statvfs=self._statvfs,
            )
            for name, path in directory.pools.items()
        }
        leftovers = load_segments(pools, index.rows(*indexrows.SEGMENT_ROWS), last_number)
        directory.write_facts(durability=self._durability)
        rooms = self._rooms(directory)
        flags = 0 if self._durability == "fsync" else UNSYNCED
        planner = Planner(pools, self._caps, flags, index.get, reader.content)
        return OpenCell(index, tuple(pools.values()), planner, last_number, rooms, directory.path, leftovers)

    def _rooms(self, directory: CellDirectory) -> Rooms:
        device = directory.path.stat().st_dev
        elsewhere = {
            name: Room(path, POOL_RESERVE_BYTES, self._statvfs, self._thresholds)
            for name, path in directory.pools.items()
            if path.stat().st_dev != device
        }
        room = Room(directory.path, INDEX_RESERVE_BYTES, self._statvfs, self._thresholds)
        ballast = Ballast(directory.ballast, self._ballast_bytes)
        rooms = Rooms(room, elsewhere, ballast, index_blob_bytes_max=self._caps.index_blob_bytes_max)
        rooms.look()
        return rooms

    def _take(self, directory: CellDirectory) -> None:
        with TellsFullDisk(self._path):
            directory.take(must_exist=self._was_open)

    def _make_room(self, directory: CellDirectory) -> None:
        """Before a start writes anything, with the directory locked: a full disk gives the ballast up. EngineError."""
        free = self._free_bytes()
        if free >= INDEX_RESERVE_BYTES:
            return
        free += Ballast(directory.ballast, self._ballast_bytes).release()
        if free < START_BYTES:
            raise full_disk(self._path, START_BYTES - free, f"{free} bytes are free")
        _log.warning("the disk of %s is full: %d bytes are left to start and to delete with", self._path, free)

    def _has_room(self, size: int) -> bool:
        """Whether the index can write so many bytes."""
        return self._free_bytes() >= size + FLOOR_BYTES

    def _free_bytes(self) -> int:
        space = self._statvfs(self._path)
        return space.f_bavail * space.f_frsize
