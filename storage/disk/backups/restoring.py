"""Makes a data directory of a backup, by copying: both stay independent of each other. The backup is not changed."""

import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

from pqbroker.conf.storage import MAIN_POOL
from pqbroker.storage.disk.backups.moment import pool_place
from pqbroker.storage.disk.directory import CELLS, fsync_directory, index_generation, index_path, read_both, sync_data
from pqbroker.storage.disk.mending.facts_copy import FACTS_COPY, FACTS_FILE, has_facts
from pqbroker.storage.disk.mending.salvage_mark import SALVAGED
from pqbroker.storage.engine import EngineError

_CHUNK_BYTES = 1 << 20
_MAIN = pool_place(MAIN_POOL)


def backup_pools(backup: Path) -> dict[str, Path]:
    """Return where the pools of a backup are, by name. Raises EngineError when the directory is no backup."""
    if not has_facts(backup):
        raise EngineError(f"{backup} is no backup: there is no file `cell`; check the path")
    return {name: backup / pool_place(name) for name in read_both(backup)[0].pools}


def restore(backup: Path, directory: Path, pools: Mapping[str, Path], advance: Callable[[int], None]) -> None:
    """Copy a backup to a directory that is new or empty. `pools`: where those go that are not in the directory.

    `advance` is called with the number of bytes of each piece. The files `cell.copy` and `cell` come last: without them
    no broker starts, so that a copy which ended early is not served. Raises EngineError, OSError.
    """
    origins = backup_pools(backup)
    places = _places(origins, directory, pools)
    for place in (directory, *places.values()):
        if place.exists() and (not place.is_dir() or any(place.iterdir())):
            raise EngineError(f"{place} is not empty: restore to a new directory, or empty this one")
    for place in _cells(backup):
        index = index_path(place, index_generation(place))
        _copy_tree(index, directory / index.relative_to(backup), advance)
    for place in _cells(backup)[1:]:
        _copy_tree(place / _MAIN, directory / (place / _MAIN).relative_to(backup), advance)
        _copy_facts(place, directory / place.relative_to(backup), advance)
        fsync_directory(directory / place.relative_to(backup))
    for name, origin in origins.items():
        _copy_tree(origin, places[name], advance)
    _copy_facts(backup, directory, advance)
    fsync_directory(directory)
    fsync_directory(directory.absolute().parent)


def _cells(backup: Path) -> list[Path]:
    """The directories of the cells in a backup, the system cell's first. Their parts of other pools are in these."""
    return [backup, *sorted(place.parent for place in backup.glob(f"{CELLS}/*/{FACTS_FILE}"))]


def _places(origins: Mapping[str, Path], directory: Path, pools: Mapping[str, Path]) -> dict[str, Path]:
    strange = [name for name in pools if name not in origins]
    if strange:
        raise EngineError(f"the backup has no pool {strange[0]}; it has {', '.join(origins)}")
    missing = [name for name in origins if name not in pools and name != MAIN_POOL]
    if missing:
        raise EngineError(f"the backup has pool {missing[0]}: say where it goes, with --pool {missing[0]}=DIR")
    return {name: pools.get(name, directory / pool_place(name)) for name in origins}


def _copy_facts(place: Path, target: Path, advance: Callable[[int], None]) -> None:
    for name in (SALVAGED, FACTS_COPY, FACTS_FILE):
        if (place / name).exists():
            _copy(place / name, target / name, advance)


def _copy_tree(origin: Path, target: Path, advance: Callable[[int], None]) -> None:
    for folder, _, names in os.walk(origin):
        place = target / Path(folder).relative_to(origin)
        place.mkdir(parents=True, exist_ok=True)
        for name in names:
            _copy(Path(folder, name), place / name, advance)
        fsync_directory(place)


def _copy(origin: Path, target: Path, advance: Callable[[int], None]) -> None:
    with origin.open("rb") as reader, target.open("xb") as writer:
        while chunk := reader.read(_CHUNK_BYTES):
            writer.write(chunk)
            advance(len(chunk))
        writer.flush()
        sync_data(writer.fileno())
    shutil.copymode(origin, target)
