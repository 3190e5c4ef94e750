"""The index of the disk engine: ordered rows in RocksDB, opened, changed, written to files, read."""

import logging
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from errno import EACCES
from pathlib import Path
from typing import cast

from rocksdict import Rdict

from pqbroker.storage.disk.commits.index_changes import IndexChanges
from pqbroker.storage.disk.commits.recent_rows import RecentRows
from pqbroker.storage.disk.index import TellsDamage
from pqbroker.storage.disk.mending.manifest_copy import CURRENT, ManifestCopy, find_mended
from pqbroker.storage.disk.rocks_memtable import Memtable
from pqbroker.storage.disk.rocks_options import column_families, index_options
from pqbroker.storage.disk.rocks_walk import walk
from pqbroker.storage.engine import EngineError, IndexDamaged

_log = logging.getLogger(__name__)
_MIB = 1 << 20
_CONFIG_FILE = "rocksdict-config.json"
_MEMTABLE_BYTES = 4 * _MIB
"""Bytes of RocksDB's memtable, which holds rows until they go to a file. On a full disk the ballast has room for that
file, and segments are removed only once it is written."""
_SPARE_BYTES = 16 * _MIB
"""Free bytes at the opening below which files are written only to give back segments, and nothing is compacted."""
_WAITING_MEMTABLES = "rocksdb.num-immutable-mem-table"
_CHANGES = (_WAITING_MEMTABLES, "rocksdb.num-running-flushes", "rocksdb.num-running-compactions")
_TABLE = re.compile(r"(\d+\.sst) offset (\d+)")
_UNREADABLE = ("No such file", "Input/output error")
_FILES = (".sst", "MANIFEST-", "CURRENT")
"""Texts in RocksDB's errors about files that it needs and cannot read; `Corruption` is another."""
_NEW_FILE = "While open a file for appending"
"""Words of RocksDB about a file that it would write: nothing that was stored is lost with it."""


class RocksIndex:
    """The ordered rows of one cell. Every call blocks; RocksDB's errors are plain Exceptions.

    It compacts nothing before `compact` is called: that is for an index all of which could be read so far.
    """

    _memtable: Memtable

    def __init__(self, path: Path, has_room: Callable[[int], bool] = lambda size: True) -> None:
        """`has_room` returns True if that many bytes can be written besides what is being committed."""
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
        self._recent = RecentRows()
        self._last_number = 0
        self._flushing = 0
        """The last round that RocksDB was asked to write to a file."""
        self._flushed = 0
        self.is_flushing = False
        self._manifest = ManifestCopy(path)

    def open(self, *, create: bool) -> None:
        """Open, and recover what RocksDB has on disk."""
        self._is_frugal = not self._has_room(_SPARE_BYTES)
        options = index_options()
        options.create_if_missing(create)
        self._rows = Rdict(str(self._path), options, column_families(options))
        self._manifest.begin()
        self._memtable = Memtable(self._rows, is_counted=self._is_frugal)

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
        options = index_options()
        options.set_max_open_files(-1)  # every table now: else RocksDB meets a damaged one when it needs it
        self._staging = str(staging)
        with self._telling:
            self._rows = Rdict(str(staging), options, column_families(options))
            self._memtable = Memtable(self._rows)

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
        if self._memtable.bytes >= _MEMTABLE_BYTES:
            self.flush()
        if changes.deletes_ranges:
            self._settle()
            batch = self._memtable.batch()
            changes.apply(batch)
            self._memtable.write(batch)
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
        self._memtable.exchange(wait=wait)
        self._flushing = self._last_number
        self.is_flushing = True
        if self._is_frugal and self._has_room(_SPARE_BYTES):
            self._is_frugal, self._memtable.unwritten = False, None
            self.compact(is_on=self._may_empty)

    @property
    def unwritten_bytes(self) -> int:
        """Return how many bytes a flush would write, at most."""
        memtable = self._memtable
        return memtable.rows_bytes if memtable.unwritten is None else memtable.unwritten.file_bytes

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
        return walk(self._rows, self._telling, lo, hi, reverse=reverse)

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
        """Return our error for one of RocksDB's; `on_damage` is called for damage."""
        if self._staging:
            told = told.replace(self._staging, str(self._path))
        if str(self._path) not in told:
            told += f" in {self._path}"
        is_lost = any(file in told for file in _FILES) and any(sign in told for sign in _UNREADABLE)
        is_lost = is_lost and _NEW_FILE not in told
        if not told.startswith("Corruption") and not is_lost:
            return EngineError(f"the index does not answer: {told}")
        table = _TABLE.search(told)
        place = "the index" if table is None else f"table {table[1]} of the index, block at byte {table[2]}"
        self.on_damage(place, told)
        return IndexDamaged(f"the index is damaged: {told}")

    def _settle(self) -> None:
        """Have RocksDB know every round."""
        self._recent.hand_over(self._memtable.batch, self._memtable.write)

    def _get(self, keys: list[bytes]) -> list[bytes | None]:
        assert self._rows is not None
        with self._telling:
            return cast("list[bytes | None]", self._rows.get(cast("list[str | int | float | bytes | bool]", keys)))

def _nobody_listens(place: str, cause: str) -> None: ...
