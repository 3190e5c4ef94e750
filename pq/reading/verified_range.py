"""A range of a body that is verified where it lies, ahead of a sequential reader, and sent from there (sendfile).

Its batches are not in memory, so that it can only be cut where the body's index has an entry, about every 32 KiB.
"""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

from pqbroker.pq.log.body import BodyIndex
from pqbroker.storage.engine import Buffer, FileRange


class VerifiedRange:
    """The batches [begin, end) by offset, from the position of the first in the body on. `verified_s`: loop time."""

    __slots__ = ("_index", "_pieces", "_position", "_starts", "begin", "end", "verified_s")

    def __init__(
        self,
        index: BodyIndex,
        offsets: tuple[int, int],
        position: int,
        pieces: Sequence[Buffer | FileRange],
        verified_s: float,
    ) -> None:
        """`offsets`: begin and end; the batch at `position` holds the first, or follows the hole there."""
        self._index = index
        self._position = position
        self._pieces = pieces
        self._starts = list(accumulate(map(_size, pieces), initial=position))
        self.begin, self.end = offsets
        self.verified_s = verified_s

    def read(self, offset: int, bytes_max: int) -> tuple[list[Buffer | FileRange], int, int] | None:
        """Batches from `offset` on: pieces, their bytes, the offset behind them; None when they cannot be cut so."""
        index = self._index
        if offset == self.begin:
            start = self._position
        else:
            entry = index.entry_of(offset)
            start = index.positions[entry]
            if index.offsets[entry] != offset or start < self._position:
                return None
        stop, following = self._starts[-1], self.end
        if start + bytes_max < stop:
            entry = bisect_right(index.positions, start + bytes_max) - 1
            stop, following = index.positions[entry], index.offsets[entry]
        if stop <= start:
            return None
        return self._between(start, stop), stop - start, following

    def _between(self, start: int, stop: int) -> list[Buffer | FileRange]:
        starts = self._starts
        found: list[Buffer | FileRange] = []
        at = bisect_right(starts, start) - 1
        while start < stop:
            begin, end = starts[at], min(starts[at + 1], stop)
            piece = self._pieces[at]
            if end - start == starts[at + 1] - begin:
                found.append(piece)
            elif isinstance(piece, FileRange):
                found.append(piece.cut(start - begin, end - begin))
            else:
                found.append(memoryview(piece)[start - begin : end - begin])
            start = end
            at += 1
        return found


def _size(piece: Buffer | FileRange) -> int:
    return piece.size if isinstance(piece, FileRange) else len(piece)
