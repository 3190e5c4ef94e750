"""Leader epochs of a partition: which tablet generation wrote from which offset on (OffsetForLeaderEpoch, key 23).

The current generation is known from its start; it is stored with the first batch it writes, so that starts alone cost
nothing.
"""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise


def check_epochs(entries: Sequence[tuple[int, int]], generation: int, end_offset: int) -> None:
    """ValueError for stored entries that no instance up to `generation` can have left."""
    if any(later[0] <= earlier[0] or later[1] < earlier[1] for earlier, later in pairwise(entries)):
        raise ValueError(f"its leader epochs do not ascend: {entries}")
    if entries and (min(entries[0]) < 0 or entries[-1][0] > generation or entries[-1][1] > end_offset):
        text = f"its leader epochs (epoch, first offset) are {entries}"
        raise ValueError(f"{text}, in generation {generation} of its tablet, with its end at {end_offset}")


class Epochs:
    """Entries (epoch, start offset), both ascending; the last is the current generation's. Those that are given have
    passed `check_epochs`."""

    __slots__ = ("entries", "is_stored")

    def __init__(self, entries: list[tuple[int, int]], generation: int, end_offset: int) -> None:
        self.is_stored = bool(entries) and entries[-1][0] == generation
        """True once the current generation has written. It has written at its start if a restart of the tablet was
        refused."""
        if self.is_stored:
            self.entries = list(entries)
        else:
            self.entries = [*(entry for entry in entries if entry[1] < end_offset), (generation, end_offset)]

    def to_store(self) -> list[tuple[int, int]]:
        """The entries that the meta row stores."""
        return self.entries if self.is_stored else self.entries[:-1]

    def trim(self, start_offset: int) -> None:
        """Forget epochs that ended at or before the log's start; the first one left begins there."""
        entries = self.entries
        first = max(bisect_right(entries, start_offset, key=lambda entry: entry[1]) - 1, 0)
        del entries[:first]
        if entries[0][1] < start_offset:
            entries[0] = (entries[0][0], start_offset)

    def epoch_at(self, offset: int) -> int:
        """The epoch that wrote `offset`; the first known one for an earlier offset."""
        return self.entries[max(bisect_right(self.entries, offset, key=lambda entry: entry[1]) - 1, 0)][0]

    def end_of(self, epoch: int, end_offset: int) -> tuple[int, int]:
        """The largest known epoch <= `epoch` and where it ended (clients 4.29); (-1, -1) for a later one than the
        current.

        An epoch before all known ones ends where the first known one begins, as in Kafka.
        """
        entries = self.entries
        if epoch < 0 or epoch > entries[-1][0]:
            return -1, -1
        above = bisect_right(entries, epoch, key=lambda entry: entry[0])
        if above == 0:
            return epoch, entries[0][1]
        return entries[above - 1][0], entries[above][1] if above < len(entries) else end_offset
