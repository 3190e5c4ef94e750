"""DuckDB in memory, with access to nothing else: no file, no extension, no variable of this process."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

import duckdb

_SETTINGS: Final[Mapping[str, Any]] = {
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "enable_external_access": False,
    "python_enable_replacements": False,
    "temp_directory": "",  # what does not fit is refused: nothing is written beside the broker's data
    "threads": 1,
}

LOCK: Final = "SET lock_configuration = true"


def open_for_query(memory_bytes: int) -> Any:
    """Return a connection for one query: nothing that it makes or registers is seen by another. The database is opened
    once, which takes 15 ms."""
    return _locked(memory_bytes).cursor()


def forget_database() -> None:
    """Have the next query open another database: DuckDB answers nothing after an error of its own."""
    _locked.cache_clear()


@lru_cache(maxsize=1)
def _locked(memory_bytes: int) -> Any:
    database = connect(memory_bytes)
    database.execute(LOCK)
    return database


def connect(memory_bytes: int) -> Any:
    """Return a connection to an empty database of its own."""
    return duckdb.connect(":memory:", config={**_SETTINGS, "memory_limit": f"{memory_bytes}B"})
