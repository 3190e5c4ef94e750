"""Levels of the head (semantics A.6): how many of the newest head blobs a new one is merged with. Numbers only, no
data.

level   border    a blob stays on a level while the level's sum is below its border,
0       32 B      else all blobs of the level become one, which goes to the next level
1       2 KiB
2       128 KiB
3       8 MiB     the head as a whole stays below this: LowWatermark closes it earlier
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

MIB = 1 << 20
HEAD_BLOB_BYTES_MAX = 8 * MIB
BORDERS = (32, 2048, 131_072, HEAD_BLOB_BYTES_MAX)
HEAD_KEYS_MAX = 256


class Placement(NamedTuple):
    """The place of a new blob: merged with the newest `merged` head blobs, the result on `level`."""

    merged: int
    level: int


class Levels:
    """Sums and counts per level. The head's blobs, oldest first, lie on descending levels."""

    __slots__ = ("counts", "sums")

    def __init__(self, sizes: Iterable[int] = ()) -> None:
        self.sums = [0] * len(BORDERS)
        self.counts = [0] * len(BORDERS)
        for size in sizes:
            level = level_of(size)
            self.sums[level] += size
            self.counts[level] += 1

    def place(self, size: int) -> Placement:
        """Return the place that a blob of `size` bytes would have; nothing changes. A larger blob merges at least as
        much."""
        merged = 0
        sums = self.sums
        for level, border in enumerate(BORDERS):
            total = sums[level] + size
            if total < border:
                return Placement(merged, level)
            merged += self.counts[level]
            size = total
        raise AssertionError("a head of 8 MiB must have been closed")

    def add(self, placement: Placement, size: int) -> None:
        """Record the blob that `place` placed; `size` is that of the merged result."""
        for level in range(placement.level):
            self.sums[level] = self.counts[level] = 0
        self.sums[placement.level] += size
        self.counts[placement.level] += 1


def level_of(size: int) -> int:
    """The level a stored head blob of `size` bytes is on: the first whose border exceeds it."""
    for level, border in enumerate(BORDERS):
        if size < border:
            return level
    raise AssertionError(f"a head blob of {size} bytes")


def check_levels(sizes: Sequence[int]) -> None:
    """Assert the invariants of A.2 and K.1 over head blob sizes, oldest first."""
    levels = Levels(sizes)
    assert len(sizes) <= HEAD_KEYS_MAX
    assert sum(sizes) < HEAD_BLOB_BYTES_MAX
    assert all(total < border for total, border in zip(levels.sums, BORDERS, strict=True)), levels.sums
    on = [level_of(size) for size in sizes]
    assert on == sorted(on, reverse=True), on
