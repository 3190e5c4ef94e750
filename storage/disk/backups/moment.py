"""The end of one round in an open cell: which files hold it, and up to which byte. The commit thread takes it.

Between two rounds index, commit log and segments agree. Files only grow behind the bytes that are named here, and none
is removed while the cell is held, so that they can be copied while later rounds are written.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pqbroker.storage.disk.commits.commit_log import COMMITS
from pqbroker.storage.disk.committer import OpenCell


@dataclass(frozen=True, slots=True)
class CellFile:
    """A file of the cell, and where its copy goes."""

    origin: Path
    target: Path
    size: int | None = None
    """Bytes of a growing file that belong to the moment; None: nothing is written to the file any more."""


@dataclass(frozen=True, slots=True)
class Moment:
    """The state after commit round `number`."""

    number: int
    files: tuple[CellFile, ...]


def hold(cell: OpenCell) -> None:
    """Remove no log file and no segment until `let_go`."""
    cell.writer.is_held = True


def let_go(cell: OpenCell) -> None:
    """Remove again what is dead."""
    cell.writer.is_held = False


def take_moment(cell: OpenCell, index: Path, pools: Mapping[str, Path]) -> Moment:
    """The moment between two rounds, of a cell that is held. `index`, `pools`: where their copies go."""
    assert cell.log is not None, "a cell that is open for reading only is not copied"
    files = [CellFile(path, index / COMMITS / path.name, size) for path, size in cell.log.parts()]
    for pool in cell.pools:
        for segment in (*pool.segments.values(), *pool.emptied):
            path = pool.path_of(segment)
            # Emptied ones too: rows of later start may stand there and nowhere else.
            size = segment.end if pool.is_growing(segment) else None
            files.append(CellFile(path, pools[pool.name] / path.name, size))
    return Moment(cell.writer.number, tuple(files))


def pool_place(pool: str) -> Path:
    """Return where a pool's segments are, below a backup."""
    return Path("blobs") if pool == "main" else Path("pools", pool)
