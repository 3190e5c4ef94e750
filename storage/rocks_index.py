"""The index of the disk engine: ordered rows in RocksDB. The only file that imports rocksdict."""

import logging
import os
import re
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from errno import EACCES
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

from pqbroker.storage.engine import EngineError, IndexDamaged
from pqbroker.storage.index_log import is_torn
from pqbroker.storage.plan import IndexBatch

_log = logging.getLogger(__name__)
_MIB = 1 << 20
_CONFIG_FILE = "rocksdict-config.json"
_TABLE_BYTES = 16 * _MIB
"""Written into memory until that goes to a file."""
_ENTRY_BYTES = 64
"""What a row takes in memory beside key and value."""
_NO_FLUSH = re.compile(rb"(avoid_flush_during_recovery=)\w+")
_TABLE = re.compile(r"(\d+\.sst) offset (\d+)")
_UNREADABLE = ("No such file", "Input/output error")
_FILES = (".sst", "MANIFEST-", "CURRENT")
"""What RocksDB says of files that it needs and cannot read, beside `Corruption`."""


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
        """Apply; not durable before `sync`. RocksDB's errors are the caller's to `tell`, here and in `sync`.

        A full table is exchanged for a new one here, in a call that lets the interpreter lock go. RocksDB would do it
        within a write, which keeps the lock: until the next log file is there, and while too many tables wait.
        """
        assert self._rows is not None
        batch = cast(WriteBatch, changes)
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
