"""Rows of a request as record batches, whatever form they came in."""

from collections.abc import Sequence
from typing import NamedTuple


class TabletRows(NamedTuple):
    """The rows for one tablet; `tablet_index` None: for any mounted one."""

    tablet_index: int | None
    row_count: int
    batch: memoryview


class EncodedRows(NamedTuple):
    """All rows of a request, and what they weigh."""

    tablets: Sequence[TabletRows]
    weight: int
