"""Names of local files in SQL on the broker's side, and their list; workers open them. A topic or table of the same
name comes first, so that a file takes no name away.

Read on the topic of the relation's name, `files.NAME`, allows a file: rules can name one file or a prefix, and a
user who may read every topic may read every file of the directory.
"""

import os
import stat
from collections.abc import Sequence
from itertools import islice
from typing import Any

from pqbroker.conf.broker import BrokerSettings
from pqbroker.tables.local_files import file_of, is_file_name, relation_of


def place_of(relation: str, settings: BrokerSettings) -> dict[str, Any] | None:
    """Return the file that a relation's name means, as a worker opens it; None: it means none."""
    name = file_of(relation) if settings.sql_files_directory else None
    if name is None:
        return None
    return {
        "directory": settings.sql_files_directory, "name": name, "bytes_max": settings.sql_files_bytes_max,
        "columns_max": settings.table_columns_max,
    }  # fmt: skip


def missing_file(relation: str, settings: BrokerSettings) -> str:
    """Return a hint for a relation that was not found, and is named like a file; empty for others."""
    if settings.sql_files_directory or file_of(relation) is None:
        return ""
    return (
        ", no such file came with the query (`pqbroker sql --upload FILE`), and pqbroker.sql.files.directory, which "
        "holds local files, is not set"
    )


def without_missing(names: Sequence[str], settings: BrokerSettings) -> Sequence[str]:
    """Return the names but for those of files that do not exist; it waits for a disk. Others are not looked at."""
    places = {name: place for name in names if (place := place_of(name, settings)) is not None}
    missing = {name for name, place in places.items() if not _is_file(os.path.join(place["directory"], place["name"]))}
    return [name for name in names if name not in missing]


def list_files(settings: BrokerSettings) -> Sequence[str]:
    """Return the relations of the files in the directory; it waits for a disk. None where the directory cannot be read:
    a query that names a file says why."""
    if not settings.sql_files_directory:
        return ()
    try:
        with os.scandir(settings.sql_files_directory) as entries:
            return [
                relation_of(entry.name) for entry in islice(entries, settings.sql_files_max)
                if is_file_name(entry.name) and entry.is_file(follow_symlinks=False)
            ]  # fmt: skip
    except OSError:
        return ()


def _is_file(path: str) -> bool:
    try:
        return stat.S_ISREG(os.lstat(path).st_mode)
    except OSError:
        return False
