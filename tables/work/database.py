"""DuckDB in memory, with access to nothing else: no file, no extension, no variable of this process."""

from collections.abc import Mapping
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


def connect(memory_bytes: int) -> Any:
    """Return a connection to an empty database of its own."""
    return duckdb.connect(":memory:", config={**_SETTINGS, "memory_limit": f"{memory_bytes}B"})
