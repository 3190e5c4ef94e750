"""The end of the commit log, kept a second time: a log that was cut off behind a whole record is not taken for whole.

    <generation>.end    16 hexadecimal digits, beside the log's files; two slots, each in a sector of its own
    slot: magic "PQE1" · generation u64 · number u64 · crc u32; the crc begins from the cell's seed

An owner writes the number of its last synced round into the slots by turns, in place and without a sync: when it has
nothing to commit, and at a clean end; a backup has a file of its own, with its last round. So a slot that is older,
torn or missing means nothing. A log that ends before the number of a whole slot has lost rounds. An owner that was
stopped, and woke after a takeover, may write a higher number than the later one took; `commit_history` knows how far
each generation counts.
"""

import contextlib
import os
import re
import struct
from collections.abc import Container, Iterator
from pathlib import Path
from typing import NamedTuple

from crc32c import crc32c

from pqbroker.storage.disk.directory import write_durably

_SLOT_BYTES = 512
_FIELDS = struct.Struct(">4sQQ")
_CRC = struct.Struct(">I")
_MAGIC = b"PQE1"
_NAME = re.compile(r"([0-9a-f]{16})\.end")


class KnownEnd(NamedTuple):
    """A round that a generation's owner knew to be synced."""

    path: Path
    generation: int
    number: int


class LogEnd:
    """The file of one opening. The cell does without it where it cannot be written: it is a help, not a need."""

    def __init__(self, directory: Path, generation: int, seed: int, number: int) -> None:
        """`number`: the last round of earlier generations, which is synced."""
        self.number = number
        """The last one that was written here."""
        self._generation = generation
        self._seed = seed
        self._slot = 0
        self._file = -1
        with contextlib.suppress(OSError):
            self._file = os.open(_path(directory, generation), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
            self._write(2 * self._encoded(), 0)

    def tell(self, number: int) -> None:
        """Write the number of a round that is synced, as are all before it."""
        if number <= self.number:
            return
        self.number = number
        self._slot = 1 - self._slot
        self._write(self._encoded(), self._slot * _SLOT_BYTES)

    def close(self) -> None:
        """Write nothing more."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _encoded(self) -> bytes:
        return _slot(self._generation, self._seed, self.number)

    def _write(self, data: bytes, position: int) -> None:
        if self._file < 0:
            return
        try:
            os.pwrite(self._file, data, position)
        except OSError:  # a number that is missing means nothing; the log itself tells of a disk that fails
            self.close()


def write_end(directory: Path, generation: int, seed: int, number: int) -> None:
    """Write durably where a copy of the log ends, all of which is durable. OSError."""
    write_durably(_path(directory, generation), 2 * _slot(generation, seed, number))


def known_ends(directory: Path, seed: int) -> list[KnownEnd]:
    """Return what the readable slots of every generation's file say."""
    return [
        KnownEnd(path, generation, number)
        for path, generation in _files(directory)
        for number in _numbers(path, generation, seed)
    ]


def forget_ends(directory: Path, kept: Container[int]) -> None:
    """Remove the files of generations that are not `kept`."""
    for path, generation in list(_files(directory)):
        if generation not in kept:
            path.unlink(missing_ok=True)


def _slot(generation: int, seed: int, number: int) -> bytes:
    fields = _FIELDS.pack(_MAGIC, generation, number)
    return (fields + _CRC.pack(crc32c(fields, seed))).ljust(_SLOT_BYTES, b"\0")


def _numbers(path: Path, generation: int, seed: int) -> Iterator[int]:
    try:
        with path.open("rb", buffering=0) as file:
            content = file.read(2 * _SLOT_BYTES)
    except OSError:
        return
    for start in (0, _SLOT_BYTES):
        slot = content[start : start + _FIELDS.size + _CRC.size]
        if len(slot) < _FIELDS.size + _CRC.size:
            return
        magic, of, number = _FIELDS.unpack_from(slot)
        is_whole = crc32c(slot[: _FIELDS.size], seed) == _CRC.unpack_from(slot, _FIELDS.size)[0]
        if is_whole and magic == _MAGIC and of == generation:
            yield number


def _files(directory: Path) -> Iterator[tuple[Path, int]]:
    for name in sorted(os.listdir(directory)) if directory.is_dir() else ():
        if (found := _NAME.fullmatch(name)) is not None:
            yield directory / name, int(found[1], 16)


def _path(directory: Path, generation: int) -> Path:
    return directory / f"{generation:016x}.end"
