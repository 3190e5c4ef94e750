"""The memory of a relay in its directory: what it relays, and where its target ended when the batch in work began.

DIRECTORY/job.json         what the job was begun for, and the id its records carry
DIRECTORY/batch.json       the last batch, whether it is done, and the target's ends before it
DIRECTORY/files.json       the files of a replay
DIRECTORY/checkpoint/      Spark's own memory of the job
DIRECTORY/writing          locked by every process that writes records for the job
"""

import errno
import fcntl
import json
import os
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pqbroker.pipeline.errors import JobError


@dataclass(frozen=True, slots=True)
class Begun:
    """A batch that was begun."""

    number: int
    ends: Mapping[str, int]
    """Partition of the target -> its end before the batch."""
    is_done: bool = False


class Journal:
    """The memory of one job in one directory."""

    def __init__(self, directory: Path) -> None:
        """Makes what is missing. JobError when it cannot."""
        self.directory = directory.resolve()
        self.checkpoint = self.directory / "checkpoint"
        self.lock = self.directory / "writing"
        with self._writing():
            self.directory.mkdir(parents=True, exist_ok=True)
            self.lock.touch()

    def claim(self, facts: Mapping[str, str]) -> str:
        """Take the directory for a job, for good; the job's id. JobError when another job has it."""
        file = self.directory / "job.json"
        if not file.exists():
            self._replace(file, {"job": uuid.uuid4().hex, **facts})
        known = self._read(file)
        other = {name: known.get(name) for name, fact in facts.items() if known.get(name) != fact}
        if other:
            had = ", ".join(f"{name} {fact}" for name, fact in other.items())
            raise JobError(f"{self.directory} belongs to another job, of {had}; name another with --state DIR")
        return str(known["job"])

    def files(self, find: Callable[[], Mapping[str, int]]) -> Mapping[str, int]:
        """The files of the job with their sizes: found at its first start, and the same ones from then on."""
        file = self.directory / "files.json"
        if not file.exists():
            self._replace(file, dict(find()))
        known: Mapping[str, int] = self._read(file)
        return known

    def last(self) -> Begun | None:
        """The last batch that was begun."""
        file = self.directory / "batch.json"
        return Begun(**self._read(file)) if file.exists() else None

    def note(self, batch: Begun) -> None:
        """Remember a batch; on disk when this returns."""
        self._replace(self.directory / "batch.json", asdict(batch))

    def _read(self, file: Path) -> Any:
        try:
            return json.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise JobError(f"{file} is unreadable: {error}; restore it, or name another directory") from error

    def _replace(self, file: Path, content: object) -> None:
        with self._writing():
            fresh = file.with_suffix(".new")
            with fresh.open("w", encoding="utf-8") as written:
                json.dump(content, written)
                written.flush()
                os.fsync(written.fileno())
            fresh.replace(file)
            descriptor = os.open(self.directory, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
            cure = "make room and start the job again" if is_full else "name another with --state DIR"
            raise JobError(f"cannot write to {self.directory}: {error.strerror or error}; {cure}") from error


@contextmanager
def held(lock: Path, *, alone: bool) -> Iterator[None]:
    """Hold the lock: shared while records are written, alone to know that nobody writes any more. Waits for it."""
    with lock.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        yield
