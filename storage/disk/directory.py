"""The directory of a cell: its lock, its facts, the identity of its pools, and the fencing rename of the index.

    cell                    facts as JSON: format, cell id, pools, durability last used, whether creation was completed
    cell.copy               the same a second time, with a checksum
    lock                    flock by the owner; holds its process id
    index-<generation>      RocksDB, and in `commits` the commit log; to open the cell is to rename it to the next
                            generation
    blobs/                  the pool "main", unless pools are given
    ballast                 room to delete with on a full disk
    cells/<id>/             of the system cell: the directories of the node's other cells, made alike

Every step of `take` may be the last before a crash; the next `take` continues from whatever it left.
"""

import contextlib
import fcntl
import json
import logging
import os
import shutil
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from pqbroker.conf.storage import MAIN_POOL
from pqbroker.storage.disk.mending.facts_copy import FACTS_COPY, FACTS_FILE, choose_facts, encode_copy, has_facts
from pqbroker.storage.engine import CellInUse, DirectoryGone, EngineError, Fenced, ShardLost

_log = logging.getLogger(__name__)
FORMAT = 3
"""1: the index's own log had the last rows. 2: a commit log has. 3: its records name their zero sectors."""
FORMAT_MIN = 2
_CARRIES_OVER = "3fae7f5da9eb"
"""Commit of this repository, the last one that reads format 1: it carries a directory over when it opens it."""
DURABILITIES = ("fsync", "interval", "none")
CELLS = "cells"
_INDEX = "index-"
_IDENTITY = "pool"
_FULL_SYNC: int | None = getattr(fcntl, "F_FULLFSYNC", None)


@dataclass(frozen=True, slots=True)
class CellFacts:
    """Facts of the file `cell`. `ready`: the index was created whole, so a cell without one is damaged, not new."""

    format: int
    cell: str
    pools: tuple[str, ...]
    durability: str
    ready: bool


class CellDirectory:
    """A cell's directory, held by this process from `take` to `release`."""

    def __init__(
        self,
        path: Path,
        pools: Mapping[str, Path] | None,
        *,
        on_locked: "Callable[[CellDirectory], None]" = lambda directory: None,
    ) -> None:
        """`on_locked`: called once the directory is this process's alone, before anything of it is changed."""
        self.path = path
        self._on_locked = on_locked
        self.pools: dict[str, Path] = dict(pools) if pools else {MAIN_POOL: path / "blobs"}
        self.generation = 0
        self.facts = CellFacts(FORMAT, uuid.uuid4().hex, (), "fsync", ready=False)
        self._lock = -1
        self._index_name = ""
        """The index's path as text once it is ours: `is_ours` is asked every round."""

    @property
    def index(self) -> Path:
        return index_path(self.path, self.generation)

    @property
    def ballast(self) -> Path:
        return self.path / "ballast"

    def take(self, *, must_exist: bool = False) -> None:
        """Lock the directory, check what it is, make its index ours under the next generation. Raises EngineError.

        `must_exist`: it was open before in this process, so that a new one would hide that it is gone.
        """
        if must_exist and not has_facts(self.path):
            raise EngineError(self.told_gone())
        try:
            missing = [path for path in self.path.parents if not path.exists()]
            self.path.mkdir(parents=True, exist_ok=True)
            self._take_lock()
            self._on_locked(self)
            self._note_owner()
            self._read_facts()
            if not self.facts.ready:
                self._fix_names(missing)
            self._check_pools()
            self._take_index()
            self._index_name = str(self.index)
        except OSError as failure:
            self.release()
            raise EngineError(f"{self.path} cannot be used: {failure}; see that it may be written") from failure
        except EngineError:
            self.release()
            raise

    def hold(self) -> None:
        """Lock the directory and check what it is; change nothing in it. Raises EngineError.

        Its index keeps its generation: who opens it for writing later is a later owner, as after a `take`.
        """
        try:
            self._take_lock()
            self.facts, _ = read_both(self.path)
            assert self.facts.ready, "a cell that was never open is not held"
            self._check_named()
            self.pools = {name: self.pools[name] for name in self.facts.pools}
            for name, path in self.pools.items():
                check_identity(path, name, self.facts)
            self.generation = index_generation(self.path)
            self._index_name = str(self.index)
        except OSError as failure:
            self.release()
            raise EngineError(f"{self.path} cannot be read: {failure}") from failure
        except EngineError:
            self.release()
            raise

    def is_ours(self) -> bool:
        """Return True if no later owner has renamed the index away."""
        return os.path.exists(self._index_name)

    def told_gone(self) -> str:
        """Return the message about a directory that was removed while it was open."""
        return (
            f"the data directory {self.path} was removed, renamed or unmounted while the broker ran: put it back, or"
            " restore a copy; the broker opens it again by itself, or at its next start if it has ended"
        )

    def loss(self) -> ShardLost:
        """Return why the index is not ours any more: a later owner took it, or it is gone."""
        try:
            later = [generation for generation in list_indexes(self.path) if generation > self.generation]
        except OSError:
            later = []
        return Fenced("a later owner has opened the cell") if later else DirectoryGone(self.told_gone())

    def write_facts(self, *, durability: str) -> None:
        """Record, durably, that the cell is whole, and how its commits are acknowledged."""
        facts = replace(self.facts, durability=durability, ready=True)
        if facts != self.facts:
            self._write_facts(facts)

    def raise_format(self) -> None:
        """Record, durably, that the cell is of this version's form, and nothing else."""
        if self.facts.format < FORMAT:
            self._write_facts(replace(self.facts, format=FORMAT))

    def release(self) -> None:
        """Give the lock back. What is in the directory stays as it is."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def _fix_names(self, made: list[Path]) -> None:
        """Make the names of a new directory, and of those made above it, durable: what lies in it hangs by them."""
        for path in (self.path, *made):
            fsync_directory(path.absolute().parent)

    def _take_lock(self) -> None:
        self._lock = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.pread(self._lock, 32, 0).decode("ascii", "replace").strip() or "unknown"
            told = f"{self.path} is in use by process {owner}; stop it or choose another directory"
            raise CellInUse(told) from None

    def _note_owner(self) -> None:
        """Note the owner for those who find the directory locked. A full disk leaves the note as it was: it only
        helps."""
        note = b"%d\n" % os.getpid()
        with contextlib.suppress(OSError):
            os.pwrite(self._lock, note, 0)
            os.ftruncate(self._lock, len(note))

    def _read_facts(self) -> None:
        if not has_facts(self.path):
            check_new(self.path)
            self._write_facts(self.facts)
            return
        self.facts, damage = read_both(self.path)
        if damage is not None:
            _log.warning("%s: it is written again from the other one", damage)
        if damage is not None or not (self.path / FACTS_COPY).exists():  # an earlier version kept none
            self._write_facts(self.facts)

    def _write_facts(self, facts: CellFacts) -> None:
        text = json.dumps(asdict(facts), indent=1).encode() + b"\n"
        write_durably(self.path / FACTS_COPY, encode_copy(text))
        write_durably(self.path / FACTS_FILE, text)
        self.facts = facts

    def _check_pools(self) -> None:
        """An identity file marks every pool, so that an unmounted one is not mistaken for an empty one."""
        self._check_named()
        for name, path in self.pools.items():
            if check_identity(path, name, self.facts):
                continue
            path.mkdir(parents=True, exist_ok=True)
            write_durably(path / _IDENTITY, _identity(name, self.facts).encode())
            fsync_directory(path.absolute().parent)
        if set(self.pools) != set(self.facts.pools):
            self._write_facts(replace(self.facts, pools=tuple(self.pools)))

    def _check_named(self) -> None:
        forgotten = set(self.facts.pools) - set(self.pools)
        if forgotten:
            names = ", ".join(sorted(forgotten))
            raise EngineError(f"{self.path} has blobs in pool {names}, which is not configured; configure it")

    def _take_index(self) -> None:
        if not self.facts.ready:
            found = list_indexes(self.path)
            # The cell has never been open, so nothing in a half-made index was ever acknowledged.
            for generation in found:
                shutil.rmtree(index_path(self.path, generation))
            self.generation = max(found, default=0) + 1
            self.index.mkdir()
            fsync_directory(self.path)
            return
        before = index_generation(self.path)
        self.generation = before + 1
        os.rename(index_path(self.path, before), self.index)
        # Else a power loss could hand out the same generation twice.
        fsync_directory(self.path)
        # An old owner may hold RocksDB's own lock for ever; ours is the rename.
        (self.index / "LOCK").unlink(missing_ok=True)


def remove_cell(path: Path, pools: Sequence[Path]) -> None:
    """Delete a cell that is not open: its pools, then its directory. EngineError."""
    try:
        for place in (*pools, path):
            if place.exists():
                shutil.rmtree(place)
                fsync_directory(place.parent)
    except OSError as failure:
        raise EngineError(f"{path} cannot be deleted: {failure}; see that it may be written") from failure


def check_new(path: Path) -> None:
    """EngineError where a directory without the file `cell` has an index: it is not new, but not whole."""
    if list_indexes(path):
        raise EngineError(f"{path / 'cell'} is missing beside an index; restore it from a copy of the directory")


def read_both(path: Path) -> tuple[CellFacts, str | None]:
    """The facts of a directory by `cell` or its copy, and what is wrong with the other one. Raises EngineError."""
    stored = choose_facts(path)
    return _parse_facts(stored.file, stored.text), stored.damage


def _parse_facts(file: Path, text: bytes) -> CellFacts:
    try:
        told = json.loads(text)
        written = told["format"]
        if not isinstance(written, int) or written <= FORMAT:
            facts = CellFacts(**told)
            _check_facts(facts)
            _check_format(file, facts)
            return replace(facts, pools=tuple(facts.pools))
    except (ValueError, KeyError, TypeError) as failure:
        raise EngineError(f"{file} cannot be read ({failure}); restore it from a copy") from failure
    raise EngineError(
        f"{file.parent} was written by a newer version (format {written}, this one reads up to {FORMAT});"
        " run that version"
    )


def _check_format(file: Path, facts: CellFacts) -> None:
    if facts.format < FORMAT_MIN:
        raise EngineError(
            f"{file.parent} is of format {facts.format}, this version reads {FORMAT_MIN} to {FORMAT}: start and stop"
            f" commit {_CARRIES_OVER} of pqbroker on it once, which carries it over, then this version again"
        )


def _check_facts(facts: CellFacts) -> None:
    """Facts as they came from JSON, where nothing tells a damaged byte. ValueError for what was never written."""
    pools: object = facts.pools
    are_sound = {
        "format": type(facts.format) is int and facts.format >= 1,
        "cell": isinstance(facts.cell, str),
        "pools": isinstance(pools, list) and all(isinstance(name, str) for name in pools),
        "durability": facts.durability in DURABILITIES,
        "ready": isinstance(facts.ready, bool),
    }
    for name, is_sound in are_sound.items():
        if not is_sound:
            raise ValueError(f"{name} is {getattr(facts, name)!r}")


def check_identity(path: Path, name: str, facts: CellFacts) -> bool:
    """Return True if `path` is marked as the cell's pool `name`. Raises EngineError when it is another's, or should be
    and is not."""
    file = path / _IDENTITY
    if file.exists():
        found = file.read_text("utf-8", "replace")
        if found != _identity(name, facts):
            raise EngineError(f"{path} is not pool {name} of this cell but {found.strip()!r}; choose another")
        return True
    if name in facts.pools:
        raise EngineError(f"pool {name} is not at {path}: {file.name} is missing; mount it, or restore it")
    return False


def index_generation(path: Path) -> int:
    """The generation of the one index that a cell's directory should have. Raises EngineError."""
    found = list_indexes(path)
    if len(found) != 1:
        names = ", ".join(f"{_INDEX}{generation}" for generation in found) or "none"
        raise EngineError(f"{path} should have one index and has {names}; restore the directory from a copy")
    return found[0]


def index_path(path: Path, generation: int) -> Path:
    return path / f"{_INDEX}{generation}"


def list_indexes(path: Path) -> list[int]:
    """Generations of the indexes in a cell's directory."""
    names = (name.removeprefix(_INDEX) for name in os.listdir(path) if name.startswith(_INDEX))
    return sorted(int(name) for name in names if name.isdecimal())


def _identity(name: str, facts: CellFacts) -> str:
    return f"pqbroker pool {name} of cell {facts.cell}\n"


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
    """Make a file's bytes durable. macOS leaves them in the drive's cache unless asked for more."""
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
