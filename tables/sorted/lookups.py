"""Values of a row at a timestamp, of its versions (C.1)."""

from collections.abc import Iterable, Sequence
from typing import Any

from pqbroker.tables.sorted.packed_rows import ABSENT, KIND_AT, Kind, RowForm, timestamp_of


def visible(form: RowForm, versions: Iterable[bytes], timestamp: int) -> Sequence[Any] | None:
    """Return the values that a read at `timestamp` sees, of versions from the newest to the oldest; None: there is no
    row. ValueError for bytes that are no version."""
    values: list[Any] | None = None
    for version in versions:
        if timestamp_of(version) > timestamp:
            continue
        kind = version[KIND_AT]
        if kind == Kind.DELETE:
            break
        found = form.values(version)
        if values is None:
            values = found
        else:
            values = [older if value is ABSENT else value for value, older in zip(values, found, strict=True)]
        if kind == Kind.WRITE or ABSENT not in values:
            break
    if values is None:
        return None
    return [None if value is ABSENT else value for value in values]
