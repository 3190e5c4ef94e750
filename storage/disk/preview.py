"""Looks at a stopped cell before a start changes it: a cell that no start can serve is refused, and stays as it is.

It is not certain that the start finds the cell as it was here: what counts is looked at again. Where an owner whose
lock was removed writes meanwhile, index and segments are seen at different times: what that looks like is no reason to
refuse.
"""

import asyncio
import logging
import os
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path

from pqbroker.storage.disk import index_rows
from pqbroker.storage.disk.commits.commit_log import COMMITS
from pqbroker.storage.disk.directory import check_identity, index_generation, index_path, read_both
from pqbroker.storage.disk.manifest_check import is_damaged
from pqbroker.storage.disk.mending.facts_copy import has_facts
from pqbroker.storage.disk.mending.manifest_copy import find_mended
from pqbroker.storage.disk.offline import InUse, OfflineCell, held, reading_shard
from pqbroker.storage.disk.pools import Pool, PoolLimits
from pqbroker.storage.disk.segment_check import load_segments
from pqbroker.storage.engine import EngineError, IndexDamaged, Shard
from pqbroker.storage.quarantine import Quarantine
from pqbroker.storage.unreadable import StoredUnreadable

_log = logging.getLogger(__name__)
StartCheck = Callable[[Shard], Awaitable[None]]
"""Looks at what tablets have stored, through a shard that takes no commit. EngineError, StoredUnreadable."""


async def preview(path: Path, pools: Mapping[str, Path], check: StartCheck) -> None:
    """Raises EngineError, with file, cause and cure, when the cell in a directory cannot be served at all.

    `pools`: directories of all pools. Changes nothing. What a start says better is left to it: that the directory is
    new, in use, or lacks a pool; and where nothing can be looked at, as on a full disk, it starts without.
    """
    if not has_facts(path):
        return
    try:
        with held(path), tempfile.TemporaryDirectory(prefix="pqbroker-index-") as staging:
            cell = _stopped_cell(path, pools)
            if cell is not None:
                await _look_at_unchanged(cell, Path(staging), check)
    except IndexDamaged:
        raise
    except InUse:
        return
    except OSError as failure:
        _log.info("%s is opened without being checked first: %s", path, failure)


def _stopped_cell(path: Path, pools: Mapping[str, Path]) -> OfflineCell | None:
    """Return the cell; None for a directory that only the start can judge."""
    facts, _ = read_both(path)
    if not facts.ready or not pools.keys() >= set(facts.pools):
        return None
    for pool in facts.pools:
        check_identity(pools[pool], pool, facts)
    return OfflineCell(path, facts, index_generation(path), {pool: pools[pool] for pool in facts.pools})


def _files(cell: OfflineCell) -> set[tuple[str, int, int]]:
    """Path, size and time of the last change of every file that the look reads."""
    found: set[tuple[str, int, int]] = set()
    index = index_path(cell.path, cell.generation)
    for directory in (index, index / COMMITS, *cell.pools.values()):
        with suppress(FileNotFoundError):
            for file in os.scandir(directory):
                status = file.stat()
                found.add((file.path, status.st_size, status.st_mtime_ns))
    return found


async def _look_at_unchanged(cell: OfflineCell, staging: Path, check: StartCheck) -> None:
    """Look at the cell, and accept the result only if no process wrote to it meanwhile. EngineError."""
    before = _files(cell)
    try:
        await _look(cell, staging, check)
    except EngineError:
        if _files(cell) == before:
            raise
        _log.warning("%s is opened without being checked first: another process writes to it", cell.path)


async def _look(cell: OfflineCell, staging: Path, check: StartCheck) -> None:
    index = index_path(cell.path, cell.generation)
    for manifest in index.glob("MANIFEST-*") if find_mended(index) is None else ():
        if is_damaged(manifest.read_bytes()):
            raise IndexDamaged(f"the index is damaged: {manifest} has an entry that cannot be read")
    try:
        cell.open(staging)
    except IndexDamaged:
        raise
    except EngineError as failure:  # it does not say that anything is damaged
        _log.info("%s is opened without being checked first: %s", cell.path, failure)
        return
    shard = reading_shard(cell)
    try:
        _check_segments(cell)
        await check(shard)
    except IndexDamaged:
        raise
    except (EngineError, StoredUnreadable) as cause:
        raise EngineError(f"{cell.path} cannot be opened: {cause}") from cause
    finally:
        shard.quarantine.end()  # what would collect garbage is refused, and ends
        await asyncio.sleep(0)
        cell.close()


def _check_segments(cell: OfflineCell) -> None:
    """Check that no acknowledged data is known to be lost. EngineError."""
    last_number = index_rows.last_number(cell.get(index_rows.number_keys()))
    limits = PoolLimits(segment_bytes=0, dead_percent=100, statvfs=os.statvfs)
    pools = {
        name: Pool(name, place, cell.generation + 1, Quarantine(), limits) for name, place in cell.pools.items()
    }
    load_segments(pools, cell.rows(*index_rows.SEGMENT_ROWS), last_number)
