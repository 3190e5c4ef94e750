"""Libraries that no worker is to load: pyarrow and DuckDB look for pandas and use nothing of it here, and where it is
installed, that takes the first query 0.1 s and 60 MB."""

import sys
from collections.abc import Sequence
from typing import Any, Final

UNWANTED: Final = "pandas"


class _Refuser:
    """Finds no module, and has the search for an unwanted one end."""

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: Any = None) -> None:
        if name == UNWANTED:
            raise ModuleNotFoundError(f"{name} is not for workers", name=name)


def refuse_unwanted() -> None:
    """Have imports of unwanted libraries fail in this process."""
    sys.meta_path.insert(0, _Refuser())
