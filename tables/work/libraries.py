"""Libraries that workers need; whether they are installed is asked without loading them."""

from functools import cache
from importlib.util import find_spec
from typing import Final

from pqbroker.tables.refusals import TableError

MERGE_LIBRARIES: Final = ("numpy", "pyarrow")
"""Libraries that flush and compact."""


@cache
def missing_libraries() -> tuple[str, ...]:
    """Return those of `MERGE_LIBRARIES` that are not installed."""
    return tuple(name for name in MERGE_LIBRARIES if find_spec(name) is None)


def check_libraries() -> None:
    """TableError TABLES_NOT_INSTALLED unless rows of sorted tables can be flushed."""
    missing = missing_libraries()
    if missing:
        text = f"sorted tables need {' and '.join(missing)} to flush rows, and it is not installed; rows are read only"
        cure = f"Install it beside the broker, and start that again: pip install {' '.join(MERGE_LIBRARIES)}."
        raise TableError("TABLES_NOT_INSTALLED", text, cure)
