"""The disk engine: a RocksDB index, blob segment files, one commit thread.

What is written when: `committer`, `plan`. The rows of the index: `rocks_index`. What a directory holds: `directory`.
The bytes of a blob: `segments`.
"""

import asyncio
import logging
import os
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from pqbroker.conf.storage import MAIN_POOL
from pqbroker.storage.disk import index_rows
from pqbroker.storage.disk.backups.backup import BackupDirectory
from pqbroker.storage.disk.blob_reading import BlobReader
from pqbroker.storage.disk.commits.commit_log import log_files
from pqbroker.storage.disk.commits.log_start import LogStart, start_log, take_rounds
from pqbroker.storage.disk.commits.round_writer import RoundWriter
from pqbroker.storage.disk.committer import OpenCell, Pace
from pqbroker.storage.disk.directory import (
    CELLS,
    DURABILITIES,
    CellDirectory,
    index_path,
    list_indexes,
    read_both,
    remove_cell,
)
from pqbroker.storage.disk.free_space import (
    FLOOR_BYTES,
    INDEX_RESERVE_BYTES,
    POOL_RESERVE_BYTES,
    START_BYTES,
    Ballast,
    CellSpace,
    FreeSpace,
    StatVfs,
    TellsFullDisk,
    full_disk,
)
from pqbroker.storage.disk.manifest_check import check_manifest
from pqbroker.storage.disk.mending.facts_copy import has_facts
from pqbroker.storage.disk.mending.manifest_copy import mend_manifest
from pqbroker.storage.disk.mending.salvage_mark import MarkState, check_complete, read_mark
from pqbroker.storage.disk.offline import open_stopped
from pqbroker.storage.disk.pools import Pool, PoolLimits
from pqbroker.storage.disk.reading_only import ReadingSpace, ReadingWriter, staging
from pqbroker.storage.disk.rocks_index import RocksIndex
from pqbroker.storage.disk.round_plan import RoundPlanner
from pqbroker.storage.disk.segment_check import NO_LEFTOVERS, load_segments
from pqbroker.storage.disk.segment_emptying import DEFAULT_PACE, EmptyingPace
from pqbroker.storage.disk.segments import UNSYNCED
from pqbroker.storage.disk.shard import DiskShard, ShardOptions
from pqbroker.storage.disk.spare_room import give_back, spare_bytes
from pqbroker.storage.engine import BLOB_BYTES_MAX, Caps, EngineError, NoRoom
from pqbroker.storage.faults import Faults
from pqbroker.storage.pool_status import DEFAULT_THRESHOLDS, Colour, Thresholds
from pqbroker.storage.quarantine import HELD_CURE, Quarantine

_log = logging.getLogger(__name__)
_MIB = 1 << 20
_BACKUPS_MAX = 16
_ABSENT = "No such file or directory"
"""Words of the system about a file in a directory that is away, too."""
_BATCH_ROUNDS_MAX = 4
"""A batch may be this many rounds large; above one it gets a round for itself."""


@dataclass(eq=False)
class RocksEngine:
    """Opens one cell in a directory. `pools`: names and directories for blobs; without them, one in the cell's own."""

    directory: Path
    _: KW_ONLY
    durability: str = "fsync"
    sync_interval_ms: int = 100
    segment_bytes: int = 64 * _MIB
    round_bytes_max: int = 16 * _MIB
    index_blob_bytes_max: int = 1000
    ballast_bytes: int = 8 * _MIB
    read_threads: int = 4
    pools: Mapping[str, Path] | None = None
    thresholds: Thresholds = DEFAULT_THRESHOLDS
    emptying: EmptyingPace = DEFAULT_PACE
    statvfs: Callable[[Path], StatVfs] = os.statvfs
    faults: Faults | None = None
    read_only_look_ms: int = 1000
    backups: BackupDirectory | None = None
    """Directory of backups; None: `backups` in the cell's directory."""
    _told: dict[str, Colour] = field(default_factory=dict, init=False)
    _damages: dict[str, str] = field(default_factory=dict, init=False)
    """Damage of the index by place, found since this object was created: a second opening must not run into it
    again."""
    _was_open: bool = field(default=False, init=False)
    _is_held: bool = field(default=False, init=False)
    """The cell was salvaged, and nobody has accepted that."""
    _siblings: "dict[str, RocksEngine]" = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        assert self.durability in DURABILITIES

    @property
    def _backups(self) -> BackupDirectory:
        return self.backups or BackupDirectory(self.directory / "backups", _BACKUPS_MAX)

    @property
    def _caps(self) -> Caps:
        return Caps(BLOB_BYTES_MAX, self.index_blob_bytes_max, _BATCH_ROUNDS_MAX * self.round_bytes_max)

    @property
    def _pace(self) -> Pace:
        seconds = {"fsync": 0.0, "interval": self.sync_interval_ms / 1000, "none": None}[self.durability]
        return Pace(self.round_bytes_max, seconds)

    async def open(self) -> DiskShard:
        """Open the cell under its next generation, which fences any earlier owner. Raises EngineError."""
        directory = CellDirectory(self.directory, self.pools, on_locked=self._make_room)
        await asyncio.to_thread(self._take, directory)
        return await self._start(directory, RocksIndex(directory.index, self._has_room), self._open_cell)

    def for_reading(self, cause: str) -> "_ForReading":
        """See `Engine.for_reading`."""
        return _ForReading(partial(self._open_for_reading, cause))

    async def _open_for_reading(self, cause: str) -> DiskShard:
        directory = CellDirectory(self.directory, self.pools)
        await asyncio.to_thread(self._hold, directory, cause)
        space = ReadingSpace(self.directory, cause, self.statvfs, self.read_only_look_ms / 1000)
        index = RocksIndex(directory.index, _never)
        return await self._start(directory, index, partial(self._open_unchanged, space), space)

    async def _start(
        self,
        directory: CellDirectory,
        index: RocksIndex,
        open_cell: Callable[[CellDirectory, RocksIndex, BlobReader, Quarantine], OpenCell],
        reading: ReadingSpace | None = None,
    ) -> DiskShard:
        """Start the shard of a directory that this process holds. EngineError, and then nothing is held."""
        reader = BlobReader(index.get, directory.pools)
        options = ShardOptions(
            self._caps, self._pace, self.emptying, self.read_threads, self._told, self.faults,
            self._backups, reading,
        )  # fmt: skip
        shard = DiskShard(directory, index, reader, options, self._damages)
        shard.quarantine.is_held = self._is_held
        index.on_damage = partial(self._note_damage, shard.quarantine, directory)
        with TellsFullDisk(self.directory):
            await shard.start(partial(open_cell, directory, index, reader, shard.quarantine))
        self._was_open = True
        return shard

    def tell_colour(self, colour: Colour | None, pool: str = MAIN_POOL) -> None:
        """Give a pool this colour, as a fault on cue, however much is free; None: its own again."""
        if colour is None:
            self._told.pop(pool, None)
        else:
            self._told[pool] = colour

    def sibling(self, name: str, *, must_exist: bool) -> "RocksEngine":
        """The engine of `cells/<name>` in the directory, and in those of the pools; see `Engine.sibling`."""
        found = self._siblings.get(name)
        if found is None:
            place = self.directory / CELLS / name
            pools = {pool: path / CELLS / name for pool, path in (self.pools or {}).items() if pool != MAIN_POOL}
            found = self._siblings[name] = replace(
                self, directory=place, pools={MAIN_POOL: place / "blobs", **pools}, backups=self._backups,
                faults=None if self.faults is None else Faults(),
            )  # fmt: skip
        found._was_open = found._was_open or must_exist
        return found

    async def remove_sibling(self, name: str) -> None:
        sibling = self.sibling(name, must_exist=False)
        if read_mark(sibling.directory).state is not MarkState.ACCEPTED:
            raise EngineError(f"{sibling.directory} was salvaged, so it is not deleted: {HELD_CURE}")
        del self._siblings[name]
        await asyncio.to_thread(remove_cell, sibling.directory, tuple((sibling.pools or {}).values()))

    def _note_damage(self, quarantine: Quarantine, directory: CellDirectory, place: str, cause: str) -> None:
        """Note damage for this opening, and for later ones unless the directory is away: put back, it is whole."""
        if directory.is_ours() or _ABSENT not in cause:
            self._damages[place] = cause
        quarantine.found(place, cause)

    def _open_cell(
        self, directory: CellDirectory, index: RocksIndex, reader: BlobReader, quarantine: Quarantine
    ) -> OpenCell:
        """Open the index in the commit thread, see that it is whole, and load what the thread works on."""
        facts = directory.facts
        mend_manifest(directory.index)
        check_manifest(directory.index)
        index.open(create=not facts.ready)
        is_synced = self.durability == "fsync"
        started = start_log(
            LogStart(directory.index, facts, directory.pools),
            index,
            directory.generation,
            is_synced=is_synced,
            has_room=partial(self._has_room, INDEX_RESERVE_BYTES),
            raise_format=directory.raise_format,
        )
        log = started.log
        limits = PoolLimits(self.segment_bytes, self.emptying.dead_percent, self.statvfs)
        pools = {
            name: Pool(name, path, directory.generation, quarantine, limits) for name, path in directory.pools.items()
        }
        leftovers = load_segments(pools, index.rows(*index_rows.SEGMENT_ROWS), log.last_number)
        for pool in pools.values():
            pool.keep_rows(started.rows_in)
        directory.write_facts(durability=self.durability)
        planner = RoundPlanner(pools, self._caps, 0 if is_synced else UNSYNCED, index.get, reader.content)
        writer = RoundWriter(index, log, tuple(pools.values()), self._pace.sync_seconds)
        removable = leftovers if started.is_flushed else NO_LEFTOVERS
        return OpenCell(log, writer, planner, self._space(directory), tuple(pools.values()), removable)

    def _open_unchanged(
        self,
        space: ReadingSpace,
        directory: CellDirectory,
        index: RocksIndex,
        reader: BlobReader,
        quarantine: Quarantine,
    ) -> OpenCell:
        """Open the cell as `_open_cell` does, in the commit thread, for reading only."""
        facts = directory.facts
        with staging(space.cause) as draft:
            open_stopped(index, directory.index, draft)
        last = index_rows.last_number(index.get(index_rows.number_keys()))
        history = take_rounds(LogStart(directory.index, facts, directory.pools), index, last, syncs=True)
        limits = PoolLimits(self.segment_bytes, self.emptying.dead_percent, self.statvfs)
        pools = {
            name: Pool(name, path, directory.generation + 1, quarantine, limits)
            for name, path in directory.pools.items()
        }
        load_segments(pools, index.rows(*index_rows.SEGMENT_ROWS), history.last_number)
        rows_alone = replace(self._caps, index_blob_bytes_max=BLOB_BYTES_MAX + 1)
        planner = RoundPlanner(pools, rows_alone, 0, index.get, reader.content)
        writer = ReadingWriter(index, tuple(pools.values()), history.last_number)
        return OpenCell(None, writer, planner, space, tuple(pools.values()), NO_LEFTOVERS)

    def _space(self, directory: CellDirectory) -> CellSpace:
        device = directory.path.stat().st_dev
        elsewhere = {
            name: FreeSpace(path, POOL_RESERVE_BYTES, self.statvfs, self.thresholds)
            for name, path in directory.pools.items()
            if path.stat().st_dev != device
        }
        index = FreeSpace(directory.path, INDEX_RESERVE_BYTES, self.statvfs, self.thresholds)
        ballast = Ballast(directory.ballast, self.ballast_bytes)
        space = CellSpace(index, elsewhere, ballast, index_blob_bytes_max=self._caps.index_blob_bytes_max)
        space.look()
        return space

    def _take(self, directory: CellDirectory) -> None:
        with TellsFullDisk(self.directory):
            directory.take(must_exist=self._was_open)
            self._heed_salvage(directory)
            if self._free_bytes() < INDEX_RESERVE_BYTES:
                self._give_back(directory)

    def _hold(self, directory: CellDirectory, cause: str) -> None:
        """EngineError; NoRoom with the cause where nothing is in the cell yet."""
        if not has_facts(self.directory) or not read_both(self.directory)[0].ready:
            raise NoRoom(cause)
        directory.hold()
        self._heed_salvage(directory)

    def _give_back(self, directory: CellDirectory) -> None:
        """Free what owners took beforehand, then the ballast. NoRoom, and then nothing is held.

        Not before the index is renamed: an owner that lost its lock may acknowledge rounds until then.
        """
        try:
            give_back(_owned_files(directory))
            if self._free_bytes() < INDEX_RESERVE_BYTES:
                Ballast(directory.ballast, self.ballast_bytes).release()
            free = self._free_bytes()
        except OSError:
            directory.release()
            raise
        if free < START_BYTES:
            directory.release()
            raise full_disk(self.directory, f"{free} bytes are free")
        _log.warning("the disk of %s is full: %d bytes are left to start and to delete with", self.directory, free)

    def _heed_salvage(self, directory: CellDirectory) -> None:
        """Treat what a salvage gave up as damage, until it is accepted. Raises EngineError when it was interrupted."""
        try:
            held = check_complete(self.directory).damages
        except EngineError:
            directory.release()
            raise
        for place, cause in held.items():
            _log.warning("the cell was salvaged, so nothing is removed from it: %s: %s", place, cause)
        self._is_held = bool(held)
        self._damages.update(held)

    def _make_room(self, directory: CellDirectory) -> None:
        """Check that a start has room, before it changes anything and with the directory locked. NoRoom."""
        free = self._free_bytes()
        if free < START_BYTES:
            free += directory.ballast.stat().st_size if directory.ballast.exists() else 0
        if free < START_BYTES:
            free += spare_bytes(_owned_files(directory))
        if free < START_BYTES:
            raise full_disk(self.directory, f"{free} bytes are free")

    def _has_room(self, size: int) -> bool:
        """Return True if the index can write `size` bytes."""
        return self._free_bytes() >= size + FLOOR_BYTES

    def _free_bytes(self) -> int:
        space = self.statvfs(self.directory)
        return space.f_bavail * space.f_frsize


@dataclass(frozen=True, slots=True)
class _ForReading:
    """An `Opener`."""

    open: Callable[[], Coroutine[Any, Any, DiskShard]]


def _never(size: int) -> bool:
    return False


def _owned_files(directory: CellDirectory) -> list[Path]:
    """Files for which owners take room beforehand, on the disk of the index: the log's, and segments of its pools."""
    logs = [file for at in list_indexes(directory.path) for file in log_files(index_path(directory.path, at))]
    device = directory.path.stat().st_dev
    pools = [path for path in directory.pools.values() if path.exists() and path.stat().st_dev == device]
    return logs + [file for path in pools for file in path.glob("*.segment")]
