"""Links files into a backup, or copies them: those that still grow, and all where the backup is on another disk."""

import errno
import os
import shutil
import threading
from pathlib import Path

from pqbroker.storage.disk.directory import sync_data
from pqbroker.storage.disk.free_space import INDEX_RESERVE_BYTES
from pqbroker.storage.engine import BackupRefused

_CHUNK_BYTES = 1 << 20
_CANNOT_LINK = frozenset((errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP))

STOPPED = "the broker stopped, or its store failed, before the backup was whole: make it again"


class Copier:
    """The copier of one backup. `stopping`: set when it is to end early. Its calls block; they raise OSError,
    BackupRefused."""

    def __init__(self, stopping: threading.Event) -> None:
        self.files = 0
        self.linked_bytes = 0
        self.copied_bytes = 0
        self.stopping = stopping

    def link(self, origin: Path, target: Path) -> None:
        """Link a file that is not written to any more, or copy it where links are impossible."""
        self.check()
        try:
            os.link(origin, target)
        except OSError as failure:
            if failure.errno not in _CANNOT_LINK:
                raise
            self.copy(origin, target, origin.stat().st_size)
            return
        self.files += 1
        self.linked_bytes += target.stat().st_size

    def copy(self, origin: Path, target: Path, size: int) -> None:
        """The first `size` bytes of a file, durably. BackupRefused where it has fewer, or for want of room."""
        free = shutil.disk_usage(target.parent).free
        if free < size + INDEX_RESERVE_BYTES:
            raise BackupRefused(
                f"{target.parent} has {free} bytes free; {origin.name} needs {size} more than {INDEX_RESERVE_BYTES}:"
                " delete old backups, or choose another disk for pqbroker.backup.dir"
            )
        with origin.open("rb", buffering=0) as reader, target.open("xb", buffering=0) as writer:
            left = size
            while left:
                self.check()
                chunk = reader.read(min(left, _CHUNK_BYTES))
                if not chunk:
                    raise BackupRefused(f"{origin} ends {left} bytes early; see what `pqbroker doctor` says of a copy")
                left -= len(chunk)
                _write_all(writer.fileno(), chunk)
            sync_data(writer.fileno())
        self.files += 1
        self.copied_bytes += size

    def check(self) -> None:
        """BackupRefused once the backup is to end."""
        if self.stopping.is_set():
            raise BackupRefused(STOPPED)


def _write_all(file: int, chunk: bytes) -> None:
    view = memoryview(chunk)
    while view:
        view = view[os.write(file, view) :]
