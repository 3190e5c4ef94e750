"""Versions of each key in a history: who wrote them, in which order, and which one each read saw.

The order is partial: it has the commits' timestamps, and that a transaction writes behind what it has read.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence
from itertools import pairwise

from tests.histories.history import Access, Ending, Recorded

BEGINNING = -1
"""The writer of what stood there at the beginning: nothing."""


class Versions:
    """Versions by key; each is known by the number of its writer in the history."""

    def __init__(self, history: Sequence[Recorded]) -> None:
        self.history = history
        self.writers: dict[tuple[Hashable, int], int] = {}
        """The writing transaction by key and value; it may have failed."""
        self.seen_by: defaultdict[int, list[int]] = defaultdict(list)
        """Readers of each writer."""
        self._deleters: defaultdict[Hashable, list[int]] = defaultdict(list)
        self._learn_writers()
        self.committed = frozenset(
            number for number, one in enumerate(history) if one.ending is Ending.OK or self.seen_by[number]
        )
        self.known_at = {number: self._known_at(number) for number in self.committed}
        """Places in the order of the history at which somebody has seen the commit."""
        self.visible_from = {number: self._visible_from(number) for number in self.committed}
        """Timestamps from which on everybody sees the commit; None: nobody knows."""
        self._deleted: dict[Hashable, tuple[list[int], list[int]]] = {}
        self._learn_deletes()
        self.after: defaultdict[Hashable, defaultdict[int, set[int]]] = defaultdict(lambda: defaultdict(set))
        """Versions that are known to come later, by key and version; the next one is among them."""
        self._later: dict[tuple[Hashable, int], frozenset[int]] = {}
        self._order()

    def finals(self, number: int) -> dict[Hashable, int | None]:
        """Return the last value that a transaction wrote, by key."""
        return {write.key: write.value for write in self.history[number].writes}

    def reads(self, number: int) -> Iterator[tuple[Access, int]]:
        """Return the reads of a transaction, each with the version that it saw; without those that nobody can tell, and
        those of values that nobody, or somebody who failed, wrote."""
        for read in self.history[number].reads:
            version = self._version(read, self.history[number].start)
            if version is not None and (version == BEGINNING or version in self.committed):
                yield read, version

    def later(self, key: Hashable, version: int) -> frozenset[int]:
        """Return the versions of a key that are known to be later than one."""
        known = self._later.get((key, version))
        if known is not None:
            return known
        found: set[int] = set()
        left = list(self.after[key][version])
        while left:
            one = left.pop()
            if one not in found:
                found.add(one)
                left += self.after[key][one]
        self._later[key, version] = frozenset(found)
        return self._later[key, version]

    def _learn_writers(self) -> None:
        for number, one in enumerate(self.history):
            for write in one.writes:
                if write.value is None:
                    self._deleters[write.key].append(number)
                elif self.writers.setdefault((write.key, write.value), number) != number:
                    raise ValueError(f"{write.value} was written to {write.key} twice: no register of a history")
        for number, one in enumerate(self.history):
            for read in one.reads:
                if read.value is not None and (read.key, read.value) in self.writers:
                    writer = self.writers[read.key, read.value]
                    if self.history[writer].ending is not Ending.FAIL:
                        self.seen_by[writer].append(number)

    def _known_at(self, number: int) -> int:
        moments = [one.completed for one in (self.history[reader] for reader in self.seen_by[number])]
        if self.history[number].ending is Ending.OK:
            moments.append(self.history[number].completed)
        return min(moments)

    def _visible_from(self, number: int) -> int | None:
        if (commit := self.history[number].commit) is not None:
            return commit
        starts = [self.history[reader].start for reader in self.seen_by[number]]
        return min((start for start in starts if start is not None), default=None)

    def _learn_deletes(self) -> None:
        """Sort the deletes of each key by their timestamps; a key with one that may be committed at any has none."""
        for key, deleters in self._deleters.items():
            if any(self._is_anywhen(number) for number in deleters):
                continue
            dated = sorted(
                (commit, number) for number in deleters
                if number in self.committed and (commit := self.history[number].commit) is not None
            )  # fmt: skip
            self._deleted[key] = [at for at, _ in dated], [number for _, number in dated]

    def _is_anywhen(self, number: int) -> bool:
        one = self.history[number]
        return one.ending is not Ending.FAIL and one.commit is None

    def _version(self, read: Access, start: int | None) -> int | None:
        """Return the version that a read saw. A row that is not there is of the last delete before."""
        if read.value is not None:
            return self.writers.get((read.key, read.value))
        if read.key not in self._deleters:
            return BEGINNING
        if read.key not in self._deleted:
            return None
        stamps, numbers = self._deleted[read.key]
        place = len(stamps) if start is None else bisect_right(stamps, start)
        return numbers[place - 1] if place else BEGINNING

    def _order(self) -> None:
        written: defaultdict[Hashable, list[int]] = defaultdict(list)
        for number in sorted(self.committed):
            for key in self.finals(number):
                written[key].append(number)
        for key, numbers in written.items():
            dated = [(commit, one) for one in numbers if (commit := self.history[one].commit) is not None]
            for before, after in pairwise([BEGINNING, *(number for _, number in sorted(dated))]):
                self.after[key][before].add(after)
            self.after[key][BEGINNING].update(numbers)
        for number in self.committed:
            finals = self.finals(number)
            for read, version in self.reads(number):
                if read.key in finals and version != number:
                    self.after[read.key][version].add(number)
