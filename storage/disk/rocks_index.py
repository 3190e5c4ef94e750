"""The index of the disk engine: ordered rows in RocksDB. The only file that imports rocksdict."""

import logging
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from errno import EACCES
from itertools import takewhile
from pathlib import Path
from typing import cast

from rocksdict import (
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

from pqbroker.storage.disk.commits.index_changes import IndexChanges
from pqbroker.storage.disk.commits.recent_rows import RecentRows
from pqbroker.storage.disk.commits.unwritten_rows import CountedBatch, UnwrittenRows
from pqbroker.storage.disk.index import TellsDamage
from pqbroker.storage.disk.mending.manifest_copy import CURRENT, ManifestCopy, find_mended
from pqbroker.storage.engine import EngineError, IndexDamaged

_log = logging.getLogger(__name__)
_MIB = 1 << 20
_CONFIG_FILE = "rocksdict-config.json"
_MEMTABLE_BYTES = 4 * _MIB
"""Bytes of RocksDB's memtable, which holds rows until they go to a file. On a full disk the ballast has room for that
file, and segments are removed only once it is written."""
_OUT_OF_REACH_BYTES = 128 * _MIB
_SPARE_BYTES = 16 * _MIB
"""Free bytes at the opening below which files are written only to give back segments, and nothing is compacted."""
_WAITING_MEMTABLES = "rocksdb.num-immutable-mem-table"
_CHANGES = (_WAITING_MEMTABLES, "rocksdb.num-running-flushes", "rocksdb.num-running-compactions")
_ENTRY_BYTES = 64
"""Bytes that a row takes in memory besides key and value."""
_TABLE = re.compile(r"(\d+\.sst) offset (\d+)")
_UNREADABLE = ("No such file", "Input/output error")
_FILES = (".sst", "MANIFEST-", "CURRENT")
"""Texts in RocksDB's errors about files that it needs and cannot read; `Corruption` is another."""


class RocksIndex:
    """The ordered rows of one cell. Every call blocks; RocksDB's errors are plain Exceptions.

    It compacts nothing before `compact` is called: that is for an index all of which could be read so far.
    """

    def __init__(self, path: Path, has_room: Callable[[int], bool] = lambda size: True) -> None:
        """`has_room`: whether so many bytes can be written besides what is being committed."""
        self.on_damage: Callable[[str, str], None] = _nobody_listens
        """Called with place and cause by the thread that met a part of the index that cannot be read."""
        self._path = path
        self._has_room = has_room
        self._is_frugal = False
        """True from an opening on a full disk until a flush leaves enough free: nothing is compacted meanwhile."""
        self._may_empty = False
        self._staging = ""
        """Directory of links to its files, if it is only read."""
        self._telling = TellsDamage(self.tell)
        self._rows: Rdict | None = None
        self._write_options = WriteOptions()
        # The commit log is ours. A property, whatever the stubs of rocksdict 0.3.29 say.
        self._write_options.disable_wal = True  # type: ignore[method-assign, assignment]
        self._recent = RecentRows()
        self._memtable_bytes = 0
        """Bytes that RocksDB's memtable takes, about."""
        self._rows_bytes = 0
        """Bytes of keys and values in the memtable; its file takes no more."""
        self._unwritten: UnwrittenRows | None = None
        """Count of the memtable's rows one by one, on a full disk: a row that is deleted again takes no room in the
        file."""
        self._last_number = 0
        self._flushing = 0
        """The last round that RocksDB was asked to write to a file."""
        self._flushed = 0
        self.is_flushing = False
        self._manifest = ManifestCopy(path)

    def open(self, *, create: bool) -> None:
        """Open, and recover what RocksDB has on disk."""
        self._is_frugal = not self._has_room(_SPARE_BYTES)
        options = _options()
        options.create_if_missing(create)
        self._rows = Rdict(str(self._path), options, _column_families(options))
        self._manifest.begin()
        self._memtable_bytes = self._rows.property_int_value("rocksdb.cur-size-all-mem-tables") or 0
        self._rows_bytes = self._memtable_bytes
        self._unwritten = UnwrittenRows() if self._is_frugal else None

    def open_unchanged(self, staging: Path) -> None:
        """Open through links in the empty directory `staging`, where all goes that is written: files, which `staging`
        links to, are never changed.

        Raises EngineError for damage, PermissionError.
        """
        for file in self._path.iterdir():
            if not os.access(file, os.R_OK):  # which RocksDB would tell as damage
                raise PermissionError(EACCES, os.strerror(EACCES), str(file))
            if file.suffix == ".log" or file.name == _CONFIG_FILE:
                shutil.copyfile(file, staging / file.name)
            elif file.name != "LOCK" and file.is_file():
                (staging / file.name).symlink_to(file.absolute())
        if (mended := find_mended(self._path)) is not None:
            for name, content in ((mended.name, mended.content), (CURRENT, f"{mended.name}\n".encode())):
                (staging / name).unlink(missing_ok=True)
                (staging / name).write_bytes(content)
        options = _options()
        options.set_max_open_files(-1)  # every table now: else RocksDB meets a damaged one when it needs it
        self._staging = str(staging)
        with self._telling:
            self._rows = Rdict(str(staging), options, _column_families(options))

    def tend(self) -> None:
        """Follow with the second copy of the manifest what compactions changed."""
        self._manifest.follow()

    def compact(self, *, is_on: bool) -> None:
        """Let RocksDB compact its tables in the background from now on, or no more."""
        assert self._rows is not None
        self._may_empty = is_on
        if not self._is_frugal:
            self._rows.set_options({"disable_auto_compactions": "false" if is_on else "true"})

    def begin(self, number: int) -> None:
        """The index has on disk all up to round `number`."""
        self._last_number = self._flushing = self._flushed = number
        self.is_flushing = False

    def write(self, changes: IndexChanges, number: int) -> None:
        """Apply; RocksDB gets the rows later. Its errors are the caller's to `tell`, here and in `flush`.

        A full memtable is exchanged for a new one here, in a call that lets the interpreter lock go. RocksDB would
        do it within a write, which keeps the lock, as long as too many memtables wait.
        """
        if self._memtable_bytes >= _MEMTABLE_BYTES:
            self.flush()
        if changes.deletes_ranges:
            self._settle()
            batch = self._batch()
            changes.apply(batch)
            self._write(batch)
        else:
            self._recent.add(changes)
            if self._recent.is_full:
                self._settle()
        self._last_number = number

    def flush(self, *, wait: bool = False) -> None:
        """Exchange the memtable, if there is room for its file; `wait` until that is whole."""
        assert self._rows is not None
        self._settle()
        if self._last_number == self._flushing or not self._has_room(self.unwritten_bytes):
            return
        self._rows.flush(wait)
        self._memtable_bytes = self._rows_bytes = 0
        self._unwritten = UnwrittenRows() if self._is_frugal else None
        self._flushing = self._last_number
        self.is_flushing = True
        if self._is_frugal and self._has_room(_SPARE_BYTES):
            self._is_frugal, self._unwritten = False, None
            self.compact(is_on=self._may_empty)

    @property
    def unwritten_bytes(self) -> int:
        """Return how many bytes a flush would write, at most."""
        return self._rows_bytes if self._unwritten is None else self._unwritten.file_bytes

    @property
    def is_frugal(self) -> bool:
        """Return True if the disk was so full at the opening that what a log holds is to stay there."""
        return self._is_frugal

    def flushed(self) -> int:
        assert self._rows is not None
        if self.is_flushing and not self._rows.property_int_value(_WAITING_MEMTABLES):
            self._manifest.follow()
            self._flushed = self._flushing
            self.is_flushing = False
        return self._flushed

    def settled_files(self) -> frozenset[str] | None:
        """Names of the files with its rows; None while RocksDB is writing one."""
        assert self._rows is not None
        if any(self._rows.property_int_value(each) for each in _CHANGES):
            return None
        return frozenset(table["name"].lstrip("/") for table in self._rows.live_files())

    def get(self, keys: list[bytes]) -> list[bytes | None]:
        """Values of the keys, durable or not; None where absent. IndexDamaged."""
        return self._recent.get(keys, self._get)

    def rows(self, lo: bytes, hi: bytes, *, reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
        """Rows with lo <= key < hi as they were at the call, in order or from the end.

        The walk raises IndexDamaged.
        """
        assert self._rows is not None
        with self._telling:
            self._settle()
        bounds = ReadOptions()
        bounds.set_iterate_upper_bound(hi)
        items = self._rows.items(backwards=reverse, from_key=hi if reverse else lo, read_opt=bounds)
        found = self._all_of(cast("Iterator[tuple[bytes, bytes]]", items), lo, hi, reverse=reverse)
        # rocksdict 0.3.29 does not heed a lower bound, so a walk backwards ends here.
        return takewhile(lambda item: item[0] >= lo, found) if reverse else found

    def close(self) -> None:
        """Let go of the files. Empties tables into files first, where that is possible: the commit log has all as well.

        `close` lets the interpreter lock go meanwhile, the end of the object would not.
        """
        if self._rows is not None:
            if self._staging:  # what RocksDB writes at its end is for nobody
                self.on_damage = _nobody_listens
            with suppress(EngineError), self._telling:
                self._settle()
            rows, self._rows = self._rows, None
            with suppress(EngineError), self._telling:
                rows.close()
            self._manifest.follow()

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

    def _settle(self) -> None:
        """Have RocksDB know every round."""
        self._recent.hand_over(self._batch, self._write)

    def _batch(self) -> "WriteBatch | CountedBatch[WriteBatch]":
        batch = WriteBatch(raw_mode=True)
        return batch if self._unwritten is None else CountedBatch(batch, self._unwritten)

    def _write(self, written: "WriteBatch | CountedBatch[WriteBatch]") -> None:
        assert self._rows is not None
        batch = written.batch if isinstance(written, CountedBatch) else written
        size = batch.size_in_bytes()
        self._rows_bytes += size
        self._memtable_bytes += size + _ENTRY_BYTES * batch.len()
        self._rows.write(batch, self._write_options)

    def _get(self, keys: list[bytes]) -> list[bytes | None]:
        assert self._rows is not None
        with self._telling:
            return cast("list[bytes | None]", self._rows.get(cast("list[str | int | float | bytes | bool]", keys)))

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


def _nobody_listens(place: str, cause: str) -> None: ...


def _column_families(options: Options) -> dict[str, Options]:
    """Said for the one that there is: else rocksdict takes those that were in force last, from a file beside it."""
    return {"default": options}


def _options() -> Options:
    """RocksDB for small rows: little memory, stalls out of reach, a bounded log, bounded files."""
    options = Options(raw_mode=True)
    table = BlockBasedOptions()
    table.set_block_cache(Cache(8 * _MIB))
    table.set_bloom_filter(10, False)
    table.set_cache_index_and_filter_blocks(True)
    table.set_pin_l0_filter_and_index_blocks_in_cache(True)
    options.set_disable_auto_compactions(True)  # until `RocksIndex.compact`
    options.set_block_based_table_factory(table)
    options.set_compression_type(DBCompressionType.lz4())
    # A log has rows only where a full disk kept a cell of format 1 from being carried over whole.
    options.set_wal_recovery_mode(DBRecoveryMode.tolerate_corrupted_tail_records())
    options.set_write_buffer_size(_OUT_OF_REACH_BYTES)  # out of reach, as the log's: `RocksIndex.write` comes before
    options.set_max_write_buffer_number(5)
    options.set_max_total_wal_size(_OUT_OF_REACH_BYTES)
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
