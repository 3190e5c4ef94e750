"""The files of the commit log as the commit thread writes them: one record a round, into room taken beforehand.

    <generation>-<sequence>.commits    16 and 8 hexadecimal digits; records end to end, the first of them BEGIN
    <generation>.end                   up to which round all is synced; see `log_end`

A file of an earlier generation is never written to. One goes when the index has on disk all that was committed while it
was the newest, so that every generation of which records may be needed has a file that says where it began.
"""

import contextlib
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pqbroker.storage.disk.commits.commit_record import BEGIN, COMMIT_HEADER_BYTES, NOT_SYNCED, TAKEN, encode_commit
from pqbroker.storage.disk.commits.log_end import LogEnd, forget_ends
from pqbroker.storage.disk.commits.zero_sectors import encode_runs, find_zero_sectors, may_have_zero_sectors
from pqbroker.storage.disk.directory import fsync_directory, sync_data

COMMITS = "commits"
"""The directory in the index's: one rename moves both."""
FILE_BYTES = 16 << 20
"""Bytes of records in a file, after which the next one begins."""
_ALLOCATE_BYTES = 4 << 20
"""Room is taken from the file system in steps: a sync of a file that does not grow writes no journal."""
HEADER_STAND_IN = b"\1" * COMMIT_HEADER_BYTES
"""Stands for a record's header where its zero sectors are looked for before there is one: no header is zeros."""
_NAME = re.compile(r"([0-9a-f]{16})-([0-9a-f]{8})\.commits")


@dataclass(frozen=True, slots=True)
class LogOwner:
    """Owner of a log's records. `taken`: the last number taken from earlier generations, which count no further."""

    generation: int
    seed: int
    taken: int
    is_synced: bool


@dataclass(slots=True)
class _LogFile:
    path: Path
    descriptor: int
    end: int = 0
    allocated: int = 0


class CommitLog:
    """The commit log of one opening of a cell. `has_room` returns True if room may be taken that is not needed yet."""

    def __init__(self, directory: Path, owner: LogOwner, earlier: list[Path], has_room: Callable[[], bool]) -> None:
        """Begin the generation's first file, durably. `earlier`: the files of those before. OSError."""
        self._directory = directory
        self._owner = owner
        flags = 0 if owner.is_synced else NOT_SYNCED
        self.header = partial(encode_commit, owner.seed, generation=owner.generation, flags=flags)
        """The header of a record that `content` follows, and then `zeros`, here or behind its payload in a segment."""
        self._has_room = has_room
        self._closed = [(path, owner.taken) for path in earlier]
        """Files that were the newest, and the cell's last number when they ceased to be."""
        self._sequence = 0
        self.last_number = owner.taken
        self._is_synced = True
        self.end = LogEnd(directory, owner.generation, owner.seed, owner.taken)
        """Says a second time up to which round all is synced."""
        self._file = self._begin()
        self._synced_end = self._file.end

    def write(self, number: int, content: bytes) -> None:
        """Append a round's rows; durable after `sync`. OSError."""
        size = COMMIT_HEADER_BYTES + len(content)
        file = self._file
        if file.end + size > FILE_BYTES:
            file = self._next_file()
        zeros = b""
        if may_have_zero_sectors(content):
            zeros = encode_runs(find_zero_sectors((HEADER_STAND_IN, content), file.end))
            size += len(zeros)
        if file.end + size > file.allocated:
            self._allocate(file, size)
        head = self.header(content, number=number, zeros=zeros)
        written = os.pwritev(file.descriptor, (head, content, zeros), file.end)
        if written < size:
            _write_rest(file.descriptor, b"".join((head, content, zeros)), file.end, written)
        file.end += size
        self.last_number = number
        self._is_synced = False

    def note(self, number: int) -> None:
        """A round's rows were written behind its payload."""
        self.last_number = number

    def sync(self) -> None:
        """Make all that was written durable. A failure here is never retried."""
        if not self._is_synced:
            sync_data(self._file.descriptor)
            self._is_synced = True
            self._synced_end = self._file.end

    def parts(self) -> list[tuple[Path, int | None]]:
        """All files, and of the one that grows where its records end."""
        return [*((path, None) for path, _ in self._closed), (self._file.path, self._file.end)]

    @property
    def files(self) -> int:
        return len(self._closed) + 1

    def forget(self, flushed: int) -> None:
        """Remove the files of which the index has all on disk: everything up to number `flushed`."""
        kept = [item for item in self._closed if item[1] > flushed]
        if len(kept) == len(self._closed):
            return
        for path, last in self._closed:
            if last <= flushed:
                path.unlink(missing_ok=True)
        self._closed = kept
        forget_ends(self._directory, {self._owner.generation, *(file_generation(path) for path, _ in kept)})

    def close(self) -> None:
        """Close the newest file, giving back the room that was taken for more."""
        self._seal()
        self.end.close()

    def let_go(self, *, takes_back: bool) -> None:
        """Close the newest file as it is, or without what was not synced of it."""
        if takes_back and not self._is_synced:
            os.ftruncate(self._file.descriptor, self._synced_end)
        os.close(self._file.descriptor)
        self.end.close()

    def begin_again(self) -> None:
        """Have the newest file hold no round, if there is room for another: the index has them all on disk."""
        if self._has_room():
            self._next_file()

    def _next_file(self) -> _LogFile:
        self._seal()
        self._closed.append((self._file.path, self.last_number))
        self._file = self._begin()
        self._synced_end = self._file.end
        return self._file

    def _seal(self) -> None:
        self.sync()
        if self._file.allocated > self._file.end:
            os.ftruncate(self._file.descriptor, self._file.end)
        os.close(self._file.descriptor)

    def _begin(self) -> _LogFile:
        self._sequence += 1
        path = self._directory / commit_file_name(self._owner.generation, self._sequence)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        file = _LogFile(path, os.open(path, flags, 0o644))
        try:
            self._write_begin(file)
        except OSError:  # without room for it the cell is opened again and again
            os.close(file.descriptor)
            with contextlib.suppress(OSError):
                path.unlink()
            raise
        fsync_directory(self._directory)
        return file

    def _write_begin(self, file: _LogFile) -> None:
        content = TAKEN.pack(self._owner.taken)
        head = encode_commit(
            self._owner.seed, content, generation=self._owner.generation, number=self.last_number, flags=BEGIN
        )
        size = len(head) + len(content)
        self._allocate(file, size)
        _write_rest(file.descriptor, head + content, 0, 0)
        file.end = size
        sync_data(file.descriptor)

    def _allocate(self, file: _LogFile, size: int) -> None:
        """Take room for `size` bytes and more. Where there is not enough the file grows as it is written."""
        wanted = max(_ALLOCATE_BYTES, size)
        if not hasattr(os, "posix_fallocate") or not self._has_room():
            return
        try:
            os.posix_fallocate(file.descriptor, file.end, wanted)
            file.allocated = file.end + wanted
        except OSError:
            # What was taken of it is given back: it is the room that deletes and the next start need.
            os.ftruncate(file.descriptor, file.end)
            file.allocated = file.end


def make_log_directory(index: Path) -> Path:
    """The directory of the index's commit log, made durable if it is new. OSError."""
    path = index / COMMITS
    with contextlib.suppress(FileExistsError):
        path.mkdir()
    fsync_directory(index)
    return path


def log_files(index: Path) -> list[Path]:
    """The files of the index's commit log, in the order in which they were begun."""
    directory = index / COMMITS
    names = os.listdir(directory) if directory.is_dir() else []
    return [directory / name for name in sorted(names) if _NAME.fullmatch(name)]


def commit_file_name(generation: int, sequence: int) -> str:
    return f"{generation:016x}-{sequence:08x}.commits"


def file_generation(path: Path) -> int:
    """The generation of a log file or segment, by its name."""
    return int(path.name.partition("-")[0], 16)


def _write_rest(descriptor: int, data: bytes, position: int, written: int) -> None:
    """Write what is left of the bytes from `position` on, however short each call falls."""
    rest = memoryview(data)
    while written < len(data):
        written += os.pwrite(descriptor, rest[written:], position + written)
