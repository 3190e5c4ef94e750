"""The number of files that a batch is written to, so that they come near a size; nothing is written here."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

Offsets = Mapping[str, Mapping[str, int]]
"""Topic -> partition -> offset, in the form of Spark's JSON."""

_UNKNOWN_ROW_BYTES = 100.0
"""Bytes of a row on disk before one was seen."""


@dataclass(frozen=True, slots=True)
class Files:
    """Files of a batch: their count, and the most rows of one."""

    count: int
    rows_max: int


def plan_files(rows: int, row_bytes: float | None, file_bytes: int) -> Files:
    """Files of about `file_bytes` for the rows of a batch, of the size that rows had before."""
    rows_max = max(1, int(file_bytes / (row_bytes or _UNKNOWN_ROW_BYTES)))
    return Files(max(1, math.ceil(rows / rows_max)), rows_max)


def rows_between(before: Offsets, until: Offsets) -> int:
    """Offsets passed, over all partitions; one that was not there before begins at 0."""
    return sum(
        max(0, offset - before.get(topic, {}).get(number, 0))
        for topic, offsets in until.items()
        for number, offset in offsets.items()
    )
