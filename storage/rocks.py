"""The disk engine: a RocksDB index, blob segment files, one commit thread. The only file that imports rocksdict.

What is written when: `committer`, `plan`. What a directory holds: `directory`. The bytes of a blob: `segments`.
"""

import asyncio
import logging
import os
import re
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from errno import EACCES
from functools import partial
from itertools import takewhile
from pathlib import Path
from types import TracebackType
from typing import cast

from rocksdict import (
    AccessType,
    BlockBasedOptions,
    Cache,
    DBCompressionType,
    DBRecoveryMode,
    Options,
    Rdict,
    ReadOptions,
    WriteBatch,
    WriteOptions,
)

from pqbroker.conf.storage import MAIN_POOL
from pqbroker.storage import indexrows
from pqbroker.storage.committer import OpenCell, Pace
from pqbroker.storage.compaction import DEFAULT_PACE, CompactionPace
from pqbroker.storage.directory import DURABILITIES, CellDirectory
from pqbroker.storage.diskshard import DiskShard, ShardOptions
from pqbroker.storage.engine import BLOB_BYTES_MAX, Caps, EngineError, IndexDamaged
from pqbroker.storage.faults import Faults
from pqbroker.storage.index_log import is_torn
from pqbroker.storage.plan import IndexBatch, Planner
from pqbroker.storage.pools import Pool
from pqbroker.storage.quarantine import Quarantine
from pqbroker.storage.reading import BlobReader
from pqbroker.storage.recovery import load_segments
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
_CONFIG_FILE = "rocksdict-config.json"
_TABLE_BYTES = 16 * _MIB
"""Written into memory until that goes to a file."""
_ENTRY_BYTES = 64
"""What a row takes in memory beside key and value."""
_NO_FLUSH = re.compile(rb"(avoid_flush_during_recovery=)\w+")
_BATCH_ROUNDS_MAX = 4
"""A batch may be this many rounds large; above one it gets a round for itself."""
_TABLE = re.compile(r"(\d+\.sst) offset (\d+)")
_UNREADABLE = ("No such file", "Input/output error")
_FILES = (".sst", "MANIFEST-", "CURRENT")
"""What RocksDB says of files that it needs and cannot read, beside `Corruption`."""


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
        self._faults = faults
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
        options = ShardOptions(self._caps, self._pace, self._compaction, self._read_threads, self._told, self._faults)
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
        self, directory: CellDirectory, index: "RocksIndex", reader: BlobReader, quarantine: Quarantine
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


class RocksIndex:
    """The ordered rows of one cell. Every call blocks; RocksDB's errors are plain Exceptions.

    It compacts nothing before `compact` is called: that is for an index all of which could be read so far.
    """

    def __init__(self, path: Path, has_room: Callable[[int], bool] = lambda size: True) -> None:
        """`has_room`: whether so many bytes can be written besides what is being committed."""
        self.undurable = threading.Lock()
        self.on_damage: Callable[[str, str], None] = _nobody_listens
        """Called with place and cause by the thread that met a part of the index that cannot be read."""
        self._path = path
        self._has_room = has_room
        self._is_frugal = False
        """It was opened on a full disk, and nothing was written but to its log since."""
        self._may_compact = False
        self._staging = ""
        """Where links to its files are, when it is open for reading alone."""
        self._telling = TellsDamage(self.tell)
        self._rows: Rdict | None = None
        self._write_options = WriteOptions()
        self._table_bytes = 0
        """What RocksDB's table in memory holds, about."""

    def open(self, *, create: bool, synced: bool) -> None:
        """Open and recover. `synced`: commits were, so that what cannot be read of the log is damage, unless a power
        cut tore its last write."""
        log_bytes = sum(file.stat().st_size for file in self._path.glob("*.log"))
        frugal = None if self._has_room(log_bytes + _TABLE_BYTES) else _frugal_options(self._path)
        self._is_frugal = frugal is not None

        def recover(mode: DBRecoveryMode) -> Rdict:
            options = _options() if frugal is None else frugal
            options.create_if_missing(create)
            options.set_wal_recovery_mode(mode)
            return Rdict(str(self._path), options, _column_families(options))

        self._rows = self._recovered(recover, synced)
        self._table_bytes = self._rows.property_int_value("rocksdb.cur-size-all-mem-tables") or 0

    def open_unchanged(self, staging: Path, *, synced: bool) -> None:
        """Open for reading alone, through links in the empty directory `staging`: rocksdict writes a file even then.

        Raises EngineError for damage, PermissionError.
        """
        for file in self._path.iterdir():
            if not os.access(file, os.R_OK):  # which RocksDB would tell as damage
                raise PermissionError(EACCES, os.strerror(EACCES), str(file))
            if file.name == _CONFIG_FILE:
                shutil.copyfile(file, staging / file.name)
            elif file.name != "LOCK":
                (staging / file.name).symlink_to(file.absolute())

        def recover(mode: DBRecoveryMode) -> Rdict:
            options = _options()
            options.set_wal_recovery_mode(mode)
            options.set_max_open_files(-1)  # every table now: else RocksDB meets a damaged one when it needs it
            return Rdict(str(staging), options, _column_families(options), AccessType.read_only())

        self._staging = str(staging)
        with self._telling:
            self._rows = self._recovered(recover, synced)

    def compact(self, *, is_on: bool) -> None:
        """Let RocksDB compact its tables in the background from now on, or no more."""
        assert self._rows is not None
        self._may_compact = is_on
        if not self._is_frugal:
            self._rows.set_options({"disable_auto_compactions": "false" if is_on else "true"})

    def new_batch(self) -> IndexBatch:
        batch: IndexBatch = WriteBatch(raw_mode=True)
        return batch

    def write(self, changes: IndexBatch) -> None:
        """Apply; not durable before `sync`.

        A full table is exchanged for a new one here, in a call that lets the interpreter lock go. RocksDB would do it
        within a write, which keeps the lock: until the next log file is there, and while too many tables wait.
        """
        assert self._rows is not None
        batch = cast(WriteBatch, changes)
        with self._telling:
            if self._table_bytes >= _TABLE_BYTES and self._has_room(_TABLE_BYTES):
                self._exchange_table()
            self._table_bytes += batch.size_in_bytes() + _ENTRY_BYTES * batch.len()
            self._rows.write(batch, self._write_options)

    def _exchange_table(self) -> None:
        assert self._rows is not None
        self._rows.flush(False)
        self._table_bytes = 0
        if self._is_frugal:
            self._is_frugal = False
            self.compact(is_on=self._may_compact)

    def sync(self) -> None:
        assert self._rows is not None
        with self._telling:
            self._rows.flush_wal(True)

    def get(self, keys: list[bytes]) -> list[bytes | None]:
        """Values of the keys, durable or not; None where absent. IndexDamaged."""
        assert self._rows is not None
        with self._telling:
            return cast("list[bytes | None]", self._rows.get(cast("list[str | int | float | bytes | bool]", keys)))

    def rows(self, lo: bytes, hi: bytes, *, reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
        """Rows with lo <= key < hi as they were at the call, in order or from the end.

        The walk raises IndexDamaged.
        """
        assert self._rows is not None
        bounds = ReadOptions()
        bounds.set_iterate_upper_bound(hi)
        items = self._rows.items(backwards=reverse, from_key=hi if reverse else lo, read_opt=bounds)
        found = self._all_of(cast("Iterator[tuple[bytes, bytes]]", items), lo, hi, reverse=reverse)
        # rocksdict 0.3.29 does not heed a lower bound, so a walk backwards ends here.
        return takewhile(lambda item: item[0] >= lo, found) if reverse else found

    def close(self) -> None:
        """Let go of the files. RocksDB empties its tables into files first, where it can: all is in the log as well.

        `close` lets the interpreter lock go meanwhile, the end of the object would not.
        """
        rows, self._rows = self._rows, None
        if rows is not None:
            with suppress(EngineError), self._telling:
                rows.close()

    def tell(self, told: str) -> EngineError:
        """The error that RocksDB's stands for. Damage is told to `on_damage`."""
        if self._staging:
            told = told.replace(self._staging, str(self._path))
        if str(self._path) not in told:
            told += f" in {self._path}"
        is_lost = any(file in told for file in _FILES) and any(sign in told for sign in _UNREADABLE)
        if not told.startswith("Corruption") and not is_lost:
            return EngineError(f"the index does not answer: {told}")
        table = _TABLE.search(told)
        place = "the index" if table is None else f"table {table[1]} of the index, block at byte {table[2]}"
        self.on_damage(place, told)
        return IndexDamaged(f"the index is damaged: {told}")

    def _recovered(self, recover: Callable[[DBRecoveryMode], Rdict], synced: bool) -> Rdict:
        """Open so that nothing that was acknowledged is passed over; RocksDB's error when that cannot be."""
        if not synced:
            return recover(DBRecoveryMode.point_in_time())
        try:
            with self._telling:
                return recover(DBRecoveryMode.tolerate_corrupted_tail_records())
        except EngineError as told:
            if not is_torn(self._path):
                raise (told.__cause__ or told) from None
        _log.warning("a power cut tore the last write to the log of %s: left out, it was not acknowledged", self._path)
        return recover(DBRecoveryMode.point_in_time())

    def _all_of(
        self, items: Iterator[tuple[bytes, bytes]], lo: bytes, hi: bytes, *, reverse: bool
    ) -> Iterator[tuple[bytes, bytes]]:
        """The items; IndexDamaged where they ended at a block that cannot be read: rocksdict 0.3.29 only ends there.

        Keeps `hi` as long as they are walked: it points at its bytes, and ends elsewhere once they are free.
        """
        last = hi if reverse else lo
        for item in items:
            last = item[0]
            yield item
        del items  # an error's frames would keep it, and it the whole index open
        with self._telling:
            self._walk_on(last, hi, reverse=reverse)

    def _walk_on(self, last: bytes, hi: bytes, *, reverse: bool) -> None:
        """Walk from a key to where rows end; RocksDB's error when they end at a block that cannot be read."""
        assert self._rows is not None
        bounds = ReadOptions()
        bounds.set_iterate_upper_bound(hi)
        walk = self._rows.iter(bounds)
        seek, step = (walk.seek_for_prev, walk.prev) if reverse else (walk.seek, walk.next)
        seek(last)
        while walk.valid():
            step()
        walk.status()


class TellsDamage:
    """A context in which RocksDB's errors, which are plain Exceptions, become what `tell` makes of their text."""

    __slots__ = ("_tell",)

    def __init__(self, tell: Callable[[str], EngineError]) -> None:
        self._tell = tell

    def __enter__(self) -> None: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is Exception and error is not None:
            # Their frames hold iterators, which keep the index open for as long as somebody keeps the error.
            error.__traceback__ = None
            del trace
            raise self._tell(str(error)) from error


def _nobody_listens(place: str, cause: str) -> None: ...


def _frugal_options(index: Path) -> Options | None:
    """As `_options`, for a full disk: what the log holds stays there, and no file is compacted. None without that.

    To recover without a flush is an option that rocksdict 0.3.29 cannot set. But it reads options from a file, and
    every opening of the index wrote one.
    """
    try:
        last = max(index.glob("OPTIONS-*[0-9]"))
        with tempfile.TemporaryDirectory(prefix="pqbroker-options-") as staging, TellsDamage(EngineError):
            Path(staging, last.name).write_bytes(_NO_FLUSH.sub(rb"\1true", last.read_bytes()))
            shutil.copyfile(index / _CONFIG_FILE, Path(staging, _CONFIG_FILE))
            options, _ = Options.load_latest(staging)
    except (EngineError, OSError, ValueError) as failure:
        _log.warning("the index is opened as if there were room: %s", failure)
        return None
    return _set(options)


def _column_families(options: Options) -> dict[str, Options]:
    """Said for the one that there is: else rocksdict takes those that were in force last, from a file beside it."""
    return {"default": options}


def _options() -> Options:
    return _set(Options(raw_mode=True))


def _set(options: Options) -> Options:
    """RocksDB for small rows: little memory, stalls out of reach, a bounded log, bounded files."""
    table = BlockBasedOptions()
    table.set_block_cache(Cache(8 * _MIB))
    table.set_bloom_filter(10, False)
    table.set_cache_index_and_filter_blocks(True)
    table.set_pin_l0_filter_and_index_blocks_in_cache(True)
    options.set_disable_auto_compactions(True)  # until `RocksIndex.compact`
    options.set_block_based_table_factory(table)
    options.set_compression_type(DBCompressionType.lz4())
    options.set_write_buffer_size(8 * _TABLE_BYTES)  # out of reach, as the log's: `RocksIndex.write` comes before
    options.set_max_write_buffer_number(5)
    options.set_max_total_wal_size(8 * _TABLE_BYTES)
    options.set_level_zero_slowdown_writes_trigger(1 << 20)
    options.set_level_zero_stop_writes_trigger(1 << 20)
    options.set_soft_pending_compaction_bytes_limit(0)
    options.set_hard_pending_compaction_bytes_limit(0)
    options.set_ratelimiter(64 * _MIB, 100_000, 10)
    options.set_bytes_per_sync(_MIB)
    options.set_max_background_jobs(2)
    options.set_max_open_files(128)
    options.set_skip_stats_update_on_db_open(True)
    options.set_stats_dump_period_sec(0)
    options.set_stats_persist_period_sec(0)
    options.set_keep_log_file_num(2)
    options.set_max_log_file_size(_MIB)
    return options
