"""The state of jobs as their directories tell it, read from outside while the jobs may run."""

import fcntl
import json
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pqbroker.pipeline.lakes.lake import LANDED, VERSIONS


@dataclass(frozen=True, slots=True)
class JobState:
    """One job, as its directory has it."""

    directory: Path
    what: str
    """Summary of what it does with which topics."""
    batch: int | None
    """The last batch that is done; None before the first."""
    age_s: float
    """Seconds since then, or since the job began."""
    is_running: bool

    def line(self) -> str:
        """Return a line for people."""
        done = "no batch yet" if self.batch is None else f"batch {self.batch} done {_ago(self.age_s)}"
        return f"{self.directory}: {self.what}, {'running' if self.is_running else 'stopped'}, {done}"


def find_jobs(directory: Path) -> Iterator[JobState]:
    """The job in a directory, or the jobs in the directories of it. Files that tell of none are passed over."""
    with suppress(OSError):
        for place in (directory, *sorted(path for path in directory.iterdir() if path.is_dir())):
            if (found := _lake(place) or _relay(place)) is not None:
                yield found


def _lake(directory: Path) -> JobState | None:
    facts = _facts(directory / "topic.json")
    if facts is None or "topic" not in facts:
        return None
    kind = VERSIONS if facts.get("job") == VERSIONS.job else LANDED
    last = max(kind.numbers(directory), default=None)
    age_s = _age_s(directory / "topic.json" if last is None else kind.place(directory, last))
    return JobState(directory, f"{kind.job} {facts['topic']}", last, age_s, _is_locked(directory / "lock"))


def _relay(directory: Path) -> JobState | None:
    facts = _facts(directory / "job.json")
    if facts is None or not {"job of", "topic", "target"} <= facts.keys():
        return None
    batch = _facts(directory / "batch.json")
    last = None
    if batch is not None and isinstance(number := batch.get("number"), int):
        last = number if batch.get("is_done") else number - 1
    what = f"{facts['job of']} {facts['topic']} to {facts['target']}"
    age_s = _age_s(directory / ("job.json" if batch is None else "batch.json"))
    return JobState(directory, what, None if last == -1 else last, age_s, _is_locked(directory / "lock"))


def _facts(file: Path) -> dict[str, Any] | None:
    with suppress(OSError, ValueError):
        facts = json.loads(file.read_text(encoding="utf-8"))
        return facts if isinstance(facts, dict) else None
    return None


def _age_s(path: Path) -> float:
    try:
        return max(0.0, time.time() - path.stat().st_mtime)
    except OSError:
        return 0.0


def _is_locked(file: Path) -> bool:
    """Return True if a job has the lock, which is the JVM's; asked for as shared, so that two who look do not
    see each other."""
    with suppress(FileNotFoundError), file.open("rb") as lock:
        try:
            fcntl.lockf(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
    return False


def _ago(seconds: float) -> str:
    for name, length in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {name} ago"
    return f"{seconds:.0f} s ago"
