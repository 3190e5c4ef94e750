"""The directory of a cell: its lock, its facts, the identity of its pools, and the fencing rename of the index.

    cell                    facts as JSON: format, cell id, pools, durability last used, whether creation was completed
    lock                    flock by the owner; holds its process id
    index-<generation>      RocksDB; to open the cell is to rename it to the next generation
    blobs/                  the pool "main", unless pools are given
    ballast                 room to delete with on a full disk

Every step of `take` may be the last before a crash; the next `take` carries on from whatever is there.
"""

import fcntl
import json
import os
import shutil
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from pqbroker.conf.storage import MAIN_POOL
from pqbroker.storage.engine import EngineError

FORMAT = 1
_INDEX = "index-"
_IDENTITY = "pool"
_FULL_SYNC: int | None = getattr(fcntl, "F_FULLFSYNC", None)


@dataclass(frozen=True, slots=True)
class CellFacts:
    """What the file `cell` says. `ready`: the index was created whole, so a cell without one is damaged, not new."""

    format: int
    cell: str
    pools: tuple[str, ...]
    durability: str
    ready: bool


class CellDirectory:
    """A cell's directory, held by this process from `take` to `release`."""

    def __init__(self, path: Path, pools: Mapping[str, Path] | None) -> None:
        self.path = path
        self.pools: dict[str, Path] = dict(pools) if pools else {MAIN_POOL: path / "blobs"}
        self.generation = 0
        self.facts = CellFacts(FORMAT, uuid.uuid4().hex, (), "fsync", ready=False)
        self._lock = -1
        self._index_name = ""
        """The index's path as text once it is ours: `is_ours` is asked every round."""

    @property
    def index(self) -> Path:
        return self.path / f"{_INDEX}{self.generation}"

    @property
    def ballast(self) -> Path:
        return self.path / "ballast"

    def take(self) -> None:
        """Lock the directory, check what it is, make its index ours under the next generation. Raises EngineError."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._take_lock()
            self._read_facts()
            self._check_pools()
            self._take_index()
            self._index_name = str(self.index)
        except OSError as failure:
            self.release()
            raise EngineError(f"{self.path} cannot be used: {failure}; see that it may be written") from failure
        except EngineError:
            self.release()
            raise

    def is_ours(self) -> bool:
        """Whether no later owner has renamed the index away."""
        return os.path.exists(self._index_name)

    def write_facts(self, *, durability: str) -> None:
        """Record, durably, that the cell is whole, and how its commits are acknowledged from now on."""
        facts = replace(self.facts, durability=durability, ready=True)
        if facts != self.facts:
            self._write_facts(facts)

    def release(self) -> None:
        """Give the lock back. What is in the directory stays as it is."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def _take_lock(self) -> None:
        self._lock = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.pread(self._lock, 32, 0).decode("ascii", "replace").strip() or "unknown"
            told = f"{self.path} is in use by process {owner}; stop it or choose another directory"
            raise EngineError(told) from None
        os.ftruncate(self._lock, 0)
        os.pwrite(self._lock, b"%d\n" % os.getpid(), 0)

    def _read_facts(self) -> None:
        file = self.path / "cell"
        if not file.exists():
            if self._indexes():
                raise EngineError(f"{file} is missing beside an index; restore it from a copy of the directory")
            self._write_facts(self.facts)
            return
        try:
            told = json.loads(file.read_bytes())
            written = int(told["format"])
            if written <= FORMAT:
                told["pools"] = tuple(told["pools"])
                self.facts = CellFacts(**told)
        except (ValueError, KeyError, TypeError) as failure:
            raise EngineError(f"{file} cannot be read ({failure}); restore it from a copy") from failure
        if written > FORMAT:
            raise EngineError(
                f"{self.path} was written by a newer version (format {written}, this one reads up to {FORMAT});"
                " run that version"
            )

    def _write_facts(self, facts: CellFacts) -> None:
        write_durably(self.path / "cell", json.dumps(asdict(facts), indent=1).encode() + b"\n")
        self.facts = facts

    def _check_pools(self) -> None:
        """An identity file marks every pool, so that an unmounted one is not mistaken for an empty one."""
        forgotten = set(self.facts.pools) - set(self.pools)
        if forgotten:
            names = ", ".join(sorted(forgotten))
            raise EngineError(f"{self.path} has blobs in pool {names}, which is not configured; configure it")
        for name, path in self.pools.items():
            identity = f"pqbroker pool {name} of cell {self.facts.cell}\n"
            file = path / _IDENTITY
            if file.exists():
                found = file.read_text("utf-8", "replace")
                if found != identity:
                    raise EngineError(f"{path} is not pool {name} of this cell but {found.strip()!r}; choose another")
            elif name in self.facts.pools:
                raise EngineError(f"pool {name} is not at {path}: {file.name} is missing; mount it, or restore it")
            else:
                path.mkdir(parents=True, exist_ok=True)
                write_durably(file, identity.encode())
                fsync_directory(path.parent)
        if set(self.pools) != set(self.facts.pools):
            self._write_facts(replace(self.facts, pools=tuple(self.pools)))

    def _take_index(self) -> None:
        found = self._indexes()
        if not self.facts.ready:
            # The cell has never been open, so nothing in a half-made index was ever acknowledged.
            for generation in found:
                shutil.rmtree(self.path / f"{_INDEX}{generation}")
            self.generation = max(found, default=0) + 1
            self.index.mkdir()
            fsync_directory(self.path)
            return
        if len(found) != 1:
            names = ", ".join(f"{_INDEX}{generation}" for generation in found) or "none"
            raise EngineError(f"{self.path} should have one index and has {names}; restore the directory from a copy")
        self.generation = found[0] + 1
        os.rename(self.path / f"{_INDEX}{found[0]}", self.index)
        # Else a power loss could hand out the same generation twice.
        fsync_directory(self.path)
        # An old owner may hold RocksDB's own lock for ever; ours is the rename.
        (self.index / "LOCK").unlink(missing_ok=True)

    def _indexes(self) -> list[int]:
        names = (name.removeprefix(_INDEX) for name in os.listdir(self.path) if name.startswith(_INDEX))
        return sorted(int(name) for name in names if name.isdecimal())


def write_durably(file: Path, content: bytes) -> None:
    """Replace a small file in one step: after a crash it has the old content or the new."""
    draft = file.with_name(file.name + ".new")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    try:
        os.write(descriptor, content)
        sync_data(descriptor)
    finally:
        os.close(descriptor)
    os.rename(draft, file)
    fsync_directory(file.parent)


def sync_data(descriptor: int) -> None:
    """Make a file's bytes durable. macOS leaves them in the drive's cache unless it is told otherwise."""
    if _FULL_SYNC is None:
        os.fdatasync(descriptor)
    else:
        fcntl.fcntl(descriptor, _FULL_SYNC)


def fsync_directory(path: Path) -> None:
    """Make the names in a directory durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
