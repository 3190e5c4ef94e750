"""A directory of Parquet that has every batch whole or not at all, and once, however often it is written.

DIRECTORY/data/batch=N/    the rows of batch N and, in `_landed.json`, where they came from
DIRECTORY/versions/N/      in the directory of a snapshot instead: the table as batch N left it
DIRECTORY/latest           its newest version, a symbolic link
DIRECTORY/checkpoint/      Spark's own memory of the job
DIRECTORY/temporary/       batches that are being written; nobody reads them
DIRECTORY/topic.json       the job and its topic, with its id: a re-created topic of the name is another one

A batch is written under a temporary name, synced and renamed. Spark fixes the offsets of batch N before it runs it, and
runs it again after a crash: the rows under its number are then the same, and stay. Other rows under a number that is
taken, from other offsets or through another checkpoint, are refused: to skip them would lose some.
"""

import errno
import json
import os
import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pqbroker.pipeline.errors import JobError
from pqbroker.pipeline.lakes.file_sizes import Offsets, rows_between

_SOURCE = "_landed.json"
_LAND = "land"


@dataclass(frozen=True, slots=True)
class Kind:
    """The layout of what a job keeps in its directory."""

    job: str
    batches: str
    """Directory of its batches."""
    prefix: str = ""
    """Prefix of the names of batches, before their number."""

    def numbers(self, directory: Path) -> list[int]:
        """The numbers of the batches in a directory of this kind, sorted; other files there are passed over."""
        names = (path.name for path in (directory / self.batches).glob(f"{self.prefix}*"))
        return sorted(int(number) for name in names if (number := name.removeprefix(self.prefix)).isdecimal())

    def place(self, directory: Path, number: int) -> Path:
        """Return the place where the batch of this number is or would be."""
        return directory / self.batches / f"{self.prefix}{number}"


LANDED = Kind(_LAND, "data", "batch=")
VERSIONS = Kind("snapshot", "versions")


class LakeError(JobError):
    """The directory cannot take the batch; the text names the cause and the way out."""


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch as Spark fixed it: its number, the query (that is, the checkpoint) it belongs to, where it ends."""

    number: int
    query: str
    until: Offsets


class Lake:
    """The batches of one topic in one directory."""

    def __init__(self, directory: Path, kind: Kind) -> None:
        """Makes what is missing. LakeError when it cannot."""
        self.directory = directory.resolve()
        self.data = self.directory / kind.batches
        """Directory of the batches."""
        self._kind = kind
        self.checkpoint = self.directory / "checkpoint"
        self._temporary = self.directory / "temporary"
        with self.writing():
            self.data.mkdir(parents=True, exist_ok=True)
            self._temporary.mkdir(exist_ok=True)
            tempfile.TemporaryFile(dir=self._temporary).close()

    def clear(self) -> None:
        """Remove what an earlier job left half written. Only for the job that owns the directory."""
        with self.writing():
            for left in self._temporary.iterdir():
                if left.is_dir():
                    shutil.rmtree(left)
                else:
                    left.unlink()

    def claim(self, topic: str, topic_id: str, *, is_flat: bool = False) -> None:
        """Take the directory for a job on a topic, for good. LakeError when another one has it, or an earlier topic, or
        one whose rows have other columns (`is_flat`).

        Only for the job that owns the directory.
        """
        mine = {"topic": topic, "id": topic_id, "job": self._kind.job, **({"flat": True} if is_flat else {})}
        file = self.directory / "topic.json"
        if not file.exists():
            with self.writing():
                made = self._temporary / file.name
                made.write_text(json.dumps(mine), encoding="utf-8")
                sync(made)
                made.rename(file)
                sync(self.directory)
            return
        theirs = {"job": _LAND} | self._read(file)
        if theirs != mine:
            if {**theirs, "flat": is_flat} == {**mine, "flat": is_flat}:
                other = "without" if is_flat else "with"
                cure = "go on so, or name another with --to DIR"
                raise LakeError(f"{self.directory} holds rows {other} --flatten; {cure}")
            why = f"topic {theirs['topic']} of the job {theirs['job']}"
            if (theirs["topic"], theirs["job"]) == (topic, self._kind.job):
                why = f"an earlier topic {topic}, which was deleted and made again since"
            raise LakeError(f"{self.directory} holds {why}; name another directory with --to DIR")

    def last(self) -> Batch | None:
        """Return the last batch that exists."""
        numbers = self.numbers()
        return self._landed(self.place(numbers[-1])) if numbers else None

    def numbers(self) -> list[int]:
        """Return the numbers of the batches that exist, sorted."""
        return self._kind.numbers(self.directory)

    def place(self, number: int) -> Path:
        """Return the place where the batch of this number is or would be."""
        return self._kind.place(self.directory, number)

    def temporary(self, name: object) -> Path:
        """A path of its own for what is not there yet, or any more; whatever is left under it is removed later."""
        return self._temporary / f"{name}-{uuid.uuid4().hex}"

    def row_bytes(self) -> float | None:
        """Bytes of a row on disk, by the last batch; None without one that has rows."""
        last = self.last()
        if last is None:
            return None
        before = self.place(last.number - 1)
        rows = rows_between(self._landed(before).until if before.exists() else {}, last.until)
        size = sum(file.stat().st_size for file in self.place(last.number).rglob("*.parquet"))
        return size / rows if rows else None

    def rows(self, batch: Batch) -> int:
        """Rows of a batch at most: its offsets from the end of the one before."""
        before = self.batch(batch.number - 1).until if batch.number else {}
        return rows_between(before, batch.until)

    def batch(self, number: int) -> Batch:
        """The batch of this number as the checkpoint has it. LakeError when it does not have it."""
        try:
            query = json.loads((self.checkpoint / "metadata").read_text(encoding="utf-8"))["id"]
            *_, until = (self.checkpoint / "offsets" / str(number)).read_text(encoding="utf-8").splitlines()
            return Batch(number, query, json.loads(until))
        except (OSError, ValueError, KeyError) as error:
            raise LakeError(f"the checkpoint in {self.checkpoint} does not tell of batch {number}: {error}") from error

    def has(self, batch: Batch) -> bool:
        """Return True if this very batch exists. Raises LakeError when another one exists under its number."""
        place = self.place(batch.number)
        if not place.exists():
            return False
        if self._landed(place) == batch:
            return True
        raise LakeError(
            f"{place} came from other offsets or through another checkpoint than {self.checkpoint}; "
            "land into another directory, or restore the checkpoint that belongs to this one"
        )

    def land(self, batch: Batch, write: Callable[[Path], None]) -> None:
        """Let `write` fill a directory and make it the batch, which is not there."""
        written = self.temporary(batch.number)
        write(written)
        with self.writing():
            (written / _SOURCE).write_text(json.dumps(asdict(batch)), encoding="utf-8")
            for path in (*written.rglob("*"), written):
                sync(path)
            written.rename(self.place(batch.number))
            sync(self.data)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Raise a LakeError for what the system refuses."""
        try:
            yield
        except OSError as error:
            is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
            cure = "make room and start the job again" if is_full else "name another with --to DIR"
            raise LakeError(f"cannot write to {self.directory}: {error.strerror or error}; {cure}") from error

    def _landed(self, place: Path) -> Batch:
        return Batch(**self._read(place / _SOURCE))

    def _read(self, file: Path) -> dict[str, Any]:
        try:
            found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
            return found
        except (OSError, ValueError) as error:
            raise LakeError(f"{file} is unreadable: {error}; restore it, or name another with --to DIR") from error


def sync(path: Path) -> None:
    """Make a file or a directory's names durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
