"""A directory of Parquet in which every batch is there whole or not at all, and once, however often it is written.

DIRECTORY/data/batch=N/    the rows of batch N and, in `_landed.json`, where they came from
DIRECTORY/checkpoint/      Spark's own memory of the job
DIRECTORY/temporary/       batches that are being written; nobody reads them
DIRECTORY/topic.json       the topic that lands here, and its id: a topic made again under the name is another one

A batch is written under a temporary name, synced and renamed. Spark fixes the offsets of batch N before it runs it, and
runs it again after a crash: what is there under its number is then the same rows, and stays. Other rows under a number
that is taken, from other offsets or through another checkpoint, are refused: to skip them would lose some.
"""

import errno
import json
import os
import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

_LANDED = "_landed.json"

Offsets = Mapping[str, Mapping[str, int]]
"""Topic -> partition -> offset, in the form of Spark's JSON."""


class LakeError(RuntimeError):
    """The directory cannot take the batch; the text names the cause and the way out."""


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch as Spark fixed it: its number, the query (that is, the checkpoint) it belongs to, where it ends."""

    number: int
    query: str
    until: Offsets


class Lake:
    """The batches of one topic in one directory."""

    def __init__(self, directory: Path) -> None:
        """Makes what is missing. LakeError when it cannot."""
        self.directory = directory.resolve()
        self.data = self.directory / "data"
        self.checkpoint = self.directory / "checkpoint"
        self._temporary = self.directory / "temporary"
        with self._writing():
            self.data.mkdir(parents=True, exist_ok=True)
            self._temporary.mkdir(exist_ok=True)
            tempfile.TemporaryFile(dir=self._temporary).close()

    def clear(self) -> None:
        """Remove what an earlier job left half written. Only for the job that owns the directory."""
        with self._writing():
            for left in self._temporary.iterdir():
                if left.is_dir():
                    shutil.rmtree(left)
                else:
                    left.unlink()

    def claim(self, topic: str, topic_id: str) -> None:
        """Take the directory for a topic, for good. LakeError when another one, or an earlier one, has it.

        Only for the job that owns the directory.
        """
        mine = {"topic": topic, "id": topic_id}
        file = self.directory / "topic.json"
        if not file.exists():
            with self._writing():
                made = self._temporary / file.name
                made.write_text(json.dumps(mine), encoding="utf-8")
                _sync(made)
                made.rename(file)
                _sync(self.directory)
            return
        theirs = json.loads(file.read_text(encoding="utf-8"))
        if theirs != mine:
            why = f"topic {theirs['topic']}"
            if theirs["topic"] == topic:
                why = f"an earlier topic {topic}, which was deleted and made again since"
            raise LakeError(f"{self.directory} holds {why}; name another directory with --to DIR")

    def last(self) -> Batch | None:
        """The last batch that is there."""
        numbers = [int(path.name.removeprefix("batch=")) for path in self.data.glob("batch=*")]
        return self._landed(self.data / f"batch={max(numbers)}") if numbers else None

    def batch(self, number: int) -> Batch:
        """The batch of this number as the checkpoint has it. LakeError when it does not have it."""
        try:
            query = json.loads((self.checkpoint / "metadata").read_text(encoding="utf-8"))["id"]
            *_, until = (self.checkpoint / "offsets" / str(number)).read_text(encoding="utf-8").splitlines()
            return Batch(number, query, json.loads(until))
        except (OSError, ValueError, KeyError) as error:
            raise LakeError(f"the checkpoint in {self.checkpoint} does not tell of batch {number}: {error}") from error

    def has(self, batch: Batch) -> bool:
        """Whether this very batch is there. LakeError when another one is there under its number."""
        place = self._place(batch)
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
        written = self._temporary / f"{batch.number}-{uuid.uuid4().hex}"
        write(written)
        with self._writing():
            (written / _LANDED).write_text(json.dumps(asdict(batch)), encoding="utf-8")
            for path in (*written.iterdir(), written):
                _sync(path)
            written.rename(self._place(batch))
            _sync(self.data)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """What the system refuses becomes a LakeError."""
        try:
            yield
        except OSError as error:
            is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
            cure = "make room and start the job again, it goes on" if is_full else "name another with --to DIR"
            raise LakeError(f"cannot write to {self.directory}: {error.strerror or error}; {cure}") from error

    def _landed(self, place: Path) -> Batch:
        return Batch(**json.loads((place / _LANDED).read_text(encoding="utf-8")))

    def _place(self, batch: Batch) -> Path:
        return self.data / f"batch={batch.number}"


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
