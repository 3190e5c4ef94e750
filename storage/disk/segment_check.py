"""A start's check of segments: load their counts, see that the index lost no commit, find what nothing names."""

import contextlib
import logging
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from pqbroker.storage.disk import index_rows
from pqbroker.storage.disk.pools import Pool, Segment
from pqbroker.storage.disk.segments import UNSYNCED, parse_segment_name, segment_name, walk
from pqbroker.storage.engine import EngineError, LogDamaged

_log = logging.getLogger(__name__)
P = TypeVar("P")


@dataclass(frozen=True, slots=True)
class Leftovers:
    """Remains of a crash in the pools, which no row names."""

    tails: tuple[tuple[Path, int], ...]
    """Segments, and where their last record ends."""
    orphans: tuple[Path, ...]

    def remove(self) -> None:
        """Give their room back: once all rows that a start reads were read."""
        for path, end in self.tails:
            _cut_tail(path, end)
        for path in self.orphans:
            path.unlink(missing_ok=True)


NO_LEFTOVERS = Leftovers((), ())


def segment_tails(pools: Mapping[str, Path], rows: Iterable[tuple[bytes, bytes]]) -> list[tuple[Path, int]]:
    """Every segment file, and where its records end of which the index knows. Raises EngineError."""
    known: dict[Path, int] = {}
    for key, row in rows:
        name, generation, sequence, end, _ = index_rows.parse_segment(key, row)
        known[_pool_of(name, pools) / segment_name(generation, sequence)] = end
    files = [path for pool in pools.values() for path in sorted(pool.iterdir()) if parse_segment_name(path.name)]
    return [(path, known.get(path, 0)) for path in files]


def load_segments(pools: Mapping[str, Pool], rows: Iterable[tuple[bytes, bytes]], last_number: int) -> Leftovers:
    """Fill the pools from the segments' rows; nothing is changed on disk.

    Raises EngineError when a segment knows of a commit that the index lost. The round in work at a crash may have left
    its payload behind: commit `last_number + 1` and no later one, since a round's payload is written only after the
    round before it was synced.
    """
    for key, row in rows:
        name, generation, sequence, end, live = index_rows.parse_segment(key, row)
        _pool_of(name, pools).add(Segment(generation, sequence, end, live, durable_end=end, durable_live=live))
    tails: list[tuple[Path, int]] = []
    orphans: list[Path] = []
    for pool in pools.values():
        tails += [(pool.path_of(segment), segment.end) for segment in pool.segments.values()]
        orphans += pool.orphans()
    for path, end in (*tails, *((path, 0) for path in orphans)):
        check_tail(path, end, last_number)
    return Leftovers(tuple(tails), tuple(orphans))


def _pool_of(name: str, pools: Mapping[str, P]) -> P:
    if name not in pools:
        raise EngineError(f"the index has a segment in pool {name!r}, which is not set; restore a copy")
    return pools[name]


def _cut_tail(path: Path, end: int) -> None:
    """Give back what lies behind a segment's last record."""
    with contextlib.suppress(FileNotFoundError):
        if path.stat().st_size > end:
            os.truncate(path, end)


def check_tail(path: Path, end: int, last_number: int) -> None:
    """Look at the records behind those that the index knows of. Raises EngineError when one is of a lost commit."""
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        size = 0
    if size < end:
        _log.error("%s has %d of its %d bytes; the blobs in the rest cannot be read", path, size, end)
    if size <= end:
        return
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        for position, header in walk(file, end):
            if header.commit > last_number + 1 and not header.flags & UNSYNCED:
                raise LogDamaged(
                    f"{path} has a blob of commit {header.commit} at byte {position}, but the index ends at commit"
                    f" {last_number}: acknowledged rows are lost"
                )
    finally:
        os.close(file)
