"""Room that a killed owner had taken beforehand, behind the ends of its log and segments.

It is given back as holes: a file keeps its size and every byte that is read from it, so that what tells a torn round
from a damaged one sees what it would have seen. Nothing is to be written to these files again.
"""

import mmap
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

_BLOCK_BYTES = 1 << 16
_STAT_BLOCK_BYTES = 512


def spare_bytes(files: Iterable[Path]) -> int:
    """Return how many bytes `give_back` would free, changing nothing. OSError."""
    return sum(spare for _, spare in map(_spare_of, files))


def give_back(files: Iterable[Path]) -> None:
    """Free the room behind the ends of files whose owner is fenced: one that still writes could lose a round. OSError.

    Where the file system knows no holes, the room stays taken.
    """
    for path in files:
        start, spare = _spare_of(path)
        if spare and hasattr(mmap, "MADV_REMOVE"):
            with suppress(OSError):
                _punch(path, start)


def _punch(path: Path, start: int) -> None:
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
        mapped.madvise(mmap.MADV_REMOVE, start, len(mapped) - start)


def _spare_of(path: Path) -> tuple[int, int]:
    """Return the page at which the zeros at the end of a file begin, and how many bytes are taken for them."""
    with path.open("rb") as file:
        status = os.fstat(file.fileno())
        end = status.st_size
        while end and not _any_set(os.pread(file.fileno(), *_block_before(end))):
            end = _block_before(end)[1]
    start = -(-end // mmap.PAGESIZE) * mmap.PAGESIZE
    taken = status.st_blocks * _STAT_BLOCK_BYTES - start
    return start, max(0, min(status.st_size - start, taken))


def _block_before(end: int) -> tuple[int, int]:
    """Return size and position of the block that ends at `end`."""
    position = (end - 1) // _BLOCK_BYTES * _BLOCK_BYTES
    return end - position, position


def _any_set(block: bytes) -> bool:
    """Return True if a byte is not zero."""
    return block.count(0) < len(block)
