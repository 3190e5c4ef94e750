"""Columns of the rows of a replay's first file, read without Spark; none where the values are no rows."""

import json
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from pqbroker.pipeline.relays.files import LINES
from pqbroker.pipeline.relays.lines import read_line

_LINE_BYTES_MAX = 1 << 20
_VALUE = "value"


def first_columns(file: Path) -> Collection[str]:
    """Return the names of columns that values made of a file have; empty where the file does not tell."""
    return _of_line(file) if file.suffix in LINES else _of_parquet(file)


def _of_line(file: Path) -> Collection[str]:
    with file.open("rb") as lines:
        first = lines.readline(_LINE_BYTES_MAX)
    with suppress(ValueError, RecursionError):
        value = json.loads(read_line(first.decode()).value or b"null")
        if isinstance(value, dict):
            return list(value)
    return ()


def _of_parquet(file: Path) -> Collection[str]:
    try:
        from pyarrow import ArrowException, parquet, types
    except ImportError:  # Spark reads the file without it, and says later what is wrong
        return ()
    try:
        schema = parquet.read_schema(file)
    except (ArrowException, OSError):
        return ()
    if _VALUE not in schema.names:
        return list(schema.names)
    kind = schema.field(_VALUE).type
    return [field.name for field in kind] if types.is_struct(kind) else ()
