"""Copies a RocksDB index that is in use, without a call that holds the interpreter lock.

RocksDB has a checkpoint of its own, but rocksdict 0.3.29 holds the interpreter lock for all of it, a flush and several
syncs. Its files with rows never change, and the manifest, which names them, only grows: so they are linked between two
looks at both, and linked again when anything changed meanwhile. Rows that are in memory alone are in the commit log.
"""

import time
from collections.abc import Callable
from pathlib import Path

from pqbroker.storage.disk.backups.copying import STOPPED, Copier
from pqbroker.storage.disk.directory import write_durably
from pqbroker.storage.engine import BackupRefused

RowFiles = frozenset[str]
_PATIENCE_S = 120.0
_PAUSE_S = 0.01
_SMALL_FILES = ("IDENTITY", "OPTIONS-*[0-9]", "rocksdict-config.json", "*.log")
"""Beside the manifest. RocksDB's own log is not written any more; a directory of an earlier version may have one."""


def copy_index(index: Path, target: Path, row_files: Callable[[], RowFiles | None], copier: Copier) -> None:
    """Copy to the empty directory `target`. `row_files`: the files with rows, None while some are being replaced.

    Blocks for as long as RocksDB compacts. Raises OSError, BackupRefused.
    """
    deadline = time.monotonic() + _PATIENCE_S
    while not _try(index, target, row_files, copier):
        copier.check()
        if not index.is_dir():
            raise BackupRefused(STOPPED)  # a later owner has it
        if time.monotonic() > deadline:
            raise BackupRefused(f"the index was being rewritten for {_PATIENCE_S:g} s: try again later")
        time.sleep(_PAUSE_S)


def _try(index: Path, target: Path, row_files: Callable[[], RowFiles | None], copier: Copier) -> bool:
    before = row_files()
    if before is None:
        return False
    linked = {file.name for file in target.glob("*.sst")}
    try:
        current = (index / "CURRENT").read_bytes()
        manifest = index / current.decode().strip()
        content = manifest.read_bytes()
        for name in before - linked:
            copier.link(index / name, target / name)
    except FileNotFoundError:
        return False
    # A change that the manifest had already and RocksDB not yet shows in its list, once nothing runs any more.
    is_settled = row_files() == before and manifest.stat().st_size == len(content)
    if not is_settled or (index / "CURRENT").read_bytes() != current:
        return False
    for name in linked - before:
        # RocksDB may give this number to a new file, and would write it into the one that the running broker has.
        (target / name).unlink()
    for pattern in _SMALL_FILES:
        for file in index.glob(pattern):
            copier.copy(file, target / file.name, file.stat().st_size)
    write_durably(target / manifest.name, content)
    write_durably(target / "CURRENT", current)
    return True
